"""Imports a text of unknown origin: the output of a benchmark program, run anywhere at any time.

Its runs are stored with the facts that the text and the user state; the program and the moment are
marked as unknown.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from typing import Any, Final

from orchestrator.delegates import DELEGATES, delegate_called
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.extensions.interop.importing import (
    import_each,
    raw_output,
    read_source,
    require_size,
)
from orchestrator.extensions.interop.texts.forms import unpacked
from orchestrator.extensions.interop.texts.output import declaration_faults, parse_text
from orchestrator.plugins import (
    ForeignRun,
    ImportBatch,
    Imported,
    ImportedTool,
    ImportRequest,
    Program,
    Workspace,
    foreign_build,
    identify_model,
    report_identity,
    source_attachments,
)
from orchestrator.records.campaign import Origin
from orchestrator.records.case import (
    Build,
    Case,
    DelegateName,
    Model,
    ModelSha,
    Serial,
    ToolName,
    content_key,
)
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.model import FIGURE, PHASES, SIGNATURE, chosen_signature, model_name
from orchestrator.records.run import ToolReport
from orchestrator.tables.escapes import one_line
from orchestrator.units import counted, parse_number

_NOTE: Final = "text of unknown origin: nothing confirms its program, phone and time"
#: The delegate of a run whose text names neither the requested nor the applied one.
_UNKNOWN: Final = DelegateName("text.unknown")
#: With one of these on, the figures aren't those of the model's inferences.
_NO_TIMING: Final = (
    "Enable op profiling",
    "Report the peak memory footprint",
    "Run w/o invoking kernels",
    "enable_op_profiling",
    "report_peak_memory_footprint",
    "dry_run",
)
#: Echoes of settings that a plan has keys for -> field of a case.
_SETTING_ECHOES: Final = {
    "Min num runs": "num_runs",
    "Min warmup runs": "warmup_runs",
    "Min runs duration (seconds)": "min_secs",
    "Max runs duration (seconds)": "max_secs",
    "Min warmup runs duration (seconds)": "warmup_min_secs",
}
#: Echoed parameters, lower case, and flags that the delegate of a case stands for.
_SWITCHES: Final = {
    word
    for name, delegate in DELEGATES.items()
    for echo, flag in delegate.echoes.items()
    if echo.startswith("Use ") and not name.is_cpu
    for word in (echo.lower(), flag)
}
#: Further echoed parameters that a case has a field for, or that change nothing.
_NO_FLAGS: Final = frozenset(
    {
        "Log parameter values verbosely",
        "Benchmark name",
        "Graph",
        "Num threads",
        "#threads used for CPU inference",
        "Signature to run",
        *_SETTING_ECHOES,
        *_NO_TIMING,
    }
)
#: Flags of a command that LiteRT's program echoes, that other fields of a case hold, or that name
#: files.
_COMMAND_ONLY: Final = re.compile(
    rf"graph|model|num_threads|verbose|use_cpu|{'|'.join(_SETTING_ECHOES.values())}"
    r"|(?!external|stable)\w+_(?:path|file|dir)"
)
#: Tokens that a language model's figures depend on, beside the phase's own: flag of a case -> field
#: of a report.
_TOKEN_FIGURES: Final = {"prefill_tokens": "prompt_tokens", "max_num_tokens": "context_tokens"}
#: Texts beside another program's figures that are none of its settings, or that a case has a field
#: for.
_NO_SETTINGS: Final = frozenset({"unit", "repetitions_us", "heading", "num_threads"})
_FIGURE: Final = re.compile(r"-?\d+\.\d+")
#: Placeholders for a name in scripts and manuals.
_PLACEHOLDER: Final = re.compile(r"[{}<>$]|%[sd]|\.\.\.|\u2026")
_MARKDOWN: Final = re.compile(r"^ {0,3}#{1,6} +(\S.*)$", re.MULTILINE)
#: The number of a repeated run in a heading.
_RUN_NUMBER: Final = re.compile(
    r"\b(?:run|round|iteration|repetition|repeat|trial|attempt|pass)[ #:]*\d+(?: ?(?:/|of) ?\d+)?",
    re.IGNORECASE,
)
#: Number of digits, beyond the first of each figure, that runs of one case don't share by chance.
_UNIQUE_DIGITS: Final = 6
_MAX_LISTED: Final = 20
#: Sizes are printed with six digits.
_SIZE_TOLERANCE: Final = 1e-5


def read(text: str) -> list[ToolReport]:
    """Return the runs of a text, as ``benchfarm parse`` shows them; an empty list if it has none.

    Raises PlanError for a faulty file that declares a program, whose runs the text may hold.
    """
    for error in declaration_faults():
        raise error
    try:
        return list(parse_text(text))
    except OutputParseError:
        return []


PROGRAM = Program(
    name=ToolName.TEXT,
    tool=lambda: ImportedTool(ToolName.TEXT, read),
    has_flags=False,
    title="text of unknown origin",
)


def import_texts(workspace: Workspace, request: ImportRequest) -> list[Imported]:
    """Store the runs of texts, each file's a campaign.

    Raises UsageError, having stored nothing, for one without a figure.
    """
    models = [identify_model(path) for path in request.models]
    # A file keeps the name of its first import: a renamed file holds the same runs.
    stored = [item.terms.origin for item in workspace.store.campaigns(with_hidden=True)]
    names = {origin.sha256: origin.file for origin in stored if origin is not None}

    def read_file(path: Path) -> tuple[ImportBatch, Origin]:
        packed, text = _read_source(path)
        sha256 = hashlib.sha256(packed).hexdigest()
        origin = Origin(file=names.setdefault(sha256, path.name), sha256=sha256)
        facts, build = _facts(workspace, request, origin), foreign_build(PROGRAM, request.app)
        batch = ImportBatch(
            devices={facts.serial: facts}, builds={build.sha256: build}, notes=[_NOTE]
        )
        _add_runs(batch, path, origin.file, text, models)
        return batch, origin

    return import_each(
        workspace,
        request,
        read_file,
        hint=lambda path: f"see what is read from it: benchfarm parse {shlex.quote(str(path))}",
        nothing="no figure of a benchmark program is in it",
    )


def _read_source(path: Path) -> tuple[bytes, bytes]:
    """Return a file's bytes and the text in them, as UTF-8; raises UsageError."""
    packed = read_source(path)
    try:
        with unpacked(packed) as text:
            require_size(path, len(text), hint="unpack it, and import it in parts")
            return packed, text[:]
    except OutputParseError as error:
        raise UsageError(f"{path}: {error}", hint=error.hint) from error


