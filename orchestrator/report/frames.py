"""Results as pandas frames: one row a case, one row an invocation."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import pandas as pd

from orchestrator.analysis.comparison import Comparison
from orchestrator.report.columns import COLUMNS, Rows, picked, records, side_record
from orchestrator.report.comparisons import worst_first
from orchestrator.report.data import ReportData

#: Raised when a column goes away or changes its meaning; new columns don't raise it.
SCHEMA_VERSION: Final = 1
#: Columns by what they hold: a column has one type, whatever of it is known.
_DECIMALS: Final = re.compile(r"(_us|_mib|_s|_uj|_percent|precision)$|^(speed_up|ratio|tokens_per_s)")
_WHOLE: Final = re.compile(r"threads|\w+_nodes|invocation|inferences|invocations_\w+|exit_code|\w+_count")
_MOMENTS: Final = frozenset({"campaign_created_at", "started_at"})


def frame_of(data: ReportData, rows: Rows) -> pd.DataFrame:
    """Return the frame with these rows; its attributes name its schema.

    Columns hold Python objects, so that a missing whole number doesn't turn its column into decimals.
    """
    whole = pd.DataFrame(list(records(data, rows)), columns=COLUMNS[rows], dtype=object)
    whole.attrs.update(attributes(rows))
    return whole


def attributes(rows: Rows) -> dict[str, Any]:
    """Return what names the schema of frames and Parquet files with these rows."""
    return {"schema": f"benchfarm-{rows}", "schema_version": SCHEMA_VERSION}


def kind_of(column: str) -> Literal["decimal", "whole", "yes", "text"]:
    """Return what a column of cases or invocations holds, whatever of it is known."""
    if _DECIMALS.search(column):
        return "decimal"
    if _WHOLE.fullmatch(column):
        return "whole"
    return "yes" if column.startswith("is_") else "text"


def utf8(text: str) -> str:
    """Return text that Arrow can hold: of a name that wasn't UTF-8, the bytes that aren't are written out."""
    return text.encode(errors="backslashreplace").decode()


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with pandas' own types, which know what is missing; moments are UTC timestamps."""
    frame = frame.map(lambda value: utf8(value) if isinstance(value, str) else value)
    found = frame.convert_dtypes()
    for name in map(str, frame):
        if name in _MOMENTS:
            found[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601")
        elif (kind := kind_of(name)) == "decimal":
            found[name] = frame[name].astype("Float64")
        elif kind == "whole":
            found[name] = frame[name].astype("Int64")
        elif kind == "yes":
            found[name] = frame[name].astype("boolean")
        elif found[name].dtype == object:
            # Nothing is known of it.
            found[name] = frame[name].astype("string")
    return found


def comparison_frame(comparison: Comparison) -> pd.DataFrame:
    """Return one row for each compared case, worst first; a ratio is candidate time / baseline time."""
    columns = "title outcome=verdict.outcome ratio=verdict.ratio ratio_low=verdict.low ratio_high=verdict.high"
    records = []
    for row in worst_first(comparison):
        record = picked(row, columns) | {"reasons": "; ".join(row.verdict.reasons), "is_virtual": row.is_virtual}
        for side, item in (("baseline", row.baseline), ("candidate", row.candidate)):
            record |= {f"{side}_{name}": value for name, value in side_record(item).items() if name != "run_ids"}
        records.append(record)
    return typed(pd.DataFrame(records))
