"""What a report derives beside single figures: starts, sustained runs, pairs of profiles."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from orchestrator.analysis.case_result import OWN_FIGURE, CaseResult
from orchestrator.analysis.outcome import NOT_WHAT_WAS_ASKED, truth_of
from orchestrator.analysis.sustained import attempts, curve_of, points_of
from orchestrator.records.run import Outcome, RunRecord, ToolReport
from orchestrator.records.start import StartStage, stage_of
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Pass
from orchestrator.report.data import DiffPair, ResultRow, StartRow, SustainedRow
from orchestrator.report.operators import compare_profiles

#: More pairs than this aren't read by anybody, and each costs a table.
_MOST_PAIRS: Final = 300


def sustained_rows(runs: Iterable[RunRecord], planned_s: Mapping[str, float]) -> tuple[SustainedRow, ...]:
    """Return the attempts at a sustained run of one case, by campaign; those with fewer than two figures are left out.

    An attempt that was cut and the one restarted are two curves: the phone cooled in between. Invocations of another
    delegate are no points. ``planned_s`` is how long each campaign's attempts were to last.
    """
    campaigns: dict[str, list[RunRecord]] = defaultdict(list)
    for run in runs:
        if run.run_pass is Pass.SUSTAINED and truth_of(run) not in NOT_WHAT_WAS_ASKED:
            campaigns[str(run.campaign_id)].append(run)
    rows = []
    for campaign_id, members in campaigns.items():
        for attempt in attempts(members):
            curve = curve_of(attempt)
            if curve is not None:
                row = SustainedRow(
                    campaign_id=campaign_id,
                    attempt=attempt.number + 1,
                    is_whole=attempt.is_over(planned_s.get(campaign_id, 0.0)) and not attempt.has_failed,
                    points=points_of(attempt),
                    curve=curve,
                )
                rows.append(row)
    return tuple(rows)


def diff_pairs(rows: Sequence[ResultRow], campaign_titles: Mapping[str, str]) -> tuple[DiffPair, ...]:
    """Return the profiles that are worth comparing, at most 300 pairs.

    First one series over campaigns, as stored, also where model or program changed in between; then each delegate's
    newest profile against that of the CPU with as many threads, or of the only CPU configuration that has one.
    """
    pairs = [*_over_campaigns(rows, campaign_titles), *_over_delegates(rows)]
    return tuple(pairs[:_MOST_PAIRS])


def _over_campaigns(rows: Sequence[ResultRow], titles: Mapping[str, str]) -> Iterable[DiffPair]:
    order = list(titles)
    series: dict[str, list[ResultRow]] = defaultdict(list)
    for row in rows:
        if row.profiles:
            series[str(row.case.series_key)].append(row)
    for members in series.values():
        found = [(row, profile) for row in members for profile in row.profiles]
        found.sort(key=lambda item: order.index(item[1].campaign_id) if item[1].campaign_id in order else -1)
        for (_, before), (row, after) in pairwise(found):
            if before.campaign_id != after.campaign_id:
                yield DiffPair(
                    row=row,
                    before=titles.get(before.campaign_id, before.campaign_id),
                    after=titles.get(after.campaign_id, after.campaign_id),
                    diff=compare_profiles(before, after),
                )


def _over_delegates(rows: Sequence[ResultRow]) -> Iterable[DiffPair]:
    places: dict[tuple[str, str, str], list[ResultRow]] = defaultdict(list)
    for row in rows:
        if row.profiles:
            places[row.model.subject, row.device.serial, row.case.tool.value].append(row)
    for members in places.values():
        on_cpu = [row for row in members if row.case.delegate.is_cpu]
        for row in members:
            if row.case.delegate.is_cpu or not on_cpu:
                continue
            alike = [other for other in on_cpu if other.case.threads == row.case.threads] or on_cpu
            yield DiffPair(
                row=row,
                before=alike[0].configuration,
                after=row.configuration,
                diff=compare_profiles(alike[0].profiles[-1], row.profiles[-1]),
            )


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
