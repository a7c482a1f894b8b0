"""The table of the farm's jobs. A job is a phone's part of a submission, and its row is the only
truth about it: Procrastinate only wakes phones, and a worker keeps in memory only what it runs.

A job's state changes as ``CHANGES`` says, in one statement that compares and sets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from orchestrator.errors import UsageError
from orchestrator.extensions.farm.schema import IS_OPEN, QueueDatabase
from orchestrator.plugins import JobOwner
from orchestrator.records import frozen
from orchestrator.records.case import NAME_RULE, CampaignId, Serial, campaign_id_of, is_name
from orchestrator.records.device import HOST_SERIAL

if TYPE_CHECKING:
    import psycopg

#: Seconds without a heartbeat after which a host isn't shown as alive.
HOST_SILENT_S: Final = 15.0
#: Procrastinate's own names are 128 characters at most.
_LONGEST_SERIAL: Final = 112
#: The reason why a phone with an unsuitable serial number can't have jobs.
NO_JOBS: Final = (
    f"no job can be given to its serial number: it is '{HOST_SERIAL}', longer than"
    f" {_LONGEST_SERIAL} characters, or unprintable"
)
#: A change of a job -> the state in which it is -> the state that follows; in any other state the
#: change does nothing. A job ``waits``, ``runs``, ``stops`` (it runs and is to be cancelled), or is
#: ``done``, ``failed`` or ``cancelled``.
CHANGES: Final[Mapping[str, Mapping[str, str]]] = {
    # By the host that holds the phone's lock: what runs, or stops, has lost its host.
    "claim": {"waits": "runs", "runs": "runs", "stops": "stops"},
    # By the host that claimed it last. It may have been silent when the job was cancelled.
    "waits": {"runs": "waits", "stops": "cancelled", "cancelled": "cancelled"},
    "done": {"runs": "done", "stops": "done", "cancelled": "done"},
    "failed": {"runs": "failed", "stops": "failed", "cancelled": "failed"},
    # By people. A job whose host is silent counts as waiting.
    "cancel": {"waits": "cancelled", "runs": "stops", "stops": "stops"},
}
#: A job's (f) state: the status in its row, but for a job that stops.
_STATE: Final = "CASE WHEN f.status = 'runs' AND f.cancel_asked THEN 'stops' ELSE f.status END"
#: Whether a running job (f) has no live host.
_IS_LEFT: Final = f"""(f.status = 'runs' AND NOT EXISTS (SELECT 1 FROM farm_hosts h
    WHERE h.name = f.host AND h.is_working
    AND h.seen_at > now() - make_interval(secs => {HOST_SILENT_S})))"""
_JOBS: Final = f"""
SELECT f.job_id, f.submission, f.serial, s.plan_name AS plan, f.campaign_id, f.host,
    s.priority, f.tries, f.deaths, CASE WHEN x.is_left THEN 'waits' ELSE f.status END AS status,
    CASE WHEN x.is_left THEN 'its host ' || f.host || ' is silent' ELSE f.note END AS note,
    CASE WHEN f.status = 'waits' THEN f.again_at END AS again_at
FROM farm_jobs f JOIN farm_submissions s ON s.submission = f.submission
    CROSS JOIN LATERAL (SELECT {_IS_LEFT} AS is_left) x
"""


def paused(host: str, serial: str) -> str:
    """Return the SQL of the pauses of a phone at a host, whose names are SQL too."""
    scopes = f"'farm', 'host:' || {host}, 'phone:' || {serial}"
    return f"(SELECT scope FROM farm_pauses WHERE scope IN ({scopes}))"


def _after(change: str, state: str = _STATE) -> str:
    """Return the SQL of a job's status after a change; NULL where the change does nothing."""
    statuses = {
        before: "runs" if after == "stops" else after for before, after in CHANGES[change].items()
    }
    cases = " ".join(f"WHEN '{before}' THEN '{status}'" for before, status in statuses.items())
    return f"CASE {state} {cases} END"


@frozen
class Submission:
    """A plan for the farm's phones."""

    submission: str
    #: The plan's manifest (manifest.py).
    document: str
    plan_name: str
    #: The contents that it needs, by sha256.
    files: Sequence[str]
    priority: int


@frozen
class Job:
    """A job that a host has claimed."""

    job_id: int
    serial: Serial
    submission: str
    campaign_id: CampaignId
    #: The submission's manifest.
    document: str
    #: The facts of the job's phone, as a document.
    facts: str
    #: Number of earlier failures on the phone, without deaths of hosts.
    tries: int
    deaths: int
    #: The number of this claim: only the last one may end the job.
    delivery: int


