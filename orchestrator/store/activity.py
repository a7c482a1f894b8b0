"""What was stored of late, in an SQL database: counted there, so that asking costs little however much is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, case, func, select

from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.history import Activity, RunCount, Yield
from orchestrator.records.identity import CampaignId, content_key
from orchestrator.records.run import Outcome
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import SkippedCase
from orchestrator.store.bodies import Packer
from orchestrator.store.registry import pages
from orchestrator.store.rows import skip_from_row
from orchestrator.store.run_rows import read_runs
from orchestrator.store.tables import CAMPAIGNS, CASES, FINDINGS, RUNS, SERIES, SKIPS
from orchestrator.store.unreadable import readable

#: What a report shows of a run's figures, whichever pass it was.
_READ_FIGURES: Final = (
    "latency_us", "p5_us", "p95_us", "init_us", "first_inference_us", "warmup_mean_us", "init_memory_mib",
    "overall_memory_mib", "peak_memory_mib",
)  # fmt: skip


def read_activity(connection: Connection, packer: Packer, since: datetime) -> Activity:
    """Return what campaigns came to, and the runs of those that were begun since then."""
    statuses = select(CAMPAIGNS.c.status, func.count()).group_by(CAMPAIGNS.c.status)
    finished = (
        select(CAMPAIGNS.c.name, func.max(CAMPAIGNS.c.finished_at))
        .where(CAMPAIGNS.c.status == CampaignStatus.FINISHED.value, CAMPAIGNS.c.finished_at.is_not(None))
        .group_by(CAMPAIGNS.c.name)
    )
    late = list(connection.scalars(select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.created_at >= since)))
    endings = (
        select(RUNS.c.outcome, RUNS.c.reason_code, RUNS.c.is_virtual, func.count())
        .where(RUNS.c.campaign_no.in_(late))
        .group_by(RUNS.c.outcome, RUNS.c.reason_code, RUNS.c.is_virtual)
    )
    newest = (
        select(func.max(RUNS.c.run_no))
        .join_from(RUNS, CASES, RUNS.c.case_no == CASES.c.case_no)
        .join(SERIES, CASES.c.series_no == SERIES.c.series_no)
        .where(RUNS.c.campaign_no.in_(late))
        .group_by(SERIES.c.device_no)
    )
    return Activity(
        campaigns={CampaignStatus(status): count for status, count in connection.execute(statuses)},
        finished_at={name: moment for name, moment in connection.execute(finished)},  # noqa: C416 - rows, not pairs
        runs=tuple(
            RunCount(outcome=Outcome(outcome), reason_code=code, is_virtual=is_virtual, count=count)
            for outcome, code, is_virtual, count in connection.execute(endings)
        ),
        newest=tuple(read_runs(connection, packer, sorted(connection.scalars(newest)), cases={}) if late else ()),
    )


def read_reason_counts(
    connection: Connection, campaign_ids: Sequence[CampaignId]
) -> Mapping[CampaignId, Mapping[str, int]]:
    """Return how many runs of some campaigns ended with each reason code, those with none aside."""
    query = (
        select(CAMPAIGNS.c.campaign_id, RUNS.c.reason_code, func.count())
        .join_from(RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
        .where(CAMPAIGNS.c.campaign_id.in_(list(campaign_ids)), RUNS.c.reason_code != "")
        .group_by(CAMPAIGNS.c.campaign_id, RUNS.c.reason_code)
    )
    found: dict[CampaignId, dict[str, int]] = {}
    for campaign_id, code, count in connection.execute(query):
        found.setdefault(CampaignId(campaign_id), {})[code] = count
    return found


def read_yields(connection: Connection, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Yield]:
    """Return what the runs of some campaigns gave, campaigns without any run aside."""
    is_made = RUNS.c.outcome != Outcome.SKIPPED.value
    is_lost = is_made & ((RUNS.c.outcome != Outcome.COMPLETED.value) | (RUNS.c.quality == Quality.REJECTED.value))
    query = select(CAMPAIGNS.c.campaign_id, *(func.sum(case((which, 1), else_=0)) for which in (is_made, is_lost)))
    found: dict[CampaignId, Yield] = {}
    for page in pages(list(campaign_ids)):
        asked = (
            query.join_from(RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
            .where(CAMPAIGNS.c.campaign_id.in_(page))
            .group_by(CAMPAIGNS.c.campaign_id)
        )
        for campaign_id, made, lost in connection.execute(asked):
            found[CampaignId(campaign_id)] = Yield(made=int(made), without_result=int(lost))
    return found


def read_readings(connection: Connection, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, str]:
    """Return of each campaign that has runs a mark that is another one once something else is read from them."""
    words = (RUNS.c.run_pass, RUNS.c.outcome, RUNS.c.quality, RUNS.c.reason_code, RUNS.c.delegate_truth)
    # A database adds up in an order of its choice, so that the last digits of a sum say nothing.
    figures = [func.sum(RUNS.c[name]) for name in _READ_FIGURES]
    read: dict[CampaignId, list[str]] = {}
    for page in pages(list(campaign_ids)):
        of_runs = select(CAMPAIGNS.c.campaign_id, *words, func.count(), *figures).join_from(
            RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no
        )
        of_findings = (
            select(CAMPAIGNS.c.campaign_id, FINDINGS.c.code, FINDINGS.c.severity, func.count())
            .join_from(FINDINGS, RUNS, FINDINGS.c.run_no == RUNS.c.run_no)
            .join(CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
        )
        for query, groups in ((of_runs, words), (of_findings, (FINDINGS.c.code, FINDINGS.c.severity))):
            asked = query.where(CAMPAIGNS.c.campaign_id.in_(page)).group_by(CAMPAIGNS.c.campaign_id, *groups)
            for campaign_id, *values in connection.execute(asked):
                told = [f"{value:.12g}" if isinstance(value, float) else value for value in values]
                read.setdefault(CampaignId(campaign_id), []).append(repr(told))
    return {name: content_key(sorted(lines)) for name, lines in read.items()}


def read_skips(
    connection: Connection, campaign_ids: Sequence[CampaignId], reason_code: str
) -> Mapping[CampaignId, Sequence[SkippedCase]]:
    """Return what some campaigns left out from the beginning for a reason, those that left out nothing aside."""
    query = (
        select(CAMPAIGNS.c.campaign_id, SKIPS)
        .join_from(SKIPS, CAMPAIGNS, SKIPS.c.campaign_no == CAMPAIGNS.c.campaign_no)
        .where(CAMPAIGNS.c.campaign_id.in_(list(campaign_ids)), SKIPS.c.reason_code == reason_code)
        .order_by(SKIPS.c.campaign_no, SKIPS.c.position)
    )
    found: dict[CampaignId, list[SkippedCase]] = {}
    for row, skip in readable(connection.execute(query).mappings(), skip_from_row):
        found.setdefault(CampaignId(row["campaign_id"]), []).append(skip)
    return found
