"""Numbers about the queue, asked for in the database: what waits, for how long, who is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.queueing.database import QueueDatabase, told
from orchestrator.queueing.overview import JOB_STATE, PHONE_STATE, PHONES


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNumbers:
    """The queue at one moment."""

    #: state, priority, jobs.
    jobs: list[dict[str, Any]]
    #: How long the job has been waiting, in seconds, that waits longest for a phone which is free; 0 for none.
    lag_s: float
    #: serial, host, unusable (a reason), state (queueing.overview).
    phones: list[dict[str, Any]]
    #: serial, seen_at: when a host that announces a phone was heard last, or until when one announced it.
    seen: list[dict[str, Any]]
    #: name, silent_s.
    hosts: list[dict[str, Any]]
    #: name, paused, next_at, missed (times since the last one that was submitted and the last pause; 0 while it is
    #: paused), submitted_at.
    schedules: list[dict[str, Any]]


@told
def read_numbers(database: QueueDatabase) -> QueueNumbers:
    """Return the numbers. Raises StoreError."""
    rows = database.rows
    lag = rows(
        f"WITH free AS (SELECT p.serial{PHONES} WHERE {PHONE_STATE} = 'free')"  # noqa: S608 - ours
        " SELECT coalesce(max(extract(epoch FROM now() - greatest(e.at, coalesce(j.scheduled_at, e.at)))), 0)"
        "::float AS lag_s FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
        " CROSS JOIN LATERAL (SELECT max(at) AS at FROM procrastinate_events WHERE job_id = j.id) e"
        " WHERE j.status = 'todo' AND coalesce(j.scheduled_at, now()) <= now()"
        " AND f.serial IN (SELECT serial FROM free)"
    )
    return QueueNumbers(
        jobs=rows(
            f"SELECT {JOB_STATE} AS state,"  # noqa: S608 - ours
            " j.priority, count(*) AS jobs FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
            " GROUP BY 1, 2 ORDER BY 1, 2"
        ),
        lag_s=lag[0]["lag_s"],
        phones=rows(f"SELECT p.serial, p.host, p.unusable, {PHONE_STATE} AS state{PHONES} ORDER BY p.serial, p.host"),
        seen=rows(
            "SELECT serial, max(seen_at) AS seen_at FROM (SELECT serial, seen_at FROM farm_sightings UNION ALL"
            " SELECT p.serial, h.seen_at FROM farm_phones p JOIN farm_hosts h ON h.name = p.host) s"
            " GROUP BY serial ORDER BY serial"
        ),
        hosts=rows("SELECT name, extract(epoch FROM now() - seen_at)::float AS silent_s FROM farm_hosts ORDER BY name"),
        schedules=rows(
            "SELECT s.name, s.paused, s.next_at, t.submitted_at, (SELECT count(*) FROM farm_ticks m"
            " WHERE NOT s.paused AND m.schedule = s.name AND m.outcome <> 'submitted'"
            " AND m.tick_at > greatest(t.submitted_at, s.went_on_at, '-infinity')"
            " AND m.tick_at < s.next_at) AS missed"
            " FROM farm_schedules s"
            " CROSS JOIN LATERAL (SELECT max(tick_at) AS submitted_at FROM farm_ticks"
            "  WHERE schedule = s.name AND outcome = 'submitted') t ORDER BY s.name"
        ),
    )
