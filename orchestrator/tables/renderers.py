"""A table for a terminal, and as CSV, Markdown and a pandas frame. Pages have a module of their own; JSON
is a table's records.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from orchestrator.tables.escapes import (
    csv_text,
    display_width,
    fit,
    markdown_text,
    one_line,
    visible,
    wrap,
)
from orchestrator.tables.table import NOTHING, NOTHINGS, Column, Form, Kind, R, Table

if TYPE_CHECKING:
    import pandas as pd


#: Columns of a terminal that a table within a width takes at least.
WIDTH: Final = 80
#: No name of a row is wider in a table with headings: a longer one has a line of its own.
_WIDEST_NAME: Final = 29
#: A bar is left out where there is less room, and never longer.
_BAR: Final = range(6, 41)
#: A line, and how a terminal shows it: ``head``, or what Table.look says.
Line = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A column as lines of text."""

    head: str
    cells: list[str]
    width: int
    is_right: bool = False

    def cell(self, text: str) -> str:
        own = fit(text, self.width)
        return own if not self.is_right else f"{' ' * (self.width - display_width(text))}{text}"


def as_text(table: Table[R], width: int | None = None) -> str:
    """Return the table with a line for each row, within a width where one is given.

    Columns that don't fit beside the others follow in a band below, each beside the rows' names,
    and the first column where those are no two rows' own; of one without a title, each word stands
    below its row.
    """
    return "\n".join(line for line, _ in laid_out(table, width))


def laid_out(table: Table[R], width: int | None = None) -> list[Line]:
    """Return the lines of :func:`as_text`, each with its look."""
    rows = table.listed
    if not rows and table.nothing:
        return [(table.nothing, "")]
    if table.most is not None and len(rows) > table.most:
        first_rows = replace(table, rows=rows[: table.most], most=None)
        rest = table.further.format(count=len(rows) - table.most)
        return [*laid_out(first_rows, width), (rest, "head")]
    columns = table.of(Form.TEXT)
    groups, first = columns[: table.groups], columns[table.groups]
    others = columns[table.groups + 1 :]
    names = [visible(cell) for cell in first.cells(rows)]
    longest = max(map(display_width, (first.title, *names)))
    name_width = min(longest, _WIDEST_NAME) if groups else longest
    gap = 1 if groups else 2
    room = 1_000_000 if width is None else width - name_width - gap - bool(groups)
    reasons = ["" if table.instead is None else one_line(table.instead(row)) for row in rows]
    drawn = [_drawn(column, rows, reasons, room) for column in others]
    drawn = _with_bars(drawn, others, rows, room if width is not None else WIDTH, gap)
    of_groups = [[visible(cell) for cell in column.cells(rows)] for column in groups]
    places: list[tuple[str, ...]] = list(zip(*of_groups, strict=True)) or [()] * len(rows)
    named = list(zip(places, names, strict=True))
    repeated = 0
    if drawn and len(set(named)) < len(named) and drawn[0].width <= room // 2:
        is_told_apart = len(set(zip(named, drawn[0].cells, strict=True))) == len(named)
        repeated = int(is_told_apart)
    below = [""] * len(rows)
    if drawn and not drawn[-1].head and len(_bands(drawn, room, gap)) > 1:
        below = drawn.pop().cells
    lines = list(map(_Row, names, places, reasons, below, map(table.look, rows)))
    layout = _Layout(first.title, name_width, room, " " * gap, " " * bool(groups))
    first_band, *further = _bands(drawn, room, gap, repeated)
    shown = list(layout.block(list(enumerate(lines)), first_band))
    for band in further:
        told = [
            (place, replace(line, reason="", below=""))
            for place, line in enumerate(lines)
            if not NOTHINGS.issuperset(own.cells[place].strip() for own in band[repeated:])
        ]
        shown += layout.block(told, band)
    shown += [("", "") for _ in table.notes[:1]] + [(visible(note), "head") for note in table.notes]
    return [(line.rstrip(), look) for line, look in shown]


