"""Tables on a page: static, or drawn, searched and sorted by the page's script; and the parts of a
page: its scripts with their hashes, its policy and its packed data.

Hashes are those of the files in reports/templates, never of a finished page: a browser doesn't run
a script that a text of a phone, a file or another lab injects.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import jinja2
from markupsafe import escape

from orchestrator import __version__
from orchestrator.installation import data_folder
from orchestrator.tables.devices import origin_of
from orchestrator.tables.escapes import visible
from orchestrator.tables.labels import STATE_CLASSES, page_name
from orchestrator.tables.table import NOTHING, NOTHINGS, Column, Form, Kind, R, Table
from orchestrator.units import format_bytes, format_change, format_latency

#: A column with more distinct words has no list to choose from.
_MOST_CHOICES: Final = 200


#: The kinds of columns whose values are HTML or links.
_HTML_KINDS: Final = frozenset({Kind.PICTURE, Kind.MARKUP, Kind.CASES})


class Html(str):
    """HTML that a template doesn't escape; joined with other text it is a plain str again."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def page(tables: Sequence[Table[Any]]) -> str:
    """Return a page of tables with the caption of the first: one file without references."""
    folds = {table.name: pack(page_data(table)) for table in tables}
    return template("table.html.j2").render(title=tables[0].caption, tables=tables, folds=folds)


def plain(text: str) -> str:
    """Return text as HTML: visible and escaped."""
    return str(escape(visible(text)))


def tag(name: str, content: str = "", css_class: str = "", **attributes: str) -> str:
    """Return an element around HTML with a class; the values of other attributes are escaped."""
    words = "".join(
        f' {key.rstrip("_")}="{plain(value)}"'
        for key, value in ({"class": css_class} | attributes).items()
        if value
    )
    return f"<{name}{words}>{content}</{name}>"


def badge(word: str, css_class: str = "") -> str:
    """Return a word as a badge."""
    return tag("span", plain(word), f"badge {css_class}".rstrip())


def static_table(table: Table[R], css_class: str = "cards") -> Html:
    """Return all rows of the table as HTML without scripts; ``css_class`` is the table's class."""
    if not table.listed and table.nothing:
        return Html(tag("p", plain(table.nothing), "empty"))
    rows, uniform = table.listed, list[str]()
    columns: list[tuple[Column[R], Sequence[Any]]] = []
    for column in table.of(Form.HTML):
        is_html = column.kind in _HTML_KINDS
        cells: Sequence[Any] = (
            [column.value(row) for row in rows] if is_html else column.cells(rows)
        )
        if column.is_merged and len(rows) > 1 and len(set(cells)) == 1:
            uniform += [f"{column.head} {cells[0]}"] if cells[0] not in NOTHINGS else []
        else:
            columns.append((column, cells))
    caption, heads = plain(table.caption), "".join(_head(column) for column, _ in columns)
    same_text = "; ".join(uniform)
    return Html(
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}">'
        f'<table class="whole {css_class}" data-table="{plain(table.name)}">'
        f'<caption class="unseen">{caption}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(_lines(table, columns, css_class))}</tbody></table></div>"
        + (tag("p", plain(f"In all rows: {same_text}."), "legend") if same_text else "")
    )


def _lines(
    table: Table[R], columns: Sequence[tuple[Column[R], Sequence[Any]]], css_class: str
) -> Iterator[str]:
    """Yield the rows as HTML; the first cell of each is its head, with a badge where virtual."""
    rows = table.listed
    # On a narrow window, rows are cards with heads beside the cells; small tables never are.
    is_small = css_class.startswith("small")
    drawn = [_cells(table, column, cells, is_small=is_small) for column, cells in columns]
    virtual = " " + badge("virtual", "virtual")
    for row, (first, *further_cells) in zip(rows, zip(*drawn, strict=True), strict=True):
        is_virtual = table.is_virtual(row)
        row_class = f"{table.look(row)}{' virtual-ground' if is_virtual else ''}".strip()
        words = f' class="{row_class}"' if row_class else ""
        words += "".join(f' {name}="{plain(word)}"' for name, word in table.attributes(row).items())
        head = f'<th scope="row"{first}{virtual if is_virtual else ""}</th>'
        cells = "".join(f"<td{cell}</td>" for cell in further_cells)
        yield f"<tr{words}>{head}{cells}</tr>"


def _head(column: Column[Any]) -> str:
    if column.kind is Kind.PICTURE:
        return f'<th scope="col" class="picture">{column.box}</th>'
    unit = f" <small>{plain(column.unit)}</small>" if column.unit else ""
    return tag("th", plain(column.head) + unit, "n" if column.is_figure else "", scope="col")


