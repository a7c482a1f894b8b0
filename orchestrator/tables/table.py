"""A table: its rows and its columns, and the forms that it is written in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Generic

from orchestrator.tables.column import NOTHINGS, PEOPLE, Column, Form, Kind, R, record_of


@dataclass(frozen=True, kw_only=True)
class Table(Generic[R]):
    """Rows of one kind under their columns."""

    #: In addresses and names of files: ``results``.
    name: str
    #: A sentence for readers that see no table at a glance.
    caption: str
    columns: Sequence[Column[R]]
    #: May be an iterator: CSV and JSON take one row after the other.
    rows: Iterable[R]
    #: What people read in the place of a table without rows.
    nothing: str = ""
    #: Sentences that people read below the rows.
    notes: Sequence[str] = ()
    #: How many rows stand in text at most, and what follows where there are more.
    most: int | None = None
    further: str = "and {count} more: --json lists all"
    #: How many columns stand in text as headings above the rows that have them in common.
    groups: int = 0
    #: What text has in the place of a row's figures and all that follows; empty for a row with
    #: figures.
    instead: Callable[[R], str] | None = None
    #: What a row opens on a page: the case with its evidence, or a page; with ``link`` around it,
    #: it is an address.
    key: Callable[[R], str] | None = None
    link: tuple[str, str] = ("#c-", "")
    is_virtual: Callable[[R], bool] = lambda _: False
    #: How a terminal shows a row: ``winner``, ``doubt``, ``bad``; empty for nothing unusual.
    look: Callable[[R], str] = lambda _: ""
    is_judged: Callable[[R], bool] | None = None
    #: The group that a row belongs to, where a page shows one group at a time.
    group: Callable[[R], str] | None = None
    #: Further attributes of a row that stands on a page whole.
    attributes: Callable[[R], Mapping[str, str]] = lambda _: {}
    #: The order in which the rows are given.
    order: str = "as measured"

    def of(self, form: Form) -> list[Column[R]]:
        """Return the columns of a form; people see no optional column that is empty."""
        columns = [column for column in self.columns if form in column.forms]
        if form not in PEOPLE:
            return columns
        rows = self.listed
        return [column for column in columns if not (column.is_optional and column.is_empty(rows))]

    def laid_out(self) -> tuple[list[tuple[Column[R], Sequence[Any]]], dict[str, str]]:
        """Return what a page shows whole: columns with their cells (drawings as they are), and head
        -> word of those that are left out, as all rows have one word.
        """
        rows, same = self.listed, {}
        columns: list[tuple[Column[R], Sequence[Any]]] = []
        for column in self.columns:
            if Form.HTML not in column.forms:
                continue
            if column.kind in _MADE:
                columns.append((column, [column.value(row) for row in rows]))
                continue
            cells = column.cells(rows)
            if column.is_optional and NOTHINGS.issuperset(cells):
                continue
            if column.is_merged and len(rows) > 1 and len(set(cells)) == 1:
                same[column.head] = cells[0]
            else:
                columns.append((column, cells))
        return columns, same

    @property
    def listed(self) -> Sequence[R]:
        """The rows, where all of them are needed."""
        assert isinstance(self.rows, Sequence), "only CSV and JSON are written of an iterator"
        return self.rows

    def record(self, row: R, form: Form = Form.JSON) -> dict[str, Any]:
        """Return one row as plain values by the columns' names."""
        return record_of(self.columns, row, form)


#: What a page shows as it is.
_MADE: Final = frozenset({Kind.PICTURE, Kind.MARKUP, Kind.CASES})


#: Form -> the module with its ``render``, which is loaded when it is used.
RENDERERS: Final[Mapping[Form, str]] = {form: f"orchestrator.tables.{form.value}" for form in Form}


def render(table: Table[R], form: Form) -> Any:  # noqa: ANN401 - text, but for a frame
    """Return the table in a form: a text, or a pandas frame."""
    return import_module(RENDERERS[form]).render(table)
