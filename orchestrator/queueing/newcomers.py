"""Phones that are announced after a submission, and those that stand in for lost ones: each gets its job once.

Every worker looks, and each change is made by one of them: in one transaction, with the submission's row locked.
A phone is lost when all its tries are used up, or when for ``GONE_S`` no host could use it while its job waited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg

from orchestrator.errors import BenchfarmError
from orchestrator.queueing.database import QueueDatabase, told
from orchestrator.queueing.messages import PhoneJob
from orchestrator.queueing.submissions import Submission, enqueue, read_locked

#: What nobody could use for so long is lost; phones of a host that is silent for so long aren't chosen.
GONE_S: Final = 900.0
#: A host that wasn't heard for so long can't use its phones now.
_SILENT_S: Final = 60.0
_PHONES: Final = (
    " FROM farm_phones p JOIN farm_hosts h ON h.name = p.host"
    " CROSS JOIN LATERAL (SELECT extract(epoch FROM now() - h.seen_at)::float AS silent_s) s ORDER BY p.serial, p.host"
)
#: Changes whenever another choice could be made among the phones.
_SIGHT: Final = (
    "SELECT p.serial, p.host, md5(p.facts) AS facts, p.labels, p.unusable, h.protocol,"
    " s.silent_s > %s AS is_silent" + _PHONES
)
_IS_OPEN: Final = (
    "EXISTS (SELECT 1 FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id"
    " WHERE f.submission = %s AND j.status IN ('todo', 'doing'))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """A phone that a submission means, with its job."""

    job: PhoneJob
    #: Its facts as a document.
    facts: str
    #: The contents that its job needs.
    files: Sequence[str]


#: Gets a submission, the facts (documents) by serial number of the phones that keep their places in it, the announced
#: phones that have no job of it (rows as ``FarmQueue.phones`` gives them), and the database's time. Returns those of
#: the latter that the submission means now, best first. Raises BenchfarmError.
Choose = Callable[[Submission, Mapping[str, str], Sequence[Mapping[str, Any]], datetime], Sequence[Added]]


class Newcomers:
    """Adds phones to the open submissions of a farm."""

    def __init__(self, database: QueueDatabase, choose: Choose) -> None:
        self._database = database
        self._choose = choose
        #: By submission, the phones and the lost ones at the last look: until they change nothing is to be added.
        self._considered: dict[str, object] = {}

    @told
    def look(self) -> list[str]:
        """Add what is to be added now; return a line about each for people. Every worker may ask at any time."""
        names = self._open()
        self._considered = {name: seen for name, seen in self._considered.items() if name in names}
        if not names:
            return []
        sight = tuple(tuple(row.values()) for row in self._database.rows(_SIGHT, GONE_S))
        lines: list[str] = []
        for name in names:
            try:
                with self._database.connection() as connection, connection.transaction():
                    lines += self._look_at(connection, name, sight)
            except BenchfarmError as error:
                # One submission that can't be read here mustn't hide the others.
                lines.append(f"{name}: no phone can be added: {error}")
        return lines

    def _look_at(self, connection: psycopg.Connection[Any], name: str, sight: object) -> list[str]:
        submission = read_locked(connection, name, skip=True)
        if submission is None:
            return []
        lost = self._lost(connection, submission)
        if self._considered.get(name) == (sight, lost):
            return []
        lines = [self._replace(connection, submission, *item) for item in lost]
        lines += self._join(connection, submission) if submission.joins else []
        self._considered[name] = (sight, lost)
        return [line for line in lines if line]

    @told
    def give_up(self, worker_id: int, job_id: int, note: str) -> tuple[bool, str]:
        """End a job whose phone can't be got; another phone stands in for it when the plan wants that and one fits.

        Returns whether the worker held it (else nothing is changed), and a line for people, empty when none stands in.
        """
        with self._database.connection() as connection, connection.transaction():
            known = connection.execute(
                "SELECT submission, serial FROM farm_jobs WHERE job_id = %s", (job_id,)
            ).fetchone()
            if known is None:
                return False, ""
            # Before the job's row, as everywhere: two that lock both never wait for each other.
            submission = read_locked(connection, known[0])
            held = connection.execute(
                "SELECT abort_requested FROM procrastinate_jobs WHERE id = %s AND worker_id = %s AND status = 'doing'"
                " FOR UPDATE",
                (job_id, worker_id),
            ).fetchone()
            if held is None:
                return False, ""
            line = ""
            if submission is not None and submission.replaces_lost and not held[0]:
                connection.execute("UPDATE farm_jobs SET is_lost = true WHERE job_id = %s", (job_id,))
                try:
                    line = self._stand_in(connection, submission, known[1])
                except BenchfarmError as error:
                    line = f"{submission.name}: no phone stands in for {known[1]}: {error}"
            connection.execute("SELECT procrastinate_finish_job_v1(%s, 'failed', false)", (job_id,))
            connection.execute("UPDATE farm_jobs SET note = %s, tries = tries + 1 WHERE job_id = %s", (note, job_id))
        return True, line

    def _open(self) -> list[str]:
        """Return the submissions that phones may be added to."""
        rows = self._database.rows(
            "SELECT DISTINCT s.submission FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
            " JOIN farm_submissions s ON s.submission = f.submission"
            " WHERE j.status IN ('todo', 'doing') AND NOT s.cancelled AND (s.joins OR s.replaces_lost)"
            " AND (s.until IS NULL OR s.until > now()) ORDER BY s.submission"
        )
        return [row["submission"] for row in rows]

    def _join(self, connection: psycopg.Connection[Any], submission: Submission) -> list[str]:
        # Kept from ending meanwhile: nothing is added to a submission whose every job has ended.
        held = connection.execute(
            "SELECT j.id FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
            " WHERE f.submission = %s AND j.status IN ('todo', 'doing') LIMIT 1 FOR SHARE OF j",
            (submission.name,),
        ).fetchone()
        if held is None:
            return []
        lines = []
        for added in self._chosen(connection, submission, without=""):
            number = self._add(connection, submission, added)
            connection.execute("UPDATE farm_jobs SET came_later = true WHERE job_id = %s", (number,))
            lines.append(f"{submission.name}: {added.job.serial} came and is measured too: job {number}")
        return lines

    def _lost(self, connection: psycopg.Connection[Any], submission: Submission) -> list[tuple[int, str, str]]:
        """Return the jobs for whose phones others are wanted: number, serial number, status; locked."""
        if not submission.replaces_lost or submission.opens_at > _now(connection):
            return []
        self._note_away(connection, submission)
        return connection.execute(
            "SELECT j.id, f.serial, j.status::text FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id"
            " WHERE f.submission = %s AND f.stood_in_by = ''"
            " AND ((j.status = 'todo' AND f.away_since < now() - make_interval(secs => %s))"
            " OR (j.status = 'failed' AND f.is_lost)) ORDER BY j.id FOR UPDATE OF j SKIP LOCKED",
            (submission.name, GONE_S),
        ).fetchall()

    def _replace(
        self, connection: psycopg.Connection[Any], submission: Submission, job_id: int, serial: str, status: str
    ) -> str:
        line = self._stand_in(connection, submission, serial)
        if line and status == "todo":
            connection.execute("SELECT procrastinate_finish_job_v1(%s, 'failed', false)", (job_id,))
            connection.execute(
                "UPDATE farm_jobs SET note = 'no host could use it for too long' WHERE job_id = %s", (job_id,)
            )
        return line

    def _note_away(self, connection: psycopg.Connection[Any], submission: Submission) -> None:
        """Note since when no host can use a phone whose job waits."""
        connection.execute(
            "WITH seen AS (SELECT f.job_id, j.status = 'doing' OR EXISTS (SELECT 1 FROM farm_phones p"
            " JOIN farm_hosts h ON h.name = p.host WHERE p.serial = f.serial AND p.unusable = ''"
            " AND h.seen_at > now() - make_interval(secs => %s)) AS is_there"
            " FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id"
            " WHERE f.submission = %s AND j.status IN ('todo', 'doing'))"
            " UPDATE farm_jobs f SET away_since = CASE WHEN seen.is_there THEN NULL ELSE now() END FROM seen"
            " WHERE seen.job_id = f.job_id AND seen.is_there = (f.away_since IS NOT NULL)",
            (_SILENT_S, submission.name),
        )

    def _stand_in(self, connection: psycopg.Connection[Any], submission: Submission, lost: str) -> str:
        """Queue a lost phone's part for another one; return a line for people, empty when none fits."""
        added = next(iter(self._chosen(connection, submission, without=lost)), None)
        if added is None:
            return ""
        number = self._add(connection, submission, added)
        connection.execute("UPDATE farm_jobs SET stands_in_for = %s WHERE job_id = %s", (lost, number))
        connection.execute(
            "UPDATE farm_jobs SET stood_in_by = %s WHERE submission = %s AND serial = %s",
            (added.job.serial, submission.name, lost),
        )
        return f"{submission.name}: {added.job.serial} stands in for {lost}: job {number}"

    def _chosen(self, connection: psycopg.Connection[Any], submission: Submission, *, without: str) -> Sequence[Added]:
        """Return the phones that have no job of the submission and that it means now, were ``without`` not there."""
        with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            jobs = cursor.execute(
                "SELECT serial, facts, stood_in_by FROM farm_jobs WHERE submission = %s", (submission.name,)
            ).fetchall()
            phones = cursor.execute(
                ("SELECT p.serial, p.host, p.facts, p.labels, p.unusable, h.protocol, s.silent_s" + _PHONES).encode()
            ).fetchall()
        kept = {row["serial"]: row["facts"] for row in jobs if not row["stood_in_by"] and row["serial"] != without}
        had = {row["serial"] for row in jobs}
        free = [row for row in phones if row["serial"] not in had]
        return self._choose(submission, kept, free, _now(connection)) if free else ()

    def _add(self, connection: psycopg.Connection[Any], submission: Submission, added: Added) -> int:
        number = enqueue(
            connection, added.job, plan_name=submission.plan_name, priority=submission.priority, files=added.files
        )
        connection.execute("UPDATE farm_jobs SET facts = %s WHERE job_id = %s", (added.facts, number))
        return number


def _now(connection: psycopg.Connection[Any]) -> datetime:
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None, "a clock always answers"
    moment: datetime = row[0]
    return moment
