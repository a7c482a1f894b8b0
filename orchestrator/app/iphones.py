"""A plan's iPhone cases as folders: to carry to a Mac, and what TensorFlow's app showed as stored runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.importing import Imported, imported, new_campaign, raw_output, read_source, require_printable
from orchestrator.bootstrap import Farm, Settings
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.files import write_file
from orchestrator.records.device import DeviceKind, DeviceProfile
from orchestrator.records.plan import Plan
from orchestrator.records.run import Attachment, ToolReport
from orchestrator.records.workload import BUILTIN, Pass
from orchestrator.report.escapes import one_line

if TYPE_CHECKING:
    from orchestrator.engine.importing import ForeignRun
    from orchestrator.programs.ios_bundle import ExportedCase, IosExport


@dataclass(frozen=True, slots=True, kw_only=True)
class IPhone:
    """What the user says of the iPhone."""

    profile: str = ""
    #: What it is known by; the profile's name when empty.
    name: str = ""
    os_version: str = ""
    #: Path or description of the app.
    app: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPlan:
    """What a folder for the app holds."""

    export: IosExport
    #: Passes of the plan that the app can't do.
    left_out: Sequence[Pass]


def export(settings: Settings, path: Path, out: Path, phone: IPhone) -> ExportedPlan:
    """Write a plan's cases for one iPhone; raises UsageError kinds before anything is written."""
    from orchestrator.config.plan import load_plan
    from orchestrator.programs.ios_app import PASSES

    require_printable(is_empty_fine=True, name=phone.name, ios=phone.os_version, app=phone.app)
    plan = load_plan(path, home=settings.data_folder)
    with Farm(settings) as farm:
        farm.check_names(plan.devices)
        profile = _profile(farm.profiles, plan, phone.profile)
    made, sources = _exported(plan, profile, phone)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is there already and isn't an empty folder", hint="name a new folder with --out")
    _write(made, sources, out)
    return ExportedPlan(export=made, left_out=[item for item in plan.passes if item not in PASSES])


def _profile(profiles: Mapping[str, DeviceProfile], plan: Plan, named: str) -> DeviceProfile:
    """Return the profile of the iPhone that is meant."""
    iphones = {name: profile for name, profile in profiles.items() if profile.kind is DeviceKind.IOS}
    if named and named not in iphones:
        raise UsageError(f"there is no iPhone profile {named!r}", hint=f"there are {', '.join(iphones)}")
    wanted = [named] if named else [name for name in plan.devices.profiles if name in iphones]
    if len(wanted) != 1:
        what = f"the plan names {len(wanted)} iPhones" if wanted else "the plan names no iPhone in devices.profiles"
        raise UsageError(f"{what}; choose one with --profile", hint=f"there are {', '.join(iphones)}")
    return iphones[wanted[0]]


def _exported(plan: Plan, profile: DeviceProfile, phone: IPhone) -> tuple[IosExport, dict[str, Path]]:
    """Return the export, and the file of each model by its sha256."""
    from orchestrator.app.beginning import identify
    from orchestrator.planning import Skip, expand, without
    from orchestrator.programs.foreign_app import foreign_build
    from orchestrator.programs.ios_app import PASSES, PROGRAM, flag_faults
    from orchestrator.programs.ios_bundle import IosExport, exported_cases, iphone_facts

    models = identify(plan)
    facts = iphone_facts(profile, serial=phone.name or profile.name, os_version=phone.os_version)
    tool = PROGRAM.name
    build = foreign_build(PROGRAM, phone.app or plan.builds.get(tool, ""))
    passes = tuple(run_pass for run_pass in plan.passes if run_pass in PASSES)
    if not passes:
        raise UsageError(f"the iOS benchmark app can do none of the plan's passes ({', '.join(plan.passes)})")
    # Whatever programs the plan names for other devices, an iPhone has this one.
    on_ios = replace(plan, passes=passes, matrix=replace(plan.matrix, tools=(tool,)))
    found = expand(on_ios, [facts], models, {(facts.serial, tool): build}, {profile.name: profile})
    expansion = without(
        found,
        {
            case.case_key: Skip(reason_code="flags-not-in-tool", reason="; ".join(faults))
            for case in found.cases
            if (faults := flag_faults(case.flags))
        },
    )
    if not expansion.cases:
        reasons = dict.fromkeys(skip.reason for skip in expansion.skipped)
        raise UsageError("nothing can be measured:\n  " + "\n  ".join(map(one_line, reasons)))
    used = {case.model_sha256 for case in expansion.cases}
    made = IosExport(
        name=plan.name,
        plan_text=plan.text,
        seed=plan.seed,
        serial=facts.serial,
        profile=profile.name,
        os_version=phone.os_version,
        build=build,
        models=tuple(model for model in models if model.sha256 in used),
        cases=exported_cases(expansion.invocations[facts.serial]),
        skipped=expansion.skipped,
    )
    return made, {model.sha256: model.path for model in models if model.path is not None}


