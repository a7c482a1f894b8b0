"""Schedules: plans that are submitted again and again. Each time is made by one of the workers, once or never.

Which times are due follows from the database's clock and the schedule alone, so neither a host's clock nor how many
workers there are matters. A time without a worker is reported as missed and not made up for: a night begun at noon
would take the phones from the day.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import psycopg
from croniter import croniter

from orchestrator.errors import BenchfarmError, UsageError
from orchestrator.queueing.database import QueueDatabase, database_time
from orchestrator.queueing.submissions import hold_files
from orchestrator.records.night import parse_timezone

#: Missed times that are listed, at most: the newest.
_LISTED: Final = 100
#: A schedule whose next time is further away has none.
_AHEAD: Final = timedelta(days=5 * 366)
_FIELDS: Final = 5
_ONE: Final = "SELECT * FROM farm_schedules WHERE name = %s"
_LOCKED: Final = f"{_ONE} FOR UPDATE"
#: How long it is known what became of a time.
_KEPT: Final = timedelta(days=400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """When a schedule is due: five fields as cron's, in a time zone."""

    text: str
    timezone: str

    def __post_init__(self) -> None:
        """Raise UsageError for what means no time."""
        try:
            parse_timezone(self.timezone)
        except ValueError as error:
            raise UsageError(f"--timezone: {error}") from error
        if not self.text.startswith("@") and len(self.text.split()) != _FIELDS:
            raise UsageError(f"--cron {self.text!r} doesn't have five fields", hint="minute hour day month weekday")
        if not croniter.is_valid(self.text):
            raise UsageError(f"--cron {self.text!r} can't be understood", hint='for example "0 1 * * *"')
        if self.after(datetime.now(UTC)) is None:
            raise UsageError(f"--cron {self.text!r} never comes")

    def after(self, moment: datetime) -> datetime | None:
        """Return the next time (UTC), None when there is none.

        An hour that a change of the clocks repeats is one time for a schedule that names hours, and two for one that
        doesn't; an hour that is left out is made up for right after it.
        """
        zone = ZoneInfo(self.timezone)
        names_hours = not self.text.startswith("@hourly") and "*" not in self.text.split()[1:2]
        try:
            times = croniter(self.text, moment.astimezone(zone))
            while True:
                found: datetime = times.get_next(datetime)
                if not (names_hours and found.fold) and found > moment:
                    break
        except ValueError:
            return None
        found = found.astimezone(UTC)
        return found if found - moment < _AHEAD else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A plan to be submitted again and again."""

    name: str
    cron: Cron
    #: The plan with the devices that it means, and all that it names (config/farm_documents.py).
    document: str
    plan_name: str
    #: The contents that it needs, by sha256.
    files: Sequence[str]
    priority: int
    #: A time that is seen so late isn't made any more.
    grace_s: float
    created_by: str = ""


#: Submits a schedule's plan under a name, for a time; returns a note for people. Raises BenchfarmError.
Submit = Callable[[Schedule, str, datetime], str]


@dataclass(frozen=True, slots=True)
class Line:
    """What became of a schedule, for people; ``level`` is for logs that programs read."""

    text: str
    level: str = "info"
    schedule: str = ""


class Schedules:
    """The schedules of a farm."""

    def __init__(self, database: QueueDatabase) -> None:
        self._database = database

    def put(self, schedule: Schedule, *, replace: bool) -> datetime:
        """Keep a schedule and return when it is first due; it is due from now on.

        Raises UsageError for one that is there, or when one of its files was taken away meanwhile.
        """
        with self._database.connection() as connection, connection.transaction():
            now = database_time(connection)
            first = schedule.cron.after(now)
            assert first is not None, "checked when it was read"
            if replace:
                connection.execute("DELETE FROM farm_schedules WHERE name = %s", (schedule.name,))
            made = connection.execute(
                "INSERT INTO farm_schedules (name, cron, timezone, document, plan_name, files, priority, grace_s,"
                " created_by, next_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (
                    schedule.name, schedule.cron.text, schedule.cron.timezone, schedule.document, schedule.plan_name,
                    list(schedule.files), schedule.priority, schedule.grace_s, schedule.created_by, first,
                ),
            )  # fmt: skip
            if not made.rowcount:
                raise UsageError(f"there is a schedule {schedule.name!r} already", hint="--replace puts this one there")
            hold_files(connection, schedule.files, again="add the schedule again")
        return first

    def remove(self, name: str) -> None:
        """Forget a schedule and its times; what it submitted stays. Raises UsageError when there is none."""
        with self._database.connection() as connection, connection.transaction():
            _known(connection, _LOCKED, name)
            connection.execute("DELETE FROM farm_ticks WHERE schedule = %s", (name,))
            connection.execute("DELETE FROM farm_schedules WHERE name = %s", (name,))

    def pause(self, name: str, *, paused: bool) -> None:
        """Let no time of a schedule be due, or let them be due again from now on; raises UsageError when there is none.

        Times that went wrong before a pause don't count any more after it.
        """
        with self._database.connection() as connection, connection.transaction():
            row = _known(connection, _LOCKED, name)
            # A rest needs no next time, and can be given by a host that doesn't know the schedule's zone.
            following = None if paused else _cron_of(row).after(database_time(connection))
            connection.execute(
                "UPDATE farm_schedules SET paused = %s, next_at = %s,"
                " went_on_at = CASE WHEN paused AND NOT %s THEN now() ELSE went_on_at END WHERE name = %s",
                (paused, following or row["next_at"], paused, name),
            )

    def one(self, name: str) -> Schedule:
        """Return a schedule; raises UsageError when there is none, or for one in a time zone that isn't known."""
        with self._database.connection() as connection:
            return _schedule_of(_known(connection, _ONE, name))

    def listed(self) -> list[dict[str, Any]]:
        """Return the schedules with their next and their last times (``ticks``, newest first), and document.

        A time that failed and is tried again isn't over, so it isn't among these. Of each also ``submitted_at`` (its
        last good time, or None), ``missed`` (times since then and since the last pause; 0 while it is paused), and
        ``went_wrong``: the last time did, and the schedule neither rests nor rested since.
        """
        rows = self._database.rows(
            "SELECT s.name, s.cron, s.timezone, s.document, s.plan_name, s.priority, s.grace_s, s.paused, s.created_by,"
            " s.created_at, s.next_at, s.went_on_at, t.submitted_at, (SELECT count(*) FROM farm_ticks m"
            " WHERE NOT s.paused AND m.schedule = s.name AND m.outcome <> 'submitted'"
            " AND m.tick_at > greatest(t.submitted_at, s.went_on_at, '-infinity')"
            " AND m.tick_at < s.next_at) AS missed FROM farm_schedules s"
            " CROSS JOIN LATERAL (SELECT max(tick_at) AS submitted_at FROM farm_ticks"
            " WHERE schedule = s.name AND outcome = 'submitted') t ORDER BY s.name"
        )
        for row in rows:
            row["ticks"] = self._database.rows(
                "SELECT tick_at, outcome, submission, host, note FROM farm_ticks WHERE schedule = %s"
                " AND (outcome = 'submitted' OR tick_at < %s) ORDER BY tick_at DESC LIMIT 10",
                row["name"],
                row["next_at"],
            )
            last = row["ticks"][0] if row["ticks"] else None
            row["went_wrong"] = bool(row["missed"]) and last is not None and last["outcome"] != "submitted"
        return rows

    def make_due(self, submit: Submit, *, host: str) -> list[Line]:
        """Submit what is due, and report what was missed; return a line about each for people.

        Every worker may ask at any time: a schedule is looked at by one of them, under a lock on its row. What
        ``submit`` does must be done once by its name, because a worker may die after it and before the end of this.
        One that this host can't read, in a time zone that it doesn't know, is left to others.
        """
        lines: list[Line] = []
        due = self._database.rows("SELECT name FROM farm_schedules WHERE NOT paused AND next_at <= now()")
        for name in [row["name"] for row in due]:
            with self._database.connection() as connection, connection.transaction():
                row = _row(connection, f"{_ONE} AND NOT paused FOR UPDATE SKIP LOCKED", name)
                if row is None:
                    continue
                try:
                    schedule = _schedule_of(row)
                except UsageError as error:
                    lines.append(Line(f"schedule {name} can't be read here: {error}", level="error", schedule=name))
                    continue
                # It comes in the connection's own time zone, and submissions are named by it.
                lines += _make(connection, schedule, row["next_at"].astimezone(UTC), submit, host)
        return lines


