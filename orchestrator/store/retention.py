"""Deleting the raw output of old campaigns; their figures, reports, states and verdicts stay as they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, and_, delete, exists, func, insert, or_, select, update

from orchestrator.errors import StoreCorruptError
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.history import PRUNED_FILE, pruned_marker
from orchestrator.records.identity import CampaignId
from orchestrator.records.workload import IMPORTED_TOOLS
from orchestrator.store.bodies import Packer
from orchestrator.store.registry import pages, read_plan
from orchestrator.store.tables import (
    ATTACHMENTS,
    BLOBS,
    CAMPAIGNS,
    CASES,
    CONFIRMATIONS,
    CONTENTS,
    FINDINGS,
    HIDDEN,
    PATTERNS,
    PLANS,
    PRUNED,
    RUNS,
    SERIES,
    SHEETS,
    SKIPS,
)

#: Runs that one transaction deals with: others that write wait no longer than for them.
PAGE: Final = 500
#: A campaign that is said to run and has stored nothing for so long before the moment asked for was killed.
_SILENCE: Final = timedelta(days=1)


def prunable_campaigns(connection: Connection, before: datetime) -> list[int]:
    """Return the campaigns begun before a moment whose raw output is still there, oldest first.

    What runs isn't touched; what was cut off may still be resumed, which needs nothing of its raw output. A killed
    process leaves its campaign running for ever: it is over when even its newest run is older, by a day.
    """
    late = before - _SILENCE
    has_late_run = exists().where(RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no, RUNS.c.started_at >= late)
    is_over = or_(
        CAMPAIGNS.c.status != CampaignStatus.RUNNING.value, and_(CAMPAIGNS.c.created_at < late, ~has_late_run)
    )
    query = (
        select(CAMPAIGNS.c.campaign_no)
        .where(
            CAMPAIGNS.c.created_at < before,
            is_over,
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
    item = pruned_marker(policy)
    for row in found:
        where = f"run {row['run_id']}"
        there = dict(packer.attachments(row["body"], row["pattern_no"], where=where))
        if not there or PRUNED_FILE in there:
            continue
        body = packer.without_attachments(row["body"], row["pattern_no"], left=(item.name, item.data), where=where)
        if len(body) >= len(row["body"]) and None not in there.values():
            # What is in the pattern already takes less room than the note that it was deleted.
            continue
        connection.execute(update(RUNS).where(RUNS.c.run_no == row["run_no"]).values(body=body))
        count, freed_bytes = count + 1, freed_bytes + len(row["body"]) - len(body)
    return count, freed_bytes + _delete_large(connection, run_nos)


def note_pruned(connection: Connection, campaign_no: int, policy: str) -> None:
    """Note that a campaign is through, unless another process that prunes has noted it; needs the write lock."""
    if connection.scalar(select(PRUNED.c.campaign_no).where(PRUNED.c.campaign_no == campaign_no)) is None:
        connection.execute(insert(PRUNED), {"campaign_no": campaign_no, "policy": policy})


def forget_pruned(connection: Connection, campaign_id: CampaignId) -> None:
    """Let a campaign be looked at again: it gets new runs, or has got them."""
    of_campaign = select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.campaign_id == campaign_id)
    connection.execute(delete(PRUNED).where(PRUNED.c.campaign_no.in_(of_campaign)))


def delete_campaign(connection: Connection, campaign_no: int) -> None:
    """Delete a campaign's rows, its runs', and the cases, series and contents that no other campaign has.

    Nothing of the campaign itself need be readable.
    """
    case_nos = set(connection.scalars(select(RUNS.c.case_no).where(RUNS.c.campaign_no == campaign_no).distinct()))
    with suppress(StoreCorruptError):
        case_nos |= {case_no for case_no, _, _ in read_plan(connection, campaign_no)}
    run_nos = list(connection.scalars(select(RUNS.c.run_no).where(RUNS.c.campaign_no == campaign_no)))
    for begin in range(0, len(run_nos), PAGE):
        page = run_nos[begin : begin + PAGE]
        _delete_large(connection, page)
        for table in (FINDINGS, RUNS):
            connection.execute(delete(table).where(table.c.run_no.in_(page)))
    for table in (PLANS, SKIPS, SHEETS, PRUNED, HIDDEN, CAMPAIGNS):
        connection.execute(delete(table).where(table.c.campaign_no == campaign_no))
    _delete_unused_cases(connection, case_nos)


def _delete_unused_cases(connection: Connection, case_nos: Collection[int]) -> None:
    """Delete those of some cases that no run has and no plan names, then the series and contents that are left bare."""
    unused = set(case_nos)
    for page in pages(sorted(case_nos)):
        unused -= set(connection.scalars(select(RUNS.c.case_no).where(RUNS.c.case_no.in_(page)).distinct()))
    for campaign_no in connection.scalars(select(PLANS.c.campaign_no)).all() if unused else ():
        with suppress(StoreCorruptError):
            unused -= {case_no for case_no, _, _ in read_plan(connection, campaign_no)}
    for page in pages(sorted(unused)):
        connection.execute(delete(CASES).where(CASES.c.case_no.in_(page)))
    if unused:
        is_bare = ~exists().where(CASES.c.series_no == SERIES.c.series_no)
        found = connection.execute(select(SERIES.c.series_no, SERIES.c.series_key).where(is_bare))
        bare = [(row.series_no, row.series_key) for row in found]
        for some in pages(bare):
            connection.execute(delete(PATTERNS).where(PATTERNS.c.series_no.in_([number for number, _ in some])))
            connection.execute(delete(CONFIRMATIONS).where(CONFIRMATIONS.c.series_key.in_([key for _, key in some])))
        connection.execute(delete(SERIES).where(is_bare))
        used = exists().where(CASES.c.contents_no == CONTENTS.c.contents_no)
        connection.execute(delete(CONTENTS).where(~used))


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
