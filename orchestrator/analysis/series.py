"""Series over nights: which night a moment belongs to, and the figure of each series for each night."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from orchestrator.records.history import CaseSketch, Points
from orchestrator.records.identity import CampaignId, SeriesKey

#: A night is known by the day on which it begins, and lasts from noon to noon of this computer's time.
_NOON = timedelta(hours=12)


@dataclass(frozen=True, slots=True, kw_only=True)
class NightTable:
    """One figure for each series and night; NaN where there is none."""

    series: tuple[SeriesKey, ...]
    #: Every night on which anything was measured, in order.
    nights: tuple[date, ...]
    #: Series x nights, in microseconds: the median of the night's trusted invocations, else of its suspect ones.
    latency_us: NDArray[np.float64]
    #: Series x nights: which of ``cases`` the night's figure is of (that of its last invocation), -1 for none.
    case: NDArray[np.int64]
    cases: tuple[CaseSketch, ...]


def night_of(moment: datetime) -> date:
    """Return the night that a moment belongs to."""
    return (moment.astimezone() - _NOON).date()


def night_table(
    points: Points, *, last_nights: int | None = None, only: Collection[CampaignId] | None = None
) -> NightTable:
    """Return points by series and night.

    Args:
        points: of any campaigns; several of one night are put together.
        last_nights: how many nights to keep, the newest; all when None.
        only: the campaigns that count; all when None.
    """
    night_of_campaign = [night_of(campaign.created_at) for campaign in points.campaigns]
    counts = [only is None or campaign.campaign_id in only for campaign in points.campaigns]
    measured = sorted({night_of_campaign[place] for place in set(points.campaign) if counts[place]})
    nights = measured if last_nights is None else measured[-last_nights:]
    place_of_night = {night: place for place, night in enumerate(nights)}
    keys = list(dict.fromkeys(case.series_key for case in points.cases))
    place_of_series = {key: place for place, key in enumerate(keys)}
    series_of_case = np.array([place_of_series[case.series_key] for case in points.cases], dtype=np.int64)
    places = np.array(
        [
            place_of_night.get(night, -1) if it_counts else -1
            for night, it_counts in zip(night_of_campaign, counts, strict=True)
        ],
        dtype=np.int64,
    )
    case = np.frombuffer(points.case, dtype=np.int64) if points.case else np.empty(0, np.int64)
    campaign = np.frombuffer(points.campaign, dtype=np.int64) if points.campaign else np.empty(0, np.int64)
    latency_us = np.frombuffer(points.latency_us) if points.latency_us else np.empty(0)
    trusted = np.frombuffer(points.trusted, dtype=np.int64) if points.trusted else np.empty(0, np.int64)
    night = places[campaign] if campaign.size else campaign
    kept = night >= 0
    cell = (series_of_case[case] if case.size else case) * len(nights) + night
    figures, last_case = _medians(cell[kept], latency_us[kept], trusted[kept], case[kept], len(keys) * len(nights))
    used = np.flatnonzero(np.isfinite(figures.reshape(len(keys), len(nights))).any(axis=1))
    return NightTable(
        series=tuple(keys[place] for place in used),
        nights=tuple(nights),
        latency_us=figures.reshape(len(keys), len(nights))[used],
        case=last_case.reshape(len(keys), len(nights))[used],
        cases=points.cases,
    )


def _medians(
    cell: NDArray[np.int64],
    latency_us: NDArray[np.float64],
    trusted: NDArray[np.int64],
    case: NDArray[np.int64],
    count: int,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the median of each cell's points (the trusted ones where there are any), and its last case."""
    figures, last_case = np.full(count, np.nan), np.full(count, -1, dtype=np.int64)
    if cell.size == 0:
        return figures, last_case
    has_trusted = np.zeros(count, dtype=bool)
    has_trusted[cell[trusted > 0]] = True
    counts = (trusted > 0) | ~has_trusted[cell]
    cell, latency_us, case = cell[counts], latency_us[counts], case[counts]
    last_case[cell] = case
    order = np.lexsort((latency_us, cell))
    cell, latency_us = cell[order], latency_us[order]
    starts = np.flatnonzero(np.r_[True, cell[1:] != cell[:-1]])
    sizes = np.diff(np.r_[starts, cell.size])
    figures[cell[starts]] = (latency_us[starts + (sizes - 1) // 2] + latency_us[starts + sizes // 2]) / 2
    return figures, last_case


def nights_since(nights: Sequence[date], since: date) -> int:
    """Return how many of some nights are at or after a day."""
    return sum(night >= since for night in nights)
