"""Deleting campaigns, and the raw output of old ones; figures, reports, states and verdicts of
these stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, and_, delete, exists, or_, select, update

from orchestrator.errors import StoreError
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import IMPORTED_TOOLS, CampaignId
from orchestrator.records.history import PRUNED_FILE, Pruned, pruned_marker
from orchestrator.store.campaigns import pages, read_cases
from orchestrator.store.database import Database
from orchestrator.store.packing import pack_output, unpack_output
from orchestrator.store.runs import delete_large, delete_runs
from orchestrator.store.schema import CAMPAIGNS, CASES, CONFIRMATIONS, PLANNED, RUNS

#: A campaign that is said to run and has stored nothing for this long before the moment asked for
#: was killed.
_SILENCE: Final = timedelta(days=1)


class Retention(Database):
    """Methods of the store that delete."""

    def prune_raw(self, before: datetime, *, policy: str, is_trial: bool = False) -> Pruned:
        """Delete what the runs of ended campaigns begun before then left behind; a trial changes
        nothing.

        Page by page: other writers wait for one page, and a command that is killed is resumed where
        it was.
        """
        with self.reading() as connection:
            campaigns = _prunable_campaigns(connection, before)
        count = freed_bytes = 0
        with ExitStack() as stack:
            # What several pages share is free only when all of them are deleted: a trial undoes
            # them together.
            tried = stack.enter_context(self.writing()) if is_trial else None
            trial = tried.begin_nested() if tried is not None else None
            for number in campaigns:
                with self.reading() as connection:
                    run_nos = _prunable_runs(connection, number)
                for page in pages(run_nos):
                    with self.writing() if tried is None else nullcontext(tried) as connection:
                        pruned, freed = _prune_runs(connection, page, policy)
                    count, freed_bytes = count + pruned, freed_bytes + freed
                if not is_trial:
                    with self.writing() as connection:
                        is_it = CAMPAIGNS.c.campaign_no == number
                        connection.execute(update(CAMPAIGNS).where(is_it).values(pruned=policy))
            if trial is not None:
                trial.rollback()
        # A large output that another run has too frees nothing, and the note in its place takes
        # some bytes.
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
    output. A killed process leaves its campaign running for ever: it is over when even its newest
    run is older, by a day.
    """
    late = before - _SILENCE
    has_late_run = exists().where(
        RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no, RUNS.c.started_at >= late
    )
    is_over = or_(
        CAMPAIGNS.c.status != CampaignStatus.RUNNING.value,
        and_(CAMPAIGNS.c.created_at < late, ~has_late_run),
    )
    query = select(CAMPAIGNS.c.campaign_no).where(
        CAMPAIGNS.c.created_at < before, is_over, CAMPAIGNS.c.pruned.is_(None)
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


def _prune_runs(connection: Connection, run_nos: Sequence[int], policy: str) -> tuple[int, int]:
    """Delete the raw output of some runs; return how many had any, and the bytes that became free."""
    note = pack_output([pruned_marker(policy)], "")
    count, freed_bytes = 0, 0
    query = select(RUNS.c.run_no, RUNS.c.run_id, RUNS.c.output).where(RUNS.c.run_no.in_(run_nos))
    for row in connection.execute(query).all():
        there = unpack_output(row.output, where=f"run {row.run_id}")
        has_large = any(isinstance(content, str) for _, content in there)
        is_small = len(note) >= len(row.output) and not has_large
        # What takes no more room than the note that it was deleted stays.
        if not there or PRUNED_FILE in dict(there) or is_small:
            continue
        connection.execute(update(RUNS).where(RUNS.c.run_no == row.run_no).values(output=note))
        count, freed_bytes = count + 1, freed_bytes + len(row.output) - len(note)
    return count, freed_bytes + delete_large(connection, run_nos)
