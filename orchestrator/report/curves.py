"""What a report derives beside single figures: sustained runs, pairs of profiles to compare."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from orchestrator.analysis.figures import truth_of
from orchestrator.analysis.outcome import NOT_WHAT_WAS_ASKED
from orchestrator.analysis.sustained_runs import attempts, curve_of, points_of
from orchestrator.records.run import RunRecord
from orchestrator.records.workload import Pass
from orchestrator.report.data import DiffPair, ResultRow, SustainedRow
from orchestrator.report.operators import compare_profiles

#: More pairs than this aren't read by anybody, and each costs a table.
_MOST_PAIRS: Final = 300


def sustained_rows(runs: Iterable[RunRecord], planned_s: Mapping[str, float]) -> tuple[SustainedRow, ...]:
    """Return the attempts at a sustained run of one case, by campaign; those with fewer than two figures are left out.

    An attempt that was cut and the one begun anew are two curves: the phone cooled in between. Invocations of another
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
