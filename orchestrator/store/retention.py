"""Deleting campaigns, and the raw output of old ones; figures, reports, states and verdicts of
these stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, exists, func, select, update

from orchestrator.errors import StoreError
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import IMPORTED_TOOLS, CampaignId
from orchestrator.records.history import PRUNED_FILE, Pruned, pruned_marker
from orchestrator.store.campaigns import pages, read_cases
from orchestrator.store.database import Database
from orchestrator.store.runs import delete_large, delete_runs
from orchestrator.store.schema import (
    ATTACHMENTS,
    BLOBS,
    CAMPAIGNS,
    CASES,
    CONFIRMATIONS,
    PLANNED,
    RUNS,
    pack_output,
    unpack_output,
)


class Retention(Database):
    """Methods of the store that delete."""

    def prune_raw(self, before: datetime, *, policy: str, is_trial: bool = False) -> Pruned:
        """Delete what the runs of ended campaigns begun before then left behind; a trial only reads.

        Page by page: other writers wait for one page, and a command that is killed is resumed where
        it was.
        """
        with self.reading() as connection:
            campaigns = _prunable_campaigns(connection, before)
        note = pack_output([pruned_marker(policy)], "")
        count = freed_bytes = 0
        large = set[str]()
        for number in campaigns:
            with self.reading() as connection:
                run_nos = _prunable_runs(connection, number)
            for page in pages(run_nos):
                with self.reading() if is_trial else self.writing() as connection:
                    pruned = _with_output(connection, page)
                    if is_trial:
                        of_page = select(ATTACHMENTS.c.sha256).where(ATTACHMENTS.c.run_no.in_(page))
                        large.update(connection.scalars(of_page))
                    else:
                        is_pruned = RUNS.c.run_no.in_(pruned)
                        connection.execute(update(RUNS).where(is_pruned).values(output=note))
                        freed_bytes += delete_large(connection, page)
                count += len(pruned)
                freed_bytes += sum(size_bytes - len(note) for size_bytes in pruned.values())
            if not is_trial:
                with self.writing() as connection:
                    is_it = CAMPAIGNS.c.campaign_no == number
                    connection.execute(update(CAMPAIGNS).where(is_it).values(pruned=policy))
        with self.reading() as connection:
            # At most: what a run has that stays is counted, too.
            for contents in pages(list(large)):
                sizes = select(func.length(BLOBS.c.data)).where(BLOBS.c.sha256.in_(contents))
                freed_bytes += sum(connection.scalars(sizes))
        return Pruned(campaigns=len(campaigns), runs=count, freed_bytes=max(0, freed_bytes))

    def remove_campaign(self, campaign_id: CampaignId) -> None:
        """Delete a campaign with its runs, what they left behind, and the cases that no other has.

        Nothing of the campaign itself need be readable.
        """
        with self.writing() as connection:
            number = connection.scalar(
                select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.campaign_id == campaign_id)
            )
            if number is None:
                raise StoreError(f"campaign {campaign_id}: the store holds no such campaign")
            cases = {
                case_no
                for table in (RUNS, PLANNED)
                for case_no in connection.scalars(
                    select(table.c.case_no).where(table.c.campaign_no == number)
                )
            }
            for page in pages(
                list(connection.scalars(select(RUNS.c.run_no).where(RUNS.c.campaign_no == number)))
            ):
                delete_runs(connection, page)
            for table in (PLANNED, CAMPAIGNS):
                connection.execute(delete(table).where(table.c.campaign_no == number))
            is_unused = [
                ~exists().where(table.c.case_no == CASES.c.case_no) for table in (RUNS, PLANNED)
            ]
            for page in pages(sorted(cases)):
                connection.execute(delete(CASES).where(CASES.c.case_no.in_(page), *is_unused))
            is_bare = ~exists().where(CASES.c.series_key == CONFIRMATIONS.c.series_key)
            connection.execute(delete(CONFIRMATIONS).where(is_bare))


def _prunable_campaigns(connection: Connection, before: datetime) -> list[int]:
    """Return the campaigns begun before a moment whose raw output is still there, oldest first.

    What runs isn't touched; what was cut off may still be resumed, which needs nothing of its raw
    output.
    """
    query = select(CAMPAIGNS.c.campaign_no).where(
        CAMPAIGNS.c.created_at < before,
        CAMPAIGNS.c.status != CampaignStatus.RUNNING.value,
        CAMPAIGNS.c.pruned.is_(None),
    )
    return list(connection.scalars(query.order_by(CAMPAIGNS.c.campaign_no)))


def _prunable_runs(connection: Connection, number: int) -> list[int]:
    """Return a campaign's runs that have raw output which may go.

    Imports stay: a second import of the same file is recognised by the raw output.
    """
    query = (
        select(RUNS.c.run_no, RUNS.c.case_no)
        .where(RUNS.c.campaign_no == number)
        .order_by(RUNS.c.run_no)
    )
    found = connection.execute(query).all()
    cases = read_cases(connection, {row.case_no for row in found})
    imported = {case_no for case_no, case in cases.items() if case.tool in IMPORTED_TOOLS}
    return [row.run_no for row in found if row.case_no not in imported]


def _with_output(connection: Connection, run_nos: Sequence[int]) -> dict[int, int]:
    """Return those of some runs that have raw output, with the size of it as it lies there."""
    query = select(RUNS.c.run_no, RUNS.c.run_id, RUNS.c.output).where(RUNS.c.run_no.in_(run_nos))
    found = {}
    for row in connection.execute(query):
        names = [name for name, _ in unpack_output(row.output, where=f"run {row.run_id}")]
        if names and PRUNED_FILE not in names:
            found[row.run_no] = len(row.output)
    return found
