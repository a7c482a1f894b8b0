"""A submission: one plan with all that it names, as a document, and a job of the queue for each of its phones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from procrastinate import SyncPsycopgConnector
from procrastinate.jobs import Job
from procrastinate.manager import JobManager

from orchestrator.errors import UsageError
from orchestrator.records.device import HOST_SERIAL
from orchestrator.records.identity import Serial, campaign_id_of

#: The version of the documents: a worker does the jobs of its own, and never sees others.
PROTOCOL: Final = 1
#: A submission's name is part of campaign ids, and those are part of file names.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
#: The queue's own names are 128 characters at most.
_LONGEST_SERIAL: Final = 112
#: How the reason begins for which a phone can't be used that its host keeps in quarantine.
IN_QUARANTINE: Final = "in quarantine: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A plan for the farm's phones."""

    submission: str
    #: The plan with the devices that it means, and all that it names (config/farm_documents.py).
    document: str
    plan_name: str
    #: The contents that it needs, by sha256.
    files: Sequence[str]
    priority: int
    #: Whether phones that come later are measured too.
    joins: bool
    #: Whether a phone that wasn't needed stands in for one that is lost.
    replaces_lost: bool
    #: When its window opens, or when it was submitted.
    opens_at: datetime
    #: When its window is over; None: never.
    until: datetime | None = None


_COLUMNS: Final = ", ".join(item.name for item in fields(Submission))
_VALUES: Final = ", ".join(f"%({item.name})s" for item in fields(Submission))
_KEEP: Final = (
    f"INSERT INTO farm_submissions ({_COLUMNS}, protocol) VALUES ({_VALUES}, {PROTOCOL})"  # noqa: S608 - ours
    " ON CONFLICT DO NOTHING"
)
_OPEN: Final = (
    f"SELECT {_COLUMNS} FROM farm_submissions WHERE submission = %s AND protocol = {PROTOCOL}"  # noqa: S608 - ours
    " AND NOT cancelled"
    " AND (until IS NULL OR until > clock_timestamp()) FOR UPDATE"
)


def queue_of(serial: str) -> str:
    """Return the name of a phone's queue, and of the lock that keeps two of its jobs apart."""
    return f"phone:{serial}"


def keep(connection: psycopg.Connection[Any], submission: Submission) -> None:
    """Keep a submission whose jobs are queued in the same transaction.

    Raises UsageError for a name that can't be used or is taken, and when a file of it was cleaned away.
    """
    if not _NAME.fullmatch(submission.submission):
        raise UsageError(f"{submission.submission!r} can't name a submission", hint="letters, digits, . _ - only")
    values = {item.name: getattr(submission, item.name) for item in fields(Submission)}
    if not connection.execute(_KEEP.encode(), values).rowcount:
        raise UsageError(f"{submission.submission}: this submission is in the queue already")
    hold_files(connection, submission.files, again="submit again")


def hold_files(connection: psycopg.Connection[Any], files: Sequence[str], *, again: str) -> None:
    """Keep a cleaning from taking files that are about to be referred to; raises UsageError when one is gone."""
    held = connection.execute(
        "WITH kept AS MATERIALIZED"
        " (SELECT sha256 FROM farm_files WHERE sha256 = ANY(%s) ORDER BY sha256 FOR UPDATE)"
        " UPDATE farm_files f SET used_at = now() FROM kept WHERE f.sha256 = kept.sha256",
        (list(files),),
    )
    if held.rowcount < len(set(files)):
        raise UsageError("a file was cleaned away before it was used", hint=again)


def take(connection: psycopg.Connection[Any], name: str, *, skip: bool = False) -> Submission | None:
    """Return a submission that phones may be added to, locked for the transaction.

    None when it is over for them; with ``skip`` also while another process has it.
    """
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        row = cursor.execute(_OPEN.encode() + (b" SKIP LOCKED" if skip else b""), (name,)).fetchone()
    return Submission(**row) if row is not None else None


def end_as_failed(connection: psycopg.Connection[Any], job_id: int, note: str, *, tries: int = 0) -> None:
    """End a job whose row is locked."""
    connection.execute("SELECT procrastinate_finish_job_v1(%s, 'failed', false)", (job_id,))
    connection.execute("UPDATE farm_jobs SET note = %s, tries = tries + %s WHERE job_id = %s", (note, tries, job_id))


def can_have_jobs(serial: str) -> bool:
    """Whether a phone can be called so; this computer is none: what comes with a job is never run on a host."""
    return serial not in {"", HOST_SERIAL} and len(serial) <= _LONGEST_SERIAL and serial.isprintable()


def enqueue(
    connection: psycopg.Connection[Any],
    submission: Submission,
    serial: str,
    facts: str,
    *,
    came_later: bool = False,
    replaces: str = "",
) -> int:
    """Queue a phone's job, to be given out not before the window opens by the database's clock; return its number.

    ``facts`` (a document) are those that the phone was chosen by. Raises UsageError for a serial number that can't be
    used.
    """
    if not can_have_jobs(serial):
        raise UsageError(f"{serial!r} can't be a serial number")
    later = connection.execute("SELECT 1 WHERE %s > clock_timestamp()", (submission.opens_at,)).fetchone()
    queued = JobManager(SyncPsycopgConnector()).defer_job(
        Job(
            id=None,
            task_name="benchfarm.phone",
            queue=queue_of(serial),
            lock=queue_of(serial),
            queueing_lock=None,
            priority=submission.priority,
            scheduled_at=submission.opens_at if later else None,
        ),
        connection=connection,
    )
    assert queued.id is not None, "the database numbers jobs"
    note = f"its window opens at {submission.opens_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if later else ""
    campaign_id = campaign_id_of(submission.submission, Serial(serial))
    connection.execute(
        "INSERT INTO farm_jobs (job_id, submission, serial, campaign_id, note, facts, came_later, replaces)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
        (queued.id, submission.submission, serial, campaign_id, note, facts, came_later, replaces),
    )
    return queued.id
