"""Deleting campaigns, and the raw output of old ones; figures, reports, states and verdicts of these stay."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack, nullcontext, suppress
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, and_, delete, exists, func, insert, or_, select, update

from orchestrator.errors import StoreCorruptError
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.history import PRUNED_FILE, Pruned, pruned_marker
from orchestrator.records.identity import CampaignId
from orchestrator.records.workload import IMPORTED_TOOLS
from orchestrator.store.bodies import Patterns
from orchestrator.store.cases import campaign_no, pages, read_plan
from orchestrator.store.database import Database
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

#: A campaign that is said to run and has stored nothing for this long before the moment asked for was killed.
_SILENCE: Final = timedelta(days=1)


class Retention(Database):
    """Methods of the store that delete."""

    def prune_raw(self, before: datetime, *, policy: str, is_trial: bool = False) -> Pruned:
        """Delete what the runs of ended campaigns begun before then left behind; a trial changes nothing.

        Page by page: other writers wait for one page, and a command that is killed is resumed where it was.
        """
        with self.reading() as connection:
            campaigns = _prunable_campaigns(connection, before)
        count = freed_bytes = 0
        with ExitStack() as stack:
            # What several pages share is free only when all of them are deleted: a trial undoes them together.
            tried = stack.enter_context(self.writing(is_long=True)) if is_trial else None
            trial = tried.begin_nested() if tried is not None else None
            for number in campaigns:
                with self.reading() as connection:
                    run_nos = _prunable_runs(connection, number)
                for page in pages(run_nos):
                    with self.writing() if tried is None else nullcontext(tried) as connection:
                        pruned, freed = _prune_runs(connection, self.patterns, page, policy)
                    count, freed_bytes = count + pruned, freed_bytes + freed
                if not is_trial:
                    with self.writing() as connection:
                        # Another process that prunes may have noted it.
                        if not connection.scalar(select(exists().where(PRUNED.c.campaign_no == number))):
                            connection.execute(insert(PRUNED), {"campaign_no": number, "policy": policy})
            if trial is not None:
                trial.rollback()
        # A large output that another run has too frees nothing, and the note in its place takes some bytes.
        return Pruned(campaigns=len(campaigns), runs=count, freed_bytes=max(0, freed_bytes))

    def remove_campaign(self, campaign_id: CampaignId) -> None:
        """Delete a campaign with its runs, what they left behind, and the cases and series that no other has.

        Nothing of the campaign itself need be readable.
        """
        with self.writing(is_long=True) as connection:
            number = campaign_no(connection, campaign_id)
            of_campaign = RUNS.c.campaign_no == number
            case_nos = set(connection.scalars(select(RUNS.c.case_no).where(of_campaign).distinct()))
            with suppress(StoreCorruptError):
                case_nos |= {case_no for case_no, _, _ in read_plan(connection, number)}
            for page in pages(list(connection.scalars(select(RUNS.c.run_no).where(of_campaign)))):
                _delete_large(connection, page)
                for table in (FINDINGS, RUNS):
                    connection.execute(delete(table).where(table.c.run_no.in_(page)))
            for table in (PLANS, SKIPS, SHEETS, PRUNED, HIDDEN, CAMPAIGNS):
                connection.execute(delete(table).where(table.c.campaign_no == number))
            _delete_unused_cases(connection, case_nos)


def _prunable_campaigns(connection: Connection, before: datetime) -> list[int]:
    """Return the campaigns begun before a moment whose raw output is still there, oldest first.

    What runs isn't touched; what was cut off may still be resumed, which needs nothing of its raw output. A killed
    process leaves its campaign running for ever: it is over when even its newest run is older, by a day.
    """
    late = before - _SILENCE
    has_late_run = exists().where(RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no, RUNS.c.started_at >= late)
    is_over = or_(
        CAMPAIGNS.c.status != CampaignStatus.RUNNING.value, and_(CAMPAIGNS.c.created_at < late, ~has_late_run)
    )
    is_pruned = exists().where(PRUNED.c.campaign_no == CAMPAIGNS.c.campaign_no)
    query = select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.created_at < before, is_over, ~is_pruned)
    return list(connection.scalars(query.order_by(CAMPAIGNS.c.campaign_no)))


def _prunable_runs(connection: Connection, number: int) -> list[int]:
    """Return a campaign's runs that have raw output which may go.

    Imports stay: a second import of the same file is recognised by the raw output.
    """
    query = (
        select(RUNS.c.run_no)
        .join_from(RUNS, CASES, RUNS.c.case_no == CASES.c.case_no)
        .join(SERIES, CASES.c.series_no == SERIES.c.series_no)
        .where(RUNS.c.campaign_no == number, SERIES.c.tool.not_in([str(tool) for tool in IMPORTED_TOOLS]))
        .order_by(RUNS.c.run_no)
    )
    return list(connection.scalars(query))


def _prune_runs(connection: Connection, patterns: Patterns, run_nos: Sequence[int], policy: str) -> tuple[int, int]:
    """Delete the raw output of some runs; return how many had any, and the bytes that became free."""
    found = connection.execute(select(RUNS).where(RUNS.c.run_no.in_(run_nos))).mappings().all()
    patterns.fetch(connection, found)
    count, freed_bytes = 0, 0
    for row in found:
        there = dict(patterns.read(connection, row).attachments)
        if not there or PRUNED_FILE in there:
            continue
        body = patterns.repack(connection, row, only=pruned_marker(policy))
        if len(body) >= len(row["body"]) and None not in there.values():
            # What is in the pattern already takes less room than the note that it was deleted.
            continue
        connection.execute(update(RUNS).where(RUNS.c.run_no == row["run_no"]).values(body=body))
        count, freed_bytes = count + 1, freed_bytes + len(row["body"]) - len(body)
    return count, freed_bytes + _delete_large(connection, run_nos)


def _delete_unused_cases(connection: Connection, case_nos: Collection[int]) -> None:
    """Delete those of some cases that no run has and no plan names, then the series and contents that are left bare."""
    unused = set(case_nos)
    for page in pages(sorted(case_nos)):
        unused -= set(connection.scalars(select(RUNS.c.case_no).where(RUNS.c.case_no.in_(page)).distinct()))
    for number in connection.scalars(select(PLANS.c.campaign_no)).all() if unused else ():
        with suppress(StoreCorruptError):
            unused -= {case_no for case_no, _, _ in read_plan(connection, number)}
    if not unused:
        return
    for page in pages(sorted(unused)):
        connection.execute(delete(CASES).where(CASES.c.case_no.in_(page)))
    is_bare = ~exists().where(CASES.c.series_no == SERIES.c.series_no)
    bare = connection.execute(select(SERIES.c.series_no, SERIES.c.series_key).where(is_bare)).all()
    for some in pages(bare):
        connection.execute(delete(PATTERNS).where(PATTERNS.c.series_no.in_([row.series_no for row in some])))
        connection.execute(
            delete(CONFIRMATIONS).where(CONFIRMATIONS.c.series_key.in_([row.series_key for row in some]))
        )
    connection.execute(delete(SERIES).where(is_bare))
    connection.execute(delete(CONTENTS).where(~exists().where(CASES.c.contents_no == CONTENTS.c.contents_no)))


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
