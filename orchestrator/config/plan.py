"""Plan files: what is to be measured, on which devices, how often. ``docs/plans.md`` describes the format."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from orchestrator.config.faults import Faults, Section, Source, checked
from orchestrator.config.fields import AnyText, Celsius, OneOrMany, Percent, Seconds, Sha256, Text, unique
from orchestrator.config.model_manifest import MANIFEST_NAME, named_models
from orchestrator.config.night import ImportanceSection, window_text
from orchestrator.config.yaml_file import parse_yaml, read_yaml
from orchestrator.errors import UsageError
from orchestrator.predicates import FIELDS, parse_predicate
from orchestrator.records.flag import OWNED_FLAGS
from orchestrator.records.model import ManifestEntry
from orchestrator.records.night import Window, parse_timezone, parse_window
from orchestrator.records.plan import (
    DeviceSelection,
    FitLimits,
    Matrix,
    Order,
    Plan,
    PlanModel,
    PushLimits,
    Quiet,
    RunSettings,
    Screen,
    Sharding,
    StoppingRule,
)
from orchestrator.records.workload import DelegateName, Pass, ProcessMode, ToolName

#: PowerManager's words for its thermal status.
_THERMAL_STATUS: Final = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
_FLAG_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
#: The context under which validators find the folder that paths start from.
_FOLDER: Final = "folder"
#: The context under which they find the models that manifests name.
_NAMED: Final = "named"


def _model_files(pattern: object, info: ValidationInfo) -> tuple[Path, ...]:
    """Return the files that a model's path means; a path with * ? or [ may mean several."""
    if not isinstance(pattern, str) or not pattern.strip():
        raise ValueError("must be the path of a .tflite file")
    folder: Path = (info.context or {}).get(_FOLDER, Path())
    try:
        path = folder / Path(pattern).expanduser()
        if path.is_dir():
            raise ValueError(f"{str(path)!r} is a folder; for all models in it write {pattern.rstrip('/')}/*.tflite")
        files = [path] if path.exists() else []
        if not files and glob.has_magic(pattern):
            found = (Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207 - Path.glob refuses absolute ones
            files = sorted(file for file in found if file.is_file())
            if not files:
                raise ValueError(f"no file matches {str(path)!r}")
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{pattern!r} can't be looked up: {error}") from error
    named: Mapping[str, ManifestEntry] = (info.context or {}).get(_NAMED, {})
    if not files and pattern in named:
        path = named[pattern].path
        if not path.is_file():
            raise ValueError(
                f"{pattern!r} is a name in {path.parent / MANIFEST_NAME}, but there is no file {str(path)!r}"
            )
        files = [path]
    if not files:
        raise ValueError(f"there is no file {str(path)!r}")
    for file in files:
        if _is_not_utf8(str(file)):
            raise ValueError(f"the name {str(file)!r} isn't UTF-8; rename the file")
    return tuple(files)


def _is_not_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _free_flags(flags: dict[str, str]) -> dict[str, str]:
    for name, value in flags.items():
        if not _FLAG_NAME.fullmatch(name):
            bare = name.lstrip("-")
            hint = f"; write {bare}" if bare != name and _FLAG_NAME.fullmatch(bare) else ""
            raise ValueError(f"{name!r} isn't the name of a flag{hint}")
        if name in OWNED_FLAGS:
            raise ValueError(f"the flag {name} can't be set here: {OWNED_FLAGS[name]}")
        if "\0" in value or "\n" in value:
            raise ValueError(f"the value of {name} must not hold line ends or NUL")
    return flags


def _predicate(text: str) -> str:
    try:
        parse_predicate(text)
    except UsageError as error:
        raise ValueError(str(error)) from error
    return text


def _fact(text: str) -> str:
    name = text if "." in text else text.lower()
    if "." not in name and name not in FIELDS:
        raise ValueError(f"{text!r} isn't a fact of phones such as profile, model or soc, nor a system property")
    return name


def _affinity(text: str) -> str:
    if text in {"big", "all"}:
        return text
    mask = text.lower().removeprefix("0x")
    if not re.fullmatch(r"[0-9a-f]{1,32}", mask) or int(mask, 16) == 0:
        raise ValueError(f"{text!r} isn't big, all or a mask of cores in hexadecimal digits such as f0")
    return f"{int(mask, 16):x}"


def _thermal_status(value: object) -> object:
    return _THERMAL_STATUS.index(value) if value in _THERMAL_STATUS else value


class ModelSection(Section):
    """One model, or several by a pattern."""

    path: Annotated[
        tuple[Path, ...],
        BeforeValidator(_model_files),
        WithJsonSchema({"type": "string", "description": "A .tflite file, or a pattern of several"}),
    ]
    name: Text | None = None
    sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _one_file_for_one_name(self) -> ModelSection:
        if len(self.path) > 1 and (self.name or self.sha256):
            raise ValueError(f"name and sha256 are for one model, but the path means {len(self.path)} files")
        return self


class _PathOrModel:
    """Lets a model be written as its path alone."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        return core_schema.no_info_before_validator_function(
            lambda value: {"path": value} if isinstance(value, str) else value, handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(schema)]}


class MatrixSection(Section):
    """The axes; each combination is a case."""

    delegates: Annotated[OneOrMany[tuple[DelegateName, ...]], Field(min_length=1), AfterValidator(unique)] = (
        DelegateName.XNNPACK,
    )
    threads: Annotated[
        OneOrMany[tuple[Annotated[int, Field(ge=1, le=128)], ...]], Field(min_length=1), AfterValidator(unique)
    ] = ()
    tools: Annotated[OneOrMany[tuple[ToolName, ...]], Field(min_length=1), AfterValidator(unique)] = ()
    flags: Annotated[
        OneOrMany[tuple[Annotated[dict[str, AnyText], AfterValidator(_free_flags)], ...]], Field(min_length=1)
    ] = ({},)
    modes: Annotated[OneOrMany[tuple[ProcessMode, ...]], Field(min_length=1), AfterValidator(unique)] = ()


class DevicesSection(Section):
    """Which devices: those that fit every key that is given."""

    serials: OneOrMany[tuple[Text, ...]] = ()
    profiles: OneOrMany[tuple[Text, ...]] = ()
    pools: OneOrMany[tuple[Text, ...]] = ()
    tags: OneOrMany[tuple[Text, ...]] = ()
    where: OneOrMany[tuple[Annotated[Text, AfterValidator(_predicate)], ...]] = ()
    host: bool = False
    one_of_each: Annotated[Text, AfterValidator(_fact)] | None = None
    any: Annotated[int, Field(ge=1, le=10_000)] | None = None
    replace_lost: bool = False
    join: bool = True


class PushesSection(Section):
    """How many files go out to phones at once."""

    per_host: Annotated[int, Field(ge=1, le=64)] = PushLimits().per_host
    per_hub: Annotated[int, Field(ge=1, le=64)] = PushLimits().per_hub
    beside_measurements: bool = PushLimits().beside_measurements


class SettingsSection(Section):
    """How one invocation measures."""

    num_runs: Annotated[int, Field(ge=1, le=1_000_000)] = RunSettings().num_runs
    min_secs: Annotated[Seconds, Field(ge=0, le=86_400)] = RunSettings().min_secs
    max_secs: Annotated[Seconds, Field(gt=0, le=86_400)] = RunSettings().max_secs
    warmup_runs: Annotated[int, Field(ge=0, le=1_000_000)] = RunSettings().warmup_runs
    warmup_min_secs: Annotated[Seconds, Field(ge=0, le=86_400)] = RunSettings().warmup_min_secs
    affinity: Annotated[Text, AfterValidator(_affinity)] = RunSettings().affinity

    @model_validator(mode="after")
    def _spans_fit(self) -> SettingsSection:
        for name in ("min_secs", "warmup_min_secs"):
            if getattr(self, name) > self.max_secs:
                raise ValueError(f"{name} ({getattr(self, name):g} s) is more than max_secs ({self.max_secs:g} s)")
        return self


class LimitsSection(Section):
    """What a device must be like before an invocation starts."""

    battery_min: Annotated[Percent, Field(ge=0, le=100)] = FitLimits().battery_percent_min
    battery_heat_max: Annotated[Celsius, Field(ge=0, le=100)] = FitLimits().battery_heat_c_max
    thermal_status_max: Annotated[
        int,
        Field(ge=0, le=6),
        BeforeValidator(_thermal_status),
        WithJsonSchema({"enum": [*range(7), *_THERMAL_STATUS]}),
    ] = FitLimits().thermal_status_max
    wait: Annotated[Seconds, Field(ge=0, le=86_400)] = FitLimits().wait_s


class InvocationsSection(Section):
    """How many processes each case gets in the timing pass: as many as its noise needs, within these bounds."""

    first: Annotated[int, Field(ge=2, le=10_000)] = StoppingRule().first
    most: Annotated[int, Field(ge=2, le=10_000)] = StoppingRule().most

    @model_validator(mode="before")
    @classmethod
    def _most_follows(cls, given: object) -> object:
        # Somebody who asks for a larger first round means it.
        if isinstance(given, dict) and "most" not in given and str(given.get("first", "")).isdecimal():
            return {**given, "most": str(max(int(given["first"]), StoppingRule().most))}
        return given

    @model_validator(mode="after")
    def _spans_fit(self) -> InvocationsSection:
        if self.first > self.most:
            raise ValueError(f"first ({self.first}) is more than most ({self.most})")
        return self


def _count(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        count = int(value)
    except ValueError:
        raise ValueError(f"{value!r} isn't a whole number") from None
    if not 1 <= count <= 10_000:
        raise ValueError(f"{count} isn't between 1 and 10000")
    return InvocationsSection.model_construct(first=count, most=count)


class _CountOrBounds:
    """Lets a fixed number of invocations stand for itself."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        return core_schema.no_info_before_validator_function(_count, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 10_000}, handler(schema)]}


def _screen(value: object) -> object:
    # YAML's own words for true and false are read as they are written; people mean these.
    return {"true": "on", "false": "off"}.get(value, value) if isinstance(value, str) else value


class QuietSection(Section):
    """How a phone is brought to rest; what isn't given stays as tuning found it best, else as it is."""

    screen: Annotated[Screen, BeforeValidator(_screen)] = Quiet().screen
    airplane: bool | None = None
    no_doze: bool | None = None
    animations_off: bool | None = None
    sync_off: bool | None = None
    fixed_performance: bool | None = None
    pin_clocks: bool | None = None
    pin_gpu: bool | None = None
    thermal_control_off: bool | None = None


class PlanSection(Section):
    """A whole plan file."""

    name: Text | None = None
    models: Annotated[OneOrMany[tuple[Annotated[ModelSection, _PathOrModel()], ...]], Field(min_length=1)]
    matrix: MatrixSection = MatrixSection()
    devices: DevicesSection = DevicesSection()
    settings: SettingsSection = SettingsSection()
    limits: LimitsSection = LimitsSection()
    passes: Annotated[OneOrMany[tuple[Pass, ...]], Field(min_length=1), AfterValidator(unique)] = (Pass.TIMING,)
    invocations: Annotated[InvocationsSection, _CountOrBounds()] = InvocationsSection()
    precision: Annotated[Percent, Field(ge=0.1, lt=100)] = 100 * StoppingRule().half_width
    budget: Annotated[Seconds, Field(ge=0, le=604_800)] | None = None
    phone_time: Annotated[Seconds, Field(gt=0, le=604_800)] | None = None
    window: Annotated[Text, AfterValidator(window_text)] | None = None
    timezone: Annotated[Text, AfterValidator(parse_timezone)] | None = None
    importance: OneOrMany[tuple[ImportanceSection, ...]] = ()
    sustained: Annotated[Seconds, Field(ge=10, le=86_400)] = 1800.0
    parity_inputs: Text | None = None
    sentinel: bool | None = None
    reboot: bool = False
    quiet: QuietSection = QuietSection()
    order: Order = Order.INTERLEAVED
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    timeout: Annotated[Seconds, Field(gt=0, le=86_400)] = 120.0
    builds: dict[ToolName, Text] = Field(default_factory=dict)
    shard: Sharding = Sharding.NONE
    pushes: PushesSection = PushesSection()

    @field_validator("passes")
    @classmethod
    def _no_sentinel(cls, passes: tuple[Pass, ...]) -> tuple[Pass, ...]:
        if Pass.SENTINEL in passes:
            raise ValueError("'sentinel' is no pass over the plan's models; write 'sentinel: true' beside 'passes'")
        return passes

    @model_validator(mode="after")
    def _keys_fit(self) -> PlanSection:
        given, count = self.model_fields_set, self.invocations
        if count.first == count.most:
            for key in ("precision", "budget"):
                if key in given and getattr(self, key) is not None:
                    raise ValueError(
                        f"{key} says when a case has enough invocations, but their number is fixed "
                        f"({count.first}); leave one of the two out"
                    )
        if self.timezone is not None and self.window is None:
            raise ValueError("timezone is that of the window; give a window too")
        if "sustained" in given and Pass.SUSTAINED not in self.passes:
            raise ValueError("sustained is how long the pass 'sustained' goes on; add it to passes")
        self._shards_fit(given)
        if self.parity_inputs is not None and Pass.PARITY not in self.passes:
            raise ValueError("parity_inputs are the inputs of the pass 'parity'; add it to passes")
        return self

    def _shards_fit(self, given: set[str]) -> None:
        if self.shard is Sharding.NONE:
            return
        whole = [name for name in self.passes if name in (Pass.COLD, Pass.SUSTAINED, Pass.TRACE)]
        if whole:
            raise ValueError(f"shard: the pass '{whole[0]}' is a sequence on one phone; leave one of the two out")
        if ToolName.PERF_OPTIONS in self.matrix.tools:
            raise ValueError("shard: a process of 'perf-options' measures many cases at once; leave one of the two out")
        if "invocations" in given and self.invocations.first != self.invocations.most:
            raise ValueError(
                "shard: equal phones share out a fixed number of invocations; give 'invocations' as one number"
            )


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
    section = checked(source, PlanSection, context={_FOLDER: folder, _NAMED: named})
    faults = Faults(source)
    models = _models(section.models, faults, _pins(source.value.get("models"), named))
    builds = {tool: _build_path(tool, value, folder, faults) for tool, value in section.builds.items()}
    flags = [_with_files(values, folder, number, faults) for number, values in enumerate(section.matrix.flags)]
    parity_inputs = _input_folder(section.parity_inputs, folder, faults)
    faults.raise_if_any()
    return Plan(
        name=section.name or default_name,
        models=models,
        matrix=Matrix(
            delegates=tuple(section.matrix.delegates),
            threads=tuple(section.matrix.threads),
            tools=tuple(section.matrix.tools),
            flags=tuple(dict.fromkeys(tuple(sorted(values.items())) for values in flags)),
            modes=tuple(section.matrix.modes),
        ),
        devices=DeviceSelection(
            serials=tuple(section.devices.serials),
            profiles=tuple(section.devices.profiles),
            pools=tuple(section.devices.pools),
            tags=tuple(section.devices.tags),
            where=tuple(section.devices.where),
            host=section.devices.host,
            one_of_each=section.devices.one_of_each or "",
            most=section.devices.any,
            replaces_lost=section.devices.replace_lost,
            joins=section.devices.join,
        ),
        settings=RunSettings(**dict(section.settings)),
        limits=FitLimits(
            battery_percent_min=round(section.limits.battery_min),
            battery_heat_c_max=section.limits.battery_heat_max,
            thermal_status_max=section.limits.thermal_status_max,
            wait_s=section.limits.wait,
        ),
        passes=tuple(section.passes),
        invocations=section.invocations.first,
        stopping=_stopping(section),
        budget_s=section.budget,
        phone_time_s=section.phone_time,
        window=_window_of(section),
        importance=tuple(rule.to_rule() for rule in section.importance),
        quiet=Quiet(**dict(section.quiet)),
        sentinel=section.sentinel,
        may_reboot=section.reboot,
        sustained_s=section.sustained,
        parity_inputs=parity_inputs,
        order=section.order,
        seed=section.seed,
        timeout_s=section.timeout,
        builds=builds,
        sharding=section.shard,
        pushes=PushLimits(**dict(section.pushes)),
        text=text,
        folder=folder.absolute(),
    )


def _window_of(section: PlanSection) -> Window | None:
    return None if section.window is None else parse_window(section.window, section.timezone or "")


def _input_folder(value: str | None, folder: Path, faults: Faults) -> Path | None:
    if value is None:
        return None
    path = (folder / Path(value).expanduser()).resolve()
    if not path.is_dir():
        faults.add(("parity_inputs",), f"{path} is no folder")
    return path


def _stopping(section: PlanSection) -> StoppingRule | None:
    count = section.invocations
    # What decides when a case has enough knows one phone's figures only.
    if count.first == count.most or section.shard is not Sharding.NONE:
        return None
    return StoppingRule(first=count.first, half_width=section.precision / 100, most=count.most)


def _pins(written: object, named: Mapping[str, ManifestEntry]) -> Mapping[Path, str]:
    """Return the sha256 of the files that a plan names by a manifest's name and not by their path."""
    values = written if isinstance(written, list) else [written]
    names = [value.get("path") if isinstance(value, dict) else value for value in values]
    return {named[name].path.resolve(): named[name].sha256 for name in names if isinstance(name, str) and name in named}


def _models(sections: Iterable[ModelSection], faults: Faults, pins: Mapping[Path, str]) -> tuple[PlanModel, ...]:
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
                message = f"{str(path)!r} and {str(other)!r} would both be called {name!r}; give one a name of its own"
                faults.add(("models", number), message)
            else:
                sha256 = section.sha256 or (known.sha256 if known else None) or pins.get(path.resolve())
                models[path.resolve()] = PlanModel(name=name, path=path, sha256=sha256)
    return tuple(models.values())


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
