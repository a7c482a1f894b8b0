"""Deleting the raw output of old campaigns; their figures, reports, states and verdicts stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, delete, exists, func, insert, select, update

from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.retention import PRUNED_FILE, stand_in
from orchestrator.records.workload import IMPORTED_TOOLS
from orchestrator.store import rows
from orchestrator.store.bodies import Packer
from orchestrator.store.tables import ATTACHMENTS, BLOBS, CAMPAIGNS, CASES, PRUNED, RUNS, SERIES

#: Runs that one transaction deals with: others that write wait no longer than for them.
PAGE: Final = 500


def prunable_campaigns(connection: Connection, before: datetime) -> list[int]:
    """Return the campaigns begun before a moment whose raw output is still there, oldest first.

    What runs isn't touched; what was cut off may still be resumed, which needs nothing of its raw output.
    """
    query = (
        select(CAMPAIGNS.c.campaign_no)
        .where(
            CAMPAIGNS.c.created_at < before,
            CAMPAIGNS.c.status != CampaignStatus.RUNNING.value,
            ~exists().where(PRUNED.c.campaign_no == CAMPAIGNS.c.campaign_no),
        )
        .order_by(CAMPAIGNS.c.campaign_no)
    )
    return list(connection.scalars(query))


def prunable_runs(connection: Connection, campaign_no: int) -> list[int]:
    """Return a campaign's runs that have raw output which may go.

    What was imported is told from what is imported again by its raw output, and stays.
    """
    query = (
        select(RUNS.c.run_no)
        .join_from(RUNS, CASES, RUNS.c.case_no == CASES.c.case_no)
        .join(SERIES, CASES.c.series_no == SERIES.c.series_no)
        .where(RUNS.c.campaign_no == campaign_no, SERIES.c.tool.not_in([str(tool) for tool in IMPORTED_TOOLS]))
        .order_by(RUNS.c.run_no)
    )
    return list(connection.scalars(query))


def prune_runs(connection: Connection, packer: Packer, run_nos: Sequence[int], policy: str) -> tuple[int, int]:
    """Delete the raw output of some runs; return how many had any, and the bytes that became free."""
    found = connection.execute(select(RUNS).where(RUNS.c.run_no.in_(run_nos))).mappings().all()
    packer.fetch(row["pattern_no"] for row in found)
    count, freed_bytes = 0, 0
    item = stand_in(policy)
    for row in found:
        known, where = rows.known_of(row), f"run {row['run_id']}"
        names = [name for name, _ in packer.attachments(row["body"], row["pattern_no"], known=known, where=where)]
        if not names or PRUNED_FILE in names:
            continue
        body = packer.without_attachments(
            row["body"], row["pattern_no"], known=known, left=(item.name, item.data), where=where
        )
        connection.execute(update(RUNS).where(RUNS.c.run_no == row["run_no"]).values(body=body))
        count, freed_bytes = count + 1, freed_bytes + len(row["body"]) - len(body)
    return count, freed_bytes + _delete_large(connection, run_nos)


def note_pruned(connection: Connection, campaign_no: int, policy: str) -> None:
    """Note that a campaign is through."""
    connection.execute(insert(PRUNED), {"campaign_no": campaign_no, "policy": policy})


def _delete_large(connection: Connection, run_nos: Sequence[int]) -> int:
    """Delete large attachments, and the contents that no other run has; return the bytes that became free."""
    of_runs = ATTACHMENTS.c.run_no.in_(run_nos)
    named = set(connection.scalars(select(ATTACHMENTS.c.blob_sha256).where(of_runs)))
    if not named:
        return 0
    connection.execute(delete(ATTACHMENTS).where(of_runs))
    unused = BLOBS.c.sha256.in_(named), ~exists().where(ATTACHMENTS.c.blob_sha256 == BLOBS.c.sha256)
    freed_bytes = connection.scalar(select(func.coalesce(func.sum(func.length(BLOBS.c.data)), 0)).where(*unused))
    connection.execute(delete(BLOBS).where(*unused))
    return int(freed_bytes or 0)
