"""How a case starts, by the stages of the pass ``cold``; never mixed with the figures of other passes."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.records.run import RunRecord
from orchestrator.records.start import StartStage, stage_of
from orchestrator.records.verdict import Quality
from orchestrator.report.beside import is_usable, known_median
from orchestrator.report.data import StartRow

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
