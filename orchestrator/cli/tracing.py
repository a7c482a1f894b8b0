"""``benchfarm trace``: one run under a system tracer, its file for the Perfetto UI, and what the operators took."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.app.stored import find_campaign
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli import measuring
from orchestrator.cli.result import CommandResult, table
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.files import check_writable, write_file
from orchestrator.ports import Store
from orchestrator.programs import program
from orchestrator.programs.running.trace import TraceSummary, read_recording, summarise, trace_names
from orchestrator.records.device import DeviceKind
from orchestrator.records.plan import Plan
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass, ToolName
from orchestrator.report.escapes import one_line

#: Operators that the text lists; JSON lists all.
_ROWS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """The options of ``benchfarm trace``, as they were typed."""

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


def trace(settings: Settings, request: TraceRequest, out: Path | None) -> CommandResult:
    """Record the named model on the chosen phones; raises UsageError kinds before anything runs."""
    _check_tool(request.tool)
    if request.has_summary:
        from orchestrator.programs.running.trace_perfetto import require_perfetto

        require_perfetto()
    folder = out or settings.data_folder / "traces"
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder", hint="--out names the folder for the trace files")
    check_writable(folder / "trace")
    done = measuring.execute(settings, _plan(request), None)
    assert isinstance(done.data, dict)
    with Farm(settings) as farm:
        campaign = find_campaign(farm.store, str(done.data["campaign_id"]))
        runs = list(farm.store.runs(campaign_ids=[campaign.campaign_id]))
        traced = [_traced(farm.store, run, folder, has_summary=request.has_summary) for run in runs]
    for serial, reason in dict(done.data["lost"]).items():
        if serial not in {run.serial for run in traced}:
            traced.append(_missing(serial, reason))
    is_whole = bool(traced) and all(item.file is not None and item.outcome is Outcome.COMPLETED for item in traced)
    skips = [one_line(f"not run on {skip.serial}: {skip.reason}") for skip in campaign.skipped]
    return CommandResult(
        text="\n\n".join([*map(_text, traced), *skips]) or "nothing was run",
        data={"campaign_id": campaign.campaign_id, "traces": traced},
        exit_code=0 if is_whole else 1,
    )


def _check_tool(name: str) -> None:
    """Refuse what can't be traced; names that are no tool are told by the plan."""
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
    # Beside a trace no figure is compared with another night's.
    return replace(plan, sentinel=False)


def _traced(store: Store, run: RunRecord, folder: Path, *, has_summary: bool) -> TracedRun:
    attachments = {item.name: item.data for item in store.attachments(run.run_id)}
    names = trace_names(attachments)
    path, summary, fault = None, None, ""
    if names:
        # Nothing that a phone or a model is called can lead out of the folder.
        path = folder / f"{_safe(run.case.serial)}-{_safe(run.case.model_name)}-{run.run_id[:8]}.{_kind(names[0])}"
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


def _safe(name: str) -> str:
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in name)
    return kept.lstrip(".-")[:60] or "unnamed"


def _kind(name: str) -> str:
    return name.rpartition(".")[2]


def _text(run: TracedRun) -> str:
    return "\n".join(_lines(run))


def _lines(run: TracedRun) -> Iterator[str]:
    label = " (virtual)" if run.is_virtual else ""
    if run.outcome is not Outcome.COMPLETED:
        yield one_line(f"{run.serial}{label}: the run {run.outcome}: {run.reason}")
    if run.file is None:
        yield one_line(f"{run.serial}{label}: no trace")
        return
    yield one_line(f"{run.serial}{label}: {run.file} ({run.size_bytes} bytes); open it at https://ui.perfetto.dev")
    if run.fault:
        yield one_line(f"it can't be read: {run.fault}")
    if run.summary is None:
        return
    yield from _notes(run.summary)
    rows = [
        (
            f"{item.name}@{item.node}/{item.subgraph}",
            str(item.count),
            f"{item.total_us / 1000:.3f}",
            f"{item.mean_us:.1f}",
            f"{item.self_us / 1000:.3f}",
            f"{item.share:.1%}",
        )
        for item in run.summary.operators[:_ROWS]
    ]
    if rows:
        headers = ("operator@node/subgraph", "slices", "total ms", "mean us", "own ms", "share")
        yield table(headers, rows, right=(1, 2, 3, 4, 5))
        if len(run.summary.operators) > _ROWS:
            yield f"and {len(run.summary.operators) - _ROWS} more; --json lists all"
    yield "warm-up included; tracing costs time: these are shares, no result"


def _notes(summary: TraceSummary) -> Iterator[str]:
    if not summary.operators:
        yield "no operator wrote a slice: the program's runtime wasn't built for it, or the phone let it write none"
    else:
        yield one_line(f"process {summary.process} {summary.process_name}")
    if summary.lost_events:
        yield f"incomplete: the phone lost {summary.lost_events} events; fewer --num-runs make a smaller trace"
    for gap in summary.gaps:
        yield one_line(f"incomplete: {gap}")
    if summary.unmatched:
        yield f"{summary.unmatched} slices lack their begin or end and are left out"
    if summary.foreign_slices:
        yield f"{summary.foreign_slices} slices of other processes are left out"
