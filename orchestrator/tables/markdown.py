"""A table as Markdown, for pull requests and job summaries."""

from __future__ import annotations

from orchestrator.tables.column import Form, R
from orchestrator.tables.escapes import markdown_text
from orchestrator.tables.table import Table


def render(table: Table[R]) -> str:
    """Return the table as lines of Markdown; nothing in a cell is markup, a link or a mention."""
    columns, rows = table.of(Form.MARKDOWN), table.listed
    cells = zip(*(map(markdown_text, column.cells(rows)) for column in columns), strict=True)
    rule = ["---:" if column.is_figure else "---" for column in columns]
    heads = [markdown_text(column.title) for column in columns]
    notes = [line for note in table.notes for line in ("", markdown_text(note))]
    lines = [f"| {' | '.join(line)} |" for line in (heads, rule, *cells)]
    return "\n".join([*lines, *notes]) + "\n"
