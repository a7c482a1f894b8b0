"""A table on a page: whole, or searched and sorted by the page's script, which draws the rows that
are in view; and what goes into a page: scripts of its template by their hash, data folded.

Hashes are made of the files in reports/templates, never of a finished page: a script that slipped
into one through what a phone, a file or another lab wrote isn't run.
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

#: A column with more different words than this has no list to choose from: searching finds them.
_MOST_CHOICES: Final = 200


#: What a page shows as it is.
_MADE: Final = frozenset({Kind.PICTURE, Kind.MARKUP, Kind.CASES})


class Html(str):
    """HTML, which a template writes as it is; joined with other text it is text again."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def page(tables: Sequence[Table[Any]]) -> str:
    """Return a page of tables, called as the first of them: one file that needs nothing else."""
    folds = {table.name: pack(page_data(table)) for table in tables}
    return template("table.html.j2").render(title=tables[0].caption, tables=tables, folds=folds)


def plain(text: str) -> str:
    """Return text for a page: visible, and nothing of it is HTML."""
    return str(escape(visible(text)))


def tag(name: str, content: str = "", look: str = "", **attributes: str) -> str:
    """Return an element around HTML, with its class; the values of other attributes are text."""
    words = "".join(
        f' {key.rstrip("_")}="{plain(value)}"'
        for key, value in ({"class": look} | attributes).items()
        if value
    )
    return f"<{name}{words}>{content}</{name}>"


def badge(word: str, look: str = "") -> str:
    """Return a word as a badge."""
    return tag("span", plain(word), f"badge {look}".rstrip())


def whole(table: Table[R], look: str = "cards") -> Html:
    """Return the table as a page has it without scripts, every row of it.

    ``look`` is its class in the style sheet.
    """
    if not table.listed and table.nothing:
        return Html(tag("p", plain(table.nothing), "empty"))
    rows, same = table.listed, list[str]()
    columns: list[tuple[Column[R], Sequence[Any]]] = []
    for column in table.of(Form.HTML):
        is_made = column.kind in _MADE
        cells: Sequence[Any] = (
            [column.value(row) for row in rows] if is_made else column.cells(rows)
        )
        if column.is_merged and len(rows) > 1 and len(set(cells)) == 1:
            same += [f"{column.head} {cells[0]}"] if cells[0] not in NOTHINGS else []
        else:
            columns.append((column, cells))
    caption, heads = plain(table.caption), "".join(_head(column) for column, _ in columns)
    told = "; ".join(same)
    return Html(
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}">'
        f'<table class="whole {look}" data-table="{plain(table.name)}">'
        f'<caption class="unseen">{caption}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(_lines(table, columns, look))}</tbody></table></div>"
        + (tag("p", plain(f"In all rows: {told}."), "legend") if told else "")
    )


def _lines(
    table: Table[R], columns: Sequence[tuple[Column[R], Sequence[Any]]], look: str
) -> Iterator[str]:
    """Yield the rows as HTML; the first cell of each is its head, and says whether it is virtual."""
    rows = table.listed
    # Cards have the heads beside their cells on a narrow window; small tables never are cards.
    is_small = look.startswith("small")
    drawn = [_cells(table, column, cells, is_small=is_small) for column, cells in columns]
    virtual = " " + badge("virtual", "virtual")
    for row, (first, *others) in zip(rows, zip(*drawn, strict=True), strict=True):
        is_virtual = table.is_virtual(row)
        kind = f"{table.look(row)}{' virtual-ground' if is_virtual else ''}".strip()
        words = f' class="{kind}"' if kind else ""
        words += "".join(f' {name}="{plain(word)}"' for name, word in table.attributes(row).items())
        head = f'<th scope="row"{first}{virtual if is_virtual else ""}</th>'
        cells = "".join(f"<td{cell}</td>" for cell in others)
        yield f"<tr{words}>{head}{cells}</tr>"


def _head(column: Column[Any]) -> str:
    if column.kind is Kind.PICTURE:
        return f'<th scope="col" class="picture">{column.box}</th>'
    unit = f" <small>{plain(column.unit)}</small>" if column.unit else ""
    return tag("th", plain(column.head) + unit, "n" if column.is_figure else "", scope="col")


def _cells(
    table: Table[R], column: Column[R], cells: Sequence[Any], *, is_small: bool
) -> list[str]:
    """Return a column's cells as HTML from their attributes on, without their ends."""
    if column.kind is Kind.PICTURE:
        return [f' class="picture"><div>{cell}</div>' for cell in cells]
    label = "" if is_small else f' data-label="{plain(column.head)}"'
    side = "n" if column.is_figure else ""
    found = []
    for row, cell in zip(table.listed, cells, strict=True):
        tone = column.tone(row) if column.tone is not None else ""
        # A class with a dash is a badge's.
        is_badge = "-" in tone
        look = side if is_badge else f"{side} {tone}".strip()
        words = f' class="{look}"' if look else ""
        inner = badge(cell, tone) if is_badge and cell else _words(table, column, row, cell)
        found.append(f"{label}{words}>{inner}")
    return found


