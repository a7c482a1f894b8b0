"""A submission as it is kept while phones may still be added to it; what a job of it says, and how it is queued."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from procrastinate import SyncPsycopgConnector
from procrastinate.jobs import Job
from procrastinate.manager import JobManager

from orchestrator.errors import UsageError
from orchestrator.records.device import HOST_SERIAL
from orchestrator.records.identity import CampaignId, Serial, campaign_id_of

#: The version of the messages.
PROTOCOL: Final = 1
#: A submission's name is part of campaign ids, and those are part of file names.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
#: The queue's own names are 128 characters at most.
_LONGEST_SERIAL: Final = 112
#: How the reason begins for which a phone can't be used that its host keeps in quarantine.
IN_QUARANTINE: Final = "in quarantine: "
#: The fields of a message, all of them text.
_FIELDS: Final = ("submission", "serial", "plan", "payload")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneJob:
    """One plan on one phone."""

    #: All jobs of one ``farm submit``.
    submission: str
    serial: Serial
    #: The plan as a checked JSON document (config/farm_documents.py).
    plan: str
    #: What it names, likewise.
    payload: str = "{}"

    def __post_init__(self) -> None:
        """Raise UsageError for names that can't be used."""
        if not _NAME.fullmatch(self.submission):
            raise UsageError(f"{self.submission!r} can't name a submission", hint="letters, digits, . _ - only")
        # This computer is no phone: what comes with a job is never run on a host.
        if self.serial in {"", HOST_SERIAL} or len(self.serial) > _LONGEST_SERIAL or not self.serial.isprintable():
            raise UsageError(f"{self.serial!r} can't be a serial number")

    @property
    def campaign_id(self) -> CampaignId:
        """The campaign of this job: the same one however often the job is delivered."""
        return campaign_id_of(self.submission, self.serial)

    def to_message(self) -> dict[str, Any]:
        """Return the job as the queue keeps it."""
        return {
            "protocol": PROTOCOL,
            "submission": self.submission,
            "serial": str(self.serial),
            "plan": self.plan,
            "payload": self.payload,
        }


def queue_of(serial: str) -> str:
    """Return the name of a phone's queue, and of the lock that keeps two of its jobs apart."""
    return f"phone:{serial}"


def read_message(message: Mapping[str, Any]) -> PhoneJob:
    """Return what a message says; raises UsageError for one that this version can't read."""
    protocol = message.get("protocol")
    if type(protocol) is not int or protocol != PROTOCOL:
        raise UsageError(
            f"the job is written in version {protocol!r}, this benchfarm reads version {PROTOCOL}",
            hint="install the same benchfarm on every host, then submit again",
        )
    fields = {name: message.get(name) for name in _FIELDS}
    for name, value in fields.items():
        if not isinstance(value, str):
            raise UsageError(f"the job's {name} is {type(value).__name__}, not text")
    return PhoneJob(
        submission=str(fields["submission"]),
        serial=Serial(str(fields["serial"])),
        plan=str(fields["plan"]),
        payload=str(fields["payload"]),
    )


_TASK: Final = "benchfarm.phone"
_OPEN: Final = (
    "SELECT submission AS name, plan, plan_name, payloads, labels, priority, joins, replaces_lost, opens_at, until"
    " FROM farm_submissions WHERE submission = %s AND NOT cancelled AND (until IS NULL OR until > clock_timestamp())"
    " FOR UPDATE"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is kept of a submission beside its jobs."""

    name: str
    #: As a checked document, with the devices that it means.
    plan: str
    plan_name: str
    #: JSON: what the plan names, by phone and by kind of phone.
    payloads: str
    #: JSON: what the submitter's computer says that phones are for, by serial number.
    labels: str
    priority: int
    #: Whether phones that come later are measured too.
    joins: bool
    #: Whether a phone that wasn't needed stands in for one that is lost.
    replaces_lost: bool
    #: When its window opens, or when it was submitted.
    opens_at: datetime
    #: When its window is over; None: never.
    until: datetime | None = None
    #: The facts of the phones that it was made for, by serial number.
    facts: Mapping[str, str] = field(default_factory=dict)
    #: Contents that phones which come later may need.
    files: Sequence[str] = ()


def keep(connection: psycopg.Connection[Any], submission: Submission) -> None:
    """Keep a submission; its jobs are queued already, in the same transaction."""
    connection.execute(
        "INSERT INTO farm_submissions (submission, plan, plan_name, payloads, labels, priority, joins, replaces_lost,"
        " opens_at, until) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            submission.name, submission.plan, submission.plan_name, submission.payloads, submission.labels,
            submission.priority, submission.joins, submission.replaces_lost, submission.opens_at, submission.until,
        ),
    )  # fmt: skip
    for serial, facts in submission.facts.items():
        connection.execute(
            "UPDATE farm_jobs SET facts = %s WHERE submission = %s AND serial = %s", (facts, submission.name, serial)
        )
    connection.execute(
        "INSERT INTO farm_submission_files SELECT %s, unnest(%s::text[])",
        (submission.name, sorted(set(submission.files))),
    )


def take(connection: psycopg.Connection[Any], name: str, *, skip: bool = False) -> Submission | None:
    """Return a submission that phones may be added to, locked for the transaction.

    None when it is over for them; with ``skip`` also while another process has it.
    """
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        row = cursor.execute(_OPEN.encode() + (b" SKIP LOCKED" if skip else b""), (name,)).fetchone()
    return Submission(**row) if row is not None else None


def opening(connection: psycopg.Connection[Any], submission: Submission) -> datetime | None:
    """Return when a submission's window opens, by the database's clock; None when it is open."""
    later = connection.execute("SELECT 1 WHERE %s > clock_timestamp()", (submission.opens_at,)).fetchone()
    return submission.opens_at if later else None


def enqueue(
    connection: psycopg.Connection[Any],
    job: PhoneJob,
    *,
    plan_name: str,
    priority: int,
    opens_at: datetime | None,
) -> int:
    """Queue a job, to be given out not before its window opens; return its number."""
    queued = JobManager(SyncPsycopgConnector()).defer_job(
        Job(
            id=None,
            task_name=_TASK,
            queue=queue_of(job.serial),
            lock=queue_of(job.serial),
            queueing_lock=None,
            priority=priority,
            scheduled_at=opens_at,
            task_kwargs=job.to_message(),
        ),
        connection=connection,
    )
    assert queued.id is not None, "the database numbers jobs"
    note = f"its window opens at {opens_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if opens_at is not None else ""
    connection.execute(
        "INSERT INTO farm_jobs (job_id, submission, serial, plan_name, campaign_id, note)"
        " VALUES (%s, %s, %s, %s, %s, %s)",
        (queued.id, job.submission, str(job.serial), plan_name, str(job.campaign_id), note),
    )
    return queued.id
