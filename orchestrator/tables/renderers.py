"""A table as CSV, Markdown and a pandas frame. Text and pages, which are laid out, have modules of
their own; JSON is a table's records.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from orchestrator.tables.escapes import csv_text, markdown_text
from orchestrator.tables.table import Form, Kind, R, Table

if TYPE_CHECKING:
    import pandas as pd


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
