"""Results as pandas frames: one row a case, one row an invocation."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Final, Literal

import pandas as pd

from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.matching import Measured
from orchestrator.report.comparisons import side_data, worst_first
from orchestrator.report.data import ReportData
from orchestrator.report.tables import FLAT_COLUMNS, campaign_of, flat_record, invocation_record

#: Raised when a column goes away or changes its meaning; new columns don't raise it.
SCHEMA_VERSION: Final = 1
_CAMPAIGN_COLUMNS: Final = ("campaign_id", "campaign", "campaign_created_at")
#: Columns by what they hold: a column has one type, whatever of it is known.
_DECIMALS: Final = re.compile(r"(_us|_mib|_s|precision)$|^(speed_up|ratio)")
_WHOLE: Final = re.compile(r"threads|\w+_nodes|invocation|invocations_\w+|exit_code|\w+_count")
_MOMENTS: Final = frozenset({"campaign_created_at", "started_at"})
#: In the order of the records below; a file without rows has them, too.
_INVOCATION_COLUMNS: Final = (
    "run_id", "campaign_id", "case_key", "model", "device", "serial", "is_virtual", "origin", "configuration",
    "pass", "invocation", "outcome", "reason_code", "quality", "delegate_truth", "is_used", "figure", "latency_us",
    "not_a_result_us", "init_us", "first_inference_us", "started_at", "duration_s", "exit_code",
)  # fmt: skip


def frame_of(parts: Sequence[ReportData], rows: Literal["cases", "invocations"]) -> pd.DataFrame:
    """Return the frame with these rows, of all parts; its attributes name its schema, and stay in a Parquet file."""
    frames = [results_frame(part) if rows == "cases" else invocations_frame(part) for part in parts]
    whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(dtype=object)
    whole.attrs = {"schema": f"benchfarm-{rows}", "schema_version": SCHEMA_VERSION}
    return whole


def results_frame(data: ReportData) -> pd.DataFrame:
    """Return one row for each case: its campaign, and :func:`orchestrator.report.tables.flat_record`.

    Columns hold Python objects, so that a missing whole number doesn't turn its column into decimals.
    """
    records = []
    for row in data.results:
        campaign = campaign_of(row, data)
        beside = {
            "campaign_id": campaign.campaign_id if campaign is not None else None,
            "campaign": campaign.name if campaign is not None else None,
            "campaign_created_at": campaign.created_at.isoformat() if campaign is not None else None,
        }
        records.append({**beside, **flat_record(row)})
    return pd.DataFrame(records, columns=(*_CAMPAIGN_COLUMNS, *FLAT_COLUMNS), dtype=object)


def invocations_frame(data: ReportData) -> pd.DataFrame:
    """Return one row for each invocation, times in microseconds; ``is_used`` says whether the case's figure has it."""
    records = [
        {
            "model": row.model.label,
            "device": row.device.title,
            "serial": row.device.serial,
            "configuration": row.configuration,
            **invocation_record(row, invocation),
        }
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
    records = [
        {
            "title": row.title,
            "outcome": row.verdict.outcome.value,
            "ratio": row.verdict.ratio,
            "ratio_low": row.verdict.low,
            "ratio_high": row.verdict.high,
            "reasons": "; ".join(row.verdict.reasons),
            "is_virtual": row.is_virtual,
            **{f"baseline_{name}": value for name, value in _side(row.baseline).items()},
            **{f"candidate_{name}": value for name, value in _side(row.candidate).items()},
        }
        for row in worst_first(comparison)
    ]
    return typed(pd.DataFrame(records))


def _side(item: Measured) -> dict[str, object]:
    plain = {name: value for name, value in side_data(item).items() if name != "run_ids"}
    return {name: value.value if isinstance(value, enum.Enum) else value for name, value in plain.items()}