def _facts(workspace: Workspace, request: ImportRequest, origin: Origin) -> DeviceFacts:
    """Return the facts of the phone: the stored ones, else those of its profile.

    Texts that don't name their phone count as texts of different phones, one per content.
    """
    unnamed = f"unknown-{origin.sha256[:8]}@{one_line(origin.file)}"
    serial = Serial(request.device or unnamed)
    stored = workspace.store.devices().get(serial)
    if stored is not None and (stored.is_virtual or stored.kind is DeviceKind.HOST):
        raise UsageError(f"{serial} is no real phone: name the one that was measured")
    facts = stored or DeviceFacts(
        serial=serial,
        kind=DeviceKind.ANDROID,
        is_virtual=False,
        model=request.device or "unknown phone",
        is_imported=True,
    )
    if not request.profile or stored is not None:
        return facts
    profile = workspace.profiles.get(request.profile)
    if profile is None or profile.kind is DeviceKind.HOST:
        raise UsageError(f"there is no profile of a phone {request.profile!r}")
    return replace(
        facts, kind=profile.kind, model=profile.title, soc=profile.soc, profile=profile.name
    )


def _add_runs(
    batch: ImportBatch, path: Path, name: str, data: bytes, models: Sequence[Model]
) -> None:
    """Add the runs of one text and their models; ``name`` is the file's."""
    (serial,), (build,) = batch.devices, batch.builds.values()
    text = data.decode("utf-8", "replace")
    reports = read(text)
    is_of_several = len({name for name in map(_model_name, reports) if name}) > 1
    places = [one_line(f"{name}, run {number + 1}") for number in range(len(reports))]
    fingerprints: set[str] = set()
    repeats: list[str] = []
    headings: list[str] = []
    has_several = len(set(map(_heading, _MARKDOWN.findall(text)))) > 1
    for number, (report, place) in enumerate(zip(reports, places, strict=True)):
        is_unique = _is_unique(report)
        if is_unique:
            if (fingerprint := report_identity(report)) in fingerprints:
                repeats.append(str(number + 1))
                continue
            fingerprints.add(fingerprint)
        # Prefill and decode of a language model are figures of one process.
        is_second = tuple(each.label for each in reports[number - 1 : number + 1]) == PHASES
        unknown = f"unknown model of {places[number - is_second]}"
        try:
            model = (
                _user_model(report, models, is_of_several=is_of_several)
                if models
                else _named_model(report, unknown, data)
            )
            case = _case(report, serial, model, build)
        except OutputParseError as error:
            batch.faults.append(f"{place}: {one_line(str(error))}")
            continue
        batch.models[model.sha256] = model
        raw = raw_output(path, source_attachments(data, number))
        batch.runs.append(ForeignRun(case=case, raw=raw, is_unlike_others=is_unique))
        heading = str(report.extra.get("heading", report.extra.get("title", "")))
        # A single mark may be a comment's, so that it isn't known which of them a run stands below.
        is_somewhere = has_several and not heading
        headings.append(f"run {number + 1 - is_second}" if is_somewhere else _heading(heading))
    batch.runs = _with_heading_flags(batch.runs, headings)
    if repeats:
        numbers = ", ".join([*repeats[:_MAX_LISTED], *(["..."] if repeats[_MAX_LISTED:] else [])])
        batch.notes.append(
            f"{one_line(name)}: {counted(len(repeats), 'run')} repeated to the last figure, "
            f"not counted again: run {numbers}"
        )


