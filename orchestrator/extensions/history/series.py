"""Series over nights: their case, their figure for each night, and its interval."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.intervals import (
    SAMPLES_LOST,
    Autocorrelation,
    degrees_of,
    error_factor,
    margin,
    totals,
    trimmed_means,
)
from orchestrator.analysis.summary import LEVEL
from orchestrator.delegates import DELEGATES
from orchestrator.extensions.history.changepoint import Floats, Integers
from orchestrator.records import frozen
from orchestrator.records.case import CampaignId, Case, SeriesKey
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import Contents, Points, SeriesSketch
from orchestrator.tables.labels import page_name

if TYPE_CHECKING:
    from orchestrator.store.opening import Store


@dataclass(frozen=True, kw_only=True)
class Series:
    """One case over the nights, with the words by which people name and select it."""

    key: SeriesKey
    case: Case
    facts: DeviceFacts

    @property
    def is_virtual(self) -> bool:
        """Whether its figures are a virtual phone's."""
        return self.facts.is_virtual

    @property
    def model(self) -> str:
        """The model's name without its ending."""
        return self.case.model_name.removesuffix(".tflite")

    @property
    def label(self) -> str:
        """One line that names it."""
        return f"{self.model} on {self.facts.title} ({self.case.serial}), {self.case.configuration}"

    @property
    def page(self) -> str:
        """The file name of its page."""
        return f"{page_name(self.key)}.html"

    @property
    def words(self) -> Mapping[str, str]:
        """Its attributes for selections: delegate, model, phone, SoC, GPU, tool, threads."""
        case = self.case
        words = {
            "delegate": case.delegate.value,
            "model": case.model_name,
            "serial": str(case.serial),
            "tool": case.tool.value,
            "threads": str(case.threads),
            "phone": self.facts.title,
            "soc": self.facts.soc,
            "GPU": self.facts.gpu if DELEGATES[case.delegate].is_on_gpu else "",
        }
        return {name: value for name, value in words.items() if value}


def read_series(store: Store) -> dict[SeriesKey, Series]:
    """Return all series of a store."""
    cases = store.series()
    # After the cases: one of a new device may be stored in between.
    devices = store.devices()
    return {
        key: Series(key=key, case=case, facts=devices[case.serial]) for key, case in cases.items()
    }


@frozen
class NightTable:
    """One figure for each series and night; NaN where there is none."""

    series: tuple[SeriesKey, ...]
    sketches: tuple[SeriesSketch, ...]
    #: Every night on which a campaign was begun, in order.
    nights: tuple[date, ...]
    #: Series x nights, in microseconds: the median of the night's trusted invocations, else of its
    #: suspect ones; only the newest contents of a night count.
    latency_us: Floats
    #: Series x nights: index into ``contents`` of the night's newest contents, -1 for none.
    contents_at: Integers
    contents: tuple[Contents, ...]
    #: Of each point: the index of its figure (its series' index times the number of nights, plus
    #: its night's), -1 for none.
    figure_of: Integers


@frozen
class NightDetails:
    """Details of each figure of a :class:`NightTable`; each array is series x nights."""

    #: Ends of the 95 % interval in microseconds, NaN for a night of one invocation.
    low_us: Floats
    high_us: Floats
    #: Number of invocations of the figure.
    invocations: Integers
    is_trusted: NDArray[np.bool_]
    #: Index of a series, index of a night, campaign: in the order of series and nights.
    campaigns: tuple[Integers, Integers, tuple[CampaignId, ...]]


def night_table(points: Points, night_by_campaign: Mapping[CampaignId, date]) -> NightTable:
    """Return the table of points by series and night; campaigns of one night are merged.

    Args:
        points: of any campaigns.
        night_by_campaign: the campaigns that count.
    """
    night_of_campaign = [night_by_campaign.get(item.campaign_id) for item in points.campaigns]
    campaign, row, contents_of = (
        _column(points.campaign_at),
        _column(points.series_at),
        _column(points.contents_at),
    )
    nights = sorted({night for night in night_of_campaign if night is not None})
    place_of_night: dict[date | None, int] = {night: place for place, night in enumerate(nights)}
    places = np.array(
        [place_of_night.get(night, -1) for night in night_of_campaign], dtype=np.int64
    )
    night = places[campaign] if campaign.size else campaign
    shape = len(points.series), len(nights)
    size = shape[0] * shape[1]
    used = np.flatnonzero(night >= 0)
    cell = row * shape[1] + night
    contents = _newest(cell[used], contents_of[used], campaign[used], size)
    used = used[contents_of[used] == contents[cell[used]]]
    # A cell with trusted points has only those.
    trusted = _column(points.trusted) > 0
    has_trusted = np.zeros(size, dtype=bool)
    has_trusted[cell[used[trusted[used]]]] = True
    used = used[trusted[used] | ~has_trusted[cell[used]]]
    figures = _medians(
        cell[used], np.asarray(points.latency_us, dtype=np.float64)[used], size
    ).reshape(shape)
    rows_with_figures = np.flatnonzero(np.isfinite(figures).any(axis=1))
    row_of = np.full(shape[0], -1, dtype=np.int64)
    row_of[rows_with_figures] = np.arange(rows_with_figures.size)
    figure_of = np.full(row.size, -1, dtype=np.int64)
    figure_of[used] = row_of[row[used]] * shape[1] + night[used]
    return NightTable(
        series=tuple(points.series[place].series_key for place in rows_with_figures),
        sketches=tuple(points.series[place] for place in rows_with_figures),
        nights=tuple(nights),
        latency_us=figures[rows_with_figures],
        contents_at=contents.reshape(shape)[rows_with_figures],
        contents=points.contents,
        figure_of=figure_of,
    )


