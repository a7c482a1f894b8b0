"""The comparison matrix: for each model a table of devices by configurations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.summary import Summary
from orchestrator.records.workload import grouped
from orchestrator.report.data import ReportData
from orchestrator.tables.labels import configuration_order, figure_unit, with_key
from orchestrator.tables.results import figures_decimals
from orchestrator.tables.rows import DeviceRow, ModelRow, ResultRow, SkipRow


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """One device x configuration: a case, a skipped combination, or neither (not planned)."""

    row: ResultRow | None
    skip: SkipRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTable:
    """One model."""

    model: ModelRow
    configurations: tuple[str, ...]
    #: A device, and its cells in the order of the configurations.
    lines: tuple[tuple[DeviceRow, tuple[MatrixCell, ...]], ...]
    #: Decimals of every figure in milliseconds in this table.
    decimals: int
    #: Of its figures: ``ms``, or ``tokens/s`` of a language model.
    unit: str
    #: The highest latency that a figure or its interval reaches, where bars end.
    full_us: float

    def bar(self, summary: Summary) -> tuple[float, str]:
        """Return where a bar from zero ends, in percent, and the path of its interval.

        Empty where that isn't known.
        """
        known = (
            (summary.interval.low, summary.interval.high) if summary.interval is not None else ()
        )
        width, *ends = (
            round(min(1.0, value / self.full_us) * 100, 1) for value in (summary.median_us, *known)
        )
        return width, "M{0} 5H{1}M{0} 1V9M{1} 1V9".format(*ends) if ends else ""


def matrix_tables(data: ReportData) -> tuple[MatrixTable, ...]:
    """Return a table for each model that has a case, in the order of the data."""
    skips = grouped(data.skipped, lambda skip: (skip.skipped.model_name, skip.device.serial))
    return tuple(
        _table(rows, skips)
        for rows in grouped(data.results, lambda row: row.model.subject).values()
    )


def _table(rows: Sequence[ResultRow], skips: dict[tuple[str, str], list[SkipRow]]) -> MatrixTable:
    labels = _column_labels(rows)
    # Where a delegate uses no threads on any device, another column has the figures of all.
    columns = {labels[row.key]: row.case for row in rows if not row.is_unused_thread_count}
    configurations = sorted(columns, key=lambda label: configuration_order(columns[label], label))
    cells: dict[str, dict[str, ResultRow]] = defaultdict(dict)
    for row in rows:
        cells[row.device.serial][labels[row.key]] = row
    lines = []
    for serial, device in {row.device.serial: row.device for row in rows}.items():
        # A column shows the same combination for another device.
        skipped = {
            label: skip
            for skip in skips.get((rows[0].case.model_name, serial), [])
            for label in configurations
            if f"{label}, ".startswith(f"{skip.configuration}, ") and label not in cells[serial]
        }
        lines.append(
            (
                device,
                tuple(
                    MatrixCell(row=cells[serial].get(label), skip=skipped.get(label))
                    for label in configurations
                ),
            )
        )
    reached = [
        end
        for row in rows
        if row.own
        for end in (row.own.median_us, row.own.interval and row.own.interval.high)
    ]
    return MatrixTable(
        model=rows[0].model,
        configurations=tuple(configurations),
        lines=tuple(lines),
        decimals=figures_decimals(rows),
        unit=figure_unit(rows[0].case),
        full_us=max((end for end in reached if end), default=1.0),
    )


def _column_labels(rows: Sequence[ResultRow]) -> dict[str, str]:
    """Return case key -> the column that the case stands in: no two of a device share one, or one
    would be lost.
    """
    places = Counter((row.device.serial, row.configuration) for row in rows)
    return {
        row.key: with_key(row.configuration, row.case)
        if places[row.device.serial, row.configuration] > 1
        else row.configuration
        for row in rows
    }
