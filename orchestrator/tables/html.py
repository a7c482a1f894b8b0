"""A table on a page: whole, or searched and sorted by the page's script, which draws the rows that
are in view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import jinja2

from orchestrator import __version__
from orchestrator.installation import data_folder
from orchestrator.tables.column import NOTHING, Column, Form, Kind, R
from orchestrator.tables.escapes import visible
from orchestrator.tables.page_policy import inline_script, pack, page_policy
from orchestrator.tables.table import Table

#: A column with more different words than this has no list to choose from: searching finds them.
_MOST_CHOICES: Final = 200


def render(table: Table[R]) -> str:
    """Return a page with the table alone: one file that needs nothing else."""
    return page([table])


def page(tables: Sequence[Table[Any]]) -> str:
    """Return a page of tables, called as the first of them."""
    folds = {table.name: pack(page_data(table)) for table in tables}
    return template("table.html.j2").render(
        title=tables[0].caption, tables=tables, settings={}, folds=folds
    )


def whole(table: Table[R], look: str = "cards") -> str:
    """Return the table as a page has it without scripts, every row of it.

    ``look`` is its class in the style sheet.
    """
    return str(template("whole.html.j2").module.whole(table, look))  # type: ignore[attr-defined]


def _laid_out(table: Table[R]) -> tuple[Sequence[Column[R]], Sequence[object], str]:
    """Return a table's columns, its rows with their cells, and what is the same in all of them."""
    constants, rows = table.constants(), table.listed
    columns = [column for column in table.of(Form.HTML) if column.head not in constants]
    cells = zip(*(_cells(table, column, rows) for column in columns), strict=True)
    lines = [
        (table.is_virtual(row), table.marks(row), line)
        for row, line in zip(rows, cells, strict=True)
    ]
    same = "; ".join(f"{head} {word}" for head, word in constants.items() if word)
    return columns, lines, same


def _cells(
    table: Table[R], column: Column[R], rows: Sequence[R]
) -> Iterable[tuple[str, Column[R], object, str, str]]:
    """Yield a column's cells: how it is drawn, the column, what is shown, its classes, and what it
    opens.
    """
    is_made = column.kind in {Kind.PICTURE, Kind.MARKUP}
    kind = "figure" if column.is_figure else column.kind.value
    shown = [column.value(row) for row in rows] if is_made else column.cells(rows)
    for row, cell in zip(rows, shown, strict=True):
        tone = column.tone(row) if column.tone is not None else ""
        classes = f"n {tone}".rstrip() if column.is_figure else tone
        opens = ""
        if column.case is not None and cell and (case := column.case(row)):
            opens = f"#c-{case}"
        elif column.opens and table.key is not None and (key := table.key(row)):
            opens = key.join(table.link)
        yield kind, column, cell, classes, opens


def page_data(table: Table[R]) -> Mapping[str, object]:
    """Return the table as the page's script reads it."""
    rows = table.listed
    columns = [_column(column, rows) for column in table.of(Form.HTML)]
    page: dict[str, object] = {
        "caption": table.caption,
        "columns": columns,
        "keys": _words([table.key(row) if table.key is not None else "" for row in rows]),
        "virtual": [int(table.is_virtual(row)) for row in rows],
        "link": list(table.link),
        "order": table.order,
    }
    if table.is_judged is not None:
        page["judged"] = [int(table.is_judged(row)) for row in rows]
    if table.group is not None:
        page["groups"] = _words([table.group(row) for row in rows])
    return page


def _column(column: Column[R], rows: Sequence[R]) -> Mapping[str, object]:
    page: dict[str, object] = {"label": column.head, "name": column.name, "unit": column.unit}
    if column.is_figure:
        figures = column.figures(rows)
        digits = column.decimals(figures)
        # More digits than are shown only make the page larger.
        values = [None if figure is None else round(figure, digits + 2) for figure in figures]
        page |= {
            "kind": "number",
            "digits": digits,
            "signed": int(column.is_signed),
            "values": values,
        }
        if column.is_bar:
            page["bar"] = 1
        if column.kind is Kind.COUNT and len(rows) > 1 and len(set(values)) == 1:
            page["same"] = 1
        if column.shown is not None:
            # Of a figure that isn't there.
            texts = [
                column.shown(row) if value is None else None
                for row, value in zip(rows, values, strict=True)
            ]
            page["texts"] = {place: visible(text) for place, text in enumerate(texts) if text}
        if column.tone is not None:
            page["tones"] = _words([column.tone(row) for row in rows])
        if column.case is not None:
            page["cases"] = [column.case(row) for row in rows]
        return page
    words = [visible(cell) for cell in column.cells(rows)]
    if column.kind is Kind.SPARK:
        return page | _words(words) | {"kind": "spark", "box": column.box}
    page["kind"] = "case" if column.opens else "text"
    if column.tone is not None:
        page["kind"] = "badge"
        words = [f"{column.tone(row)}|{word}" for row, word in zip(rows, words, strict=True)]
    distinct = _words(words)
    # The page says once what is the same in all rows.
    is_same = len(rows) > 1 and len(distinct["words"]) == 1 and not column.opens
    is_choice = column.is_choice and 1 < len(distinct["words"]) <= _MOST_CHOICES
    return page | distinct | {"choice": int(is_choice)} | ({"same": 1} if is_same else {})


def _words(words: Sequence[str]) -> dict[str, list[object]]:
    """Return words once each, and which of them stands where."""
    places: dict[str, int] = {}
    indices = [places.setdefault(word, len(places)) for word in words]
    return {"words": list(places), "places": list(indices)}


def template(name: str) -> jinja2.Template:
    """Return a template of reports/templates; text in it is made visible and escaped."""
    return environment().get_template(name)


def mark(name: str, *values: object) -> str:
    """Return one of the small marks that all pages share (marks.html.j2), as safe HTML."""
    made: str = getattr(template("marks.html.j2").module, name)(*values)
    return made


@cache
def environment() -> jinja2.Environment:
    """Return what all templates are drawn with."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_folder("reports") / "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    made.filters["laid_out"] = _laid_out
    made.globals |= {
        "NOTHING": NOTHING,
        "inline_script": inline_script,
        "page_policy": page_policy,
        "version": __version__,
    }
    return made


def _finalize(value: object) -> object:
    """Make plain text visible before it is escaped; None is nothing."""
    # Called for every expression of every row: the common case stays free of a second call.
    if type(value) is str:
        return value if value.isprintable() else visible(value)
    return "" if value is None else value
