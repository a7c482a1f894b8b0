"""Tables on a page, which its script sorts, searches and hides rows of; and the parts of a page: its
scripts with their hashes, its policy and its packed data.

Hashes are those of the files in reports/templates, never of a finished page: a browser doesn't run
a script that a text of a phone, a file or another lab injects.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Final, Generic
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

#: The class of a packed table, which the page's script lets people search, choose from and save.
_GRID: Final = "grid-table"
#: A word of more characters may be broken into lines.
_LONG: Final = 30
#: A change of at least this many percent is coloured.
_NOTABLE: Final = 2.0
#: The kinds of columns whose values are HTML or links.
_HTML_KINDS: Final = frozenset({Kind.PICTURE, Kind.MARKUP, Kind.CASES})


class Html(str):
    """HTML that a template doesn't escape; joined with other text it is a plain str again."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def page(tables: Sequence[Table[Any]]) -> str:
    """Return a page of tables with the caption of the first: one file without references."""
    folds = {table.name: fold(table) for table in tables}
    return template("table.html.j2").render(title=tables[0].caption, tables=tables, folds=folds)


@lru_cache(maxsize=1 << 13)
def plain(text: str) -> str:
    """Return text as HTML: visible and escaped."""
    return str(escape(visible(text)))


def _attributes(attributes: Mapping[str, str]) -> str:
    """Return the attributes of a tag that have a value, escaped."""
    return "".join(f' {name}="{plain(value)}"' for name, value in attributes.items() if value)


def tag(name: str, content: str = "", css_class: str = "", **attributes: str) -> str:
    """Return an element around HTML with a class; the values of other attributes are escaped."""
    more = _attributes(attributes) if attributes else ""
    return f"<{name}{_class(css_class)}{more}>{content}</{name}>"


def link(address: str, html: str, css_class: str = "", **attributes: str) -> str:
    """Return HTML that opens a case or a page; without an address as it is."""
    if not (address and html):
        return html
    return tag("a", html, f"open {css_class}".rstrip(), href=address, **attributes)


@lru_cache(maxsize=1 << 10)
def badge(word: str, css_class: str = "") -> str:
    """Return a word as a badge."""
    return tag("span", plain(word), f"badge {css_class}".rstrip())


@dataclass(frozen=True, eq=False)
class _Cells(Generic[R]):
    """A column's head as HTML, and its cells as texts and as HTML."""

    column: Column[R]
    head: str
    texts: Sequence[Any]
    html: Sequence[str]
    #: What packed cells are sorted, searched and saved by.
    values: Sequence[str] = ()

    def is_empty(self, rows: slice) -> bool:
        """Whether people need no such column for these rows."""
        return self.column.is_optional and NOTHINGS.issuperset(self.texts[rows])

    def is_shared(self, rows: slice) -> bool:
        """Whether these rows have one word in it, which can be said once."""
        texts = self.texts[rows]
        return self.column.is_merged and len(texts) > 1 and len(set(texts)) == 1

    def shared_text(self, place: int) -> str:
        """What all rows share, with the head; empty where that is nothing."""
        text = self.texts[place]
        words = (self.column.head, text, self.column.unit)
        return "" if text in NOTHINGS else " ".join(filter(None, words))


