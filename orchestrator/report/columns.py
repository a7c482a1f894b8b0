"""Plain values under documented names, picked from records: the columns of CSV, JSON, Parquet and frames."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal

from orchestrator.analysis.matching import Measured
from orchestrator.records.campaign import Campaign
from orchestrator.report.data import ReportData
from orchestrator.report.winners import Contest
from orchestrator.tables.rows import InvocationRow, ResultRow
from orchestrator.units import tokens_per_s

Scalar = str | int | float | bool | None

#: A case: times in microseconds, None where unknown. Some are set by :func:`flat_record`.
_CASE: Final = """
    model=model.label model_sha256=model.sha256 device=device.title serial=device.serial is_virtual origin configuration
    delegate=case.delegate threads=case.threads tool=case.tool flags=case.flags build_sha256=case.build_sha256
    status=result.status delegate_truth=result.truth delegate_actual=place delegated_nodes=delegate.delegated_nodes
    total_nodes=delegate.total_nodes quality=result.quality precision=result.precision:6 is_precise=result.is_precise
    grade=result.grade is_judged=result.is_judged best invocations_used=own.count invocations_ended=result.ended
    figure=result.figure median_us=own.median_us:3 interval_low_us=own.interval.low:3
    interval_high_us=own.interval.high:3 interval_method=own.interval.method mean_us=own.mean_us:3 min_us=own.min_us:3
    max_us=own.max_us:3 std_us=own.std_us:3 tokens_per_s=speeds.0:3 tokens_per_s_low=speeds.1:3
    tokens_per_s_high=speeds.2:3 speed_up=speed_up.value:4 speed_up_low=speed_up.interval.low:4
    speed_up_high=speed_up.interval.high:4 baseline init_us:3 first_inference_us=first_us:3 warmup_us:3
    init_memory_mib:3 overall_memory_mib:3 peak_memory_mib:3 energy_net_uj=energy.net_uj.value:3
    energy_net_half_uj=energy.net_uj.half_width:3 energy_gross_uj=energy.gross_uj.value:3 energy_grade=energy.grade
    accuracy_percent=model.accuracy:3 not_a_result_us=result.summary.median_us:3 reason_code=result.reason_code
    reason=result.reason findings case_key=key
"""
#: An invocation. Some are set by :func:`invocation_record`.
_INVOCATION: Final = """
    run_id=run.run_id campaign_id=run.campaign_id case_key=run.case.case_key pass=run.run_pass invocation=number
    outcome=run.outcome reason_code=run.reason_code reason=run.reason quality=run.verdict.quality delegate_truth=truth
    is_used is_virtual=run.is_virtual origin figure latency_us tokens_per_s=latency_us not_a_result_us=latency_us
    p5_us=run.report.inference.p5_us p95_us=run.report.inference.p95_us inferences=run.report.inference.count
    init_us=run.report.init_us first_inference_us=run.report.first_inference_us started_at=run.started_at
    duration_s=run.duration_s exit_code=run.exit_code command
"""
#: One side of a compared case.
_SIDE: Final = """
    campaign_id case_key=case.case_key serial=case.serial device model_name=case.model_name
    model_sha256=case.model_sha256 build build_sha256=case.build_sha256 configuration=case.configuration is_virtual
    origin status=result.status quality=result.quality precision=result.precision is_precise=result.is_precise grade
    figure=result.figure median_us=result.own_summary.median_us not_a_result_us=result.summary.median_us
    count=result.used run_ids=result.used
