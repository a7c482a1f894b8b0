"""The comparison matrix: for each model a table of devices by configurations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.records.case import grouped
from orchestrator.report.data import ReportData
from orchestrator.tables.column import NOTHING, Column, Kind
from orchestrator.tables.labels import (
    ShortNames,
    configuration_order,
    figure_text,
    figure_unit,
    with_key,
)
from orchestrator.tables.results import figures_decimals
from orchestrator.tables.rows import BestMark, DeviceRow, ModelRow, ResultRow, SkipRow
from orchestrator.tables.table import Table
from orchestrator.units import US_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """One device x configuration: a case, a skipped combination, or neither (not planned)."""

    row: ResultRow | None
    skip: SkipRow | None


#: A device, and its cells in the order of the configurations.
Line = tuple[DeviceRow, tuple[MatrixCell, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTable:
    """One model."""

    model: ModelRow
    configurations: tuple[str, ...]
    lines: tuple[Line, ...]
    #: Decimals of every figure in milliseconds in this table.
    decimals: int
    #: Of its figures: ``ms``, or ``tokens/s`` of a language model.
    unit: str


def configurations_table(table: MatrixTable, names: ShortNames, number: int) -> Table[Line]:
    """Return a model's figures on a page: a row for each device, a column for each configuration."""

    def column(place: int, label: str) -> Column[Line]:
        def row_of(line: Line) -> ResultRow | None:
            return line[1][place].row

        return Column(
            label,
            names.of(label),
            lambda line: (row := row_of(line)) and row.median_us,
            Kind.NUMBER,
            "",
            1 / US_PER_MS,
            table.decimals,
            shown=lambda line: _word(line[1][place]),
            tone=lambda line: _tone(row_of(line)),
            case=lambda line: row.key if (row := row_of(line)) is not None else "",
        )

    return Table(
        name=f"matrix-{number}",
        caption=f"{table.model.label}: median in ms of each configuration",
        columns=[
            Column("device", "phone", lambda line: line[0].label),
            *(column(place, label) for place, label in enumerate(table.configurations)),
        ],
        rows=table.lines,
        is_virtual=lambda line: line[0].is_virtual,
    )


def _word(cell: MatrixCell) -> str | None:
    """Return what stands in the place of a figure; None for a figure in milliseconds."""
    row = cell.row
    if row is None:
        return f"skipped: {cell.skip.skipped.reason_code}" if cell.skip is not None else NOTHING
    if row.is_unused_thread_count:
        return "same: uses no threads"
    if row.own is None:
        return row.unclean_reason
    return f"{figure_text(row.case, row.median_us, 0)} tokens/s" if row.case.is_per_token else None


def _tone(row: ResultRow | None) -> str:
    if row is None or row.is_unused_thread_count:
        return ""
    if row.own is None:
        return "bad" if row.result.status is not CaseStatus.SKIPPED else ""
    return "winner" if row.best is not BestMark.NONE else "" if row.result.is_judged else "doubt"


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
    return MatrixTable(
        model=rows[0].model,
        configurations=tuple(configurations),
        lines=tuple(lines),
        decimals=figures_decimals(rows),
        unit=figure_unit(rows[0].case),
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
