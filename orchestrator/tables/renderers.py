"""Tables as text for a terminal, CSV, Markdown and pandas frames; html.py makes pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from orchestrator.tables.escapes import (
    WIDTH,
    csv_text,
    display_width,
    fit_width,
    markdown_text,
    one_line,
    visible,
    wrap,
)
from orchestrator.tables.table import NOTHING, NOTHINGS, Column, Form, Kind, R, Table

if TYPE_CHECKING:
    import pandas as pd


#: In a table with headings, a longer row name has a line of its own.
_WIDEST_NAME: Final = 29
#: The widths of a bar; where there is less room, bars are left out.
_BAR: Final = range(6, 41)
#: A line and its style: ``head``, ``title``, or a value of ``Table.look``.
Line = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _TextColumn:
    """A column as lines of text."""

    head: str
    cells: list[str]
    width: int
    is_right: bool = False

    def cell(self, text: str) -> str:
        padded = fit_width(text, self.width)
        return padded if not self.is_right else f"{' ' * (self.width - display_width(text))}{text}"


def as_text(table: Table[R], width: int | None = None) -> str:
    """Return the table with a line for each row, within ``width`` if it isn't None.

    Columns that don't fit follow in a band below, beside the rows' names, and beside the first
    column where names repeat. The cells of a last column without a title stand below their rows.
    """
    return "\n".join(line for line, _ in laid_out(table, width))


def laid_out(table: Table[R], width: int | None = None) -> list[Line]:
    """Return the lines of :func:`as_text`, each with its style."""
    rows = table.listed
    if not rows and table.nothing:
        return [(table.nothing, "")]
    if table.most is not None and len(rows) > table.most:
        first_rows = replace(table, rows=rows[: table.most], most=None)
        rest = table.further.format(count=len(rows) - table.most)
        return [*laid_out(first_rows, width), (rest, "head")]
    columns = table.of(Form.TEXT)
    groups, first = columns[: table.groups], columns[table.groups]
    value_columns = columns[table.groups + 1 :]
    names = [visible(cell) for cell in first.cells(rows)]
    longest = max(map(display_width, (first.title, *names)))
    name_width = min(longest, _WIDEST_NAME) if groups and width is not None else longest
    gap = 1 if groups else 2
    room = 1_000_000 if width is None else width - name_width - gap - bool(groups)
    reasons = ["" if table.instead is None else one_line(table.instead(row)) for row in rows]
    text_columns = [_text_column(column, rows, reasons) for column in value_columns]
    widest = max((item.width for item in text_columns if item.head), default=0)
    if groups and room < widest < name_width + room:
        # Rather a name on a line of its own than a cell that is cut.
        name_width, room = name_width + room - widest, widest
    text_columns = [replace(item, width=min(item.width, max(room, 1))) for item in text_columns]
    text_columns = _with_bars(
        text_columns, value_columns, rows, room if width is not None else WIDTH, gap
    )
    group_cells = [[visible(cell) for cell in column.cells(rows)] for column in groups]
    headings: list[tuple[str, ...]] = list(zip(*group_cells, strict=True)) or [()] * len(rows)
    row_ids = list(zip(headings, names, strict=True))
    repeated = 0
    if text_columns and len(set(row_ids)) < len(row_ids) and text_columns[0].width <= room // 2:
        is_distinct = len(set(zip(row_ids, text_columns[0].cells, strict=True))) == len(row_ids)
        repeated = int(is_distinct)
    below = [""] * len(rows)
    if text_columns and not text_columns[-1].head and len(_bands(text_columns, room, gap)) > 1:
        below = text_columns.pop().cells
    text_rows = list(map(_Row, names, headings, reasons, below, map(table.look, rows)))
    layout = _Layout(first.title, name_width, room, " " * gap, " " * bool(groups))
    first_band, *further = _bands(text_columns, room, gap, repeated)
    lines = list(layout.block(list(enumerate(text_rows)), first_band))
    for band in further:
        filled = [
            (index, replace(text_row, reason="", below=""))
            for index, text_row in enumerate(text_rows)
            if not NOTHINGS.issuperset(item.cells[index].strip() for item in band[repeated:])
        ]
        lines += layout.block(filled, band)
    notes = list(map(visible, table.notes))
    if width is not None:
        notes = [line for note in notes for line in wrap(note, width)]
    lines += [("", "") for _ in notes[:1]] + [(line, "head") for line in notes]
    return [(line.rstrip(), style) for line, style in lines]


def _text_column(column: Column[R], rows: Sequence[R], reasons: Sequence[str]) -> _TextColumn:
    if column.kind is Kind.BAR:
        return _TextColumn("", [], 0)
    head, cells = visible(column.title), [visible(cell) for cell in column.cells(rows)]
    shown_cells = [cell for cell, reason in zip(cells, reasons, strict=True) if not reason]
    width = max(map(display_width, (head, *shown_cells)))
    return _TextColumn(head, cells, width, column.is_figure)


def _with_bars(
    text_columns: Sequence[_TextColumn],
    columns: Sequence[Column[R]],
    rows: Sequence[R],
    room: int,
    gap: int,
) -> list[_TextColumn]:
    """Return the columns with bars that fill the room, without bars where it is too small."""
    free = room - sum(item.width + gap for item in text_columns)
    width = min(free, _BAR[-1])
    with_bars = []
    for item, column in zip(text_columns, columns, strict=True):
        if column.kind is not Kind.BAR:
            with_bars.append(item)
        elif width in _BAR:
            shares = [column.value(row) or 0.0 for row in rows]
            bars = ["\N{BLACK SQUARE}" * max(round(share * width), share > 0) for share in shares]
            with_bars.append(_TextColumn("", bars, width))
    return with_bars


def _bands(
    columns: Sequence[_TextColumn], room: int, gap: int, repeated: int = 0
) -> list[list[_TextColumn]]:
    """Return the columns in bands that fit into a room, at least one band, which may be empty.
    Further bands begin with the first ``repeated`` columns.
    """
    bands: list[list[_TextColumn]] = [[]]
    repeated_columns = columns[:repeated]
    free = room - sum(item.width + gap for item in repeated_columns)
    for column in columns:
        if bands[-1] and sum(item.width + gap for item in bands[-1]) + column.width > room:
            bands.append([*repeated_columns, replace(column, width=min(column.width, free))])
        else:
            bands[-1].append(column)
    return bands


@dataclass(frozen=True, slots=True)
class _Row:
    """A row as lines of text, beside the cells of its columns."""

    name: str
    #: The headings above it.
    headings: tuple[str, ...]
    #: Why it has no cells, and a text below it; empty for none.
    reason: str
    below: str
    style: str


@dataclass(frozen=True, slots=True)
class _Layout:
    """The widths of the rows' names and of their columns."""

    title: str
    name_width: int
    #: For the columns.
    room: int
    gap: str
    indent: str

    def block(
        self, rows: Sequence[tuple[int, _Row]], columns: Sequence[_TextColumn]
    ) -> Iterator[Line]:
        """Yield heads and rows with the columns of one band, and a heading where it changes."""

        def line(name: str, cells: Sequence[str], reason: str = "") -> Iterator[str]:
            words = self.gap.join(map(_TextColumn.cell, columns, cells))
            if reason and columns:
                words = fit_width(f"{columns[0].cell(NOTHING)}  {reason}", self.room)
            return self._line(name, words)

        heads = [column.head for column in columns]
        before: tuple[str, ...] = ()
        # Heads of columns stand once below the outer heading.
        is_headed = False
        if rows and not rows[0][1].headings:
            yield from ((text, "head") for text in line(self.title, heads))
        for place, row in rows:
            if row.headings != before:
                *above, last = row.headings
                if list(before[:-1]) != above:
                    yield from (
                        (f"{'  ' * level}{text}", "title") for level, text in enumerate(above)
                    )
                    is_headed = False
                before = row.headings
                head = [f"{self.indent} {last}"] if is_headed else line(f" {last}", heads)
                yield from ((text, "head") for text in head)
                is_headed = True
            cells = [column.cells[place] for column in columns]
            yield from ((text, row.style) for text in line(row.name, cells, row.reason))
            if row.below and not row.reason:
                indent = f"{self.indent}    "
                room = self.name_width + self.room - len(indent)
                yield from ((indent + part, row.style) for part in wrap(row.below, room))

    def _line(self, name: str, cells: str) -> Iterator[str]:
        """Yield a line, and before it the name where that is too wide to stand beside the cells."""
        if display_width(name) > self.name_width:
            yield from (self.indent + line for line in wrap(name, WIDTH - len(self.indent)))
            name = ""
        yield f"{self.indent}{fit_width(name, self.name_width)}{self.gap}{cells}"