"""

#: The winner of a contest.
_WINNER: Final = (
    "model=shown.model.label serial=shown.device.serial configuration=shown.configuration median_us=shown.median_us "
    "is_virtual=shown.is_virtual tied is_tested second=second.0.configuration lead=second.1.value "
    "lead_low=second.1.interval.low lead_high=second.1.interval.high"
)


@lru_cache
def _paths(columns: str) -> tuple[tuple[str, tuple[str, ...], int], ...]:
    found = []
    for word in columns.split():
        text, _, digits = word.partition(":")
        name, _, path = text.rpartition("=")
        found.append((name or path, tuple(path.split(".")), int(digits or -1)))
    return tuple(found)


def picked(record: object, columns: str) -> dict[str, Any]:
    """Return values of a record by their names, as JSON has them.

    ``columns`` are words: ``name`` or ``name=path``. A path leads through attributes, or numbered places of a tuple;
    where it meets None it ends in None. ``:3`` rounds to as many decimals.
    """
    values = {}
    for name, path, digits in _paths(columns):
        value: Any = record
        for part in path:
            if value is None:
                break
            value = value[int(part)] if part.isdigit() else getattr(value, part)
        values[name] = round(value, digits) if digits >= 0 and value is not None else _plain(value)
    return values


def _plain(value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


#: The names of :func:`flat_record`, in its order.
FLAT_COLUMNS: Final = tuple(name for name, _, _ in _paths(_CASE))
#: The names of :func:`invocation_record`, in its order.
INVOCATION_COLUMNS: Final = tuple(name for name, _, _ in _paths(_INVOCATION))


def flat_record(row: ResultRow) -> dict[str, Scalar]:
    """Return one case as plain values under documented names; times in microseconds, None where unknown.

    A figure that isn't a result (fell back, rejected) stands under ``not_a_result_us`` and nowhere else.
    """
    record = picked(row, _CASE)
    record["flags"] = " ".join(f"{name}={value}" for name, value in row.case.flags)
    record["findings"] = " ".join(item.finding.code for item in row.findings)
    record["invocations_used"] = record["invocations_used"] or 0
    record["energy_grade"] = record["energy_grade"] or None
    if row.delegate is None:
        record["delegate_actual"] = None
    if row.result.summary is None:
        record["figure"] = None
    if row.own is not None:
        record["not_a_result_us"] = None
    return record


def invocation_record(row: ResultRow, invocation: InvocationRow) -> dict[str, Scalar]:
    """Return one invocation as plain values under documented names; times in microseconds, None where unknown.

    The latency of one that isn't part of its case's result stands under ``not_a_result_us`` and nowhere else.
    """
    record = picked(invocation, _INVOCATION)
    is_result = invocation.is_used and row.own is not None
    record |= {"is_used": is_result, "is_virtual": row.is_virtual}
    if invocation.latency_us is None:
        record["figure"] = None
    record["tokens_per_s"] = tokens_per_s(invocation.latency_us) if row.case.is_per_token else None
    hidden = ("not_a_result_us",) if is_result else ("latency_us", "tokens_per_s", "p5_us", "p95_us")
    return record | dict.fromkeys(hidden)


#: Where an invocation's case stands among the columns of its record.
_CASE_OF_INVOCATION: Final = "model=model.label device=device.title serial=device.serial configuration"
_CAMPAIGN: Final = "campaign_id campaign=name campaign_created_at=created_at"

Rows = Literal["cases", "invocations"]
#: The columns of :func:`records`, in their order.
COLUMNS: Final[Mapping[Rows, tuple[str, ...]]] = {
    "cases": (*(name for name, _, _ in _paths(_CAMPAIGN)), *FLAT_COLUMNS),
    "invocations": (
        *INVOCATION_COLUMNS[:3],
        *(name for name, _, _ in _paths(_CASE_OF_INVOCATION)),
        *INVOCATION_COLUMNS[3:],
    ),
}


def records(data: ReportData, rows: Rows) -> Iterator[dict[str, Scalar]]:
    """Yield a record for each case, with its campaign, or for each invocation; keys as in ``COLUMNS``."""
    for row in data.results:
        if rows == "cases":
            found = [picked(campaign_of(row, data), _CAMPAIGN) | flat_record(row)]
        else:
            case = picked(row, _CASE_OF_INVOCATION)
            found = [case | invocation_record(row, invocation) for invocation in row.invocations]
        yield from ({name: record[name] for name in COLUMNS[rows]} for record in found)


def side_record(item: Measured) -> dict[str, Any]:
    """Return one side of a compared case as plain values."""
    record = picked(item, _SIDE)
    record |= {"configuration": item.result.named(item.case.configuration), "count": len(item.result.used)}
    if item.result.summary is None:
        record["figure"] = None
    if item.result.own_summary is not None:
        record["not_a_result_us"] = None
    return record


def winner_data(contest: Contest) -> dict[str, object]:
    """Return a winner as plain values, times in microseconds; ``lead`` is how many times as fast as ``second``."""
    return picked(contest, _WINNER) | {"tied": [item.configuration for item in contest.tied]}


def campaign_of(row: ResultRow, data: ReportData) -> Campaign | None:
    """Return the campaign that a case's figure is of: the newest with a run of it, None when nothing says which."""
    if len(data.campaigns) == 1:
        return data.campaigns[0]
    named = {invocation.run.campaign_id for invocation in row.invocations}
    fitting = [campaign for campaign in data.campaigns if campaign.campaign_id in named]
    return max(fitting, key=lambda campaign: campaign.created_at, default=None)