class JobTable(QueueDatabase):
    """The submissions and their jobs, which any host may query at any time."""

    def submit(self, submission: Submission, phones: Mapping[str, str]) -> list[int]:
        """Create a job per phone, all or none; return their numbers.

        ``phones``: serial number -> facts (a document). The contents that the plan needs must be in
        the farm already.

        Raises UsageError for an existing submission, an invalid name or serial number, and a file
        that was cleaned away.
        """
        name = submission.submission
        if not is_name(name):
            raise UsageError(f"{name!r} can't name a submission", hint=NAME_RULE)
        if wrong := [serial for serial in phones if not can_have_jobs(serial)]:
            raise UsageError(f"{wrong[0]!r} can't be a serial number")
        with self.connection() as connection:
            inserted = connection.execute(
                """
                INSERT INTO farm_submissions (submission, document, plan_name, files, priority)
                VALUES (%(submission)s, %(document)s, %(plan_name)s, %(files)s, %(priority)s)
                ON CONFLICT DO NOTHING
                """,
                asdict(submission),
            )
            if not inserted.rowcount:
                raise name_taken(name)
            locked = connection.execute(
                """
                WITH kept AS MATERIALIZED
                (SELECT sha256 FROM farm_files WHERE sha256 = ANY(%s) ORDER BY sha256 FOR UPDATE)
                UPDATE farm_files f SET used_at = now() FROM kept WHERE f.sha256 = kept.sha256
                """,
                (list(submission.files),),
            )
            if locked.rowcount < len(set(submission.files)):
                raise UsageError("a file was cleaned away before it was used", hint="submit again")
            return sorted(number for number, _ in _add(connection, name, phones))

    def to_join(self, serials: Collection[str]) -> list[tuple[str, str]]:
        """Return name and document of the open submissions that lack a job for one of the phones."""
        rows = self.rows(
            f"""
            SELECT submission, document FROM farm_submissions s WHERE NOT cancelled
            AND EXISTS (SELECT 1 FROM farm_jobs f WHERE f.submission = s.submission AND {IS_OPEN})
            AND EXISTS (SELECT unnest(%s::text[]) EXCEPT
            SELECT serial FROM farm_jobs f WHERE f.submission = s.submission)
            ORDER BY submission
            """,
            list(serials),
        )
        return [(row["submission"], row["document"]) for row in rows]

    def join(self, name: str, phones: Mapping[str, str]) -> list[str]:
        """Add phones (serial number -> facts) to a submission unless it was cancelled; return the
        added ones: those without a job.
        """
        with self.connection() as connection:
            is_open = connection.execute(
                "SELECT 1 FROM farm_submissions WHERE submission = %s AND NOT cancelled FOR UPDATE",
                (name,),
            ).fetchone()
            added = _add(connection, name, phones) if is_open else []
        return [serial for _, serial in added]

    def due_and_stopped(
        self, serials: Collection[str], job_ids: Collection[int]
    ) -> tuple[set[str], set[int]]:
        """Return the phones that have a due job, also one that runs, among these phones; and the
        jobs that are to be stopped among these jobs: cancelled ones, and those of a serial number
        that several phones have.
        """
        rows = self.rows(
            f"""
            SELECT f.serial, f.job_id, {IS_OPEN} AND f.again_at <= now() AS is_due,
            f.cancel_asked OR EXISTS
            (SELECT 1 FROM farm_clashes c WHERE c.serial = f.serial) AS is_stopped
            FROM farm_jobs f WHERE {IS_OPEN} AND f.serial = ANY(%s) OR f.job_id = ANY(%s)
            """,
            list(serials),
            list(job_ids),
        )
        due = {row["serial"] for row in rows if row["is_due"]}
        return due, {row["job_id"] for row in rows if row["is_stopped"]}

    def claim(self, serial: str, host: str) -> Job | None:
        """Claim the most urgent due job of a phone for the host that holds the phone's lock; None
        when no job is due, or the phone is paused.
        """
        rows = self.rows(
            f"""
            UPDATE farm_jobs f SET status = {_after("claim")}, host = %s, note = '',
            changed_at = now(), delivery = f.delivery + 1,
            deaths = f.deaths + (f.status = 'runs')::integer
            FROM farm_submissions s WHERE s.submission = f.submission
            AND {_after("claim")} IS NOT NULL AND f.job_id =
            (SELECT f.job_id FROM farm_jobs f JOIN farm_submissions s USING (submission)
            WHERE f.serial = %s AND {IS_OPEN} AND f.again_at <= now()
            AND NOT EXISTS {paused("%s", "f.serial")} ORDER BY s.priority DESC, f.job_id LIMIT 1)
            RETURNING f.job_id, f.serial, f.submission, f.campaign_id,
            s.document, f.facts, f.tries, f.deaths, f.delivery
            """,
            host,
            serial,
            host,
        )
        return Job(**rows[0]) if rows else None

    def end(
        self, job: Job, change: str, note: str, *, is_try: bool = False, wait_s: float = 0.0
    ) -> str | None:
        """End a claimed job by a change (``done``, ``failed``, or ``waits`` with the seconds until
        its next try); return its new status.

        None, changing nothing, if another host has claimed the job since. ``is_try``: whether it
        counts as a try on the phone.
        """
        rows = self.rows(
            f"""
            UPDATE farm_jobs f SET status = {_after(change)}, note = %s, tries = f.tries + %s,
            changed_at = now(), again_at = now() + make_interval(secs => %s)
            WHERE f.job_id = %s AND f.delivery = %s AND {_after(change)} IS NOT NULL
            RETURNING f.status
            """,
            note,
            int(is_try),
            wait_s,
            job.job_id,
            job.delivery,
        )
        return str(rows[0]["status"]) if rows else None

    def cancel(self, submission: str, serials: list[str] | None = None) -> dict[int, str]:
        """Cancel a submission's waiting jobs and request the end of its running ones; return job
        number -> previous status.

        ``serials``: only these phones' jobs. Without it, no new phone is added to the submission.
        """
        with self.connection() as connection:
            connection.execute(
                "UPDATE farm_submissions SET cancelled = cancelled OR %s WHERE submission = %s",
                (serials is None, submission),
            )
            rows = connection.execute(
                f"""
                WITH open AS (SELECT job_id, CASE WHEN {_IS_LEFT} THEN 'waits' ELSE f.status END
                AS state FROM farm_jobs f WHERE submission = %s AND {IS_OPEN}
                AND (%s::text[] IS NULL OR serial = ANY(%s)) ORDER BY job_id FOR UPDATE)
                UPDATE farm_jobs f SET cancel_asked = true, changed_at = now(),
                status = {_after("cancel", "open.state")}
                FROM open WHERE open.job_id = f.job_id RETURNING f.job_id, open.state
                """,
                (submission, serials, serials),
            ).fetchall()
        return {number: str(status) for number, status in rows}

    def jobs(self, submission: str = "") -> list[dict[str, Any]]:
        """Return the jobs of one submission; or all open ones and the newest 1,000. Newest last.

        ``tries`` is the number of failures on the phone, ``deaths`` of deaths of the job's hosts.
        ``again_at`` is the time of a waiting job's next try.
        """
        condition = f"{IS_OPEN} OR f.job_id > (SELECT max(job_id) - 1000 FROM farm_jobs)"
        condition = "f.submission = %s" if submission else condition
        return self.rows(
            f"{_JOBS} WHERE {condition} ORDER BY f.job_id", *([submission] if submission else [])
        )

    def busy_elsewhere(self, host: str) -> set[str]:
        """Return the phones that run a job of another host now."""
        rows = self.rows(
            f"SELECT serial FROM farm_jobs f WHERE status = 'runs' AND host <> %s AND NOT {_IS_LEFT}",
            host,
        )
        return {row["serial"] for row in rows}

    def left_out(self, submission: str) -> dict[str, str]:
        """Return the phones that a submission selects and that have no job of it -> the reason at
        submission.
        """
        rows = self.rows(
            """
            SELECT o.key AS serial, o.value AS why FROM farm_submissions s
            CROSS JOIN LATERAL json_each_text(s.document::json -> 'left_out') o
            WHERE s.submission = %s AND NOT EXISTS
            (SELECT 1 FROM farm_jobs f WHERE f.submission = s.submission AND f.serial = o.key)
            ORDER BY o.key
            """,
            submission,
        )
        return {row["serial"]: row["why"] for row in rows}

    def owners(self, campaign_ids: Sequence[CampaignId]) -> dict[CampaignId, JobOwner]:
        """Return the jobs of these campaigns; campaigns without a job are left out."""
        rows = self.rows(
            f"""
            SELECT campaign_id, submission, serial, {IS_OPEN} AS is_open FROM farm_jobs f
            WHERE campaign_id = ANY(%s)
            """,
            list(campaign_ids),
        )
        return {row.pop("campaign_id"): JobOwner(**row) for row in rows}


def name_taken(submission: str) -> UsageError:
    """Return the error for a new submission with the name of a queued or stored one."""
    return UsageError(
        f"{submission}: a submission of this name exists already", hint="give another --name"
    )


def can_have_jobs(serial: str) -> bool:
    """Whether jobs can be made for this serial number. Not for this computer's own: programs of a
    job never run on a host.
    """
    return (
        serial not in {"", HOST_SERIAL} and len(serial) <= _LONGEST_SERIAL and serial.isprintable()
    )


def _add(
    connection: psycopg.Connection[Any], submission: str, phones: Mapping[str, str]
) -> list[tuple[int, str]]:
    """Create jobs for those phones without one of a submission; return number and phone."""
    return connection.execute(
        """
        INSERT INTO farm_jobs (submission, serial, campaign_id, facts)
        SELECT %s, serial, campaign, facts
        FROM unnest(%b::text[], %b::text[], %b::text[]) WITH ORDINALITY
        AS p (serial, campaign, facts, place) ORDER BY place
        ON CONFLICT (submission, serial) DO NOTHING RETURNING job_id, serial
        """,
        (
            submission,
            list(phones),
            [campaign_id_of(submission, Serial(serial)) for serial in phones],
            list(phones.values()),
        ),
    ).fetchall()
