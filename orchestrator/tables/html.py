"""A table on a page: searched, sorted and copied by the page's script, which draws the rows that
are in view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import jinja2

from orchestrator import __version__
from orchestrator.resources import data_folder
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
        return page | {
            "kind": "number",
            "digits": digits,
            "signed": int(column.is_signed),
            "values": values,
        }
    words = [visible(cell) for cell in column.cells(rows)]
    if column.kind is Kind.SPARK:
        return page | _words(words) | {"kind": "spark", "box": column.box}
    page["kind"] = "case" if column.opens else "text"
    if column.tone is not None:
        page["kind"] = "badge"
        words = [f"{column.tone(row)}|{word}" for row, word in zip(rows, words, strict=True)]
    distinct = _words(words)
    return (
        page
        | distinct
        | {"choice": int(column.is_choice and 1 < len(distinct["words"]) <= _MOST_CHOICES)}
    )


def _words(words: Sequence[str]) -> dict[str, list[object]]:
    """Return words once each, and which of them stands where."""
    places: dict[str, int] = {}
    indices = [places.setdefault(word, len(places)) for word in words]
    return {"words": list(places), "places": list(indices)}


def template(name: str) -> jinja2.Template:
    """Return a template of reports/templates; text in it is made visible and escaped."""
    return environment().get_template(name)


@cache
def environment() -> jinja2.Environment:
    """Return what all templates are drawn with."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_folder("reports") / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
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
