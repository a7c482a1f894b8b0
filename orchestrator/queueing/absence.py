"""Which phones of a submission are lost: given up after all their tries, or away for long while somebody looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

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
_LOST: Final = (
    "SELECT j.id, f.serial, j.status = 'todo' FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id"
    " WHERE f.submission = %s AND f.replaced_by = ''"
    " AND ((j.status = 'todo' AND f.away_since < now() - make_interval(secs => %s))"
    " OR (j.status = 'failed' AND f.is_lost)) ORDER BY j.id"
)

#: Jobs that wait although their window is over, for phones that nobody can use: else they would be taken at once. From
#: those that wait on: they are few among all that ended.
_OVERDUE: Final = (
    "WITH waiting AS MATERIALIZED (SELECT id, lock FROM procrastinate_jobs WHERE status = 'todo')"
    " SELECT f.job_id, f.submission, f.serial, coalesce(f.away_since < now() - make_interval(secs => %s), false)"
    " FROM waiting w JOIN farm_jobs f ON f.job_id = w.id JOIN farm_submissions s ON s.submission = f.submission"
    " WHERE s.until < now() AND NOT EXISTS (SELECT 1 FROM farm_phones p JOIN farm_hosts h ON h.name = p.host"
    " WHERE p.serial = f.serial AND p.unusable = '' AND h.seen_at > now() - make_interval(secs => %s))"
    " AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs o WHERE o.lock = w.lock AND o.status = 'doing')"
    " AND (f.away_since IS NULL OR f.away_since < now() - make_interval(secs => %s))"
)


@dataclass(frozen=True, slots=True)
class Lost:
    """A job for whose phone another one is wanted."""

    job_id: int
    serial: str
    #: Nobody could use the phone; else the job has failed.
    waits: bool


def lost_phones(connection: psycopg.Connection[Any], submission: str, *, lock: bool = False) -> list[Lost]:
    """Return the lost ones by job number. ``lock``: those whose jobs no other process has locked, locked now."""
    query = f"{_LOST} FOR UPDATE OF j SKIP LOCKED" if lock else _LOST
    return [Lost(*row) for row in connection.execute(query.encode(), (submission, GONE_S)).fetchall()]


def note_away(connection: psycopg.Connection[Any], submission: str) -> None:
    """Note since when no host can use a phone whose job waits; the submission's row is locked."""
    look = connection.execute(
        "SELECT looked_at IS NULL OR age > %s OR age < 0, age BETWEEN 0 AND %s"
        " FROM (SELECT looked_at, extract(epoch FROM now() - looked_at) AS age FROM farm_submissions"
        " WHERE submission = %s) s",
        (_UNSEEN_S, NOTED_S, submission),
    ).fetchone()
    assert look is not None, "its row is locked"
    is_again, is_noted = look
    connection.execute(
        "WITH seen AS (SELECT f.job_id, j.status = 'doing' OR EXISTS (SELECT 1 FROM farm_phones p"
        " JOIN farm_hosts h ON h.name = p.host WHERE p.serial = f.serial AND p.unusable = ''"
        " AND h.seen_at > now() - make_interval(secs => %s)) AS is_there"
        " FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id"
        " WHERE f.submission = %s AND j.status IN ('todo', 'doing')),"
        " changed AS (SELECT f.job_id, seen.is_there FROM farm_jobs f JOIN seen ON seen.job_id = f.job_id"
        " WHERE seen.is_there = (f.away_since IS NOT NULL) OR (%s AND NOT seen.is_there)"
        " ORDER BY f.job_id FOR UPDATE OF f)"
        " UPDATE farm_jobs f SET away_since = CASE WHEN changed.is_there THEN NULL ELSE now() END FROM changed"
        " WHERE changed.job_id = f.job_id",
        (_AWAY_S, submission, is_again),
    )
    if not is_noted:
        connection.execute("UPDATE farm_submissions SET looked_at = now() WHERE submission = %s", (submission,))


@dataclass(frozen=True, slots=True)
class Overdue:
    """A job that waits for a phone although its window is over."""

    job_id: int
    submission: str
    serial: str
    #: Its phone has been away for long; else somebody has to note that it is away.
    is_long: bool


def overdue(connection: psycopg.Connection[Any]) -> list[Overdue]:
    """Return the jobs that wait although their window is over, whose phones nobody can use."""
    return [Overdue(*row) for row in connection.execute(_OVERDUE.encode(), (GONE_S, _AWAY_S, GONE_S)).fetchall()]


def end_overdue(connection: psycopg.Connection[Any], found: Sequence[Overdue]) -> list[str]:
    """End those whose phones have been away for long; return a line about each for people.

    Once a window is over nobody notes who is away, so that is noted here: a farm that was down has time to come back.
    """
    locked = connection.execute(
        "SELECT id FROM procrastinate_jobs WHERE id = ANY(%s) AND status = 'todo' ORDER BY id FOR UPDATE SKIP LOCKED",
        ([item.job_id for item in found],),
    ).fetchall()
    lines = []
    for item in sorted((item for item in found if (item.job_id,) in locked), key=lambda item: item.job_id):
        if not item.is_long:
            connection.execute("UPDATE farm_jobs SET away_since = now() WHERE job_id = %s", (item.job_id,))
            continue
        note = "its window was over while no host could use its phone"
        connection.execute("SELECT procrastinate_finish_job_v1(%s, 'failed', false)", (item.job_id,))
        connection.execute("UPDATE farm_jobs SET note = %s WHERE job_id = %s", (note, item.job_id))
        lines.append(f"{item.submission}: job {item.job_id} of {item.serial} failed: {note}")
    return lines
