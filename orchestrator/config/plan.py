"""Plan files: what is to be measured, on which devices, how often. ``docs/reference/plans.md`` describes the format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.config.faults import Faults, Section, Source, checked
from orchestrator.config.model_manifest import named_models
from orchestrator.config.plan_sections import FOLDER, NAMED, ModelSection, PlanSection
from orchestrator.config.yaml_file import parse_yaml, read_yaml
from orchestrator.records.model import ManifestEntry
from orchestrator.records.plan import (
    DelegateChoice,
    DeviceSelection,
    FitLimits,
    Matrix,
    Plan,
    PlanModel,
    Quiet,
    RunSettings,
    StoppingRule,
)
from orchestrator.records.workload import DelegateName, ToolName

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_RecordT = TypeVar("_RecordT", bound="DataclassInstance")

__all__ = ["PlanSection", "load_plan", "parse_plan", "plan_json_schema", "to_plan"]


def load_plan(path: Path, *, home: Path | None = None) -> Plan:
    """Read a plan file; paths in it start from its folder.

    A model may also be named as ``models.yaml`` beside the plan, or in ``home``, names it; its content must then be
    what the manifest says.

    Raises:
        PlanError: with one line for each fault: ``file:line:column: key: what is wrong``.
    """
    file = read_yaml(path)
    return to_plan(file, text=file.text, folder=path.absolute().parent, default_name=path.stem, home=home)


def parse_plan(text: str, *, folder: Path, label: str = "plan") -> Plan:
    """Read a plan from its text, for example one that a campaign kept; raises PlanError as :func:`load_plan` does."""
    return to_plan(parse_yaml(text, label=label), text=text, folder=folder, default_name=label)


def plan_json_schema() -> dict[str, Any]:
    """Return the JSON schema of plan files, for editors that check while one types."""
    schema = PlanSection.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "benchfarm plan"}


def to_plan(source: Source, *, text: str, folder: Path, default_name: str, home: Path | None = None) -> Plan:
    """Return the plan that a source's values mean; raises PlanError with all their faults."""
    named = named_models([folder, *([home] if home is not None else [])])
    section = checked(source, PlanSection, context={FOLDER: folder, NAMED: named})
    faults = Faults(source)
    models = _models_of(section.models, faults, _pins_of(source.value.get("models"), named))
    builds = {tool: _build_path(tool, value, folder, faults) for tool, value in section.builds.items()}
    flags = [_with_files(values, folder, number, faults) for number, values in enumerate(section.matrix.flags)]
    parity_inputs = _input_folder(section.parity_inputs, folder, faults)
    faults.raise_if_any()
    return _filled(
        Plan,
        section,
        name=section.name or default_name,
        models=models,
        matrix=_filled(
            Matrix,
            section.matrix,
            delegates=tuple(word for word in section.matrix.delegates if isinstance(word, DelegateName)),
            choice=next((word for word in section.matrix.delegates if isinstance(word, DelegateChoice)), None),
            flags=tuple(dict.fromkeys(tuple(sorted(values.items())) for values in flags)),
        ),
        devices=_filled(
            DeviceSelection,
            section.devices,
            one_of_each=section.devices.one_of_each or "",
            most=section.devices.any,
        ),
        settings=_filled(RunSettings, section.settings),
        limits=_filled(
            FitLimits,
            section.limits,
            battery_percent_min=round(section.limits.battery_min),
            battery_heat_c_max=section.limits.battery_heat_max,
        ),
        invocations=section.invocations.first,
        stopping=_stopping(section),
        quiet=_filled(Quiet, section.quiet),
        may_reboot=section.reboot,
        parity_inputs=parity_inputs,
        builds=builds,
        text=text,
        folder=folder.absolute(),
    )


def _filled(kind: type[_RecordT], section: Section, **given: object) -> _RecordT:
    """Return a record of what is given and of a section's values of the same names; times are in seconds, ``_s``."""
    names = {item.name for item in fields(kind)}
    for key, value in section:
        name = key if key in names else f"{key}_s"
        if name in names:
            given.setdefault(name, value)
    return kind(**given)


def _input_folder(value: str | None, folder: Path, faults: Faults) -> Path | None:
    if value is None:
        return None
    path = (folder / Path(value).expanduser()).resolve()
    if not path.is_dir():
        faults.add(("parity_inputs",), f"{path} is no folder")
    return path


def _stopping(section: PlanSection) -> StoppingRule | None:
    count = section.invocations
    if count.first == count.most:
        return None
    return StoppingRule(first=count.first, half_width=section.precision / 100, most=count.most)


def _build_path(tool: ToolName, value: str, folder: Path, faults: Faults) -> str:
    """Return a build's name as it is, and a file's path made absolute; what has a slash is a path."""
    if "/" not in value:
        return value
    path = folder / Path(value).expanduser()
    if not path.is_file():
        faults.add(("builds", tool.value), f"there is no file {str(path)!r}")
    return str(path)


def _with_files(flags: dict[str, str], folder: Path, number: int, faults: Faults) -> dict[str, str]:
    """Return flags with the path of each value ``@path``, a file of this computer, made absolute."""
    found = dict(flags)
    for name, value in flags.items():
        if value.startswith("@"):
            path = folder / Path(value[1:]).expanduser()
            if not path.is_file():
                faults.add(("matrix", "flags", number, name), f"there is no file {str(path)!r}")
            found[name] = f"@{path.absolute()}"
    return found


def _pins_of(written: object, named: Mapping[str, ManifestEntry]) -> Mapping[Path, str]:
    """Return the sha256 of the files that a plan names by a manifest's name and not by their path."""
    values = written if isinstance(written, list) else [written]
    names = [value.get("path") if isinstance(value, dict) else value for value in values]
    return {named[name].path.resolve(): named[name].sha256 for name in names if isinstance(name, str) and name in named}


def _models_of(sections: Iterable[ModelSection], faults: Faults, pins: Mapping[Path, str]) -> tuple[PlanModel, ...]:
    """Return each file once; two files can't have one name, as reports and people tell them by it."""
    models: dict[Path, PlanModel] = {}
    by_name: dict[str, Path] = {}
    for number, section in enumerate(sections):
        for path in section.path:
            known = models.get(path.resolve())
            name = section.name or (known.name if known else path.stem)
            other = by_name.setdefault(name, path.resolve())
            if known is not None and section.name and known.name != section.name:
                faults.add(("models", number), f"{str(path)!r} is named twice, as {known.name!r} and {name!r}")
            elif other != path.resolve():
                message = (
                    f"{str(path)!r} and {str(other)!r} would both be called {name!r}; rename one, or give it another "
                    "name in a plan: {path: FILE, name: NAME}"
                )
                faults.add(("models", number), message)
            else:
                sha256 = section.sha256 or (known.sha256 if known else None) or pins.get(path.resolve())
                models[path.resolve()] = PlanModel(name=name, path=path, sha256=sha256)
    return tuple(models.values())