def _heading(text: str) -> str:
    return one_line(_RUN_NUMBER.sub("", text).strip(" ,:-#\r")[:200])


def _with_heading_flags(runs: Sequence[ForeignRun], headings: Sequence[str]) -> list[ForeignRun]:
    """Return the runs, each with its heading as a flag where one case has runs below several
    headings: a heading may name another phone.
    """
    cases = [run.case for run in runs]
    if len(set(zip(cases, headings, strict=True))) == len(set(cases)):
        return list(runs)
    return [
        replace(
            run,
            case=replace(run.case, flags=tuple(sorted((*run.case.flags, ("heading", heading))))),
        )
        if heading
        else run
        for run, heading in zip(runs, headings, strict=True)
    ]


def _is_unique(report: ToolReport) -> bool:
    """Whether no other process can have printed the same: it has the moment, or too many digits of
    figures that differ from process to process.
    """
    if "." in str(report.extra.get("logged_at", "")):
        return True
    inference = report.inference
    figures = (
        report.init_us,
        report.first_inference_us,
        report.inference_mean_us,
        inference.std_us if inference is not None else None,
    )
    digits = (
        len(f"{figure:.6g}".partition("e")[0].replace(".", "").strip("0"))
        for figure in figures
        if figure
    )
    # Runs of one model and phone share the first digit of each.
    return "program" not in report.extra and sum(count - 1 for count in digits) >= _UNIQUE_DIGITS


def _case(report: ToolReport, serial: Serial, model: Model, build: Build) -> Case:
    """Return a run's case by its text; the delegate is unknown and threads are -1 if it names none.

    Raises OutputParseError for a run that measured no latency, or whose settings can't be read.
    """
    if report.latency_us() is None:
        raise OutputParseError("it shows no latency")
    echoed = report.echoed
    options = {**echoed, **_command(report)}
    if odd := next((name for name in _NO_TIMING if options.get(name) in {"1", "true"}), None):
        raise OutputParseError(f"{odd!r} is on, so its times are no latency")
    flags = _flags(report)
    try:
        settings: dict[str, Any] = {
            field: (int if field.endswith("runs") else _seconds)(echoed[echo])
            for echo, field in _SETTING_ECHOES.items()
            if echo in echoed
        }
    except ValueError as error:
        raise OutputParseError(f"a parameter that it echoes can't be read: {error}") from error
    return Case(
        serial=serial,
        model_sha256=model.sha256,
        model_name=model.name,
        delegate=_delegate(report),
        threads=_threads(report),
        tool=ToolName.TEXT,
        build_sha256=build.sha256,
        flags=tuple(sorted(flags.items())),
        affinity="all",
        **settings,
    )


def _delegate(report: ToolReport) -> DelegateName:
    """Return the requested delegate of a run, else the applied one; of several one beside the CPU's."""
    words = (report.delegate.requested or report.delegate.actual).split("+")
    delegates = [name for name in map(delegate_called, words) if name is not None]
    return min(delegates, key=lambda name: name.is_cpu, default=_UNKNOWN)


