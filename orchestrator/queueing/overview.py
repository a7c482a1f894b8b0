"""Looking at the farm and steering it: its hosts, phones and jobs, what is paused or drained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from orchestrator.errors import UsageError
from orchestrator.queueing.database import QueueDatabase
from orchestrator.queueing.newcomers import HOST_SILENT_S
from orchestrator.queueing.submissions import IN_QUARANTINE
from orchestrator.records.identity import CampaignId, Serial
from orchestrator.units import format_duration

#: What has become of a job (``j``, ``f`` what the farm keeps of it), as people are told.
JOB_STATE: Final = (
    "CASE j.status WHEN 'todo' THEN 'waits' WHEN 'doing' THEN 'runs' WHEN 'succeeded' THEN 'done'"
    " WHEN 'aborted' THEN 'cancelled' WHEN 'failed' THEN CASE WHEN j.abort_requested THEN 'cancelled'"
    " WHEN f.replaced_by <> '' THEN 'replaced' ELSE 'failed' END ELSE j.status::text END"
)
#: The phones announced (``p``), their hosts (``h``), the job that each of them does (``r``), what holds it (``d``).
PHONES: Final = (
    " FROM farm_phones p JOIN farm_hosts h ON h.name = p.host LEFT JOIN (SELECT f.serial, j.id AS job"
    " FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id WHERE j.status = 'doing') r ON r.serial = p.serial"
    " CROSS JOIN LATERAL (SELECT string_agg(scope || ': ' || kind, '; ' ORDER BY scope) AS held FROM farm_holds"
    " WHERE scope IN ('farm', 'host:' || h.name, 'phone:' || p.serial)) d"
)
#: What becomes of a phone among PHONES, and why: only a free one gets a job.
PHONE_STATE: Final = (
    "CASE WHEN r.job IS NOT NULL THEN 'busy' WHEN p.unusable <> '' THEN 'unusable'"
    f" WHEN h.seen_at < now() - make_interval(secs => {HOST_SILENT_S}) THEN 'silent'"
    " WHEN d.held IS NOT NULL THEN 'held' ELSE 'free' END"
)
_PHONE_REASON: Final = (
    f"CASE {PHONE_STATE} WHEN 'unusable' THEN p.unusable WHEN 'silent' THEN 'its host ' || h.name || ' is silent'"
    " WHEN 'held' THEN d.held ELSE '' END"
)
_JOBS: Final = (
    "SELECT f.job_id, f.submission, f.serial, s.plan_name, f.campaign_id, f.host, f.note, j.priority,"  # noqa: S608 - ours
    " f.tries, f.deaths, f.came_later, f.replaces, f.replaced_by, " + JOB_STATE + " AS status,"
    " CASE WHEN j.status = 'todo'"
    " THEN greatest(0, extract(epoch FROM j.scheduled_at - now())::float) END AS waits_s"
    " FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id"
    " JOIN farm_submissions s ON s.submission = f.submission"
)
#: Of those that are over the newest 1,000: a farm has hundreds of thousands of them.
_OPEN_AND_NEWEST: Final = (
    "f.job_id IN (SELECT id FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
    " UNION SELECT job_id FROM farm_jobs WHERE job_id > (SELECT max(job_id) - 1000 FROM farm_jobs))"
)


#: What was seen longer ago was taken away on purpose, as likely as not.
_AWAY_DAYS: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A campaign's job."""

    submission: str
    serial: Serial
    #: It waits or runs: a worker resumes the campaign, and nobody else.
    is_open: bool


