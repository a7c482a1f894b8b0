"""Results as pandas frames: one row a case, one row an invocation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import pandas as pd

from orchestrator.report.data import ReportData
from orchestrator.report.tables import FLAT_COLUMNS, campaign_of, flat_record, invocation_record

#: Raised when a column goes away or changes its meaning; new columns don't raise it.
SCHEMA_VERSION: Final = 1
_CAMPAIGN_COLUMNS: Final = ("campaign_id", "campaign", "campaign_created_at")
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
