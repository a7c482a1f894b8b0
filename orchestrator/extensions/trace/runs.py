"""One run under a system tracer, its file for the Perfetto UI, and what the operators took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from orchestrator.app import measuring
from orchestrator.app.measuring import MeasuredCampaign
from orchestrator.app.options import arg, opt
from orchestrator.app.time_limits import span_of
from orchestrator.bootstrap import Workspace
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.extensions.trace.run_pass import TRACE
from orchestrator.extensions.trace.slices import TraceSummary, summarise
from orchestrator.extensions.trace.trace_file import read_recording, require_perfetto, trace_names
from orchestrator.files import check_writable, write_file
from orchestrator.programs import program
from orchestrator.records.case import BUILTIN, ToolName
from orchestrator.records.device import DeviceKind
from orchestrator.records.plan import Plan, PlanOptions
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.units import split

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: An app is recorded at least and at most so long.
LEAST_S: Final = 0.1
LONGEST_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """What is traced, and with what: a run of a model, or an app while it is used."""

    model: Annotated[Path | None, arg("Model file (.tflite); none with --app.")] = None
    app: Annotated[
        str,
        opt(
            "--app", "Package of an app of yours, traced while it is used; PACKAGE/.Main starts it."
        ),
    ] = ""
    during: Annotated[str, opt("--during", "With --app: record while this command runs here.")] = ""
    budget: Annotated[
        str, opt("--budget", "With --app: record so long (20 s), not until Ctrl-C.")
    ] = ""
    restart: Annotated[bool, opt("--restart", "With --app: end the running app first.")] = False
    has_summary: Annotated[
        bool, opt("--summary/--no-summary", "Read the trace after recording it.")
    ] = True
    out: Annotated[Path | None, opt("--out -o", "Folder for the trace files.")] = None

    @property
    def package(self) -> str:
        """The app's package; empty for a run of a model."""
        return self.app.partition("/")[0]

    @property
    def activity(self) -> str:
        """The activity to start; empty for none."""
        return self.app.partition("/")[2]

    @property
    def seconds(self) -> float | None:
        """How long an app is recorded; None for until Ctrl-C. Raises UsageError."""
        seconds = span_of("--budget", self.budget)
        if seconds is not None and not LEAST_S <= seconds <= LONGEST_S:
            raise UsageError(f"--budget {self.budget} isn't between 0.1 s and 10 min")
        return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRun:
    """One recorded run."""

    run_id: str = ""
    serial: str
    outcome: Outcome
    reason: str
    is_virtual: bool = False
    #: Where the file was written; None when the run left none.
    file: Path | None = None
    size_bytes: int = 0
    #: None when it wasn't read.
    summary: TraceSummary | None = None
    #: Why it couldn't be read.
    fault: str = ""


def check_folder(folder: Path, *, has_summary: bool) -> None:
    """Raise UsageError where traces can't be written to a folder, or can't be read here."""
    if has_summary:
        require_perfetto()
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f"{folder} is no folder", hint="--out names the folder for the trace files"
        )
    check_writable(folder / "trace")


def write_trace(folder: Path, words: Sequence[str], name: str, data: bytes) -> Path:
    """Write a trace to a file in a folder that is named by words; no word leads out of the folder."""
    safe = [
        "".join(
            letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_"
            for letter in word
        )
        for word in words
    ]
    stem = "-".join(word.lstrip(".-")[:60] or "unnamed" for word in safe)
    path = folder / f"{stem}.{name.rpartition('.')[2]}"
    write_file(path, data)
    return path


def record(
    workspace: Workspace, request: TraceRequest, options: PlanOptions, folder: Path
) -> MeasuredCampaign:
    """Record the named model on the chosen phones; raises UsageError kinds before anything runs."""
    if request.model is None:
        raise UsageError("nothing to trace", hint="name a model file, or an app with --app")
    # The plan reports names that are no tool.
    named = [name for text in options.get("tools", ()) for name in split([text])]
    for tool in [tool for tool in ToolName if tool in named]:
        if DeviceKind.ANDROID in program(tool).kinds:
            continue
        by_hand = "docs/guides/why-slow.md says how an iPhone's run is traced by hand"
        raise UsageError(
            f"{tool} can't be traced: traces are recorded on Android phones, with a program that benchfarm starts",
            hint=by_hand if DeviceKind.IOS in program(tool).kinds else "",
        )
    check_folder(folder, has_summary=request.has_summary)
    return measuring.run(workspace, _plan(request.model, options))


def traced_runs(
    workspace: Workspace, measured: MeasuredCampaign, folder: Path, *, has_summary: bool
) -> list[TracedRun]:
    """Write what was recorded to files in a folder; devices that were lost before their run have
    none.
    """
    runs = workspace.store.runs(campaign_ids=[measured.campaign.campaign_id])
    traced = [_traced(workspace.store, run, folder, has_summary=has_summary) for run in runs]
    there = {run.serial for run in traced}
    lost = [
        TracedRun(serial=serial, outcome=Outcome.ABORTED, reason=reason)
        for serial, reason in measured.result.lost.items()
        if serial not in there
    ]
    return traced + lost


def _plan(model: Path, options: PlanOptions) -> Plan:
    """Return one run of each case in the pass ``trace``.

    Raises PlanError naming the options at fault.
    """
    from orchestrator.config.plan import plan_from_options

    usual = {"delegates": [BUILTIN], "threads": [1], "num_runs": 20, "timeout": 120.0, **options}
    plan = plan_from_options(
        **usual,
        models=[model],
        passes=[TRACE.value],
        min_secs=0.0,
        max_secs=usual["timeout"],
        invocations=1,
        name="trace",
    )
    # A traced run's figures aren't compared with those of other nightly runs.
    return replace(plan, reference_check=False)


def _traced(store: Store, run: RunRecord, folder: Path, *, has_summary: bool) -> TracedRun:
    attachments = {item.name: item.data for item in store.attachments(run.run_id)}
    traced = TracedRun(
        run_id=run.run_id,
        serial=run.case.serial,
        outcome=run.outcome,
        reason=run.reason,
        is_virtual=run.is_virtual,
    )
    name = next(iter(trace_names(attachments)), None)
    if name is None:
        return traced
    data, summary, fault = attachments[name], None, ""
    path = write_trace(folder, (run.case.serial, run.case.model_name, run.run_id[:8]), name, data)
    if has_summary:
        try:
            summary = summarise(read_recording(name, data), command=run.command)
        except OutputParseError as error:
            fault = str(error)
    return replace(traced, file=path, size_bytes=len(data), summary=summary, fault=fault)
