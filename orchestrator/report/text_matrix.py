"""The results in a terminal as a matrix: a line for each device, a column for each configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.report.data import ReportData
from orchestrator.report.escapes import display_width, fit, visible
from orchestrator.report.labels import STATUS_WORDS, figure_text
from orchestrator.report.matrix import MatrixCell, MatrixTable, matrix_tables
from orchestrator.report.rows import BestMark, DeviceRow, ResultRow
from orchestrator.units import format_percent

_GAP: Final = "  "
_LABEL_MIN: Final = 16
_LABEL_MAX: Final = 40
#: A flag's name and value fit.
_HEAD_MAX: Final = 36
#: The code of a failure.
_WORD_MAX: Final = 24
#: After a figure that is suspect, or of which nothing shows where the operators ran.
_NOT_CLEAN: Final = "?"
#: Where a configuration wasn't planned for a device, or couldn't be run there.
NOT_PLANNED: Final = "-"
MARKS: Final = {BestMark.BEST: "*", BestMark.TIED: "=", BestMark.NONE: " "}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    heads: tuple[str, ...]
    cells: tuple[str, ...]

    @property
    def width(self) -> int:
        return max(map(display_width, (*self.heads, *self.cells)))


def matrix_lines(data: ReportData, width: int) -> list[str]:
    """Return a block of lines for each model; columns that don't fit beside the others follow below them."""
    shown = replace(data, results=_without_usual_tools(data.results))
    return [line for table in matrix_tables(shown) for line in _block(table, width)]


def _without_usual_tools(rows: Sequence[ResultRow]) -> tuple[ResultRow, ...]:
    """Return rows whose configurations don't name the program, where each device has one: they share columns then."""
    tools = {(row.device.serial, row.case.tool) for row in rows}
    if len(tools) > len({serial for serial, _ in tools}) or len({tool for _, tool in tools}) == 1:
        return tuple(rows)
    return tuple(replace(row, configuration=row.configuration.replace(f", {row.case.tool}", "", 1)) for row in rows)


def _block(table: MatrixTable, width: int) -> list[str]:
    shown = [
        number
        for number in range(len(table.configurations))
        if not all(_is_left_out(line.cells[number]) for line in table.lines)
    ]
    heads, common = _heads([table.configurations[number] for number in shown])
    columns = [
        _Column(heads=head, cells=_aligned([_cell(line.cells[number], table.decimals) for line in table.lines]))
        for number, head in zip(shown, heads, strict=True)
    ]
    most = max(_LABEL_MIN, min(_LABEL_MAX, width // 3))
    titles, are_virtual = _titles([line.device for line in table.lines], most)
    label_width = min(max(map(display_width, titles)), most)
    lines = [visible(table.model.label)]
    common = ", ".join(filter(None, (common, "virtual" if are_virtual else "")))
    unit = visible(
        f"{'median ' * (table.unit == 'ms')}{table.unit} \N{PLUS-MINUS SIGN}95 %{f', {common}' if common else ''}"
    )
    lines = [f"{lines[0]}: {unit}"] if display_width(f"{lines[0]}: {unit}") <= width else [lines[0], f"  {unit}"]
    for band in _bands(columns, width - 2 - label_width):
        depth = max(len(column.heads) for column in band)
        for level in range(depth):
            # Words stand at the bottom, above their figures.
            texts = [(("",) * (depth - len(column.heads)) + column.heads)[level].ljust(column.width) for column in band]
            lines.append(f"  {' ' * label_width}{_GAP}{_GAP.join(texts)}")
        for number, title in enumerate(titles):
            texts = [fit(column.cells[number], column.width) for column in band]
            lines.append(f"  {_cut_middle(title, label_width)}{_GAP}{_GAP.join(texts)}")
    return [line.rstrip() for line in lines]


def _titles(devices: Sequence[DeviceRow], width: int) -> tuple[list[str], bool]:
    """Return what devices are called in so much room, and whether all are virtual, which is told once then.

    Where whole titles don't fit, those of several phones of a kind are their serial numbers.
    """
    are_virtual = all(device.is_virtual for device in devices)
    titles = [device.title.removesuffix(" (virtual)") if are_virtual else device.title for device in devices]
    if max(map(display_width, titles)) > width:
        names = [device.facts.title if device.facts is not None else device.label for device in devices]
        kinds = Counter(names)
        titles = [
            device.serial if kinds[name] > 1 else title
            for device, name, title in zip(devices, names, titles, strict=True)
        ]
    return [visible(title) for title in titles], are_virtual


def _bands(columns: Sequence[_Column], room: int) -> list[list[_Column]]:
    bands: list[list[_Column]] = []
    used = 0
    for column in columns:
        needed = len(_GAP) + column.width
        if not bands or used + needed > room:
            bands.append([])
            used = 0
        bands[-1].append(column)
        used += needed
    return bands


def _heads(configurations: Sequence[str]) -> tuple[list[tuple[str, ...]], str]:
    """Return the lines above each column, and what all columns have in common."""
    parts = [[fit(part, _HEAD_MAX).rstrip() for part in text.split(", ")] for text in configurations]
    shared = [part for part in parts[0][1:] if all(part in found[1:] for found in parts)]
    heads = [(found[0], *(part for part in found[1:] if part not in shared)) for found in parts]
    return heads, ", ".join(shared)


def _is_left_out(cell: MatrixCell) -> bool:
    return cell.row is not None and cell.row.is_unused_thread_count


def _cell(cell: MatrixCell, decimals: int) -> tuple[str, str]:
    """Return a figure with its mark and its interval, or a word and nothing."""
    row = cell.row
    if row is None:
        return NOT_PLANNED, ""
    if row.is_unused_thread_count:
        return "same", ""
    summary = row.result.own_summary
    if summary is None:
        return _word(row), ""
    mark = MARKS[row.best] if row.result.is_judged else _NOT_CLEAN
    kind = "m" if row.has_mean else ""
    figure = f"{figure_text(row.case, summary.median_us, decimals)}{kind}{mark}"
    if summary.spread is None:
        return figure, "~"
    doubt = "~" if row.result.imprecision else ""
    # One decimal says nothing of an interval of tens of percent.
    return figure, f"{doubt}\N{PLUS-MINUS SIGN}{format_percent(summary.spread, 1 if summary.spread < 0.0995 else 0)}"


def _word(row: ResultRow) -> str:
    result = row.result
    if result.status is CaseStatus.FAILED and result.reason_code:
        return fit(result.reason_code, _WORD_MAX).rstrip()
    return STATUS_WORDS[result.status]


def _aligned(cells: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the texts of a column: figures stand one below the other, words where the figures begin."""
    figure = max((len(left) for left, right in cells if right), default=0)
    interval = max((len(right) for _, right in cells), default=0)
    return tuple(f"{left:>{figure}} {right:>{interval}}" if right else left for left, right in cells)


def _cut_middle(title: str, width: int) -> str:
    """Return a device's title; of a long one both ends are kept: kinds differ at the front, serials at the end."""
    if display_width(title) <= width:
        return fit(title, width)
    tail = title[-(width // 2) :]
    while display_width(tail) > width // 2:
        tail = tail[1:]
    return f"{fit(title, width - display_width(tail))}{tail}"
