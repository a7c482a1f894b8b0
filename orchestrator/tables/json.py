"""A table as JSON: an object for each row, by the columns' names."""

from __future__ import annotations

import json

from orchestrator.tables.column import R
from orchestrator.tables.table import Table


def render(table: Table[R]) -> str:
    """Return the table as a JSON list."""
    return json.dumps([table.record(row) for row in table.rows], indent=1, allow_nan=False) + "\n"
