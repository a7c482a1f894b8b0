"""``benchfarm trace``: where the trace of a run was written, and what the operators took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from orchestrator.bootstrap import Settings
from orchestrator.cli import measuring
from orchestrator.cli.frame import PlanKeys, command, refuse
from orchestrator.cli.live import workspace_telling
from orchestrator.cli.result import CommandResult
from orchestrator.extensions.trace import apps, runs
from orchestrator.extensions.trace.apps import TracedApp
from orchestrator.extensions.trace.runs import TracedRun, TraceRequest
from orchestrator.extensions.trace.slices import (
    AppSummary,
    LeftOut,
    OperatorSlices,
    Part,
    TraceSummary,
)
from orchestrator.records.plan import PlanOptions
from orchestrator.records.run import Outcome
from orchestrator.tables import text
from orchestrator.tables.column import Column, Kind
from orchestrator.tables.escapes import one_line
from orchestrator.tables.table import Table
from orchestrator.units import US_PER_MS

#: Operators that the text lists; JSON lists all.
_ROWS = 30
#: Options of a model's run, and of an app.
_KEYS = "delegates threads tools builds num_runs timeout"
_OF_A_RUN = {"model", *_KEYS.split()}
_OF_AN_APP = {"during", "budget", "restart"}


@command("trace")
def trace(
    settings: Settings,
    context: typer.Context,
    request: TraceRequest,
    options: Annotated[
        PlanOptions,
        PlanKeys(
            f"devices {_KEYS}",
            delegates="cpu, xnnpack, gpu, nnapi, hexagon ... (default: cpu).",
            num_runs="Inferences beside the warm-up, at least (default: 20).",
            timeout="Time that the run may take (default: 120 s).",
        ),
    ],
) -> CommandResult:
    """Record a trace of one run, or of your own app.

    Example: benchfarm trace model.tflite --delegate gpu

    Example: benchfarm trace --app com.example.camera/.MainActivity --budget 20s

    The trace opens in the Perfetto UI; what each operator took is summed up.
    """
    folder = request.out or settings.data_folder / "traces"
    if request.app:
        refuse(context, _OF_A_RUN, "with --app")
        return _trace_app(settings, request, options, folder)
    refuse(context, _OF_AN_APP, "without --app")
    with workspace_telling(settings) as farm:
        measured = runs.record(farm, request, options, folder)
        # It is a campaign with a report like any other; what ended a device's part is told as
        # there.
        measuring.told(farm, measured, None)
        traced = runs.traced_runs(farm, measured, folder, has_summary=request.has_summary)
    campaign = measured.campaign
    is_whole = bool(traced) and all(
        item.file is not None and item.outcome is Outcome.COMPLETED for item in traced
    )
    skips = [one_line(f"not run on {skip.serial}: {skip.reason}") for skip in campaign.skipped]
    return CommandResult(
        text="\n\n".join(["\n".join(_lines(run)) for run in traced] + skips) or "nothing was run",
        data={"campaign_id": campaign.campaign_id, "traces": traced},
        exit_code=0 if is_whole else 1,
    )


def _trace_app(
    settings: Settings, request: TraceRequest, options: PlanOptions, folder: Path
) -> CommandResult:
    with workspace_telling(settings) as farm:
        traced = apps.record_app(farm, request, options.get("devices", ()), folder)
    return CommandResult(
        text="\n".join(_app_lines(traced)), data=traced, exit_code=1 if traced.faults else 0
    )


def _app_lines(traced: TracedApp) -> Iterator[str]:
    label = " (virtual)" if traced.is_virtual else ""
    yield one_line(f"{traced.serial}{label}: {traced.package} {traced.version}".rstrip())
    yield one_line(f"{traced.file} ({traced.size_bytes} bytes); open it at https://ui.perfetto.dev")
    yield from (one_line(fault) for fault in traced.faults)
    summary = traced.summary
    if summary is None or not summary.has_slices:
        return
    yield from _incomplete(summary)
    if summary.inferences:
        yield (
            f"{summary.inferences} inferences, {summary.total_us / 1000:.3f} ms in all: median "
            f"{_ms(summary.median_us)}, {_ms(summary.least_us)} to {_ms(summary.most_us)}"
        )
    else:
        yield "no whole inference was recorded; operators' slices outside one:"
    if parts := (summary.operators or summary.outside):
        yield text.render(
            Table(name="operators", caption="Operators", columns=_PARTS, rows=parts[:_ROWS])
        )
    if summary.inferences:
        yield f"outside all operators: {_ms(summary.between_us)} ({summary.between_us / summary.total_us:.1%})"
    yield from _handovers(summary)
    yield "tracing costs time: these are shares, no result"


def _ms(time_us: float | None) -> str:
    return "-" if time_us is None else f"{time_us / 1000:.3f} ms"


_MS: Final[dict[str, Any]] = {
    "kind": Kind.NUMBER,
    "unit": "ms",
    "scale": 1 / US_PER_MS,
    "digits": 3,
}
_PERCENT: Final[dict[str, Any]] = {"kind": Kind.NUMBER, "unit": "%", "scale": 100.0, "digits": 1}
_PARTS: Final[Sequence[Column[Part]]] = (
    Column("name", "operator", lambda part: part.name),
    Column("count", "slices", lambda part: part.count, Kind.COUNT),
    Column("per_inference", "per inference", lambda part: part.per_inference, Kind.NUMBER),
    Column("total_us", "own", lambda part: part.total_us, **_MS),
    Column("share", "share", lambda part: part.share, **_PERCENT),
)
_OPERATORS: Final[Sequence[Column[OperatorSlices]]] = (
    Column(
        "name", "operator@node/subgraph", lambda item: f"{item.name}@{item.node}/{item.subgraph}"
    ),
    Column("count", "slices", lambda item: item.count, Kind.COUNT),
    Column("total_us", "total", lambda item: item.total_us, **_MS),
    Column("mean_us", "mean", lambda item: item.mean_us, Kind.NUMBER, "us", digits=1),
    Column("self_us", "own", lambda item: item.self_us, **_MS),
    Column("share", "share", lambda item: item.share, **_PERCENT),
)


def _handovers(summary: AppSummary) -> Iterator[str]:
    """Yield what is known of delegates and copies."""
    gaps = summary.delegate_gaps
    for part in summary.delegates:
        yield one_line(f"delegate {part.name}: {part.count} slices, {_ms(part.total_us)}")
    if gaps.count:
        names = f" ({', '.join(gaps.operators)})" if gaps.operators else ""
        yield one_line(
            f"between delegates' slices: {gaps.count} gaps, {_ms(gaps.total_us)}, of it {_ms(gaps.operators_us)} in "
            f"operators on the CPU{names}"
        )
    for part in summary.copies:
        yield one_line(
            f"copy {part.name} [{part.direction or 'direction unknown'}]: {part.count}, {_ms(part.total_us)}"
        )
    if not summary.copies:
        yield "copies: no slice tells of one; TensorFlow Lite marks none itself"


def _incomplete(summary: LeftOut) -> Iterator[str]:
    if summary.lost_events:
        yield f"incomplete: the phone lost {summary.lost_events} events; a shorter run makes a smaller trace"
    for gap in summary.gaps:
        yield one_line(f"incomplete: {gap}")
    if summary.unmatched:
        yield f"{summary.unmatched} slices lack their begin or end and are left out"
    if summary.foreign_slices:
        yield f"{summary.foreign_slices} slices of other processes are left out"


def _lines(run: TracedRun) -> Iterator[str]:
    label = " (virtual)" if run.is_virtual else ""
    if run.outcome is not Outcome.COMPLETED:
        yield one_line(f"{run.serial}{label}: the run {run.outcome}: {run.reason}")
    if run.file is None:
        yield one_line(f"{run.serial}{label}: no trace")
        return
    yield one_line(
        f"{run.serial}{label}: {run.file} ({run.size_bytes} bytes); open it at https://ui.perfetto.dev"
    )
    if run.fault:
        yield one_line(f"it can't be read: {run.fault}")
    if run.summary is None:
        return
    yield from _notes(run.summary)
    if operators := run.summary.operators:
        yield text.render(
            Table(
                name="operators",
                caption="Operators",
                columns=_OPERATORS,
                rows=operators,
                most=_ROWS,
            )
        )
    yield "warm-up included; tracing costs time: these are shares, no result"


def _notes(summary: TraceSummary) -> Iterator[str]:
    if not summary.operators:
        yield "no operator wrote a slice: the program's runtime wasn't built for it, or the phone let it write none"
    else:
        yield one_line(f"process {summary.process} {summary.process_name}")
    yield from _incomplete(summary)
