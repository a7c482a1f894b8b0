"""A table as CSV (RFC 4180, but lines end in LF); no text of it is a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

from orchestrator.tables.column import Form, R
from orchestrator.tables.escapes import csv_text
from orchestrator.tables.table import Table


def render(table: Table[R]) -> str:
    """Return the table as CSV. Text is one line each, with controls made visible."""
    return "".join(lines(table))


def lines(table: Table[R], text: Callable[[str], str] = str) -> Iterator[str]:
    """Yield the header and a line for each row; ``text`` makes of each text what is written."""
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
