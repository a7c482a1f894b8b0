"""Results as pandas frames: one row a case, one row an invocation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

import pandas as pd

from orchestrator.analysis.comparison import Comparison
from orchestrator.report.columns import (
    FLAT_COLUMNS,
    INVOCATION_COLUMNS,
    campaign_of,
    flat_record,
    invocation_record,
    picked,
    side_record,
)
from orchestrator.report.comparisons import worst_first
from orchestrator.report.data import ReportData

#: Raised when a column goes away or changes its meaning; new columns don't raise it.
SCHEMA_VERSION: Final = 1
_CAMPAIGN_COLUMNS: Final = ("campaign_id", "campaign", "campaign_created_at")
#: Columns by what they hold: a column has one type, whatever of it is known.
_DECIMALS: Final = re.compile(r"(_us|_mib|_s|precision)$|^(speed_up|ratio)")
_WHOLE: Final = re.compile(r"threads|\w+_nodes|invocation|invocations_\w+|exit_code|\w+_count")
#: Where an invocation's case stands among the columns of its record.
_INVOCATION_COLUMNS: Final = (
    *INVOCATION_COLUMNS[:3],
    "model",
    "device",
    "serial",
    "configuration",
    *INVOCATION_COLUMNS[3:],
)
_MOMENTS: Final = frozenset({"campaign_created_at", "started_at"})


def frame_of(parts: Sequence[ReportData], rows: Literal["cases", "invocations"]) -> pd.DataFrame:
    """Return the frame with these rows, of all parts; its attributes name its schema, and stay in a Parquet file."""
    frames = [_results_frame(part) if rows == "cases" else _invocations_frame(part) for part in parts]
    whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(dtype=object)
    whole.attrs = {"schema": f"benchfarm-{rows}", "schema_version": SCHEMA_VERSION}
    return whole


def _results_frame(data: ReportData) -> pd.DataFrame:
    """Return one row for each case: its campaign, and :func:`orchestrator.report.columns.flat_record`.

    Columns hold Python objects, so that a missing whole number doesn't turn its column into decimals.
    """
    columns = "campaign_id campaign=name campaign_created_at=created_at"
    records = [picked(campaign_of(row, data), columns) | flat_record(row) for row in data.results]
    return pd.DataFrame(records, columns=(*_CAMPAIGN_COLUMNS, *FLAT_COLUMNS), dtype=object)


def _invocations_frame(data: ReportData) -> pd.DataFrame:
    """Return one row for each invocation, times in microseconds; ``is_used`` says whether the case's figure has it."""
    columns = "model=model.label device=device.title serial=device.serial configuration"
    records = [
        picked(row, columns) | invocation_record(row, invocation)
        for row in data.results
        for invocation in row.invocations
    ]
    return pd.DataFrame(records, columns=_INVOCATION_COLUMNS, dtype=object)


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
        elif _DECIMALS.search(name):
            found[name] = frame[name].astype("Float64")
        elif _WHOLE.fullmatch(name):
            found[name] = frame[name].astype("Int64")
        elif name.startswith("is_"):
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
