"""Phones that are announced after a submission, and spare ones for lost phones: each gets its job once.

Every worker looks and chooses for itself, which takes time, with nothing locked. A change is made by one of them, in a
brief transaction with the submission's row locked, and only when what was chosen from is still so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from orchestrator.errors import BenchfarmError, StoreError
from orchestrator.queueing.absence import GONE_S, NOTED_S, Lost, end_overdue, lost_phones, note_away, overdue
from orchestrator.queueing.database import QueueDatabase, told
from orchestrator.queueing.messages import PhoneJob
from orchestrator.queueing.submissions import Submission, enqueue, lock_open, opening, read

_PHONES: Final = (
    " FROM farm_phones p JOIN farm_hosts h ON h.name = p.host"
    " CROSS JOIN LATERAL (SELECT extract(epoch FROM now() - h.seen_at)::float AS silent_s) s ORDER BY p.serial, p.host"
)
#: Changes whenever another choice could be made among the phones.
_SIGHT: Final = "SELECT p.serial, p.host, p.facts_md5, p.labels, p.unusable, s.silent_s > %s AS is_silent" + _PHONES
#: By what is chosen, of the jobs that are there: each change of them is made under the submission's lock.
_JOBS: Final = "SELECT serial, facts, stood_in_by FROM farm_jobs WHERE submission = %s ORDER BY job_id"
#: So often a choice is made again because phones or jobs changed meanwhile.
_CHOICES: Final = 3


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


@dataclass(frozen=True, slots=True)
class _Addition:
    added: Added
    #: In whose place it is; None: beside the others.
    instead_of: Lost | None = None


class _Choice:
    """What is chosen for a submission, made on one state of its jobs and of the announced phones."""

    def __init__(self, database: QueueDatabase, choose: Choose, submission: Submission) -> None:
        self.submission = submission
        self._choose = choose
        with database.connection() as connection, connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            self._sight = _sight(connection)
            self._jobs = cursor.execute(_JOBS.encode(), (submission.name,)).fetchall()
            self._phones = cursor.execute(
                ("SELECT p.serial, p.host, p.facts, p.labels, p.unusable, s.silent_s" + _PHONES).encode()
            ).fetchall()
        self._kept = {row["serial"]: row["facts"] for row in self._jobs if not row["stood_in_by"]}
        self._had = {row["serial"] for row in self._jobs}
        self.additions: list[_Addition] = []

    def replace_lost(self, lost: Lost) -> None:
        """Choose a spare phone for a lost one, if one fits."""
        kept = {serial: facts for serial, facts in self._kept.items() if serial != lost.serial}
        for added in self._chosen(kept)[:1]:
            self._kept.pop(lost.serial, None)
            self._take(_Addition(added, lost))

    def join(self) -> None:
        """Choose the phones that come beside the others."""
        for added in self._chosen(self._kept):
            self._take(_Addition(added))

    def _chosen(self, kept: Mapping[str, str]) -> Sequence[Added]:
        free = [row for row in self._phones if row["serial"] not in self._had]
        return self._choose(self.submission, kept, free) if free else ()

    def _take(self, addition: _Addition) -> None:
        self.additions.append(addition)
        serial = str(addition.added.job.serial)
        self._kept[serial] = addition.added.facts
        self._had.add(serial)

    def still_holds(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether the jobs, and the phones that were chosen, are as they were; the submission's row is locked."""
        chosen = {str(addition.added.job.serial) for addition in self.additions}
        with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            jobs = cursor.execute(_JOBS.encode(), (self.submission.name,)).fetchall()
        return jobs == self._jobs and _of(_sight(connection), chosen) == _of(self._sight, chosen)


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
        with self._database.connection() as connection:
            sight = _sight(connection)
        for name, row in submissions.items():
            try:
                lost = self._lost(name, is_noted=row["is_noted"]) if row["is_watched"] else []
                if lost is not None and self._considered.get(name) != (sight, lost):
                    lines += self._choose_for(name, sight, lost)
            except psycopg.errors.LockNotAvailable:
                # Whoever has it is at work on it; the next look comes soon.
                continue
            except BenchfarmError as error:
                # One submission that can't be read here mustn't hide the others.
                lines.append(f"{name}: no phone can be added: {error}")
        return lines

    def _end_overdue(self) -> list[str]:
        with self._database.connection() as connection:
            found = overdue(connection)
        if not found:
            return []
        with self._database.brief() as connection:
            return end_overdue(connection, found)

    def _lost(self, name: str, *, is_noted: bool) -> list[Lost] | None:
        """Return whose places are to be filled; None while another process is at work on it.

        ``is_noted``: somebody noted just now who is away. Only that some of them are back isn't known then.
        """
        if is_noted:
            with self._database.connection() as connection:
                if not lost_phones(connection, name):
                    return []
        with self._database.brief() as connection:
            if not lock_open(connection, name, skip=True):
                return None
            note_away(connection, name)
            return lost_phones(connection, name)

    def _choose_for(self, name: str, sight: object, lost: list[Lost]) -> list[str]:
        with self._database.connection() as connection:
            submission = read(connection, name)
        if submission is None:
            return []
        choice = _Choice(self._database, self._choose, submission)
        for item in lost:
            choice.replace_lost(item)
        if submission.joins:
            choice.join()
        lines = self._add_all(choice)
        if lines is None:
            return []
        self._considered[name] = (sight, lost)
        return lines

    def _add_all(self, choice: _Choice) -> list[str] | None:
        """Add what was chosen, all of it; None when something changed meanwhile or is at work: another look shows."""
        if not choice.additions:
            return []
        name = choice.submission.name
        with self._database.brief() as connection:
            if not lock_open(connection, name, skip=True) or not choice.still_holds(connection):
                return None
            replaced = {addition.instead_of for addition in choice.additions} - {None}
            if replaced and not replaced <= set(lost_phones(connection, name, lock=True)):
                return None
            # Kept from ending meanwhile: nothing is added to a submission whose every job has ended.
            held = connection.execute(
                "SELECT j.id FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
                " WHERE f.submission = %s AND j.status IN ('todo', 'doing') LIMIT 1 FOR SHARE OF j SKIP LOCKED",
                (name,),
            ).fetchone()
            if held is None:
                return None
            return [self._add(connection, choice.submission, addition) for addition in choice.additions]

    @told
    def give_up(self, worker_id: int, job_id: int, note: str) -> tuple[bool, str]:
        """End a job whose phone can't be got; a spare phone takes its place when the plan wants that and one fits.

        Returns whether the worker held it (else nothing is changed), and a line for people, empty without a spare.
        Raises StoreError, nothing changed, when others have what is needed for it; to be asked again later.
        """
        known = self._database.rows("SELECT submission, serial FROM farm_jobs WHERE job_id = %s", job_id)
        if not known:
            return False, ""
        lost = Lost(job_id, known[0]["serial"], waits=False)
        for _ in range(_CHOICES):
            choice, trouble = self._instead_of(known[0]["submission"], lost)
            ended = self._end(worker_id, lost, note, choice, trouble)
            if ended is not None:
                return ended
        raise StoreError(f"job {job_id}: phones come and go while a spare one is chosen for {lost.serial}")

    def _instead_of(self, name: str, lost: Lost) -> tuple[_Choice | None, str]:
        """Choose a spare phone, None where none is ever chosen; and say why it can't be."""
        with self._database.connection() as connection:
            submission = read(connection, name)
        if submission is None or not submission.replaces_lost:
            return None, ""
        choice = _Choice(self._database, self._choose, submission)
        try:
            choice.replace_lost(lost)
        except BenchfarmError as error:
            return choice, f"{name}: no phone takes the place of {lost.serial}: {error}"
        return choice, ""

    def _end(self, worker_id: int, lost: Lost, note: str, choice: _Choice | None, line: str) -> tuple[bool, str] | None:
        """End a job, with the spare phone's queued; None, nothing done, when another choice is to be made."""
        job_id = lost.job_id
        with self._database.brief() as connection:
            is_open = choice is not None and lock_open(connection, choice.submission.name)
            held = connection.execute(
                "SELECT abort_requested FROM procrastinate_jobs WHERE id = %s AND worker_id = %s AND status = 'doing'"
                " FOR UPDATE",
                (job_id, worker_id),
            ).fetchone()
            if held is None:
                return False, ""
            if choice is not None and is_open and not held[0]:
                if not choice.still_holds(connection):
                    return None
                connection.execute("UPDATE farm_jobs SET is_lost = true WHERE job_id = %s", (job_id,))
                for addition in choice.additions:
                    line = self._add(connection, choice.submission, addition)
            else:
                line = ""
            connection.execute("SELECT procrastinate_finish_job_v1(%s, 'failed', false)", (job_id,))
            connection.execute("UPDATE farm_jobs SET note = %s, tries = tries + 1 WHERE job_id = %s", (note, job_id))
        return True, line

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

    def _add(self, connection: psycopg.Connection[Any], submission: Submission, addition: _Addition) -> str:
        """Queue a phone's job, and end that of the one in whose place it is; return a line for people."""
        added, lost = addition.added, addition.instead_of
        number = enqueue(
            connection,
            added.job,
            plan_name=submission.plan_name,
            priority=submission.priority,
            files=added.files,
            opens_at=opening(connection, submission),
        )
        connection.execute(
            "UPDATE farm_jobs SET facts = %s, came_later = %s, stands_in_for = %s WHERE job_id = %s",
            (added.facts, lost is None, lost.serial if lost else "", number),
        )
        if lost is None:
            return f"{submission.name}: {added.job.serial} came and is measured too: job {number}"
        if lost.waits:
            connection.execute("SELECT procrastinate_finish_job_v1(%s, 'failed', false)", (lost.job_id,))
            connection.execute(
                "UPDATE farm_jobs SET note = 'no host could use it for too long' WHERE job_id = %s", (lost.job_id,)
            )
        connection.execute("UPDATE farm_jobs SET stood_in_by = %s WHERE job_id = %s", (added.job.serial, lost.job_id))
        return f"{submission.name}: {added.job.serial} takes the place of {lost.serial}: job {number}"


def _sight(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return connection.execute(_SIGHT.encode(), (GONE_S,)).fetchall()


def _of(sight: Sequence[tuple[Any, ...]], serials: Set[str]) -> list[tuple[Any, ...]]:
    return [row for row in sight if row[0] in serials]
