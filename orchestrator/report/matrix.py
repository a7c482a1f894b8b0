"""The comparison matrix: for each model a table of devices by configurations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.summary import Summary
from orchestrator.report.data import ReportData
from orchestrator.report.labels import column_decimals, configuration_order, figure_unit, with_key
from orchestrator.report.rows import DeviceRow, ModelRow, ResultRow, SkipRow
from orchestrator.units import US_PER_MS

#: Width of an interval bar's drawing; the page stretches it.
BAR_WIDTH: Final = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalBar:
    """A latency as a bar from zero, with its interval as a whisker; x runs from 0 to BAR_WIDTH."""

    median_x: float
    #: None when there is no interval.
    low_x: float | None
    high_x: float | None


def scale_us(summaries: Iterable[Summary | None]) -> float:
    """Return the latency at the right end of bars that are to be compared: the highest that any of them reaches."""
    return max(
        (
            max(summary.median_us, summary.interval.high if summary.interval is not None else 0.0)
            for summary in summaries
            if summary is not None
        ),
        default=0.0,
    )


def interval_bar(summary: Summary, full_us: float) -> IntervalBar:
    """Return the bar of a summary on a scale from 0 to ``full_us``, linear: twice as long takes twice as long."""

    def place(latency_us: float) -> float:
        return round(min(1.0, latency_us / full_us) * BAR_WIDTH, 1) if full_us > 0 else 0.0

    interval = summary.interval
    return IntervalBar(
        median_x=place(summary.median_us),
        low_x=None if interval is None else place(interval.low),
        high_x=None if interval is None else place(interval.high),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """One device x configuration: a case, a skipped combination, or neither (not planned)."""

    configuration: str
    row: ResultRow | None
    skip: SkipRow | None
    bar: IntervalBar | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixLine:
    """One device."""

    device: DeviceRow
    cells: tuple[MatrixCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTable:
    """One model."""

    model: ModelRow
    configurations: tuple[str, ...]
    lines: tuple[MatrixLine, ...]
    #: Decimals of every figure in milliseconds in this table.
    decimals: int
    #: Of its figures: ``ms``, or ``tokens/s`` of a language model.
    unit: str


def matrix_tables(data: ReportData) -> tuple[MatrixTable, ...]:
    """Return a table for each model that has a case, in the order of the data."""
    by_model: dict[str, list[ResultRow]] = defaultdict(list)
    for row in data.results:
        by_model[row.model.subject].append(row)
    skips: dict[tuple[str, str], list[SkipRow]] = defaultdict(list)
    for skip in data.skipped:
        skips[skip.skipped.model_name, skip.device.serial].append(skip)
    return tuple(_table(rows, skips) for rows in by_model.values())


def figures_decimals(rows: Sequence[ResultRow]) -> int:
    """Return the decimals that a column of these cases' medians in milliseconds needs."""
    shown = [row for row in rows if not row.case.is_per_token] or rows
    return column_decimals([row.result.summary.median_us / US_PER_MS for row in shown if row.result.summary])


def _table(rows: Sequence[ResultRow], skips: dict[tuple[str, str], list[SkipRow]]) -> MatrixTable:
    labels = _column_labels(rows)
    # Where a delegate uses no threads on any device, another column has the figures of all.
    columns = {labels[row.key]: row.case for row in rows if not row.is_unused_thread_count}
    configurations = sorted(columns, key=lambda label: configuration_order(columns[label], label))
    full_us = scale_us(row.own for row in rows)
    by_device: dict[str, dict[str, ResultRow]] = defaultdict(dict)
    devices: dict[str, DeviceRow] = {}
    for row in rows:
        by_device[row.device.serial][labels[row.key]] = row
        devices[row.device.serial] = row.device
    lines = []
    for serial, device in devices.items():
        skipped = _skips_by_column(skips.get((rows[0].case.model_name, serial), []), configurations)
        cells = [_cell(label, by_device[serial].get(label), skipped.get(label), full_us) for label in configurations]
        lines.append(MatrixLine(device=device, cells=tuple(cells)))
    return MatrixTable(
        model=rows[0].model,
        configurations=tuple(configurations),
        lines=tuple(lines),
        decimals=figures_decimals(rows),
        unit=figure_unit(rows[0].case),
    )


def _column_labels(rows: Sequence[ResultRow]) -> dict[str, str]:
    """Return case key -> the column that the case stands in: no two of a device share one, or one would be lost."""
    places = Counter((row.device.serial, row.configuration) for row in rows)
    return {
        row.key: with_key(row.configuration, row.case)
        if places[row.device.serial, row.configuration] > 1
        else row.configuration
        for row in rows
    }


def _skips_by_column(skips: Sequence[SkipRow], configurations: Sequence[str]) -> dict[str, SkipRow]:
    """Return configuration -> skip for those columns that show the same combination for another device."""
    placed = {}
    for skip in skips:
        for label in configurations:
            if label == skip.configuration or label.startswith(f"{skip.configuration}, "):
                placed[label] = skip
    return placed


def _cell(label: str, row: ResultRow | None, skip: SkipRow | None, full_us: float) -> MatrixCell:
    own = row.own if row is not None else None
    bar = interval_bar(own, full_us) if own is not None else None
    return MatrixCell(configuration=label, row=row, skip=skip if row is None else None, bar=bar)