def csv_lines(table: Table[R]) -> Iterator[str]:
    """Yield a table as CSV (RFC 4180, but lines end in LF): the header, and a line for each row.

    Texts are one line each, with visible controls; none is a formula.
    """
    columns, buffer = table.of(Form.CSV), io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")

    def line(values: list[Any]) -> str:
        buffer.seek(0)
        buffer.truncate()
        words = (" ".join(map(str, item)) if isinstance(item, list) else item for item in values)
        writer.writerow(csv_text(item) if isinstance(item, str) else item for item in words)
        return buffer.getvalue()

    yield line([column.name for column in columns])
    for row in table.rows:
        yield line([column.data(row) for column in columns])


def as_markdown(table: Table[R]) -> str:
    """Return the table as lines of Markdown; nothing in a cell is markup, a link or a mention."""
    columns, rows = table.of(Form.MARKDOWN), table.listed
    cells = zip(*(map(markdown_text, column.cells(rows)) for column in columns), strict=True)
    rule = ["---:" if column.is_figure else "---" for column in columns]
    heads = [markdown_text(column.title) for column in columns]
    notes = [line for note in table.notes for line in ("", markdown_text(note))]
    lines = [f"| {' | '.join(line)} |" for line in (heads, rule, *cells)]
    return "\n".join([*lines, *notes]) + "\n"


def as_frame(table: Table[R]) -> pd.DataFrame:
    """Return the table as a frame; unknown values are ``<NA>``, moments are UTC timestamps."""
    import pandas as pd

    columns = table.of(Form.FRAME)
    rows = [[column.data(row) for column in columns] for row in table.rows]
    values = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return pd.DataFrame(
        {
            column.name: _series(column.kind, list(cells))
            for column, cells in zip(columns, values, strict=True)
        }
    )


def _series(kind: Kind, values: list[Any]) -> pd.Series:
    import pandas as pd

    if kind is Kind.MOMENT:
        return pd.Series(pd.to_datetime(values, utc=True, format="ISO8601")).astype(kind.value)
    series: pd.Series = pd.Series(
        [utf8(item) if isinstance(item, str) else item for item in values], dtype=kind.value
    )
    return series


def utf8(text: str) -> str:
    """Return text that Arrow can hold: bytes that aren't UTF-8 are written as escapes."""
    return text.encode(errors="backslashreplace").decode()