class TableHtml(Generic[R]):
    """A table as HTML: each cell is made once; all rows are put together, or some of them."""

    def __init__(self, table: Table[R], css_class: str = "cards") -> None:
        """``css_class`` is the table's class."""
        self._table = table
        self._is_grid = css_class == _GRID
        # On a narrow window, rows are cards with heads beside the cells.
        self._has_labels = css_class.startswith(("cards", "pictured"))
        caption = plain(table.caption)
        self._before = (
            f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}">'
            f'<table class="{css_class if self._is_grid else f"whole {css_class}"}"'
            f' data-table="{plain(table.name)}" data-order="{plain(table.order)}">'
            f'<caption class="unseen">{caption}</caption><thead><tr>'
        )
        is_virtual = list(map(table.is_virtual, table.listed))
        self._starts = list(map(self._start, table.listed, is_virtual))
        columns = [self._cells(column) for column in table.columns if Form.HTML in column.forms]
        names, *further = [c for c in columns if not c.is_empty(slice(None))] or columns[:1]
        below = self._below_names(columns, is_virtual)
        heads = [
            f'<th scope="row"{cell[3:-5]}{more}</th>'
            for cell, more in zip(names.html, below, strict=True)
        ]
        self._columns = [replace(names, html=heads), *further]

    def part(self, begin: int = 0, end: int | None = None) -> Html:
        """Return rows ``begin`` to ``end``. Columns that say nothing of them are left out; where
        one says one word of all of them, it stands below: the column is hidden, of some rows left
        out.
        """
        rows = slice(begin, end)
        before, after, columns = self._split(rows)
        cells = (of_column for _, of_column in columns)
        lines = (f"{''.join(parts)}</tr>" for parts in zip(self._starts[rows], *cells, strict=True))
        return Html(f"{before}{''.join(lines)}{after}")

    def packed(self) -> str:
        """Return all rows packed: the table's HTML without rows, the rows' starts and addresses, and
        the columns of cells and their values, with the characters of the longest text and the words
        to choose from. The page's script makes elements only of what is seen.
        """
        table, (before, after, columns) = self._table, self._split(slice(None))
        packed = []
        for item, cells in columns:
            texts = dict.fromkeys(item.texts) if item.column.kind not in _HTML_KINDS else {}
            packed.append(
                _numbered(zip(cells, item.values, strict=True))
                | {
                    "width": max(map(len, texts), default=0),
                    "choices": [*map(visible, texts)] if item.column.is_choice else [],
                }
            )
        keys = map(table.key, table.listed) if table.key is not None else ()
        links = [key.join(table.link) for key in keys]
        rows = _numbered(self._starts)
        return pack({"html": before + after, "rows": rows, "links": links, "columns": packed})

    def _split(self, rows: slice) -> tuple[str, str, Sequence[tuple[_Cells[R], Sequence[str]]]]:
        """Return the HTML before some rows and after them, and the columns with their cells."""
        table, begin = self._table, rows.start or 0
        if table.nothing and not self._starts[rows]:
            return tag("p", plain(table.nothing), "empty"), "", ()
        columns: list[tuple[_Cells[R], Sequence[str]]] = []
        heads, shared = [], []
        for item in self._columns:
            head, cells = item.head, item.html[rows]
            if columns and item.is_empty(rows):
                continue
            if columns and item.is_shared(rows):
                shared.append(item.shared_text(begin))
                if rows.stop is not None:
                    continue
                head, cells = f"<th hidden{head[3:]}", [f"<td hidden{cell[3:]}" for cell in cells]
            heads.append(head)
            columns.append((item, cells))
        shared_text = "; ".join(filter(None, shared))
        legend = tag("p", plain(f"In all rows: {shared_text}."), "legend") if shared_text else ""
        before = f"{self._before}{''.join(heads)}</tr></thead><tbody>"
        return before, f"</tbody></table></div>{legend}", columns

    def _start(self, row: R, is_virtual: bool) -> str:
        """Return a row's start."""
        table, attributes = self._table, dict(self._table.attributes(row))
        is_clean = table.is_judged is None or table.is_judged(row)
        marks = f"{'virtual-ground' * is_virtual} {'unclean' * (not is_clean)}"
        css_class = _class(f"{attributes.pop('class', '')} {marks}")
        return f"<tr{css_class}{_attributes(attributes)}>"

    def _below_names(
        self, columns: Sequence[_Cells[R]], is_virtual: Iterable[bool]
    ) -> Iterable[str]:
        """Return the HTML behind the names of rows: a badge where they are virtual, and on a narrow
        window the words that tell them from others.
        """
        virtual = f" {badge('virtual', 'virtual')}"
        badges = (virtual * is_marked for is_marked in is_virtual)
        if not self._table.apart:
            return badges
        texts = {item.column.name: item.texts for item in columns}
        words = zip(*(texts[name] for name in self._table.apart), strict=True)
        smalls = (tag("small", plain(", ".join(of_row)), "apart narrow-only") for of_row in words)
        return map(str.__add__, badges, smalls)

    def _cells(self, column: Column[R]) -> _Cells[R]:
        rows = self._table.listed
        label = f' data-label="{plain(column.head)}"' if self._has_labels else ""
        is_html = column.kind in _HTML_KINDS
        figures = column.figures(rows) if column.is_figure else ()
        texts: Sequence[Any] = (
            list(map(column.value, rows))
            if is_html
            else column.texts(rows, figures)
            if column.is_figure
            else column.cells(rows)
        )
        tones = [""] * len(rows) if column.tone is None else list(map(column.tone, rows))
        has_links = column.case is not None or column.opens
        addresses = [self._address(column, row) for row in rows] if has_links else [""] * len(rows)
        cells: Iterable[str]
        match column.kind:
            case Kind.PICTURE:
                cells = (f'<td class="picture"><div>{drawing}</div></td>' for drawing in texts)
            case Kind.MARKUP:
                cells = (f"<td{label}>{markup}</td>" for markup in texts)
            case Kind.CASES:
                cells = (f"<td{label}>{_cases(links)}</td>" for links in texts)
            case Kind.NUMBER | Kind.COUNT if has_links or any(
                (column.shown, column.tone, column.bar, column.is_signed)
            ):
                figure_cell = partial(_figure, column, label)
                cells = map(figure_cell, rows, texts, tones, figures, addresses)
            case Kind.NUMBER | Kind.COUNT:
                cells = (
                    f'<td{label} class="n{" nothing" if text == NOTHING else ""}">{text}</td>'
                    for text in texts
                )
            case _:
                word_cell = partial(_words, label, is_card=self._has_labels)
                cells = map(word_cell, texts, tones, addresses)
        values: Sequence[str] = ()
        if self._is_grid and not is_html:
            values = _values(column, texts, figures)
            is_merged = column.kind is not Kind.NUMBER and not column.opens
            column = replace(column, is_merged=is_merged or column.is_merged)
        return _Cells(column, _head(column), texts, list(cells), values or [""] * len(rows))

    def _address(self, column: Column[R], row: R) -> str:
        """Return the address that a cell leads to; empty for none. A packed table has those of its
        rows apart, so that few cells differ.
        """
        table = self._table
        if column.case is not None and (case := column.case(row)):
            return f"#c-{case}"
        key = table.key(row) if column.opens and table.key is not None else ""
        return key and ("#" if self._is_grid else key.join(table.link))


