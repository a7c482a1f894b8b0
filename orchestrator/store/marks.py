"""What the nights' figures don't show: timing runs without one, and what the outputs were worth, in an SQL database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, Select, or_, select, text

from orchestrator.records.history import RunMark
from orchestrator.records.identity import CampaignId, SeriesKey
from orchestrator.records.parity import OUTPUT_FINDINGS
from orchestrator.records.run import Outcome
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Pass
from orchestrator.store.tables import CAMPAIGNS, CASES, FINDINGS, IS_MARK, RUNS, SERIES

_COLUMNS: Final = (
    RUNS.c.run_no,
    SERIES.c.series_key,
    CAMPAIGNS.c.campaign_id,
    CAMPAIGNS.c.created_at,
    RUNS.c.run_pass,
    RUNS.c.outcome,
    RUNS.c.quality,
    RUNS.c.reason_code,
    FINDINGS.c.code,
)


def _doubted() -> Select[int]:
    """Return what asks for the series in which a comparison of outputs didn't agree."""
    return (
        select(CASES.c.series_no)
        .join_from(FINDINGS, RUNS, FINDINGS.c.run_no == RUNS.c.run_no)
        .join(CASES, RUNS.c.case_no == CASES.c.case_no)
        .where(FINDINGS.c.code.in_(OUTPUT_FINDINGS))
    )


def read_marks(connection: Connection, *, since: datetime | None, series_keys: Sequence[SeriesKey]) -> list[RunMark]:
    """Return timing runs without a figure that counts, and comparisons of outputs where one didn't agree."""
    query = (
        select(*_COLUMNS)
        .join_from(RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
        .join(CASES, RUNS.c.case_no == CASES.c.case_no)
        .join(SERIES, CASES.c.series_no == SERIES.c.series_no)
        .outerjoin(FINDINGS, FINDINGS.c.run_no == RUNS.c.run_no)
        .where(text(f"({IS_MARK})"), or_(RUNS.c.run_pass == Pass.TIMING.value, CASES.c.series_no.in_(_doubted())))
        .order_by(CAMPAIGNS.c.created_at, RUNS.c.run_no, FINDINGS.c.position)
    )
    if since is not None:
        query = query.where(CAMPAIGNS.c.created_at >= since)
    wanted = set(series_keys)
    found: dict[int, RunMark] = {}
    for row in connection.execute(query):
        if wanted and row.series_key not in wanted:
            continue
        before = found.get(row.run_no)
        codes = (*(before.findings if before is not None else ()), *((row.code,) if row.code else ()))
        found[row.run_no] = RunMark(
            series_key=SeriesKey(row.series_key),
            campaign_id=CampaignId(row.campaign_id),
            created_at=row.created_at,
            run_pass=Pass(row.run_pass),
            outcome=Outcome(row.outcome),
            quality=Quality(row.quality),
            reason_code=row.reason_code,
            findings=codes,
        )
    return list(found.values())
