"""The tables of a page that people sort and search, by column: the page's script draws the rows that are in view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from orchestrator.tables.escapes import visible
from orchestrator.tables.labels import column_decimals
from orchestrator.units import US_PER_MS

Row = TypeVar("Row")
#: How a column's cells are drawn: as text, a name that opens what the row is about, a figure, a coloured word, or a
#: line of its own (``path|path`` of sparklines.py).
Kind = Literal["text", "case", "number", "badge", "spark"]
#: A column with more different words than this has no list to choose from: searching finds them.
_MOST_CHOICES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. Words are as phones and users wrote them; figures are in the unit of the head."""

    label: str
    kind: Kind = "text"
    #: In the head, not in the cells.
    unit: str = ""
    values: Sequence[str | float | None]
    #: Beside a badge's word: the class that colours it.
    classes: Sequence[str] = ()
    #: Decimals of a figure; None lets the column's smallest figure decide.
    digits: int | None = None
    #: Whether its words can be chosen from a list.
    is_choice: bool = False
    #: Of sparklines: the paths' view box.
    box: str = ""
    #: Whether a figure is a change of a latency: it has a sign, and what is slower or faster by 2 % a colour.
    is_signed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table under the identity that its place on the page has."""

    name: str
    #: For readers of the page that see no table at a glance.
    caption: str
    columns: Sequence[Column]
    #: What a row opens: the case with its evidence, or a page; with ``link`` around it, it is an address.
    keys: Sequence[str]
    #: Rows whose figures come from virtual phones.
    virtual: Sequence[bool]
    #: Further marks of each row that the page filters by: ``judged``.
    judged: Sequence[bool] = ()
    #: The group that a row belongs to, where only one group is shown at a time.
    groups: Sequence[str] = ()
    link: tuple[str, str] = ("#c-", "")
    #: What the order is in which the rows are given.
    order: str = "as measured"

    @property
    def count(self) -> int:
        """How many rows."""
        return len(self.keys)

    def to_page(self) -> Mapping[str, object]:
        """Return the table as the page's script reads it."""
        page: dict[str, object] = {
            "caption": self.caption,
            "columns": [_column(column) for column in self.columns],
            "keys": _words(self.keys),
            "virtual": [int(flag) for flag in self.virtual],
            "link": list(self.link),
            "order": self.order,
        }
        if self.judged:
            page["judged"] = [int(flag) for flag in self.judged]
        if self.groups:
            page["groups"] = _words(self.groups)
        return page


def column_of(rows: Iterable[Row], label: str, of: Callable[[Row], str | float | None], **other: object) -> Column:
    """Return a column with one value for each row."""
    return Column(label=label, values=[of(row) for row in rows], **other)  # type: ignore[arg-type]


def number_of(
    items: Sequence[Row], label: str, unit: str, of: Callable[[Row], float | None], digits: int | None = None
) -> Column:
    """Return a column of figures."""
    return column_of(items, label, of, kind="number", unit=unit, digits=digits)


def ms_of(
    items: Sequence[Row], label: str, of: Callable[[Row], float | None], digits: int | None = None, unit: str = "ms"
) -> Column:
    """Return a column of times in milliseconds; ``of`` returns microseconds."""
    return number_of(items, label, unit, lambda item: None if (us := of(item)) is None else us / US_PER_MS, digits)


def count_of(items: Sequence[Row], label: str, of: Callable[[Row], int | None], unit: str = "") -> Column:
    """Return a column of whole numbers."""
    return number_of(items, label, unit, lambda item: None if (count := of(item)) is None else float(count), 0)


def choice_of(items: Sequence[Row], label: str, of: Callable[[Row], str]) -> Column:
    """Return a column whose words can be chosen from a list."""
    return column_of(items, label, of, is_choice=True)


def badge_of(
    items: Sequence[Row], label: str, of: Callable[[Row], tuple[str, str]], *, is_choice: bool = True
) -> Column:
    """Return a column of coloured words; ``of`` returns a word and its class."""
    words, classes = zip(*map(of, items), strict=True) if items else ((), ())
    return Column(label=label, kind="badge", values=words, classes=classes, is_choice=is_choice)


def _column(column: Column) -> Mapping[str, object]:
    page: dict[str, object] = {"label": column.label, "kind": column.kind, "unit": column.unit}
    if column.kind == "number":
        figures = [value for value in column.values if isinstance(value, int | float)]
        digits = column.digits if column.digits is not None else column_decimals(figures)
        page |= {
            "digits": digits,
            "signed": int(column.is_signed),
            # More digits than are shown only make the page larger.
            "values": [round(value, digits + 2) if isinstance(value, int | float) else None for value in column.values],
        }
        return page
    if column.kind == "spark":
        return page | _words([str(value) for value in column.values]) | {"box": column.box}
    words = [visible(str(value)) if value is not None else "" for value in column.values]
    if column.kind == "badge":
        words = [f"{name}|{word}" for name, word in zip(column.classes, words, strict=True)]
    page |= _words(words)
    distinct = page["words"]
    assert isinstance(distinct, list)
    page["choice"] = int(column.is_choice and 1 < len(distinct) <= _MOST_CHOICES)
    return page


def _words(words: Sequence[str]) -> dict[str, object]:
    """Return words once each, and which of them stands where."""
    places: dict[str, int] = {}
    indices = [places.setdefault(word, len(places)) for word in words]
    return {"words": list(places), "places": indices}