def _cells(
    table: Table[R], column: Column[R], cells: Sequence[Any], *, is_small: bool
) -> list[str]:
    """Return a column's cells as HTML: attributes and content, without the tags' names."""
    if column.kind is Kind.PICTURE:
        return [f' class="picture"><div>{cell}</div>' for cell in cells]
    label = "" if is_small else f' data-label="{plain(column.head)}"'
    side = "n" if column.is_figure else ""
    html_cells = []
    for row, cell in zip(table.listed, cells, strict=True):
        tone = column.tone(row) if column.tone is not None else ""
        # Classes of badges have a dash.
        is_badge = "-" in tone
        css_class = side if is_badge else f"{side} {tone}".strip()
        words = f' class="{css_class}"' if css_class else ""
        inner = badge(cell, tone) if is_badge and cell else _words(table, column, row, cell)
        html_cells.append(f"{label}{words}>{inner}")
    return html_cells


def _words(table: Table[R], column: Column[R], row: R, cell: Any) -> str:  # noqa: ANN401
    """Return the content of a cell, as a link where it opens a case or a page."""
    if column.kind is Kind.CASES:
        links = [
            f"<li>{_link(f'#c-{key}' if key else '', plain(words))}</li>" for words, key in cell
        ]
        return tag("ul", "".join(links), "plain")
    words = str(cell) if column.kind is Kind.MARKUP else plain(cell)
    if words and not column.is_figure and column.kind is not Kind.MARKUP:
        words = f"<bdi>{words}</bdi>"
    if column.case is not None and words and (case := column.case(row)):
        return _link(f"#c-{case}", words)
    if column.opens and table.key is not None and (key := table.key(row)):
        return _link(key.join(table.link), words)
    return words


def _link(address: str, words: str) -> str:
    return f'<a class="open" href="{plain(address)}">{words}</a>' if address else words


def page_data(table: Table[R]) -> Mapping[str, object]:
    """Return the table as JSON values for the page's script."""
    rows = table.listed
    columns = [_column(column, rows) for column in table.of(Form.HTML)]
    page: dict[str, object] = {
        "caption": table.caption,
        "columns": columns,
        "keys": _distinct([table.key(row) if table.key is not None else "" for row in rows]),
        "virtual": [int(table.is_virtual(row)) for row in rows],
        "link": list(table.link),
        "order": table.order,
    }
    if table.is_judged is not None:
        page["judged"] = [int(table.is_judged(row)) for row in rows]
    if table.group is not None:
        page["groups"] = _distinct([table.group(row) for row in rows])
    return page


def _column(column: Column[R], rows: Sequence[R]) -> Mapping[str, object]:
    page: dict[str, object] = {"label": column.head, "name": column.name, "unit": column.unit}
    if column.is_figure:
        return page | _figures(column, rows)
    if column.kind is Kind.PICTURE:
        return page | _distinct([column.value(row) for row in rows]) | {"kind": "picture"}
    words = list(map(visible, column.cells(rows)))
    page["kind"] = "case" if column.opens else "text"
    if column.tone is not None:
        page["kind"] = "badge"
        words = [f"{column.tone(row)}|{word}" for row, word in zip(rows, words, strict=True)]
    distinct = _distinct(words)
    # The page shows a value that all rows share only once.
    is_same = len(rows) > 1 and len(distinct["words"]) == 1 and not column.opens
    is_choice = column.is_choice and 1 < len(distinct["words"]) <= _MOST_CHOICES
    return page | distinct | {"choice": int(is_choice)} | ({"same": 1} if is_same else {})


def _figures(column: Column[R], rows: Sequence[R]) -> dict[str, object]:
    """Return a column of figures: as texts, and as values with two more digits for sorting and
    colours.
    """
    figures, texts = column.figures(rows), list(map(visible, column.cells(rows)))
    digits = column.decimals(figures) + 2
    page: dict[str, object] = {
        "kind": "number",
        "signed": int(column.is_signed),
        "texts": texts,
        "values": [
            # No value where the text is no figure.
            None if figure is None or text in NOTHINGS else round(figure, digits)
            for figure, text in zip(figures, texts, strict=True)
        ],
    }
    if column.bar is not None:
        page["bars"] = [share and round(share, 3) for share in map(column.bar, rows)]
    if column.kind is Kind.COUNT and len(rows) > 1 and len(set(texts)) == 1:
        page["same"] = 1
    if column.tone is not None:
        page["tones"] = _distinct([column.tone(row) for row in rows])
    if column.case is not None:
        page["cases"] = [column.case(row) for row in rows]
    return page


