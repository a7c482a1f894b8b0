"""How sure the figure of each night of each series is, and which campaigns it comes from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.memory import GRID, fits, weights
from orchestrator.analysis.middle import degrees_of, middles, t_quantile
from orchestrator.analysis.series import NightTable, night_of
from orchestrator.analysis.summary import LEVEL
from orchestrator.records.history import Points
from orchestrator.records.identity import CampaignId


@dataclass(frozen=True, slots=True, kw_only=True)
class NightDetails:
    """Beside each figure of a :class:`NightTable`; each array is series x nights."""

    #: Ends of the 95 % interval in microseconds, NaN for a night of one invocation.
    low_us: NDArray[np.float64]
    high_us: NDArray[np.float64]
    #: Invocations that the figure is of.
    invocations: NDArray[np.int64]
    is_trusted: NDArray[np.bool_]
    #: Place of a series, place of a night, campaign: in the order of series and nights.
    campaigns: tuple[NDArray[np.int64], NDArray[np.int64], tuple[CampaignId, ...]]


def night_details(points: Points, table: NightTable, *, only: Collection[CampaignId] | None = None) -> NightDetails:
    """Return what is known about each figure of a table, from the points that it was made of.

    The interval is that of a report below 20 invocations: Student's t of the trimmed middle, widened by what they and
    the device's other series of the night remember. Points are in the order of storing: gaps count as even.

    Args:
        points: those that the table was made of; others are passed over.
        table: the figures.
        only: the campaigns that count, as they were given for the table.
    """
    shape = table.latency_us.shape
    cell, kept = _cells(points, table, only)
    logs = np.log(np.frombuffer(points.latency_us)[kept]) if points.latency_us else np.empty(0)
    trusted = np.frombuffer(points.trusted, dtype=np.int64)[kept] > 0 if points.trusted else np.empty(0, bool)
    campaign = np.frombuffer(points.campaign_at, dtype=np.int64)[kept] if points.campaign_at else np.empty(0, np.int64)
    size = shape[0] * shape[1]
    is_trusted = np.zeros(size, dtype=bool)
    is_trusted[cell[trusted]] = True
    counts = trusted | ~is_trusted[cell]
    cell, logs, campaign = cell[counts], logs[counts], campaign[counts]
    invocations = np.bincount(cell, minlength=size)
    devices = {serial: place for place, serial in enumerate({item.serial: None for item in table.sketches})}
    device = np.array([devices[item.serial] for item in table.sketches], dtype=np.int64)
    at_once = (np.repeat(device, shape[1]) * shape[1] + np.tile(np.arange(shape[1]), shape[0])) if size else cell
    order = np.lexsort((campaign, cell))
    low, high = _intervals(logs[order], invocations, at_once)
    pairs = np.unique(cell * max(1, len(points.campaigns)) + campaign) if cell.size else np.empty(0, np.int64)
    cells, places = np.divmod(pairs, max(1, len(points.campaigns)))
    return NightDetails(
        low_us=low.reshape(shape),
        high_us=high.reshape(shape),
        invocations=invocations.reshape(shape),
        is_trusted=is_trusted.reshape(shape),
        campaigns=(
            cells // max(1, shape[1]),
            cells % max(1, shape[1]),
            tuple(points.campaigns[place].campaign_id for place in places.tolist()),
        ),
    )


def _intervals(
    logs: NDArray[np.float64], invocations: NDArray[np.int64], at_once: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each cell's interval, from logs by cell and time; ``at_once`` says which are of one device and night."""
    low, high = np.full(invocations.size, np.nan), np.full(invocations.size, np.nan)
    begins = np.cumsum(invocations) - invocations
    parts = []
    for count in np.unique(invocations[invocations > 1]).tolist():
        cells = np.flatnonzero(invocations == count)
        samples = logs[begins[cells, None] + np.arange(count)]
        parts.append((count, cells, samples, *fits(samples)))
    together = np.zeros((int(at_once.max(initial=-1)) + 1, len(GRID)))
    for _, cells, _, likelihood, _ in parts:
        np.add.at(together, at_once[cells], likelihood)
    for count, cells, samples, likelihood, grown in parts:
        shares = weights(likelihood, together[at_once[cells]] - likelihood)
        middle, error = middles(samples)
        half = t_quantile((1 + LEVEL) / 2, degrees_of(count)) * error * np.maximum(1.0, np.sum(shares * grown, axis=1))
        low[cells], high[cells] = np.exp(middle - half), np.exp(middle + half)
    return low, high


def _cells(
    points: Points, table: NightTable, only: Collection[CampaignId] | None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return which cell of the table each point is of, and which points count there; the others are left out."""
    night_place = {night: place for place, night in enumerate(table.nights)}
    series_place = {key: place for place, key in enumerate(table.series)}
    nights = np.array(
        [
            night_place.get(night_of(item.created_at), -1) if only is None or item.campaign_id in only else -1
            for item in points.campaigns
        ],
        dtype=np.int64,
    )
    series = np.array([series_place.get(item.series_key, -1) for item in points.series], dtype=np.int64)
    if not points.series_at:
        return np.empty(0, np.int64), np.empty(0, bool)
    night = nights[np.asarray(points.campaign_at, dtype=np.int64)]
    row = series[np.asarray(points.series_at, dtype=np.int64)]
    kept = (night >= 0) & (row >= 0)
    kept[kept] = np.asarray(points.contents_at, dtype=np.int64)[kept] == table.contents_at[row[kept], night[kept]]
    return (row * len(table.nights) + night)[kept], kept
