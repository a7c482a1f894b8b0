"""One run under a system tracer, its file for the Perfetto UI, and what the operators took."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.app import measuring
from orchestrator.app.measuring import MeasuredCampaign
from orchestrator.bootstrap import Farm
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.files import check_writable, write_file
from orchestrator.ports import Store
from orchestrator.programs import program
from orchestrator.programs.running.trace import TraceSummary, summarise
from orchestrator.programs.running.trace_file import read_recording, trace_names
from orchestrator.records.device import DeviceKind
from orchestrator.records.plan import Plan
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass, ToolName


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """What is traced, and with what."""

    model: Path
    serials: tuple[str, ...]
    delegate: str
    threads: int
    tool: str
    builds: tuple[str, ...]
    num_runs: int
    timeout_s: float
    has_summary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRun:
    """One recorded run."""

    run_id: str
    serial: str
    outcome: Outcome
    reason: str
    is_virtual: bool
    #: Where the file was written; None when the run left none.
    file: Path | None
    size_bytes: int
    #: None when it wasn't read.
    summary: TraceSummary | None
    #: Why it couldn't be read.
    fault: str


def record(farm: Farm, request: TraceRequest, folder: Path) -> MeasuredCampaign:
    """Record the named model on the chosen phones; raises UsageError kinds before anything runs."""
    _check_tool(request.tool)
    if request.has_summary:
        from orchestrator.programs.running.trace_file import require_perfetto

        require_perfetto()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder", hint="--out names the folder for the trace files")
    check_writable(folder / "trace")
    return measuring.run(farm, _plan(request))


def traced_runs(farm: Farm, measured: MeasuredCampaign, folder: Path, *, has_summary: bool) -> list[TracedRun]:
    """Write what was recorded to files in a folder; devices that were lost before their run have none."""
    runs = farm.store.runs(campaign_ids=[measured.campaign.campaign_id])
    traced = [_traced(farm.store, run, folder, has_summary=has_summary) for run in runs]
    there = {run.serial for run in traced}
    return traced + [_missing(serial, reason) for serial, reason in measured.result.lost.items() if serial not in there]


def _check_tool(name: str) -> None:
    """Refuse what can't be traced; the plan reports names that are no tool."""
    tool = next((tool for tool in ToolName if tool == name), None)
    if tool is not None and DeviceKind.ANDROID not in program(tool).kinds:
        raise UsageError(
            f"{name} can't be traced: traces are recorded on Android phones, with a program that benchfarm starts",
            hint="docs/guides/tracing.md says how an iPhone's run is traced by hand"
            if DeviceKind.IOS in program(tool).kinds
            else "",
        )


def _plan(request: TraceRequest) -> Plan:
    """Return one run of one case in the pass ``trace``; raises PlanError naming the options at fault."""
    from orchestrator.config.plan_options import plan_from_options

    plan = plan_from_options(
        models=[request.model],
        delegates=[request.delegate],
        threads=[request.threads],
        tools=[request.tool],
        devices=request.serials,
        passes=[Pass.TRACE.value],
        builds=request.builds,
        num_runs=request.num_runs,
        min_secs=0.0,
        max_secs=request.timeout_s,
        timeout=request.timeout_s,
        invocations=1,
        name="trace",
    )
    # A traced run's figures aren't compared with those of other nightly runs.
    return replace(plan, reference_check=False)


def _traced(store: Store, run: RunRecord, folder: Path, *, has_summary: bool) -> TracedRun:
    attachments = {item.name: item.data for item in store.attachments(run.run_id)}
    names = trace_names(attachments)
    path, summary, fault = None, None, ""
    if names:
        # Nothing that a phone or a model is called can lead out of the folder.
        path = (
            folder / f"{safe_name(run.case.serial)}-{safe_name(run.case.model_name)}-{run.run_id[:8]}.{_kind(names[0])}"
        )
        write_file(path, attachments[names[0]])
        if has_summary:
            try:
                summary = summarise(read_recording(names[0], attachments[names[0]]), command=run.command)
            except OutputParseError as error:
                fault = str(error)
    return TracedRun(
        run_id=run.run_id,
        serial=run.case.serial,
        outcome=run.outcome,
        reason=run.reason,
        is_virtual=run.is_virtual,
        file=path,
        size_bytes=len(attachments[names[0]]) if names else 0,
        summary=summary,
        fault=fault,
    )


def _missing(serial: str, reason: str) -> TracedRun:
    return TracedRun(
        run_id="",
        serial=serial,
        outcome=Outcome.ABORTED,
        reason=reason,
        is_virtual=False,
        file=None,
        size_bytes=0,
        summary=None,
        fault="",
    )


def safe_name(name: str) -> str:
    """Return a name with which nothing leads out of a folder."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in name)
    return kept.lstrip(".-")[:60] or "unnamed"


def _kind(name: str) -> str:
    return name.rpartition(".")[2]
