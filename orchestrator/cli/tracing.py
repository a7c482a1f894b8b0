"""``benchfarm trace``: where the trace of a run was written, and what the operators took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator.app import tracing
from orchestrator.app.tracing import TracedRun, TraceRequest
from orchestrator.bootstrap import Settings
from orchestrator.cli import measuring
from orchestrator.cli.download_progress import farm_telling
from orchestrator.cli.result import CommandResult, table
from orchestrator.programs.running.trace import TraceSummary
from orchestrator.records.run import Outcome
from orchestrator.report.escapes import one_line

#: Operators that the text lists; JSON lists all.
_ROWS = 30


def trace(settings: Settings, request: TraceRequest, out: Path | None) -> CommandResult:
    """Record the named model on the chosen phones; raises UsageError kinds before anything runs."""
    folder = out or settings.data_folder / "traces"
    with farm_telling(settings) as farm:
        measured = tracing.record(farm, request, folder)
        # It is a campaign with a report like any other; what ended a device's part is told as there.
        measuring.told(farm, measured, None)
        traced = tracing.traced_runs(farm, measured, folder, has_summary=request.has_summary)
    campaign = measured.campaign
    is_whole = bool(traced) and all(item.file is not None and item.outcome is Outcome.COMPLETED for item in traced)
    skips = [one_line(f"not run on {skip.serial}: {skip.reason}") for skip in campaign.skipped]
    return CommandResult(
        text="\n\n".join([*map(_text, traced), *skips]) or "nothing was run",
        data={"campaign_id": campaign.campaign_id, "traces": traced},
        exit_code=0 if is_whole else 1,
    )


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
