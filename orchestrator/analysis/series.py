"""Series over nights: which night a moment belongs to, and the figure of each series for each night."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

import numpy as np
from numpy.typing import NDArray

from orchestrator.records.history import Contents, Points, SeriesSketch
from orchestrator.records.identity import CampaignId, SeriesKey

#: A night is known by the day on which it begins, and lasts from noon to noon of this computer's time.
_NOON = timedelta(hours=12)


@dataclass(frozen=True, slots=True, kw_only=True)
class NightTable:
    """One figure for each series and night; NaN where there is none."""

    series: tuple[SeriesKey, ...]
    sketches: tuple[SeriesSketch, ...]
    #: Every night on which anything was measured, in order.
    nights: tuple[date, ...]
    #: Series x nights, in microseconds: the median of the night's trusted invocations, else of its suspect ones; of
    #: several contents of one night, those of the newest.
    latency_us: NDArray[np.float64]
    #: Series x nights: which of ``contents`` the night's figure is of (the newest that it measured), -1 for none.
    contents_at: NDArray[np.int64]
    contents: tuple[Contents, ...]


def night_of(moment: datetime) -> date:
    """Return the night that a moment belongs to."""
    return (moment.astimezone() - _NOON).date()


def first_moment(night: date) -> datetime:
    """Return when a night begins: at its date's noon, local time."""
    return datetime.combine(night, time(12)).astimezone()


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
    campaign = _column(points.campaign_at)
    measured = sorted({night_of_campaign[place] for place in np.unique(campaign) if counts[place]})
    nights = measured if last_nights is None else measured[-last_nights:]
    place_of_night = {night: place for place, night in enumerate(nights)}
    places = np.array(
        [
            place_of_night.get(night, -1) if it_counts else -1
            for night, it_counts in zip(night_of_campaign, counts, strict=True)
        ],
        dtype=np.int64,
    )
    night = places[campaign] if campaign.size else campaign
    kept = night >= 0
    shape = len(points.series), len(nights)
    cell = (_column(points.series_at) * len(nights) + night)[kept]
    of_point = _column(points.contents_at)[kept]
    contents = _newest(cell, of_point, campaign[kept], len(points.series) * len(nights))
    is_newest = of_point == contents[cell]
    figures = _medians(
        cell[is_newest],
        np.asarray(points.latency_us, dtype=np.float64)[kept][is_newest],
        _column(points.trusted)[kept][is_newest],
        len(points.series) * len(nights),
    )
    used = np.flatnonzero(np.isfinite(figures.reshape(shape)).any(axis=1))
    return NightTable(
        series=tuple(points.series[place].series_key for place in used),
        sketches=tuple(points.series[place] for place in used),
        nights=tuple(nights),
        latency_us=figures.reshape(shape)[used],
        contents_at=contents.reshape(shape)[used],
        contents=points.contents,
    )


def _column(values: array[int]) -> NDArray[np.int64]:
    return np.asarray(values, dtype=np.int64)


def _newest(
    cell: NDArray[np.int64], contents: NDArray[np.int64], campaign: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return each cell's newest contents: of its newest campaign; of several in that, those first stored last.

    A campaign may measure two programs in turns, night after night: which of them ran last says nothing.
    """
    newest = np.full(count, -1, dtype=np.int64)
    order = np.lexsort((contents, campaign))
    newest[cell[order]] = contents[order]
    return newest


def _medians(
    cell: NDArray[np.int64], latency_us: NDArray[np.float64], trusted: NDArray[np.int64], count: int
) -> NDArray[np.float64]:
    """Return the median of each cell's points, of the trusted ones where there are any."""
    figures = np.full(count, np.nan)
    if cell.size == 0:
        return figures
    has_trusted = np.zeros(count, dtype=bool)
    has_trusted[cell[trusted > 0]] = True
    counts = (trusted > 0) | ~has_trusted[cell]
    cell, latency_us = cell[counts], latency_us[counts]
    order = np.lexsort((latency_us, cell))
    cell, latency_us = cell[order], latency_us[order]
    starts = np.flatnonzero(np.r_[True, cell[1:] != cell[:-1]])
    sizes = np.diff(np.r_[starts, cell.size])
    figures[cell[starts]] = (latency_us[starts + (sizes - 1) // 2] + latency_us[starts + sizes // 2]) / 2
    return figures
