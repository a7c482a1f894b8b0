"""Results as pandas frames: one row a case, one row an invocation."""

from __future__ import annotations

from typing import Literal

import pandas as pd

from orchestrator.report.data import InvocationRow, ReportData, ResultRow
from orchestrator.report.matrix import OWN_FIGURE
from orchestrator.report.tables import Scalar, flat_record


def frame_of(data: ReportData, rows: Literal["cases", "invocations"]) -> pd.DataFrame:
    """Return the frame with these rows."""
    return results_frame(data) if rows == "cases" else invocations_frame(data)


def results_frame(data: ReportData) -> pd.DataFrame:
    """Return one row for each case, with the columns of :func:`orchestrator.report.tables.flat_record`.

    Columns hold Python objects, so that a missing whole number doesn't turn its column into decimals.
    """
    return pd.DataFrame([flat_record(row) for row in data.results], dtype=object)


def invocations_frame(data: ReportData) -> pd.DataFrame:
    """Return one row for each invocation, times in microseconds; ``is_used`` says whether the case's figure has it."""
    return pd.DataFrame(
        [_invocation_record(row, invocation) for row in data.results for invocation in row.invocations], dtype=object
    )


def _invocation_record(row: ResultRow, invocation: InvocationRow) -> dict[str, Scalar]:
    is_result = invocation.is_used and row.result.status in OWN_FIGURE
    return {
        "run_id": invocation.run_id,
        "campaign_id": invocation.campaign_id,
        "case_key": row.key,
        "model": row.model.label,
        "device": row.device.title,
        "serial": row.device.serial,
        "is_virtual": row.is_virtual,
        "configuration": row.configuration,
        "pass": invocation.run_pass.value,
        "invocation": invocation.number,
        "outcome": invocation.outcome.value,
        "reason_code": invocation.reason_code,
        "quality": invocation.quality.value,
        "delegate_truth": invocation.truth.value,
        "is_used": is_result,
        "latency_us": invocation.latency_us if is_result else None,
        "not_a_result_us": None if is_result else invocation.latency_us,
        "init_us": invocation.init_us,
        "first_inference_us": invocation.first_us,
        "started_at": invocation.started_at.isoformat(),
        "duration_s": invocation.duration_s,
        "exit_code": invocation.exit_code,
    }