def _write(made: IosExport, sources: Mapping[str, Path], out: Path) -> None:
    from orchestrator.programs.ios_bundle import DATA_FOLDER, MANIFEST, RESULTS_FOLDER, text_files

    for item in made.cases:
        path = sources[item.case.model_sha256]
        content = read_model(path, item.case.model_sha256)
        write_file(out / item.folder / DATA_FOLDER / item.resource, content)
        (out / item.folder / RESULTS_FOLDER).mkdir(exist_ok=True)
    # The manifest comes last: a folder that has one is whole.
    for name, text in sorted(text_files(made), key=lambda item: item[0] == MANIFEST):
        write_file(out / name, text)


def read_model(path: Path, sha256: str) -> bytes:
    """Return a model's bytes, which must still be those that were looked at; raises UsageError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UsageError(f"{path} was changed while it was exported", hint="export the plan again")
    return content


def import_results(
    settings: Settings, folder: Path, files: tuple[Path, ...], wanted: str, out: Path | None
) -> Imported:
    """Store what the app showed for an exported folder's cases; raises UsageError with every fault, storing nothing.

    Without ``files`` the ``results`` folders are read. ``wanted`` is the case that the files belong to (the beginning
    of its folder's name or key); a console's text tells its case itself.
    """
    from orchestrator.engine.importing import import_runs
    from orchestrator.programs.ios_bundle import MANIFEST, iphone_facts, load_manifest

    path = folder / MANIFEST
    made = load_manifest(read_source(path).decode("utf-8", "replace"), where=str(path))
    reading = _Reading(made)
    if files:
        chosen = _chosen(made, wanted) if wanted else None
        for source in _paired(files):
            reading.read(source, chosen)
    else:
        for item in made.cases:
            if not wanted or is_wanted(item, wanted):
                for source in _paired(_results(folder / item.folder)):
                    reading.read(source, item)
    if reading.faults:
        raise UsageError("nothing was imported:\n  " + "\n  ".join(map(one_line, reading.faults)))
    if not reading.runs:
        raise UsageError(f"{folder}: no results yet", hint="put the app's output into the 'results' folders")
    with Farm(settings) as farm:
        profile = farm.profiles.get(made.profile)
        if profile is None:
            raise UsageError(f"there is no profile {made.profile!r} any more, which {path} names")
        known = farm.store.devices().get(made.serial)
        if known is not None and known.kind is not DeviceKind.IOS:
            raise UsageError(f"{made.serial} is known as another device ({known.title})", hint="export with --name")
        result = import_runs(
            farm.store,
            farm.tools,
            new_campaign(farm, name=made.name, plan_text=made.plan_text, seed=made.seed, skipped=made.skipped),
            reading.runs,
            facts=[iphone_facts(profile, serial=made.serial, os_version=made.os_version)],
            models=made.models,
            builds=[made.build],
            clock=farm.clock,
        )
        return imported(farm, result, out, notes=_missing(made, reading.runs))


def _missing(made: IosExport, runs: Sequence[ForeignRun]) -> list[str]:
    """Return a line for each case that has fewer runs than the plan asks for."""
    counts = [
        (item, sum(run.case == item.case and run.run_pass is item.run_pass for run in runs)) for item in made.cases
    ]
    return [f"{item.folder}: {count} of {item.invocations} runs" for item, count in counts if count < item.invocations]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A text, a proto, or a text with the proto of the same run."""

    text: Path | None
    proto: Path | None

    @property
    def path(self) -> Path:
        found = self.text or self.proto
        assert found is not None
        return found


def _results(folder: Path) -> list[Path]:
    from orchestrator.programs.ios_bundle import RESULTS_FOLDER

    results = folder / RESULTS_FOLDER
    found = results.iterdir() if results.is_dir() else ()
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


def _paired(files: Sequence[Path]) -> Iterator[_Source]:
    """Yield the files in the order of their names (2 before 10), a proto together with the text of the same name."""
    texts = {path.with_suffix(""): path for path in files if path.suffix != ".pb"}
    protos = {path.with_suffix(""): path for path in files if path.suffix == ".pb"}
    others = [path for path in files if path.suffix != ".pb" and texts[path.with_suffix("")] != path]
    for key in sorted({*texts, *protos}, key=lambda stem: (len(stem.name), stem.name)):
        yield _Source(text=texts.get(key), proto=protos.get(key))
    for path in others:
        yield _Source(text=path, proto=None)


def is_wanted(item: ExportedCase, wanted: str) -> bool:
    """Whether a case is meant by the beginning of its folder's name or key."""
    return item.folder.startswith(wanted) or item.case.case_key.startswith(wanted)


def _chosen(made: IosExport, wanted: str) -> ExportedCase:
    fitting = [item for item in made.cases if is_wanted(item, wanted)]
    if len(fitting) != 1:
        what = "fits several cases" if fitting else "is no case of this folder"
        raise UsageError(f"{wanted!r} {what}", hint=f"there are {', '.join(item.folder for item in made.cases)}")
    return fitting[0]


class _Reading:
    """What the results hold, run by run, and everything that is wrong with them."""

    def __init__(self, made: IosExport) -> None:
        self._made = made
        self.runs: list[ForeignRun] = []
        self.faults: list[str] = []

    def read(self, source: _Source, expected: ExportedCase | None) -> None:
        """Take in one file; ``expected`` is the case that it must be of, None when it must tell itself."""
        text = read_source(source.text) if source.text else b""
        proto = read_source(source.proto) if source.proto else b""
        self._take(source, text, proto, expected)

    def _take(self, source: _Source, text: bytes, proto: bytes, expected: ExportedCase | None) -> None:
        try:
            marks = [report.echoed.get("Benchmark name", "") for report in self._parse(text, proto, None)]
            for number, mark in enumerate(marks):
                item = expected or next((one for one in self._made.cases if one.mark == mark), None)
                if item is None:
                    told = f"is of a case that isn't in this folder ({mark})" if mark else "doesn't say its case"
                    self.faults.append(f"{source.path}: run {number + 1} {told}; name it with --case")
                    continue
                self._add(source, text, proto, number, item)
        except OutputParseError as error:
            self.faults.append(f"{source.path}: {error}")

    @staticmethod
    def _parse(text: bytes, proto: bytes, item: ExportedCase | None) -> tuple[ToolReport, ...]:
        from orchestrator.programs.ios_app import read_results

        return read_results(text, result_pb=proto, delegate=item.case.delegate if item else BUILTIN)

    def _add(self, source: _Source, text: bytes, proto: bytes, number: int, item: ExportedCase) -> None:
        from orchestrator.engine.importing import ForeignRun
        from orchestrator.programs.flags.arguments import RESULT_FILE
        from orchestrator.programs.foreign_app import SOURCE, selection
        from orchestrator.programs.ios_app import mismatches

        report = self._parse(text, proto, item)[number]
        size_bytes = self._made.model_of(item).size_bytes
        faults = mismatches(report, item.params, model_size_bytes=size_bytes)
        self.faults += [f"{source.path}: run {number + 1} isn't of {item.folder}: {fault}" for fault in faults]
        parts = [Attachment(name=SOURCE, data=text)] if source.text else []
        parts += [Attachment(name=RESULT_FILE, data=proto)] if source.proto else []
        command = " ".join(["benchmark_tflite_model", *(f"--{name}={value}" for name, value in item.params.items())])
        raw = raw_output(source.path, (*parts, selection(number)), command=command)
        self.runs.append(ForeignRun(case=item.case, run_pass=item.run_pass, raw=raw))
