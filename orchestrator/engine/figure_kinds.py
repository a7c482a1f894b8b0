"""Series whose program began to print medians: nights of means and nights of medians aren't one series of figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date

import numpy as np

from orchestrator.analysis.changepoint import Change
from orchestrator.analysis.figures import figure_us, of_one_kind
from orchestrator.analysis.series import NightTable, night_of
from orchestrator.ports import Store
from orchestrator.records.identity import BuildSha, CampaignId, SeriesKey
from orchestrator.records.run import FigureKind


def nights_of_one_kind(
    store: Store, table: NightTable, found: Sequence[Change]
) -> tuple[NightTable, Mapping[SeriesKey, date]]:
    """Return the table without the nights whose figures are of another kind than their series' newest one.

    Beside it, of each series that lost nights so, the first one whose figures are of the newest kind. Which kind a
    program prints is looked up only of those that measured around a change, and of each in a few runs.
    """
    kinds = _Kinds(store, table)
    latency_us, contents_at = table.latency_us.copy(), table.contents_at.copy()
    begun: dict[SeriesKey, date] = {}
    for series in sorted({change.series for change in found if kinds.differ_around(change)}):
        of_night = kinds.of_nights(series, range(len(table.nights)))
        newest = of_night[max(of_night)]
        other = [night for night, kind in of_night.items() if kind is not newest]
        latency_us[series, other], contents_at[series, other] = np.nan, -1
        begun[table.series[series]] = table.nights[min(night for night, kind in of_night.items() if kind is newest)]
    return replace(table, latency_us=latency_us, contents_at=contents_at), begun


class _Kinds:
    """Which kind of figure each program prints."""

    def __init__(self, store: Store, table: NightTable) -> None:
        self._store = store
        self._table = table
        self._known: dict[BuildSha, FigureKind | None] = {}
        self._campaigns: dict[date, list[CampaignId]] = defaultdict(list)
        for campaign in store.campaigns():
            if campaign.terms.pairing is None:
                self._campaigns[night_of(campaign.created_at)].append(campaign.campaign_id)

    def differ_around(self, change: Change) -> bool:
        """Whether the nights on which a change may have begun, and the last one before, have both kinds of figures."""
        there = np.flatnonzero(self._table.contents_at[change.series] >= 0)
        before = there[there < change.earliest][-1:]
        nights = [*before.tolist(), *there[(there >= change.earliest) & (there <= change.latest)].tolist()]
        return len(set(self.of_nights(change.series, nights).values())) > 1

    def of_nights(self, series: int, nights: Sequence[int]) -> dict[int, FigureKind]:
        """Return the kinds of those nights of which it is known."""
        kinds = {night: self._of(series, night) for night in nights}
        return {night: kind for night, kind in kinds.items() if kind is not None}

    def _of(self, series: int, night: int) -> FigureKind | None:
        place = int(self._table.contents_at[series, night])
        if place < 0:
            return None
        build = self._table.contents[place].build_sha256
        if build not in self._known:
            campaigns = self._campaigns[self._table.nights[night]]
            runs = [
                run
                for run in self._store.runs(campaign_ids=campaigns, series_keys=[self._table.series[series]])
                if run.case.build_sha256 == build and figure_us(run) is not None
            ]
            self._known[build] = of_one_kind(runs)[0] if runs else None
        return self._known[build]
