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
from orchestrator.queueing.database import QueueDatabase, QueueHeldError
from orchestrator.queueing.submissions import PROTOCOL, Submission, can_have_jobs, end_as_failed, enqueue, take

#: What nobody could use for so long is lost; phones of a host that is silent for so long aren't chosen.
GONE_S: Final = 900.0
#: A host that wasn't heard for so long isn't given as alive.
HOST_SILENT_S: Final = 15.0
#: Where nobody looked for so long, phones may have been there meanwhile: absence is counted from the next look on.
_UNWATCHED_S: Final = 60.0
#: A look is noted again after so long, not each time: every worker looks every few seconds.
_NOTED_S: Final = 15.0
#: When a host could use the phone of a job (f) last, NULL for never; whether somebody has looked on for long enough.
_USABLE_AT: Final = (
    "greatest((SELECT max(CASE WHEN p.unusable = '' THEN h.seen_at ELSE p.changed_at END) FROM farm_phones p"
    " JOIN farm_hosts h ON h.name = p.host WHERE p.serial = f.serial),"
    " (SELECT seen_at FROM farm_sightings WHERE serial = f.serial))"
)
_LONG_AGO: Final = f"now() - make_interval(secs => {GONE_S})"
_IS_WATCHED: Final = f"(SELECT watched_since FROM farm_protocol) < {_LONG_AGO}"  # noqa: S608 - ours
#: The jobs of a submission for whose phones others are wanted.
_LOST: Final = (
    "SELECT j.id, f.serial, j.status = 'todo' FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id"  # noqa: S608 - ours
    " JOIN farm_submissions s ON s.submission = f.submission WHERE f.submission = %s AND f.replaced_by = ''"
    " AND ((j.status = 'failed' AND f.is_lost) OR (j.status = 'todo'"
    f" AND {_IS_WATCHED} AND greatest(s.opens_at, {_USABLE_AT}) < {_LONG_AGO})) ORDER BY j.id"
)
#: Jobs that wait although their window is over, for phones that nobody can use: else they would be taken at once. From
#: those that wait on: they are few among all that ended.
_OVERDUE: Final = (
    "WITH waiting AS MATERIALIZED (SELECT id, lock FROM procrastinate_jobs WHERE status = 'todo')"  # noqa: S608 - ours
    " SELECT f.job_id, f.submission, f.serial FROM waiting w JOIN farm_jobs f ON f.job_id = w.id"
    " JOIN farm_submissions s ON s.submission = f.submission"
    f" WHERE {_IS_WATCHED} AND greatest(s.until, {_USABLE_AT}) < {_LONG_AGO} AND s.until IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs o WHERE o.lock = w.lock AND o.status = 'doing')"
    " ORDER BY f.job_id"
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


#: Gets a submission, the facts (documents) by serial number of the phones that keep their places in it, the announced
#: phones that have no job of it (rows as ``FarmQueue.phones`` gives them). Returns those of the latter that it means,
#: with their facts, by serial number, best first. Raises BenchfarmError.
Choose = Callable[[Submission, Mapping[str, str], Sequence[Mapping[str, Any]]], Mapping[str, str]]

#: A phone to be added with its facts, and in whose place; None: beside the others.
_Addition = tuple[str, str, Lost | None]


class Newcomers:
    """Adds phones to the open submissions of a farm."""

    def __init__(self, database: QueueDatabase, choose: Choose) -> None:
        self._database = database
        self._choose = choose
        #: By submission, the phones and the lost ones at the last look: until they change nothing is to be added.
        self._considered: dict[str, object] = {}

    def look(self) -> list[str]:
        """Add what is to be added now; return a line about each for people. Every worker may ask at any time."""
        self._database.rows(
            "UPDATE farm_protocol SET watched_at = now(), watched_since = CASE WHEN"
            " watched_at BETWEEN now() - make_interval(secs => %s) AND now() THEN watched_since ELSE now() END"
            " WHERE watched_at NOT BETWEEN now() - make_interval(secs => %s) AND now()",
            _UNWATCHED_S,
            _NOTED_S,
        )
        lines = self._end_overdue()
        # Whether lost phones of them are replaced now.
        submissions: dict[str, bool] = {
            row["submission"]: row["is_watched"]
            for row in self._database.rows(
                "SELECT s.submission, s.replaces_lost AND s.opens_at <= now() AS is_watched"
                " FROM farm_submissions s WHERE s.submission IN (SELECT f.submission FROM procrastinate_jobs j"
                " JOIN farm_jobs f ON f.job_id = j.id WHERE j.status IN ('todo', 'doing'))"
                " AND s.protocol = %s AND NOT s.cancelled AND (s.joins OR s.replaces_lost)"
                " AND (s.until IS NULL OR s.until > now()) ORDER BY s.submission",
                PROTOCOL,
            )
        }
        self._considered = {name: seen for name, seen in self._considered.items() if name in submissions}
        if not submissions:
            return lines
        # Changes whenever another choice could be made among the phones.
        sight = self._database.rows(
            "SELECT p.serial, p.host, p.facts_md5, p.labels, p.unusable, s.silent_s > %s AS is_silent" + _PHONES, GONE_S
        )
        for name, is_watched in submissions.items():
            try:
                with self._database.connection() as connection:
                    lost = _lost_phones(connection, name) if is_watched else []
                if self._considered.get(name) == (sight, lost):
                    continue
                added = self._add_to(name, is_watched=is_watched)
            except QueueHeldError:
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

    def _end_overdue(self) -> list[str]:
        """End the jobs whose window is over and whose phones have been away for long; return a line about each."""
        with self._database.connection() as connection:
            found = {job_id: rest for job_id, *rest in connection.execute(_OVERDUE.encode()).fetchall()}
        if not found:
            return []
        lines = []
        note = "its window was over while no host could use its phone"
        with self._database.brief() as connection:
            locked = connection.execute(
                "SELECT id FROM procrastinate_jobs WHERE id = ANY(%s) AND status = 'todo'"
                " ORDER BY id FOR UPDATE SKIP LOCKED",
                (list(found),),
            ).fetchall()
            for (job_id,) in locked:
                submission, serial = found[job_id]
                end_as_failed(connection, job_id, note)
                lines.append(f"{submission}: job {job_id} of {serial} failed: {note}")
        return lines

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
            replaced = {lost for *_, lost in additions} - {None}
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
            end_as_failed(connection, job_id, note, tries=1)
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
            "SELECT serial, facts, replaced_by FROM farm_jobs WHERE submission = %s", (submission.submission,)
        ).fetchall()
        with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            phones = cursor.execute(
                ("SELECT p.serial, p.host, p.facts, p.labels, p.unusable, s.silent_s" + _PHONES).encode()
            ).fetchall()
        kept = {serial: facts for serial, facts, replaced_by in jobs if not replaced_by}
        had = {serial for serial, *_ in jobs}
        found: list[_Addition] = []
        for lost in [*wanted, *([None] if joins else [])]:
            free = [row for row in phones if row["serial"] not in had and can_have_jobs(row["serial"])]
            others = {serial: facts for serial, facts in kept.items() if lost is None or serial != lost.serial}
            chosen = list(self._choose(submission, others, free).items()) if free else []
            for serial, facts in chosen if lost is None else chosen[:1]:
                found.append((serial, facts, lost))
                kept = {**others, **{serial: facts for serial, facts, _ in found}}
                had.add(serial)
        return found


def _lost_phones(connection: psycopg.Connection[Any], submission: str, *, lock: bool = False) -> list[Lost]:
    """Return the lost ones by job number. ``lock``: those whose jobs no other process has locked, locked now."""
    query = f"{_LOST} FOR UPDATE OF j SKIP LOCKED" if lock else _LOST
    return [Lost(*row) for row in connection.execute(query.encode(), (submission,)).fetchall()]


def _add(
    connection: psycopg.Connection[Any], submission: Submission, serial: str, facts: str, lost: Lost | None
) -> str:
    """Queue a phone's job, and end that of the one in whose place it is; return a line for people."""
    replaces = lost.serial if lost else ""
    number = enqueue(connection, submission, serial, facts, came_later=lost is None, replaces=replaces)
    if lost is None:
        return f"{submission.submission}: {serial} came and is measured too: job {number}"
    if lost.waits:
        end_as_failed(connection, lost.job_id, "no host could use it for too long")
    connection.execute("UPDATE farm_jobs SET replaced_by = %s WHERE job_id = %s", (serial, lost.job_id))
    return f"{submission.submission}: {serial} takes the place of {lost.serial}: job {number}"