def _flags(report: ToolReport) -> dict[str, str]:
    """Return the flags of a run's case: echoed parameters, else those of the command; the signature;
    a language model's phase and tokens; the option of a summary; another program's settings.
    """
    command = _command(report).items()
    flags = {
        name: value
        for name, value in (
            *report.echoed.items(),
            *((name, value) for name, value in command if not _COMMAND_ONLY.fullmatch(name)),
            *_foreign_settings(report),
        )
        if name not in _NO_FLAGS and name.lower() not in _SWITCHES
    }
    if report.delegate.requested == "xnnpack":
        # Beside any other delegate it says whether XNNPACK runs the remaining nodes.
        flags.pop("Use xnnpack", None)
        flags.pop("use_xnnpack", None)
    if cores := report.extra.get("taskset"):
        flags["taskset"] = str(cores)
    flags.pop(SIGNATURE, None)
    if signature := chosen_signature(str(report.extra.get("signature", ""))):
        flags[SIGNATURE] = signature
    if report.label in PHASES:
        tokens = {**_TOKEN_FIGURES, f"{report.label}_tokens": "tokens"}
        flags[FIGURE] = report.label
        flags |= {
            flag: f"{count:.0f}"
            for flag, figure in tokens.items()
            if isinstance(count := report.extra.get(figure), float)
        }
        if (mode := str(report.extra.get("speculative_decoding", "auto"))) != "auto":
            flags["speculative_decoding"] = mode
    elif report.label and not report.echoed and not _is_called_as_model(report):
        flags["option"] = report.label
    return flags


def _foreign_settings(report: ToolReport) -> Iterator[tuple[str, str]]:
    """Yield the name of another runtime's program and the settings that it prints."""
    for name, value in report.extra.items() if "program" in report.extra else ():
        if isinstance(value, str) and name not in _NO_SETTINGS and not _FIGURE.fullmatch(value):
            yield name, value


def _command(report: ToolReport) -> dict[str, str]:
    """Return the flags of the command above a run that doesn't echo them."""
    words = shlex.split(str(report.extra.get("command", "")))
    return dict(word.removeprefix("--").split("=", 1) for word in words)


def _seconds(text: str) -> float:
    value = parse_number(text)
    if value is None:
        raise ValueError(f"{text[:80]!r} is no time")
    return value


def _threads(report: ToolReport) -> int:
    """Return the number of threads of a run's echo or command; -1 where neither names it."""
    count = report.extra.get("num_threads", report.echoed.get("Num threads", ""))
    text = f"{count:.0f}" if isinstance(count, float) else count
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def _is_called_as_model(report: ToolReport) -> bool:
    """Whether a run's name is its model's, as in the tables of other runtimes' programs."""
    return "program" in report.extra and report.extra.get("unit") != "token"


def _model_name(report: ToolReport) -> str:
    """Return the name of a run's model in the text, "" if there is none."""
    graph = report.extra.get("graph") or (report.label if _is_called_as_model(report) else "")
    # Windows' paths have either separator.
    name = model_name(Path(PureWindowsPath(one_line(str(graph))).name))
    return "" if _PLACEHOLDER.search(name) else name


def _user_model(report: ToolReport, models: Sequence[Model], *, is_of_several: bool) -> Model:
    """Return the model of the user's files that has the printed size, or the name where sizes don't
    tell the models of a text apart.

    Raises OutputParseError where none or several fit.
    """
    size_mb, name = report.model_size_mb, _model_name(report)
    fitting = [
        model
        for model in models
        if size_mb is None or math.isclose(size_mb, model.size_bytes / 1e6, rel_tol=_SIZE_TOLERANCE)
    ]
    if len(fitting) > 1 or (is_of_several and size_mb is None):
        fitting = [model for model in fitting if model.name == name]
    if len(fitting) == 1:
        return fitting[0]
    size = "" if size_mb is None else f" of {size_mb:g} MB"
    raise OutputParseError(
        f"name the file of the one model{size} that was measured{name and f', {name}'}: --model"
    )


def _named_model(report: ToolReport, unknown: str, text: bytes) -> Model:
    """Return a model by its name and size in the text; without both it is unique to the run."""
    size_bytes = round((report.model_size_mb or 0.0) * 1e6)
    name = _model_name(report) or ("unknown model" if size_bytes else unknown)
    identity: dict[str, object] = {"named": name, "bytes": size_bytes}
    if name == unknown:
        identity["text"] = hashlib.sha256(text).hexdigest()
    return Model(name=name, sha256=ModelSha(content_key(identity)), size_bytes=size_bytes)