def _make(
    connection: psycopg.Connection[Any], schedule: Schedule, next_at: datetime, submit: Submit, host: str
) -> list[Line]:
    """Submit the newest time that is due, note those that are over, and set the next one; return lines."""
    now = database_time(connection)
    due: list[datetime] = []
    moment: datetime | None = next_at
    while moment is not None and moment <= now:
        due.append(moment)
        moment = schedule.cron.after(moment)
    if not due:
        return []
    # Times that were tried and couldn't be submitted, with the reason.
    tried: dict[datetime, str] = dict(
        connection.execute(
            "SELECT tick_at, note FROM farm_ticks WHERE schedule = %s AND tick_at >= %s AND outcome = 'failed'",
            (schedule.name, due[0]),
        ).fetchall()
    )

    def note(moment: datetime, outcome: str, text: str, submission: str = "") -> None:
        # What was submitted stays noted so, whatever a clock that is set back makes of it later.
        connection.execute(
            "INSERT INTO farm_ticks (schedule, tick_at, outcome, submission, host, note)"
            " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (schedule, tick_at) DO UPDATE SET"
            " outcome = excluded.outcome, submission = excluded.submission, host = excluded.host,"
            " note = excluded.note, told_at = now() WHERE farm_ticks.outcome <> 'submitted'",
            (schedule.name, moment, outcome, submission, host, text),
        )

    def line(text: str, level: str = "error") -> Line:
        return Line(text, level=level, schedule=schedule.name)

    def at(moment: datetime) -> str:
        return f"schedule {schedule.name}, {moment:%Y-%m-%d %H:%M} UTC"

    newest = due.pop()
    lines = [line(f"{at(moment)}: failed: {tried[moment]}") for moment in due if moment in tried]
    missed = [moment for moment in due if moment not in tried]
    if missed:
        lines.append(line(f"schedule {schedule.name}: {len(missed)} times were missed"))
    for moment in missed[-_LISTED:]:
        note(moment, "missed", "no worker looked until after the next one")
    late_s = (now - newest).total_seconds()
    submission = f"{schedule.name}-{newest:%Y%m%dT%H%MZ}"
    outcome, text = "missed", f"no worker looked until {late_s:.0f} s after it"
    if late_s <= schedule.grace_s:
        try:
            outcome, text = "submitted", submit(schedule, submission, newest)
        except BenchfarmError as error:
            outcome, text = "failed", str(error)
            if late_s < schedule.grace_s / 2:
                # Phones may be announced yet; should nobody come to try it again, this is the reason.
                note(newest, outcome, text)
                return [*lines, line(f"schedule {schedule.name}: {text}; tried again", "warning")]
    elif newest in tried:
        outcome, text = "failed", tried[newest]
    note(newest, outcome, text, submission if outcome == "submitted" else "")
    connection.execute("DELETE FROM farm_ticks WHERE schedule = %s AND tick_at < %s", (schedule.name, newest - _KEPT))
    following = schedule.cron.after(max(now, newest))
    connection.execute(
        "UPDATE farm_schedules SET next_at = %s, paused = %s WHERE name = %s",
        (following or now + _AHEAD, not following, schedule.name),
    )
    return [*lines, line(f"{at(newest)}: {outcome}: {text}", "info" if outcome == "submitted" else "error")]


def _known(connection: psycopg.Connection[Any], query: str, name: str) -> dict[str, Any]:
    """Return a schedule's row; raises UsageError when there is none."""
    row = _row(connection, query, name)
    if row is None:
        raise UsageError(f"there is no schedule {name!r}", hint="'benchfarm farm schedule list' lists them")
    return row


def _row(connection: psycopg.Connection[Any], query: str, name: str) -> dict[str, Any] | None:
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        return cursor.execute(query.encode(), (name,)).fetchone()


def _cron_of(row: dict[str, Any]) -> Cron:
    return Cron(text=row["cron"], timezone=row["timezone"])


def _schedule_of(row: dict[str, Any]) -> Schedule:
    names = ("name", "document", "plan_name", "files", "priority", "grace_s", "created_by")
    return Schedule(cron=_cron_of(row), **{name: row[name] for name in names})