def _drawn(column: Column[R], rows: Sequence[R], reasons: Sequence[str], room: int) -> _Drawn:
    if column.kind is Kind.BAR:
        return _Drawn("", [], 0)
    head, cells = visible(column.title), [visible(cell) for cell in column.cells(rows)]
    seen = [cell for cell, reason in zip(cells, reasons, strict=True) if not reason]
    width = min(max(map(display_width, (head, *seen))), max(room, 1))
    return _Drawn(head, cells, width, column.is_figure)


def _with_bars(
    drawn: Sequence[_Drawn], columns: Sequence[Column[R]], rows: Sequence[R], room: int, gap: int
) -> list[_Drawn]:
    """Return the columns with bars as long as there is room, without them where there is none."""
    left = room - sum(item.width + gap for item in drawn)
    width = min(left, _BAR[-1])
    found = []
    for item, column in zip(drawn, columns, strict=True):
        if column.kind is not Kind.BAR:
            found.append(item)
        elif width in _BAR:
            shares = [column.value(row) or 0.0 for row in rows]
            bars = ["\N{BLACK SQUARE}" * max(round(share * width), share > 0) for share in shares]
            found.append(_Drawn("", bars, width))
    return found


def _bands(columns: Sequence[_Drawn], room: int, gap: int, repeated: int = 0) -> list[list[_Drawn]]:
    """Return the columns in bands that fit into a room; at least one, also an empty one. Those after
    the first begin with so many of the first columns.
    """
    bands: list[list[_Drawn]] = [[]]
    again = columns[:repeated]
    left = room - sum(item.width + gap for item in again)
    for column in columns:
        if bands[-1] and sum(item.width + gap for item in bands[-1]) + column.width > room:
            bands.append([*again, replace(column, width=min(column.width, left))])
        else:
            bands[-1].append(column)
    return bands


@dataclass(frozen=True, slots=True)
class _Row:
    """A row as lines of text, beside the cells of its columns."""

    name: str
    #: The headings that it stands below.
    headings: tuple[str, ...]
    #: Why it has no cells, and a word below it; empty for none.
    reason: str
    below: str
    look: str


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where rows' names and their columns stand."""

    title: str
    name_width: int
    #: For the columns.
    room: int
    gap: str
    indent: str

    def block(self, rows: Sequence[tuple[int, _Row]], columns: Sequence[_Drawn]) -> Iterator[Line]:
        """Yield heads and rows with the columns of one band; with headings, one at each change of
        them.
        """

        def line(name: str, cells: Sequence[str], reason: str = "") -> Iterator[str]:
            words = self.gap.join(map(_Drawn.cell, columns, cells))
            if reason and columns:
                words = fit(f"{columns[0].cell(NOTHING)}  {reason}", self.room)
            return self._line(name, words)

        heads = [column.head for column in columns]
        before: tuple[str, ...] = ()
        # What the columns are called is said once below the outer heading.
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
            yield from ((text, row.look) for text in line(row.name, cells, row.reason))
            if row.below and not row.reason:
                indent = f"{self.indent}    "
                room = self.name_width + self.room - len(indent)
                yield from ((indent + part, row.look) for part in wrap(row.below, room))

    def _line(self, name: str, cells: str) -> Iterator[str]:
        """Yield a line, and before it the name where that is too wide to stand beside the cells."""
        if display_width(name) > self.name_width:
            yield from (self.indent + line for line in wrap(name, WIDTH - len(self.indent)))
            name = ""
        yield f"{self.indent}{fit(name, self.name_width)}{self.gap}{cells}"


def csv_lines(table: Table[R]) -> Iterator[str]:
    """Yield a table as CSV (RFC 4180, but lines end in LF): the header, and a line for each row.

    Text is one line each, with controls made visible; none of it is a formula.
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
    """Return the table with pandas' own types; what isn't known is ``<NA>``, moments are UTC
    timestamps.
    """
    import pandas as pd

    columns = table.of(Form.FRAME)
    rows = [[column.data(row) for column in columns] for row in table.rows]
    values = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return pd.DataFrame(
        {
            column.name: _series(column.kind, list(own))
            for column, own in zip(columns, values, strict=True)
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
    """Return text that Arrow can hold: of a name that wasn't UTF-8, the bytes that aren't are
    written out.
    """
    return text.encode(errors="backslashreplace").decode()
