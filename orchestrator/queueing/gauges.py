"""Numbers about the queue, asked for in the database: what waits, for how long, who is there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestrator.queueing.database import QueueDatabase, database_time, told
from orchestrator.queueing.overview import JOB_STATE


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNumbers:
    """The queue at one moment."""

    #: state, priority, jobs.
    jobs: list[dict[str, Any]]
    #: How long the job has been waiting, in seconds, that waits longest for a phone which is free; 0 for none.
    lag_s: float
    #: serial, host, unusable (a reason), is_busy, is_held, is_silent.
    phones: list[dict[str, Any]]
    #: name, silent_s.
    hosts: list[dict[str, Any]]
    #: name, paused, next_at, missed (times since the last one that was submitted), submitted_at.
    schedules: list[dict[str, Any]]


class Gauges:
    """What a farm's numbers are."""

    def __init__(self, database: QueueDatabase) -> None:
        self._database = database

    @told
    def now(self) -> datetime:
        """Return the database's time."""
        with self._database.connection() as connection:
            return database_time(connection)

    @told
    def read(self, *, silent_s: float) -> QueueNumbers:
        """Return the numbers; a host that wasn't heard for ``silent_s`` counts as silent."""
        rows = self._database.rows
        lag = rows(
            "SELECT coalesce(max(extract(epoch FROM now() - greatest(e.at, coalesce(j.scheduled_at, e.at)))), 0)::float"
            " AS lag_s FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
            " CROSS JOIN LATERAL (SELECT max(at) AS at FROM procrastinate_events WHERE job_id = j.id) e"
            " WHERE j.status = 'todo' AND coalesce(j.scheduled_at, now()) <= now()"
            " AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs o WHERE o.lock = j.lock AND o.status = 'doing')"
            " AND EXISTS (SELECT 1 FROM farm_phones p JOIN farm_hosts h ON h.name = p.host WHERE p.serial = f.serial"
            "  AND p.unusable = '' AND h.seen_at > now() - make_interval(secs => %s)"
            "  AND NOT EXISTS (SELECT 1 FROM farm_holds d"
            "   WHERE d.scope IN ('farm', 'host:' || h.name, 'phone:' || p.serial)))",
            silent_s,
        )
        return QueueNumbers(
            jobs=rows(
                f"SELECT {JOB_STATE} AS state,"  # noqa: S608 - ours
                " j.priority, count(*) AS jobs FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
                " GROUP BY 1, 2 ORDER BY 1, 2"
            ),
            lag_s=lag[0]["lag_s"],
            phones=rows(
                "SELECT p.serial, p.host, p.unusable, h.seen_at < now() - make_interval(secs => %s) AS is_silent,"
                " EXISTS (SELECT 1 FROM farm_holds d"
                "  WHERE d.scope IN ('farm', 'host:' || h.name, 'phone:' || p.serial)) AS is_held,"
                " EXISTS (SELECT 1 FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
                "  WHERE f.serial = p.serial AND j.status = 'doing') AS is_busy"
                " FROM farm_phones p JOIN farm_hosts h ON h.name = p.host ORDER BY p.serial, p.host",
                silent_s,
            ),
            hosts=rows(
                "SELECT name, extract(epoch FROM now() - seen_at)::float AS silent_s FROM farm_hosts ORDER BY name"
            ),
            schedules=rows(
                "SELECT s.name, s.paused, s.next_at, t.submitted_at, (SELECT count(*) FROM farm_ticks m"
                " WHERE m.schedule = s.name AND m.outcome <> 'submitted'"
                " AND m.tick_at > coalesce(t.submitted_at, '-infinity')) AS missed FROM farm_schedules s"
                " CROSS JOIN LATERAL (SELECT max(tick_at) AS submitted_at FROM farm_ticks"
                "  WHERE schedule = s.name AND outcome = 'submitted') t ORDER BY s.name"
            ),
        )
