"""The results in a terminal as a matrix: a line for each device, a column for each configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.report.data import ReportData
from orchestrator.report.matrix import MatrixTable, matrix_tables
from orchestrator.tables import text
from orchestrator.tables.column import Column
from orchestrator.tables.escapes import display_width, fit, visible, wrap
from orchestrator.tables.labels import STATUS_WORDS, figure_text, short_names
from orchestrator.tables.results import MARKS
from orchestrator.tables.rows import ResultRow
from orchestrator.tables.table import Table
from orchestrator.units import format_percent

#: Longer names of devices give way to their serial numbers; longer heads of columns are cut.
_LONGEST_TITLE: Final = 40
#: The code of a failure.
_LONGEST_WORD: Final = 24
#: After a figure that is suspect, or of which nothing shows where the operators ran.
_NOT_CLEAN: Final = "?"
#: Where a configuration wasn't planned for a device, or couldn't be run there.
NOT_PLANNED: Final = "-"


def matrix_lines(data: ReportData, width: int) -> list[str]:
    """Return a block of lines for each model; columns that don't fit beside the others follow below
    them.
    """
    return [line for table in matrix_tables(data) for line in _block(table, width)]


def _block(table: MatrixTable, width: int) -> list[str]:
    cases = {
        label: row.case
        for _, cells in table.lines
        for label, cell in zip(table.configurations, cells, strict=True)
        if (row := cell.row) is not None and not row.is_unused_thread_count
    }
    names = short_names(cases.items())
    devices = [device for device, _ in table.lines]
    are_virtual = all(device.is_virtual for device in devices)
    titles = [device.label if are_virtual else device.title for device in devices]
    longest = min(_LONGEST_TITLE, width // 3)
    if max(map(display_width, map(visible, titles))) > longest:
        # The mark in front: a long serial number loses its end.
        marks = [
            "(virtual) " if device.is_virtual and not are_virtual else "" for device in devices
        ]
        titles = [f"{mark}{device.serial}" for mark, device in zip(marks, devices, strict=True)]
    columns: list[Column[int]] = [
        Column("device", "", lambda line: fit(titles[line], longest).rstrip())
    ]
    for place, label in enumerate(table.configurations):
        if label in cases:
            cells = _aligned([_cell(line[place].row, table.decimals) for _, line in table.lines])
            head = "\n".join(
                fit(part, _LONGEST_TITLE).rstrip() for part in names.of(label).split(", ")
            )
            columns.append(Column(label, head, cells.__getitem__))
    unit = f"{'median ' * (table.unit == 'ms')}{table.unit} \N{PLUS-MINUS SIGN}95 %"
    told = ", ".join(filter(None, (unit, names.common, "virtual" if are_virtual else "")))
    drawn = Table(name="matrix", caption=told, columns=columns, rows=range(len(devices)))
    return [
        visible(table.model.label),
        *wrap(visible(told), width),
        *text.render(drawn, width).split("\n"),
    ]


def _cell(row: ResultRow | None, decimals: int) -> tuple[str, str]:
    """Return a figure with its mark and its interval, or a word and nothing."""
    if row is None:
        return NOT_PLANNED, ""
    if row.is_unused_thread_count:
        return "same", ""
    summary, result = row.own, row.result
    if summary is None:
        is_named = result.status is CaseStatus.FAILED and result.reason_code
        return fit(result.reason_code, _LONGEST_WORD).rstrip() if is_named else STATUS_WORDS[
            result.status
        ], ""
    mark = MARKS[row.best] if result.is_judged else _NOT_CLEAN
    figure = (
        f"{figure_text(row.case, summary.median_us, decimals)}{'m' if row.has_mean else ''}{mark}"
    )
    if summary.spread is None:
        return figure, "~"
    doubt = "~" if result.imprecision else ""
    # One decimal says nothing of an interval of tens of percent.
    return (
        figure,
        f"{doubt}\N{PLUS-MINUS SIGN}{format_percent(summary.spread, 1 if summary.spread < 0.0995 else 0)}",
    )


def _aligned(cells: Sequence[tuple[str, str]]) -> list[str]:
    """Return the texts of a column: figures stand one below the other, words where the figures
    begin.
    """
    figure = max((len(left) for left, right in cells if right), default=0)
    interval = max((len(right) for _, right in cells), default=0)
    return [f"{left:>{figure}} {right:>{interval}}" if right else left for left, right in cells]
