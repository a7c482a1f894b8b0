"""A table as Markdown, for pull requests and job summaries."""

from __future__ import annotations

from orchestrator.tables.column import Form, R
from orchestrator.tables.escapes import markdown_table, markdown_text
from orchestrator.tables.table import Table


def render(table: Table[R]) -> str:
    """Return the table as lines of Markdown; nothing in a cell is markup, a link or a mention."""
    columns, rows = table.of(Form.MARKDOWN), table.listed
    cells = zip(*(map(markdown_text, column.cells(rows)) for column in columns), strict=True)
    right = [place for place, column in enumerate(columns) if column.is_figure]
    heads = [markdown_text(column.title) for column in columns]
    notes = [line for note in table.notes for line in ("", markdown_text(note))]
    return "\n".join([*markdown_table(heads, list(cells), right=right), *notes]) + "\n"
