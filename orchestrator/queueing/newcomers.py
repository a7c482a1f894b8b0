"""Phones that are announced after a submission, and spare ones for those that are lost: each gets its job once.

Every worker looks. One of them adds what is to be added, in a transaction with the submission's row locked: whom it
chooses, it chooses there. A host that falls asleep over it loses the lock after some seconds, and nothing is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from orchestrator.errors import BenchfarmError
from orchestrator.queueing.database import QueueDatabase, told
from orchestrator.queueing.submissions import PhoneJob, Submission, enqueue, opening, take

#: What nobody could use for so long is lost; phones of a host that is silent for so long aren't chosen.
GONE_S: Final = 900.0
#: A host that wasn't heard for so long isn't given as alive.
HOST_SILENT_S: Final = 15.0
#: A host that wasn't heard for so long can't use its phones now: those whose jobs wait count as away.
_AWAY_S: Final = 60.0
#: Where nobody looked for so long, phones may have been there meanwhile: their absence is counted from zero.
_UNSEEN_S: Final = 60.0
#: A look is noted again after so long, not each time: every worker looks every few seconds.
NOTED_S: Final = 15.0
#: The phones of hosts (p, h) that can be used now.
_USABLE: Final = (
    "SELECT 1 FROM farm_phones p JOIN farm_hosts h ON h.name = p.host"  # noqa: S608 - ours
    f" WHERE p.serial = f.serial AND p.unusable = '' AND h.seen_at > now() - make_interval(secs => {_AWAY_S})"
)
#: Jobs that wait although their window is over, for phones that nobody can use: else they would be taken at once. From
#: those that wait on: they are few among all that ended.
_OVERDUE: Final = (
    "WITH waiting AS MATERIALIZED (SELECT id, lock FROM procrastinate_jobs WHERE status = 'todo')"  # noqa: S608 - ours
    " SELECT f.job_id, f.submission, f.serial, coalesce(f.away_since < now() - make_interval(secs => %s), false)"
    " FROM waiting w JOIN farm_jobs f ON f.job_id = w.id JOIN farm_submissions s ON s.submission = f.submission"
    f" WHERE s.until < now() AND NOT EXISTS ({_USABLE})"
    " AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs o WHERE o.lock = w.lock AND o.status = 'doing')"
    " AND (f.away_since IS NULL OR f.away_since < now() - make_interval(secs => %s)) ORDER BY f.job_id"
)
_LOST: Final = (
    "SELECT j.id, f.serial, j.status = 'todo' FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id"
    " WHERE f.submission = %s AND f.replaced_by = ''"
    " AND ((j.status = 'todo' AND f.away_since < now() - make_interval(secs => %s))"
    " OR (j.status = 'failed' AND f.is_lost)) ORDER BY j.id"
)
#: Notes since when no host can use a phone whose job waits; only rows that change are locked.
_NOTE_AWAY: Final = (
    "WITH seen AS (SELECT f.job_id, j.status = 'doing' OR EXISTS"  # noqa: S608 - ours
    f" ({_USABLE}) AS is_there FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id"
    " WHERE f.submission = %s AND j.status IN ('todo', 'doing')),"
    " changed AS (SELECT f.job_id, seen.is_there FROM farm_jobs f JOIN seen ON seen.job_id = f.job_id"
    " WHERE seen.is_there = (f.away_since IS NOT NULL) OR (%s AND NOT seen.is_there)"
    " ORDER BY f.job_id FOR UPDATE OF f)"
    " UPDATE farm_jobs f SET away_since = CASE WHEN changed.is_there THEN NULL ELSE now() END FROM changed"
    " WHERE changed.job_id = f.job_id"
)
_PHONES: Final = (
    " FROM farm_phones p JOIN farm_hosts h ON h.name = p.host"
    " CROSS JOIN LATERAL (SELECT extract(epoch FROM now() - h.seen_at)::float AS silent_s) s ORDER BY p.serial, p.host"
)


@dataclass(frozen=True, slots=True)
class Lost:
    """A job for whose phone another one is wanted."""

    job_id: int
    serial: str
    #: Nobody could use the phone; else the job has failed.
    waits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """A phone that a submission means, with its job."""

    job: PhoneJob
    #: Its facts as a document.
    facts: str
    #: The contents that its job needs.
    files: Sequence[str]


#: Gets a submission, the facts (documents) by serial number of the phones that keep their places in it, the announced
#: phones that have no job of it (rows as ``FarmQueue.phones`` gives them). Returns those of the latter that the
#: submission means now, best first. Raises BenchfarmError.
Choose = Callable[[Submission, Mapping[str, str], Sequence[Mapping[str, Any]]], Sequence[Added]]

#: A phone to be added, and in whose place; None: beside the others.
_Addition = tuple[Added, Lost | None]


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
        lines = self._end_overdue()
        submissions = self._open()
        self._considered = {name: seen for name, seen in self._considered.items() if name in submissions}
        if not submissions:
            return lines
        # Changes whenever another choice could be made among the phones.
        sight = self._database.rows(
            "SELECT p.serial, p.host, p.facts_md5, p.labels, p.unusable, s.silent_s > %s AS is_silent" + _PHONES, GONE_S
        )
        for name, row in submissions.items():
            try:
                lost = self._lost(name, is_noted=row["is_noted"]) if row["is_watched"] else []
                if lost is None or self._considered.get(name) == (sight, lost):
                    continue
                added = self._add_to(name, is_watched=row["is_watched"])
            except (psycopg.errors.LockNotAvailable, psycopg.errors.IdleInTransactionSessionTimeout):
                # Others are at work on it, or were while this host slept; the next look comes soon.
                continue
            except BenchfarmError as error:
                # One submission that can't be read here mustn't hide the others.
                lines.append(f"{name}: no phone can be added: {error}")
                continue
            if added is not None:
                lines += added
                self._considered[name] = (sight, lost)
        return lines

    def _open(self) -> dict[str, dict[str, Any]]:
        """Return the submissions that phones may be added to, by name.

        Of each: is_watched (whether lost phones of it are replaced now), is_noted (just now, who is away).
        """
        rows = self._database.rows(
            "SELECT s.submission, s.replaces_lost AND s.opens_at <= now() AS is_watched,"
            " coalesce(s.looked_at BETWEEN now() - make_interval(secs => %s) AND now(), false) AS is_noted"
            " FROM farm_submissions s WHERE s.submission IN (SELECT f.submission FROM procrastinate_jobs j"
            " JOIN farm_jobs f ON f.job_id = j.id WHERE j.status IN ('todo', 'doing'))"
            " AND NOT s.cancelled AND (s.joins OR s.replaces_lost)"
            " AND (s.until IS NULL OR s.until > now()) ORDER BY s.submission",
            NOTED_S,
        )
        return {row["submission"]: row for row in rows}

    def _end_overdue(self) -> list[str]:
        """End the jobs whose window is over and whose phones have been away for long; return a line about each.

        Once a window is over nobody notes who is away, so that is noted here: a farm that was down has time to come
        back.
        """
        with self._database.connection() as connection:
            found = connection.execute(_OVERDUE.encode(), (GONE_S, GONE_S)).fetchall()
        if not found:
            return []
        lines = []
        note = "its window was over while no host could use its phone"
        with self._database.brief() as connection:
            locked = connection.execute(
                "SELECT id FROM procrastinate_jobs WHERE id = ANY(%s) AND status = 'todo'"
                " ORDER BY id FOR UPDATE SKIP LOCKED",
                ([job_id for job_id, *_ in found],),
            ).fetchall()
            for job_id, submission, serial, is_long in found:
                if (job_id,) not in locked:
                    continue
                if not is_long:
                    connection.execute("UPDATE farm_jobs SET away_since = now() WHERE job_id = %s", (job_id,))
                    continue
                _end(connection, job_id, note)
                lines.append(f"{submission}: job {job_id} of {serial} failed: {note}")
        return lines

    def _lost(self, name: str, *, is_noted: bool) -> list[Lost] | None:
        """Return whose places are to be filled; None while another process is at work on it.

        ``is_noted``: somebody noted just now who is away. Only that some of them are back isn't known then.
        """
        if is_noted:
            with self._database.connection() as connection:
                if not _lost_phones(connection, name):
                    return []
        with self._database.brief() as connection:
            if take(connection, name, skip=True) is None:
                return None
            look = connection.execute(
                "SELECT looked_at IS NULL OR age > %s OR age < 0, age BETWEEN 0 AND %s"
                " FROM (SELECT looked_at, extract(epoch FROM now() - looked_at) AS age FROM farm_submissions"
                " WHERE submission = %s) s",
                (_UNSEEN_S, NOTED_S, name),
            ).fetchone()
            assert look is not None, "its row is locked"
            is_first, is_fresh = look
            connection.execute(_NOTE_AWAY.encode(), (name, is_first))
            if not is_fresh:
                connection.execute("UPDATE farm_submissions SET looked_at = now() WHERE submission = %s", (name,))
            return _lost_phones(connection, name)

    def _add_to(self, name: str, *, is_watched: bool) -> list[str] | None:
        """Add all that a submission means now; None when another process is at work on it, or it is over."""
        with self._database.brief() as connection:
            submission = take(connection, name, skip=True)
            if submission is None:
                return None
            wanted = _lost_phones(connection, name) if is_watched else []
            additions = self._chosen(connection, submission, wanted, joins=submission.joins)
            if not additions:
                return []
            replaced = {lost for _, lost in additions} - {None}
            if replaced and not replaced <= set(_lost_phones(connection, name, lock=True)):
                return None
            # Kept from ending meanwhile: nothing is added to a submission whose every job has ended.
            held = connection.execute(
                "SELECT j.id FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
                " WHERE f.submission = %s AND j.status IN ('todo', 'doing') LIMIT 1 FOR SHARE OF j SKIP LOCKED",
                (name,),
            ).fetchone()
            if held is None:
                return None
            return [_add(connection, submission, *addition) for addition in additions]

    @told
    def give_up(self, worker_id: int, job_id: int, note: str) -> tuple[bool, str]:
        """End a job whose phone can't be got; a spare phone takes its place when the plan wants that and one fits.

        Returns whether the worker held it (else nothing is changed), and a line for people, empty without a spare.
        Raises StoreError, nothing changed, when others have what is needed for it; to be asked again later.
        """
        line, additions = "", list[_Addition]()
        with self._database.brief() as connection:
            known = connection.execute("SELECT submission, serial FROM farm_jobs WHERE job_id = %s", (job_id,))
            name, serial = known.fetchone() or ("", "")
            submission = take(connection, name)
            is_replaced = submission is not None and submission.replaces_lost
            if submission is not None and is_replaced:
                try:
                    additions = self._chosen(connection, submission, [Lost(job_id, serial, waits=False)])
                except BenchfarmError as error:
                    line = f"{name}: no phone takes the place of {serial}: {error}"
            held = connection.execute(
                "SELECT abort_requested FROM procrastinate_jobs WHERE id = %s AND worker_id = %s AND status = 'doing'"
                " FOR UPDATE",
                (job_id, worker_id),
            ).fetchone()
            if held is None:
                return False, ""
            if held[0]:
                line = ""
            elif submission is not None and is_replaced:
                connection.execute("UPDATE farm_jobs SET is_lost = true WHERE job_id = %s", (job_id,))
                for addition in additions:
                    line = _add(connection, submission, *addition)
            _end(connection, job_id, note, tries=1)
        return True, line

    def _chosen(
        self,
        connection: psycopg.Connection[Any],
        submission: Submission,
        wanted: Sequence[Lost],
        *,
        joins: bool = False,
    ) -> list[_Addition]:
        """Choose a spare phone for each lost one, where one fits, and those that come beside the others.

        The submission's row is locked, so that its jobs stay as they are. Raises BenchfarmError.
        """
        jobs = connection.execute(
            "SELECT serial, facts, replaced_by FROM farm_jobs WHERE submission = %s", (submission.name,)
        ).fetchall()
        with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            phones = cursor.execute(
                ("SELECT p.serial, p.host, p.facts, p.labels, p.unusable, s.silent_s" + _PHONES).encode()
            ).fetchall()
        kept = {serial: facts for serial, facts, replaced_by in jobs if not replaced_by}
        had = {serial for serial, *_ in jobs}
        found: list[_Addition] = []
        for lost in [*wanted, *([None] if joins else [])]:
            free = [row for row in phones if row["serial"] not in had]
            others = {serial: facts for serial, facts in kept.items() if lost is None or serial != lost.serial}
            chosen = self._choose(submission, others, free) if free else ()
            for added in chosen if lost is None else chosen[:1]:
                found.append((added, lost))
                kept = {**others, **{str(item.job.serial): item.facts for item, _ in found}}
                had.add(str(added.job.serial))
        return found


def _lost_phones(connection: psycopg.Connection[Any], submission: str, *, lock: bool = False) -> list[Lost]:
    """Return the lost ones by job number. ``lock``: those whose jobs no other process has locked, locked now."""
    query = f"{_LOST} FOR UPDATE OF j SKIP LOCKED" if lock else _LOST
    return [Lost(*row) for row in connection.execute(query.encode(), (submission, GONE_S)).fetchall()]


def _add(connection: psycopg.Connection[Any], submission: Submission, added: Added, lost: Lost | None) -> str:
    """Queue a phone's job, and end that of the one in whose place it is; return a line for people."""
    number = enqueue(
        connection,
        added.job,
        plan_name=submission.plan_name,
        priority=submission.priority,
        files=added.files,
        opens_at=opening(connection, submission),
    )
    connection.execute(
        "UPDATE farm_jobs SET facts = %s, came_later = %s, replaces = %s WHERE job_id = %s",
        (added.facts, lost is None, lost.serial if lost else "", number),
    )
    if lost is None:
        return f"{submission.name}: {added.job.serial} came and is measured too: job {number}"
    if lost.waits:
        _end(connection, lost.job_id, "no host could use it for too long")
    connection.execute("UPDATE farm_jobs SET replaced_by = %s WHERE job_id = %s", (added.job.serial, lost.job_id))
    return f"{submission.name}: {added.job.serial} takes the place of {lost.serial}: job {number}"


def _end(connection: psycopg.Connection[Any], job_id: int, note: str, *, tries: int = 0) -> None:
    """End a job as failed."""
    connection.execute("SELECT procrastinate_finish_job_v1(%s, 'failed', false)", (job_id,))
    connection.execute("UPDATE farm_jobs SET note = %s, tries = tries + %s WHERE job_id = %s", (note, tries, job_id))
