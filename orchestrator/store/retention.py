"""Deleting campaigns, and the raw output of old ones; figures, reports, states and verdicts of
these stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, and_, delete, exists, func, or_, select, update

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

#: A running campaign that stored nothing for this long before the given moment was killed.
_SILENCE: Final = timedelta(days=1)


class Retention(Database):
    """Methods of the store that delete."""

    def prune_raw(self, before: datetime, *, policy: str, is_trial: bool = False) -> Pruned:
        """Delete the raw output of ended campaigns begun before then; a trial only reads.

        Page by page: other writers wait for one page, and a killed command resumes where it was.
        """
        with self.reading() as connection:
            campaigns = _prunable_campaigns(connection, before)
        note = pack_output([pruned_marker(policy)], "")
        count = freed_bytes = 0
        # Content that pages share is freed only when all of them are deleted.
        large = Counter[str]()
        for number in campaigns:
            with self.reading() as connection:
                run_nos = _prunable_runs(connection, number)
            for page in pages(run_nos):
                with self.reading() if is_trial else self.writing() as connection:
                    pruned, freed = _prunable_output(connection, page, note)
                    if is_trial:
                        of_page = ATTACHMENTS.c.run_no.in_(page)
                        large.update(
                            connection.scalars(select(ATTACHMENTS.c.sha256).where(of_page))
                        )
                    else:
                        is_pruned = RUNS.c.run_no.in_(pruned)
                        connection.execute(update(RUNS).where(is_pruned).values(output=note))
                        freed += delete_large(connection, page)
                count, freed_bytes = count + len(pruned), freed_bytes + freed
            if not is_trial:
                with self.writing() as connection:
                    is_campaign = CAMPAIGNS.c.campaign_no == number
                    connection.execute(update(CAMPAIGNS).where(is_campaign).values(pruned=policy))
        if large:
            with self.reading() as connection:
                freed_bytes += _large_bytes(connection, large)
        # A large output that another run has too frees nothing, and its note takes some bytes.
        return Pruned(campaigns=len(campaigns), runs=count, freed_bytes=max(0, freed_bytes))

    def remove_campaign(self, campaign_id: CampaignId) -> None:
        """Delete a campaign with its runs, their raw output, and the cases that no other has.

        The campaign's document needn't be readable.
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

    A running campaign isn't touched; an interrupted one can still be resumed without its raw
    output. A killed process leaves its campaign running: it is over when its newest run is older by
    a day.
    """
    silent_since = before - _SILENCE
    has_late_run = exists().where(
        RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no, RUNS.c.started_at >= silent_since
    )
    is_over = or_(
        CAMPAIGNS.c.status != CampaignStatus.RUNNING.value,
        and_(CAMPAIGNS.c.created_at < silent_since, ~has_late_run),
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
    rows = connection.execute(query).all()
    cases = read_cases(connection, {row.case_no for row in rows})
    imported = {case_no for case_no, case in cases.items() if case.tool in IMPORTED_TOOLS}
    return [row.run_no for row in rows if row.case_no not in imported]


def _prunable_output(
    connection: Connection, run_nos: Sequence[int], note: bytes
) -> tuple[list[int], int]:
    """Return those of some runs that have raw output, and the bytes that a note in its place frees."""
    prunable, freed_bytes = [], 0
    query = select(RUNS.c.run_no, RUNS.c.run_id, RUNS.c.output).where(RUNS.c.run_no.in_(run_nos))
    for row in connection.execute(query).all():
        contents = unpack_output(row.output, where=f"run {row.run_id}")
        has_large = any(isinstance(content, str) for _, content in contents)
        is_small = len(note) >= len(row.output) and not has_large
        # Output that is no larger than the note about its deletion stays.
        if not contents or PRUNED_FILE in dict(contents) or is_small:
            continue
        prunable.append(row.run_no)
        freed_bytes += len(row.output) - len(note)
    return prunable, freed_bytes


def _large_bytes(connection: Connection, hash_counts: Mapping[str, int]) -> int:
    """Return the bytes of the large content that no other runs have; ``hash_counts`` is the number of
    these runs that have each.
    """
    size_bytes = 0
    for page in pages(list(hash_counts)):
        of_page = ATTACHMENTS.c.sha256.in_(page)
        counts = (
            select(ATTACHMENTS.c.sha256, func.count()).where(of_page).group_by(ATTACHMENTS.c.sha256)
        )
        unshared = [
            sha256 for sha256, count in connection.execute(counts) if count == hash_counts[sha256]
        ]
        sizes = select(func.length(BLOBS.c.data)).where(BLOBS.c.sha256.in_(unshared))
        size_bytes += sum(connection.scalars(sizes))
    return size_bytes