def _column(values: array[int]) -> Integers:
    return np.asarray(values, dtype=np.int64)


def _newest(cell: Integers, contents: Integers, campaign: Integers, count: int) -> Integers:
    """Return each cell's newest contents: of its newest campaign; of several in it, those that
    were first stored last.

    A campaign may measure two programs in turns, night after night: the order of its runs says
    nothing.
    """
    newest = np.full(count, -1, dtype=np.int64)
    order = np.lexsort((contents, campaign))
    newest[cell[order]] = contents[order]
    return newest


def _medians(cell: Integers, latency_us: Floats, count: int) -> Floats:
    """Return the median of each cell's points, NaN for none."""
    figures = np.full(count, np.nan)
    if cell.size == 0:
        return figures
    order = np.lexsort((latency_us, cell))
    cell, latency_us = cell[order], latency_us[order]
    starts = np.flatnonzero(np.r_[True, cell[1:] != cell[:-1]])
    sizes = np.diff(np.r_[starts, cell.size])
    figures[cell[starts]] = (
        latency_us[starts + (sizes - 1) // 2] + latency_us[starts + sizes // 2]
    ) / 2
    return figures


def night_details(points: Points, table: NightTable) -> NightDetails:
    """Return the details of each figure of a table, from the points of that table.

    The interval is made as a report's: Student's t of the trimmed mean, widened by the
    autocorrelation of the device's series of the night. It is of all invocations of a night's
    figure, where a report judges each case's runs and leaves out those of a slow start or at low
    clocks: that takes whole runs, of which a year has millions. Points are in the order of
    storing: gaps between them count as equal.
    """
    shape = table.latency_us.shape
    size, nights = shape[0] * shape[1], max(1, shape[1])
    used = np.flatnonzero(table.figure_of >= 0)
    cell, campaign = table.figure_of[used], _column(points.campaign_at)[used]
    logs = np.log(np.asarray(points.latency_us, dtype=np.float64)[used])
    is_trusted = np.zeros(size, dtype=bool)
    is_trusted[cell[_column(points.trusted)[used] > 0]] = True
    invocations = np.bincount(cell, minlength=size)
    devices = {
        serial: place for place, serial in enumerate({item.serial: None for item in table.sketches})
    }
    device = np.array([devices[item.serial] for item in table.sketches], dtype=np.int64)
    device_nights = (
        (np.repeat(device, shape[1]) * shape[1] + np.tile(np.arange(shape[1]), shape[0]))
        if size
        else cell
    )
    order = np.lexsort((campaign, cell))
    low, high = _intervals(logs[order], invocations, device_nights)
    count = max(1, len(points.campaigns))
    cells, places = np.divmod(np.unique(cell * count + campaign), count)
    return NightDetails(
        low_us=low.reshape(shape),
        high_us=high.reshape(shape),
        invocations=invocations.reshape(shape),
        is_trusted=is_trusted.reshape(shape),
        campaigns=(
            cells // nights,
            cells % nights,
            tuple(points.campaigns[place].campaign_id for place in places.tolist()),
        ),
    )


def _intervals(
    logs: Floats, invocations: Integers, device_nights: Integers
) -> tuple[Floats, Floats]:
    """Return each cell's interval, from logs by cell and time; ``device_nights`` is the same number
    for cells of one device and night.
    """
    low, high = np.full(invocations.size, np.nan), np.full(invocations.size, np.nan)
    begins = np.cumsum(invocations) - invocations
    samples = {
        count: logs[begins[cells, None] + np.arange(count)]
        for count in np.unique(invocations[invocations > 1]).tolist()
        for cells in (np.flatnonzero(invocations == count),)
    }
    sums = np.zeros((int(device_nights.max(initial=-1)) + 1, 2))
    for count, rows in samples.items():
        if count > SAMPLES_LOST:
            is_varied = np.ptp(rows, axis=1) > 0
            weights = np.where(
                is_varied[:, None],
                np.column_stack([np.full(len(rows), count - SAMPLES_LOST), totals(rows)]),
                0.0,
            )
            np.add.at(sums, device_nights[invocations == count], weights)
    correlations = np.array(
        [
            Autocorrelation(weight=weight, total=total).correlation()
            for weight, total in sums.tolist()
        ]
    )
    for count, rows in samples.items():
        cells = np.flatnonzero(invocations == count)
        center, error = trimmed_means(rows)
        factors = np.array(
            [error_factor(count, each) for each in correlations[device_nights[cells]].tolist()]
        )
        half = margin(1.0, degrees_of(count), LEVEL) * error * factors
        low[cells], high[cells] = np.exp(center - half), np.exp(center + half)
    return low, high