def _head(column: Column[Any]) -> str:
    if column.kind is Kind.PICTURE:
        return f'<th scope="col" class="picture">{column.box}</th>'
    unit = f" <small>{plain(column.unit)}</small>" if column.unit else ""
    attributes = {"scope": "col", "data-name": column.name, "class": "n" * column.is_figure}
    return f"<th{_attributes(attributes)}>{plain(column.head)}{unit}</th>"


def _figure(
    column: Column[R],
    label: str,
    row: R,
    text: str,
    tone: str,
    figure: float | None,
    address: str,
) -> str:
    """Return a cell of a figure, or of words in place of one."""
    css_class, more = f"n {tone}", ""
    if figure is None or text in NOTHINGS:
        css_class += " nothing"
    elif column.is_signed and abs(figure) >= _NOTABLE:
        css_class += " is-slower" if figure > 0 else " is-faster"
    if share := column.bar(row) if column.bar is not None else None:
        css_class, more = f"{css_class} bar-cell", f' style="--part:{share:.1%}"'
    return f"<td{label}{_class(css_class)}{more}>{link(address, plain(text))}</td>"


@lru_cache(maxsize=1 << 13)
def _words(label: str, text: str, tone: str, address: str, *, is_card: bool) -> str:
    """Return a cell of words."""
    # Classes of badges have a dash.
    if "-" in tone:
        return f"<td{label}>{link(address, badge(text, tone)) if text else ''}</td>"
    is_long = not is_card and len(text) > _LONG
    # Letters of ASCII have one direction.
    content = plain(text) if text.isascii() else tag("bdi", plain(text))
    css_class = _class(f"{tone} words" if is_long else tone)
    return f"<td{label}{css_class}>{link(address, content)}</td>"


def _cases(links: Iterable[tuple[str, str]]) -> str:
    """Return links to cases as a list."""
    items = (tag("li", link(key and f"#c-{key}", plain(name))) for name, key in links)
    return tag("ul", "".join(items), "plain")


def _values(
    column: Column[Any], texts: Sequence[Any], figures: Sequence[float | None]
) -> Sequence[str]:
    """Return the values that cells are sorted, searched and saved by: words, and figures with two more digits
    where exports have more; empty for words in place of a figure.
    """
    if not column.is_figure:
        return list(map(visible, texts))
    shown_digits = column.decimals(figures)
    digits = shown_digits + 2 if column.exact is not None else shown_digits or None
    return [
        "" if figure is None or text in NOTHINGS else f"{round(figure, digits)}"
        for text, figure in zip(texts, figures, strict=True)
    ]


def _numbered(pieces: Iterable[Any]) -> dict[str, Any]:
    """Return each different piece once, and its place for each of these."""
    numbers: dict[Any, int] = {}
    places = [numbers.setdefault(piece, len(numbers)) for piece in pieces]
    return {"pieces": list(numbers), "places": places}


def table_html(table: Table[Any], css_class: str = "cards") -> Html:
    """Return all rows of a table as HTML."""
    return TableHtml(table, css_class).part()


def fold(table: Table[Any]) -> str:
    """Return a table packed, which the page's script unfolds when it is looked at."""
    return TableHtml(table, _GRID).packed()


@lru_cache(maxsize=1 << 10)
def _class(words: str) -> str:
    """Return the attribute of an element's classes, each once; empty for none."""
    return _attributes({"class": " ".join(words.split())})


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
        "whole": table_html,
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
    "report": ("page.js", "tables.js", "evidence.js"),
    "table": ("page.js", "tables.js"),
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
def page_policy(kind: str) -> str:
    """Return the Content-Security-Policy of a kind of page; pages without an inline script belong
    to a site, whose style sheet and scripts are files.
    """
    scripts = styles = files = "'self'"
    if SCRIPTS[kind]:
        digest = hashlib.sha256(inline_script(kind).encode()).digest()
        scripts = f"'sha256-{base64.b64encode(digest).decode()}'"
        styles, files = "'unsafe-inline'", ""
    asks = "; connect-src 'self'" if kind == "farm" else ""
    return (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; script-src {scripts}; "
        f"style-src {styles}; img-src {files} data: blob:{asks}"
    )


#: Enough for text that repeats itself; higher levels take twice as long for some percent.
_LEVEL = 6
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
    first_rows = replace(
        table,
        rows=table.listed[:NOTEBOOK_ROWS],
        key=None,
        columns=columns,
        attributes=lambda row: {"class": table.look(row)},
    )
    return template("notebook.html.j2").render(
        title=title,
        table=table_html(first_rows),
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
