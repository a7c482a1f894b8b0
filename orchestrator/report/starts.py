"""How a case starts, by the stages of the pass ``cold``; never mixed with the figures of other passes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from orchestrator.analysis.case_result import OWN_FIGURE, CaseResult
from orchestrator.records.run import Outcome, RunRecord, ToolReport
from orchestrator.records.start import StartStage, stage_of
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Pass
from orchestrator.report.data import StartRow


def known_median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are known; None when none is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def is_usable(run: RunRecord) -> bool:
    """Whether an invocation did what its pass asked for: it ended well, where it was meant to run."""
    return run.outcome is Outcome.COMPLETED and run.verdict.quality is not Quality.REJECTED


def latency_reports(runs: Sequence[RunRecord], result: CaseResult) -> list[ToolReport]:
    """Return the reports that the latency comes from; none where it isn't the requested delegate's."""
    used = set(result.used) if result.status in OWN_FIGURE else set()
    return [run.report for run in runs if run.report is not None and run.run_id in used]


def memory_reports(runs: Sequence[RunRecord], result: CaseResult) -> list[ToolReport]:
    """Return the reports that the memory comes from: of the memory pass, else those that the latency comes from."""
    measured = [run.report for run in runs if run.run_pass is Pass.MEMORY and run.report is not None and is_usable(run)]
    return measured or latency_reports(runs, result)


_WORST_FIRST = (Quality.SUSPECT, Quality.TRUSTED)


def start_rows(runs: Sequence[RunRecord]) -> tuple[StartRow, ...]:
    """Return the medians of each stage that there are usable starts of, in the stages' order.

    A start that was rejected (it wasn't cold, or ran somewhere else) isn't in them.
    """
    rows = []
    for stage in StartStage:
        starts = [run for run in runs if stage_of(run.run_pass, run.invocation) is stage and is_usable(run)]
        if starts:
            reports = [run.report for run in starts if run.report is not None]
            qualities = {run.verdict.quality for run in starts}
            rows.append(
                StartRow(
                    stage=stage,
                    count=len(starts),
                    init_us=known_median(report.init_us for report in reports),
                    first_us=known_median(report.first_inference_us for report in reports),
                    quality=next(quality for quality in _WORST_FIRST if quality in qualities),
                )
            )
    return tuple(rows)
