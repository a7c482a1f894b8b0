"""``benchfarm trace``: where the trace of a run was written, and what the operators took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from orchestrator.app.options import arg, opt
from orchestrator.bootstrap import Settings
from orchestrator.cli import measuring
from orchestrator.cli.frame import PlanKeys, command
from orchestrator.cli.live import workspace_telling
from orchestrator.cli.result import CommandResult
from orchestrator.extensions.trace import runs
from orchestrator.extensions.trace.runs import TracedRun
from orchestrator.extensions.trace.slices import OperatorSlices, TraceSummary
from orchestrator.records.plan import PlanOptions
from orchestrator.records.run import Outcome
from orchestrator.tables import text
from orchestrator.tables.column import Column, Kind
from orchestrator.tables.escapes import one_line
from orchestrator.tables.table import Table
from orchestrator.units import US_PER_MS

#: Operators that the text lists; JSON lists all.
_ROWS = 30


@command("trace")
def trace(
    settings: Settings,
    model: Annotated[Path, arg("Model file (.tflite).")],
    options: Annotated[
        PlanOptions,
        PlanKeys(
            "devices delegates threads tools builds num_runs timeout",
            delegates="cpu, xnnpack, gpu, nnapi, hexagon ... (default: cpu).",
            num_runs="Inferences beside the warm-up, at least (default: 20).",
            timeout="Time that the run may take (default: 120 s).",
        ),
    ],
    out: Annotated[Path | None, opt("--out -o", "Folder for the trace files.")] = None,
) -> CommandResult:
    """Record a trace of one run.

    Example: benchfarm trace model.tflite --delegate gpu

    The trace opens in the Perfetto UI; what each operator took is summed up.
    """
    folder = out or settings.data_folder / "traces"
    with workspace_telling(settings) as farm:
        measured = runs.record(farm, model, options, folder)
        # It is a campaign with a report like any other; what ended a device's part is told as
        # there.
        measuring.told(farm, measured, None)
        traced = runs.traced_runs(farm, measured, folder)
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


_MS: Final[dict[str, Any]] = {
    "kind": Kind.NUMBER,
    "unit": "ms",
    "scale": 1 / US_PER_MS,
    "digits": 3,
}
_OPERATORS: Final[Sequence[Column[OperatorSlices]]] = (
    Column(
        "name", "operator@node/subgraph", lambda item: f"{item.name}@{item.node}/{item.subgraph}"
    ),
    Column("count", "slices", lambda item: item.count, Kind.COUNT),
    Column("total_us", "total", lambda item: item.total_us, **_MS),
    Column("mean_us", "mean", lambda item: item.mean_us, Kind.NUMBER, "us", digits=1),
    Column("self_us", "own", lambda item: item.self_us, **_MS),
    Column("share", "share", lambda item: item.share, Kind.NUMBER, "%", scale=100.0, digits=1),
)


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
    if run.summary is None:
        yield one_line(f"it can't be read: {run.fault}")
        return
    yield from map(one_line, _notes(run.summary))
    if operators := run.summary.operators:
        slowest = operators[:_ROWS]
        yield text.render(
            Table(name="operators", caption="Operators", columns=_OPERATORS, rows=slowest)
        )
        if more := len(operators) - len(slowest):
            yield f"and {more} more: --json lists all"
    yield "warm-up included; tracing costs time: these are shares, no result"


def _notes(summary: TraceSummary) -> Iterator[str]:
    if not summary.operators:
        yield "no operator wrote a slice: the program's runtime wasn't built for it, or the phone let it write none"
    else:
        yield f"process {summary.process} {summary.process_name}"
    if summary.lost_events:
        yield f"incomplete: the phone lost {summary.lost_events} events; a shorter run makes a smaller trace"
    yield from (f"incomplete: {gap}" for gap in summary.gaps)
    if summary.unmatched:
        yield f"{summary.unmatched} slices lack their begin or end and are left out"
    if summary.foreign_slices:
        yield f"{summary.foreign_slices} slices of other processes are left out"
