"""A table for a terminal, and as CSV, Markdown and a pandas frame. Pages have a module of their own; JSON
is a table's records.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
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
from orchestrator.tables.table import NOTHING, Column, Form, Kind, R, Table

if TYPE_CHECKING:
    import pandas as pd


#: Columns of a terminal that a table within a width takes at least.
WIDTH: Final = 80
#: No name of a row is wider in a table with headings: a longer one has a line of its own.
_WIDEST_NAME: Final = 29
#: A bar is left out where there is less room, and never longer.
_BAR: Final = range(6, 41)
#: Beside its name a row is known by so many columns at most.
_MOST_TELLING: Final = 2
#: A line, and how a terminal shows it: ``head``, or what Table.look says.
Line = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A column as lines of text."""

    heads: list[str]
    cells: list[str]
    width: int
    is_right: bool

    def cell(self, text: str) -> str:
        own = fit(text, self.width)
        return own if not self.is_right else f"{' ' * (self.width - display_width(text))}{text}"


def as_text(table: Table[R], width: int | None = None) -> str:
    """Return the table with a line for each row, within a width where one is given.

    Columns that don't fit beside the others follow in a band below, each beside the rows' names and
    what else tells rows apart; of one without a title, each word stands below its row.
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
    groups, (first, *others) = (
        (columns := table.of(Form.TEXT))[: table.groups],
        columns[table.groups :],
    )
    names = [visible(cell) for cell in first.cells(rows)]
    longest = max(map(display_width, (first.title, *names)))
    name_width = min(longest, _WIDEST_NAME) if groups else longest
    gap = 1 if groups else 2
    room = 1_000_000 if width is None else width - name_width - gap - bool(groups)
    reasons = ["" if table.instead is None else one_line(table.instead(row)) for row in rows]
    drawn = [_drawn(column, rows, reasons, room) for column in others]
    if len(_bands(drawn, room, gap)) > 1:
        # A head may be higher, so that its column is as narrow as its figures.
        narrow = [replace(column, head=column.head.replace(", ", ",\n")) for column in others]
        drawn = [_drawn(column, rows, reasons, room) for column in narrow]
    drawn = _with_bars(drawn, others, rows, room if width is not None else WIDTH, gap)
    places = [
        tuple(visible(cell) for cell in place)
        for place in zip(*(g.cells(rows) for g in groups), strict=True)
    ]
    looks = [table.look(row) for row in rows]
    named = list(zip(places, names, strict=True)) if places else names
    repeated = _telling(named, drawn, room)
    shown: list[Line] = []
    below: list[str] = []
    if drawn and not any(drawn[-1].heads) and len(_bands(drawn, room, gap)) > 1:
        below = drawn.pop().cells
    for number, band in enumerate(_bands(drawn, room, gap, repeated)):
        again = repeated if number else None
        block = _Block(band, name_width, " " * gap, room, " " * bool(groups), below, again)
        below = []
        told = reasons if not number else [""] * len(rows)
        shown += block.lines(first.title, names, places, told, looks)
    shown += [("", "") for _ in table.notes[:1]] + [(visible(note), "head") for note in table.notes]
    return [(line.rstrip(), look) for line, look in shown]


def _drawn(column: Column[R], rows: Sequence[R], reasons: Sequence[str], room: int) -> _Drawn:
    if column.kind is Kind.BAR:
        return _Drawn([""], [], 0, is_right=False)
    heads, cells = column.title.split("\n"), [visible(cell) for cell in column.cells(rows)]
    seen = [cell for cell, reason in zip(cells, reasons, strict=True) if not reason]
    width = min(max(map(display_width, (*heads, *seen))), max(room, 1))
    return _Drawn([visible(part) for part in heads], cells, width, column.is_figure)


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
            found.append(_Drawn([""], bars, width, is_right=False))
    return found


def _telling(names: Sequence[object], columns: Sequence[_Drawn], room: int) -> int:
    """Return how many of the first columns tell rows of one name apart; 0 where they don't, or take
    more than half of the room.
    """
    for count in range(_MOST_TELLING + 1):
        first = columns[:count]
        is_told = len(set(zip(names, *(item.cells for item in first), strict=True))) == len(names)
        if is_told and sum(item.width for item in first) <= room // 2:
            return count
    return 0


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
class _Block:
    """The rows' names with the columns of one band."""

    columns: list[_Drawn]
    name_width: int
    gap: str
    #: For the columns.
    room: int
    indent: str
    #: A word below each row, "" for none.
    below: Sequence[str]
    #: None for the first block of the rows. Below it, a row with nothing behind so many columns,
    #: which stand in each block, isn't said again.
    repeated: int | None

    def lines(
        self,
        title: str,
        names: Sequence[str],
        places: Sequence[tuple[str, ...]],
        reasons: Sequence[str],
        looks: Sequence[str],
    ) -> Iterator[Line]:
        """Yield heads and rows; with headings, one at each change of them."""
        if not places:
            yield from ((line, "head") for line in self.heads(title))
        before: tuple[str, ...] = ()
        is_headed = False
        for place, (name, reason) in enumerate(zip(names, reasons, strict=True)):
            # Below headings a row is known by its name, so that one without figures may be missing.
            blank = {"", NOTHING} if places else {""}
            if self.repeated is not None:
                own = {column.cells[place].strip() for column in self.columns[self.repeated :]}
                if own <= blank:
                    continue
            if places and places[place] != before:
                *above, last = places[place]
                if list(before[:-1]) != above:
                    titles = (f"{'  ' * level}{text}" for level, text in enumerate(above))
                    yield from ((line, "title") for line in titles)
                    is_headed = False
                before = places[place]
                # What the columns are called is said once below the outer heading.
                heads = [f"{self.indent} {last}"] if is_headed else self.heads(f" {last}")
                yield from ((line, "head") for line in heads)
                is_headed = True
            for line in self.row(name, self.cells(place, reason)):
                yield line, looks[place]
            if self.below and self.below[place] and not reason:
                indent = f"{self.indent}    "
                room = self.name_width + self.room - len(indent)
                yield from ((indent + part, looks[place]) for part in wrap(self.below[place], room))

    def heads(self, title: str) -> Iterator[str]:
        """Yield the lines of the head; words of several lines stand at the bottom, above their
        figures.
        """
        depth = max((len(column.heads) for column in self.columns), default=1)
        padded = ([""] * (depth - len(column.heads)) + column.heads for column in self.columns)
        for number, level in enumerate(zip(*padded, strict=True) if self.columns else [()]):
            words = [column.cell(word) for column, word in zip(self.columns, level, strict=True)]
            yield from self.row(title if number == depth - 1 else "", self.gap.join(words))

    def cells(self, place: int, reason: str) -> str:
        """Return a row beside its name: its cells, or why it has none."""
        if not reason or not self.columns:
            return self.gap.join(column.cell(column.cells[place]) for column in self.columns)
        return fit(f"{self.columns[0].cell(NOTHING)}  {reason}", self.room)

    def row(self, name: str, cells: str) -> Iterator[str]:
        """Yield a line, and before it the name where that is too wide to stand beside the cells."""
        if display_width(name) > self.name_width:
            yield from (self.indent + line for line in wrap(name, WIDTH - len(self.indent)))
            name = ""
        yield f"{self.indent}{fit(name, self.name_width)}{self.gap}{cells}"


def csv_lines(table: Table[R], text: Callable[[str], str] = str) -> Iterator[str]:
    """Yield a table as CSV (RFC 4180, but lines end in LF): the header, and a line for each row.

    Text is one line each, with controls made visible; none of it is a formula. ``text`` makes of
    each text what is written.
    """
    columns, buffer = table.of(Form.CSV), io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")

    def line(values: list[Any]) -> str:
        buffer.seek(0)
        buffer.truncate()
        words = (" ".join(map(str, item)) if isinstance(item, list) else item for item in values)
        writer.writerow(csv_text(text(item)) if isinstance(item, str) else item for item in words)
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