def _words(table: Table[R], column: Column[R], row: R, cell: Any) -> str:  # noqa: ANN401
    """Return what is in a cell, as a link where it opens something."""
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
    """Return the table as the page's script reads it."""
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
    # The page says once what is the same in all rows.
    is_same = len(rows) > 1 and len(distinct["words"]) == 1 and not column.opens
    is_choice = column.is_choice and 1 < len(distinct["words"]) <= _MOST_CHOICES
    return page | distinct | {"choice": int(is_choice)} | ({"same": 1} if is_same else {})


def _figures(column: Column[R], rows: Sequence[R]) -> dict[str, object]:
    """Return a column of figures: as people read them, and to sort and to colour by, with two
    digits more than are shown.
    """
    figures, texts = column.figures(rows), list(map(visible, column.cells(rows)))
    digits = column.decimals(figures) + 2
    page: dict[str, object] = {
        "kind": "number",
        "signed": int(column.is_signed),
        "texts": texts,
        "values": [
            # Where people read no figure there is none.
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
    """Return words once each, and which of them stands where."""
    places: dict[str, int] = {}
    indices = [places.setdefault(word, len(places)) for word in words]
    return {"words": list(places), "places": list(indices)}


def template(name: str) -> jinja2.Template:
    """Return a template of reports/templates; text in it is made visible and escaped."""
    return _environment().get_template(name)


def mark(name: str, *values: object) -> str:
    """Return one of the small marks that all pages share (marks.html.j2), as safe HTML."""
    made: str = getattr(template("marks.html.j2").module, name)(*values)
    return made


@cache
def _environment() -> jinja2.Environment:
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
    made.globals |= {
        "NOTHING": NOTHING,
        "inline_script": inline_script,
        "page_policy": page_policy,
        "version": __version__,
        "whole": whole,
    }
    made.filters |= {
        "size": format_bytes,
        "origin": origin_of,
        "latency": format_latency,
        "change": format_change,
        "page_name": page_name,
        "state_class": lambda state: STATE_CLASSES.get(state, "v-warning"),
    }
    return made


def _finalize(value: object) -> object:
    """Make plain text visible before it is escaped; None is nothing."""
    if type(value) is str:
        return visible(value)
    return "" if value is None else value


#: Kind of page -> the scripts that stand in it.
SCRIPTS: Final[Mapping[str, Sequence[str]]] = {
    "report": ("page.js", "tables.js", "evidence.js", "grid.js"),
    "table": ("page.js", "grid.js"),
    "compared": ("page.js", "tables.js"),
    #: Its script is a file of its own.
    "site": (),
    #: So has this one; it asks its server for what it shows.
    "farm": (),
}


@cache
def inline_script(kind: str) -> Html:
    """Return the script that stands in a kind of page."""
    folder = data_folder("reports") / "templates"
    return Html("\n".join((folder / name).read_text("utf-8") for name in SCRIPTS[kind]))


@cache
def script_hash(kind: str) -> str:
    """Return the word of a Content-Security-Policy that lets a kind of page run its own script."""
    digest = hashlib.sha256(inline_script(kind).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def page_policy(kind: str) -> str:
    """Return the Content-Security-Policy that a page carries itself; without a script in it, it
    belongs to a site, whose style sheet and scripts are files beside it.
    """
    files, scripts = ("", script_hash(kind)) if SCRIPTS[kind] else ("'self' ", "'self'")
    asks = "; connect-src 'self'" if kind == "farm" else ""
    return (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; script-src {scripts}; "
        f"style-src {files}'unsafe-inline'; img-src {files}data: blob:{asks}"
    )


#: Enough for text that repeats itself; higher levels take several times as long for some percent.
_LEVEL = 5
#: What is folded is made here, and holds itself nowhere.
_to_text = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


def pack(value: object) -> str:
    """Return a JSON value as base64 of gzip; the page's script reads it when it is needed.

    Raises ValueError for figures that JSON has no word for (infinity, not a number).
    """
    data = _to_text(value).encode(errors="replace")
    return base64.b64encode(gzip.compress(data, _LEVEL, mtime=0)).decode("ascii")


#: Rows that a notebook shows; a frame has all.
NOTEBOOK_ROWS: Final = 200


def notebook_html(
    table: Table[Any],
    title: str,
    notes: Sequence[str] = (),
    *,
    report: Path | None = None,
) -> str:
    """Return a table for a notebook: its first rows, winners bold, bars beside figures, and how many
    more there are.

    ``report`` is linked to.
    """
    columns = [_bar(column) if column.kind is Kind.BAR else column for column in table.columns]
    shown = replace(table, rows=table.listed[:NOTEBOOK_ROWS], key=None, columns=columns)
    return template("notebook.html.j2").render(
        title=title,
        table=whole(shown),
        notes=notes,
        report=report and (report.as_uri() if report.is_absolute() else quote(report.as_posix())),
        more=len(table.listed) - len(shown.listed),
    )


def _bar(column: Column[R]) -> Column[R]:
    """Return a column of shares as bars."""

    def drawn(row: R) -> str:
        inner = f"width: {column.value(row) or 0.0:.0%}; height: .8em; background: currentColor; opacity: .35"
        return f'<div style="width: 8em"><div style="{inner}"></div></div>'

    return replace(column, kind=Kind.MARKUP, value=drawn)
