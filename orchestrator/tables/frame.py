"""A table as a pandas frame, whose types know what is missing."""

from __future__ import annotations

from typing import Any

import pandas as pd

from orchestrator.tables.column import Form, Kind, R
from orchestrator.tables.table import Table


def render(table: Table[R]) -> pd.DataFrame:
    """Return the table with pandas' own types; what isn't known is ``<NA>``, moments are UTC
    timestamps.
    """
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