def _distinct(words: Sequence[str]) -> dict[str, list[object]]:
    """Return the distinct words, and the index of each row's word."""
    places: dict[str, int] = {}
    indices = [places.setdefault(word, len(places)) for word in words]
    return {"words": list(places), "places": list(indices)}


def template(name: str) -> jinja2.Template:
    """Return a template of reports/templates; text in it is made visible and escaped."""
    return _environment().get_template(name)


def mark(name: str, *values: object) -> str:
    """Return a macro of marks.html.j2, which all pages share, as safe HTML."""
    html: str = getattr(template("marks.html.j2").module, name)(*values)
    return html


@cache
def _environment() -> jinja2.Environment:
    """Return the Jinja environment of all templates."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_folder("reports") / "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.globals |= {
        "NOTHING": NOTHING,
        "inline_script": inline_script,
        "page_policy": page_policy,
        "version": __version__,
        "whole": static_table,
    }
    environment.filters |= {
        "size": format_bytes,
        "origin": origin_of,
        "latency": format_latency,
        "change": format_change,
        "page_name": page_name,
        "state_class": lambda state: STATE_CLASSES.get(state, "v-warning"),
    }
    return environment


def _finalize(value: object) -> object:
    """Make plain text visible before it is escaped; None is empty."""
    if type(value) is str:
        return visible(value)
    return "" if value is None else value


#: Kind of page -> its inline scripts.
SCRIPTS: Final[Mapping[str, Sequence[str]]] = {
    "report": ("page.js", "tables.js", "evidence.js", "grid.js"),
    "table": ("page.js", "grid.js"),
    "compared": ("page.js", "tables.js"),
    #: Its script is a file of its own.
    "site": (),
    #: Its script is a file, too; it gets its data from its server.
    "farm": (),
}


@cache
def inline_script(kind: str) -> Html:
    """Return the inline script of a kind of page."""
    folder = data_folder("reports") / "templates"
    return Html("\n".join((folder / name).read_text("utf-8") for name in SCRIPTS[kind]))


@cache
def script_hash(kind: str) -> str:
    """Return the Content-Security-Policy source of a kind of page's inline script."""
    digest = hashlib.sha256(inline_script(kind).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def page_policy(kind: str) -> str:
    """Return the Content-Security-Policy of a kind of page; pages without an inline script belong
    to a site, whose style sheet and scripts are files.
    """
    files, scripts = ("", script_hash(kind)) if SCRIPTS[kind] else ("'self' ", "'self'")
    asks = "; connect-src 'self'" if kind == "farm" else ""
    return (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; script-src {scripts}; "
        f"style-src {files}'unsafe-inline'; img-src {files}data: blob:{asks}"
    )


#: Enough for text that repeats itself; higher levels take several times as long for some percent.
_LEVEL = 5
#: Values aren't checked for cycles: they are made here and have none.
_to_text = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


def pack(value: object) -> str:
    """Return a JSON value as base64 of gzip, which the page's script unpacks when needed.

    Raises ValueError for infinity and NaN.
    """
    data = _to_text(value).encode(errors="replace")
    return base64.b64encode(gzip.compress(data, _LEVEL, mtime=0)).decode("ascii")


#: The greatest number of rows in a notebook.
NOTEBOOK_ROWS: Final = 200


def notebook_html(
    table: Table[Any],
    title: str,
    notes: Sequence[str] = (),
    *,
    report: Path | None = None,
) -> str:
    """Return a table for a notebook: its first rows with bars, and the number of further ones;
    with a link to ``report``.
    """
    columns = [_bar(column) if column.kind is Kind.BAR else column for column in table.columns]
    first_rows = replace(table, rows=table.listed[:NOTEBOOK_ROWS], key=None, columns=columns)
    return template("notebook.html.j2").render(
        title=title,
        table=static_table(first_rows),
        notes=notes,
        report=report and (report.as_uri() if report.is_absolute() else quote(report.as_posix())),
        more=len(table.listed) - len(first_rows.listed),
    )


def _bar(column: Column[R]) -> Column[R]:
    """Return a column of shares as bars."""

    def drawn(row: R) -> str:
        inner = f"width: {column.value(row) or 0.0:.0%}; height: .8em; background: currentColor; opacity: .35"
        return f'<div style="width: 8em"><div style="{inner}"></div></div>'

    return replace(column, kind=Kind.MARKUP, value=drawn)