class Overview(QueueDatabase):
    """What people see of the queue, and the holds that they put on parts of it."""

    def hold(self, scope: str, kind: str) -> None:
        """Pause or drain ``farm``, ``host:NAME`` or ``phone:SERIAL``."""
        self.rows(
            "INSERT INTO farm_holds (scope, kind) VALUES (%s, %s)"
            " ON CONFLICT (scope) DO UPDATE SET kind = excluded.kind, since = now()",
            scope,
            kind,
        )

    def release(self, scope: str) -> bool:
        """End a pause or drain; False when there was none."""
        return bool(self.rows("DELETE FROM farm_holds WHERE scope = %s RETURNING scope", scope))

    def holds(self) -> dict[str, str]:
        """Return what is paused or drained."""
        return {row["scope"]: row["kind"] for row in self.rows("SELECT scope, kind FROM farm_holds")}

    def ask_release(self, serial: str) -> str:
        """Have the host release a phone that keeps it in quarantine; return its name, empty when none does."""
        rows = self.rows(
            "UPDATE farm_phones SET release_asked = true WHERE serial = %s AND starts_with(unusable, %s)"
            " RETURNING host",
            serial,
            IN_QUARANTINE,
        )
        return str(rows[0]["host"]) if rows else ""

    def take_releases(self, host: str) -> list[str]:
        """Return the phones of a host that somebody wants to be released from quarantine, each once."""
        rows = self.rows(
            "UPDATE farm_phones SET release_asked = false WHERE host = %s AND release_asked RETURNING serial", host
        )
        return [row["serial"] for row in rows]

    def hosts(self) -> list[dict[str, Any]]:
        """Return the hosts: name, benchfarm_version, silent_s, state (``silent``, ``pause``, ``drain``, ``alive``).

        Of each also ``note``: what it says is wrong with it, empty for nothing.
        """
        return self.rows(
            "SELECT name, benchfarm_version, note, silent_s, CASE WHEN silent_s > %s THEN 'silent' ELSE coalesce("
            "(SELECT kind FROM farm_holds WHERE scope = 'host:' || name), 'alive') END AS state FROM farm_hosts"
            " CROSS JOIN LATERAL (SELECT extract(epoch FROM now() - seen_at)::float AS silent_s) s ORDER BY name",
            HOST_SILENT_S,
        )

    def phones(self) -> list[dict[str, Any]]:
        """Return the phones announced, one row for each host that has it.

        Of each: serial, host, facts (a document), labels (JSON: its pools and tags), unusable (why), state (``busy``,
        ``unusable``, ``silent``, ``held``, ``free``), reason (of the state), job (that it does, or None), and of the
        host: silent_s.
        """
        return self.rows(
            "SELECT p.serial, p.host, p.facts, p.labels, p.unusable, r.job,"  # noqa: S608 - ours
            f" {PHONE_STATE} AS state, {_PHONE_REASON} AS reason,"
            f" extract(epoch FROM now() - h.seen_at)::float AS silent_s{PHONES}"
            " ORDER BY p.serial, p.host"
        )

    def away(self) -> list[dict[str, Any]]:
        """Return the phones that a host announced within the last days and none does now: serial, host (the last one).

        Of each also seen_at (until when it was announced), and facts and labels as they were then.
        """
        return self.rows(
            "SELECT s.serial, s.host, s.facts, s.labels, s.seen_at FROM farm_sightings s"
            " WHERE s.seen_at > now() - make_interval(days => %s)"
            " AND NOT EXISTS (SELECT 1 FROM farm_phones p WHERE p.serial = s.serial) ORDER BY s.serial",
            _AWAY_DAYS,
        )

    def jobs(self, submission: str = "") -> list[dict[str, Any]]:
        """Return the jobs of one submission; or all that are open, and the newest of the others. The newest last.

        ``tries`` failed on the phone, ``deaths`` is how often the job's host died. ``waits_s`` is how long it waits yet
        before it may be tried again. ``came_later``: its phone was announced after the submission. A job of status
        ``replaced`` failed on a phone for which another one stands in (``replaced_by``, there ``replaces``).
        """
        which = "f.submission = %s" if submission else _OPEN_AND_NEWEST
        return self.rows(f"{_JOBS} WHERE {which} ORDER BY f.job_id", *([submission] if submission else []))

    def owners(self, campaign_ids: Sequence[CampaignId]) -> dict[CampaignId, Owner]:
        """Return the jobs that some campaigns belong to; campaigns of no job aside."""
        rows = self.rows(
            "SELECT f.campaign_id, f.submission, f.serial, j.status IN ('todo', 'doing') AS is_open"
            " FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id WHERE f.campaign_id = ANY(%s)",
            list(campaign_ids),
        )
        return {row.pop("campaign_id"): Owner(**row) for row in rows}

    def job_counts(self) -> list[dict[str, Any]]:
        """Return how many jobs there are of each state and priority: state, priority, jobs."""
        return self.rows(
            f"SELECT {JOB_STATE} AS state,"  # noqa: S608 - ours
            " j.priority, count(*) AS jobs FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
            " GROUP BY 1, 2 ORDER BY 1, 2"
        )

    def lag_s(self) -> float:
        """Return for how long the job waits that waits longest for a phone which is free; 0 for none."""
        (row,) = self.rows(
            f"WITH free AS (SELECT p.serial{PHONES} WHERE {PHONE_STATE} = 'free')"  # noqa: S608 - ours
            " SELECT coalesce(max(extract(epoch FROM now() - greatest(e.at, coalesce(j.scheduled_at, e.at)))), 0)"
            "::float AS lag_s FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
            " CROSS JOIN LATERAL (SELECT max(at) AS at FROM procrastinate_events WHERE job_id = j.id) e"
            " WHERE j.status = 'todo' AND coalesce(j.scheduled_at, now()) <= now()"
            " AND f.serial IN (SELECT serial FROM free)"
        )
        return float(row["lag_s"])

    def seen(self) -> list[dict[str, Any]]:
        """Return when a host that announces a phone was heard last, or until when one announced it: serial, seen_at."""
        return self.rows(
            "SELECT serial, max(seen_at) AS seen_at FROM (SELECT serial, seen_at FROM farm_sightings UNION ALL"
            " SELECT p.serial, h.seen_at FROM farm_phones p JOIN farm_hosts h ON h.name = p.host) s"
            " GROUP BY serial ORDER BY serial"
        )

    def failures(self, *, within_s: float) -> list[dict[str, Any]]:
        """Return what failed so lately of each plan's newest submission.

        Of each submission: submission, jobs (how many), serial and note of the last of them.
        """
        return self.rows(
            "WITH newest AS (SELECT DISTINCT ON (plan_name) submission FROM"  # noqa: S608 - ours
            " (SELECT plan_name, submission, min(job_id) AS begin FROM farm_jobs JOIN farm_submissions"
            " USING (submission) GROUP BY plan_name, submission) s"
            " ORDER BY plan_name, begin DESC)"
            " SELECT f.submission, count(*) AS jobs, (array_agg(f.serial ORDER BY f.job_id DESC))[1] AS serial,"
            " (array_agg(f.note ORDER BY f.job_id DESC))[1] AS note"
            " FROM newest JOIN farm_jobs f ON f.submission = newest.submission"
            f" JOIN procrastinate_jobs j ON j.id = f.job_id WHERE {JOB_STATE} = 'failed'"
            " AND (SELECT max(at) FROM procrastinate_events WHERE job_id = j.id) > now() - make_interval(secs => %s)"
            " GROUP BY f.submission ORDER BY min(f.job_id)",
            within_s,
        )

    def forget(self, scope: str) -> None:
        """Take a host that is gone out of the farm (its jobs wait for others), or a phone that is away, with its hold.

        ``scope``: ``host:NAME`` or ``phone:SERIAL``. Raises UsageError for one that isn't there, a host that was heard
        lately, and a phone that a host announces.
        """
        kind, _, name = scope.partition(":")
        missing = UsageError(f"there is no {kind} {name!r}", hint="'benchfarm farm status' lists them")
        with self.brief() as connection:
            if kind == "host":
                found = connection.execute(
                    "SELECT worker_id, seen_at > now() - make_interval(secs => %s) FROM farm_hosts WHERE name = %s",
                    (HOST_SILENT_S, name),
                ).fetchone()
                if found is None:
                    raise missing
                worker_id, is_heard = found
                if not is_heard:
                    forget_worker(connection, worker_id)
                    # Asked again: it may have been heard while its jobs were waited for.
                    is_heard = not connection.execute(
                        "DELETE FROM farm_hosts WHERE name = %s AND worker_id = %s"
                        " AND seen_at <= now() - make_interval(secs => %s)",
                        (name, worker_id, HOST_SILENT_S),
                    ).rowcount
                if is_heard:
                    raise UsageError(
                        f"host {name} was heard within the last {format_duration(HOST_SILENT_S)}",
                        hint=f"end its worker first: 'benchfarm farm drain host:{name}'",
                    )
                # Its phones aren't missed: they went with it.
                connection.execute("DELETE FROM farm_sightings WHERE host = %s", (name,))
            else:
                found = connection.execute("SELECT host FROM farm_phones WHERE serial = %s", (name,)).fetchone()
                if found is not None:
                    hint = "unplug it, or 'benchfarm farm pause' it"
                    raise UsageError(f"phone {name} is announced by {found[0]}", hint=hint)
                if not connection.execute("DELETE FROM farm_sightings WHERE serial = %s", (name,)).rowcount:
                    raise missing
            connection.execute("DELETE FROM farm_holds WHERE scope = %s", (scope,))

    def cancel(self, submission: str, serials: list[str] | None = None) -> dict[int, str]:
        """Cancel what waits of a submission, ask for the end of what runs; return job number -> what it was.

        That is ``todo``, ``doing``, or ``failed`` for a phone that was abandoned: none stands in for it any more.
        ``serials`` narrows it to some phones; without, no phone that comes later is added to it any more.
        """
        with self.brief() as connection:
            connection.execute(
                "UPDATE farm_submissions SET cancelled = cancelled OR %s WHERE submission = %s",
                (serials is None, submission),
            )
            jobs = connection.execute(
                "SELECT j.id, j.status::text FROM procrastinate_jobs j JOIN farm_jobs f ON f.job_id = j.id"
                " WHERE f.submission = %s AND j.status IN ('todo', 'doing')"
                " AND (%s::text[] IS NULL OR f.serial = ANY(%s)) ORDER BY j.id FOR UPDATE OF j",
                (submission, serials, serials),
            ).fetchall()
            for number, _ in jobs:
                connection.execute("SELECT procrastinate_cancel_job_v1(%s, true, false)", (number,))
            abandoned = connection.execute(
                "UPDATE farm_jobs SET is_lost = false WHERE submission = %s AND is_lost AND replaced_by = ''"
                " AND (%s::text[] IS NULL OR serial = ANY(%s)) RETURNING job_id, 'failed'",
                (submission, serials, serials),
            ).fetchall()
        return dict([*jobs, *abandoned])


def forget_worker(connection: psycopg.Connection[Any], worker_id: int) -> None:
    """Take a worker away; others requeue its jobs.

    They lose its number by that, so they are locked in the order of all others.
    """
    connection.execute("SELECT 1 FROM procrastinate_jobs WHERE worker_id = %s ORDER BY id FOR UPDATE", (worker_id,))
    connection.execute("DELETE FROM procrastinate_workers WHERE id = %s", (worker_id,))
