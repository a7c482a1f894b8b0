"""The farm's tables: hosts, phones, jobs and pauses.

A job is a phone's part of a submission. Procrastinate's queue only distributes jobs: their state is
in these tables, and is changed only by the host that began the job last (``Delivery``). Any host
may query anything at any time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from orchestrator.errors import UsageError
from orchestrator.extensions.farm.schema import Database
from orchestrator.frozen import frozen
from orchestrator.records.case import CampaignId, Serial, campaign_id_of
from orchestrator.records.device import HOST_SERIAL

if TYPE_CHECKING:
    import psycopg

#: Seconds without a heartbeat after which a host isn't shown as alive.
HOST_SILENT_S: Final = 15.0
#: Seconds without a heartbeat after which a host's phones aren't selected.
GONE_S: Final = 900.0
#: A job during which this many hosts died isn't given to another one: it may be the cause.
DEATHS_MAX: Final = 10
#: Days for which a phone counts as away; after that it was probably removed on purpose.
_AWAY_DAYS: Final = 7
#: A submission's name is part of campaign ids, and those are part of file names.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
#: Procrastinate's own names are 128 characters at most.
_LONGEST_SERIAL: Final = 112
#: The reason why a phone with an unsuitable serial number can't have jobs.
NO_JOBS: Final = (
    f"no job can be given to its serial number: it is '{HOST_SERIAL}', longer than"
    f" {_LONGEST_SERIAL} characters, or unprintable"
)
#: Prefix of the reason of a phone that its host keeps in quarantine.
IN_QUARANTINE: Final = "in quarantine: "
#: The labels of a phone (p) from all hosts that announce it, a document each; a host that is gone
#: counts only for its own row.
_LABELS: Final = f"""ARRAY(SELECT o.labels FROM farm_phones o JOIN farm_hosts l ON l.name = o.host
    WHERE o.serial = p.serial AND o.gone_at IS NULL AND (o.host = p.host
    OR l.seen_at > now() - make_interval(secs => {GONE_S}))) AS labels"""
#: The announced phones, with their hosts, state and its reason.
_PHONES: Final = f"""
SELECT p.serial, p.host, p.facts, {_LABELS}, p.unusable, s.silent_s, x.state,
    CASE x.state WHEN 'clash' THEN c.reason WHEN 'unusable' THEN p.unusable
        WHEN 'quarantined' THEN substr(p.unusable, {len(IN_QUARANTINE) + 1})
        WHEN 'silent' THEN 'its host ' || h.name || ' is silent'
        WHEN 'paused' THEN 'paused: ' || d.paused ELSE '' END AS reason
FROM farm_phones p JOIN farm_hosts h ON h.name = p.host
    LEFT JOIN farm_clashes c ON c.serial = p.serial
    CROSS JOIN LATERAL (SELECT string_agg(scope, ', ' ORDER BY scope) AS paused FROM farm_pauses
        WHERE scope IN ('farm', 'host:' || h.name, 'phone:' || p.serial)) d
    CROSS JOIN LATERAL (SELECT extract(epoch FROM now() - h.seen_at)::float AS silent_s) s
    CROSS JOIN LATERAL (SELECT CASE WHEN c.serial IS NOT NULL THEN 'clash'
        WHEN s.silent_s > {HOST_SILENT_S} THEN 'silent'
        WHEN EXISTS (SELECT 1 FROM farm_jobs r WHERE r.serial = p.serial AND r.host = h.name
            AND r.status = 'runs') THEN 'measuring'
        WHEN starts_with(p.unusable, '{IN_QUARANTINE}') THEN 'quarantined'
        WHEN p.unusable <> '' THEN 'unusable' WHEN d.paused IS NOT NULL THEN 'paused'
        ELSE 'free' END AS state) x
WHERE p.gone_at IS NULL ORDER BY p.serial, p.host
"""
#: Whether a running job (f) has no live host.
_IS_LEFT: Final = f"""(f.status = 'runs' AND NOT EXISTS (SELECT 1 FROM farm_hosts h
    WHERE h.name = f.host AND h.is_working
    AND h.seen_at > now() - make_interval(secs => {HOST_SILENT_S})))"""
_JOBS: Final = f"""
SELECT f.job_id, f.submission, f.serial, s.plan_name, f.campaign_id, f.host, s.priority,
    f.tries, f.deaths, CASE WHEN x.is_left THEN 'waits' ELSE f.status END AS status,
    CASE WHEN x.is_left THEN 'its host ' || f.host || ' is silent' ELSE f.note END AS note,
    CASE WHEN f.status = 'waits' THEN f.again_at END AS again_at
FROM farm_jobs f JOIN farm_submissions s ON s.submission = f.submission
    CROSS JOIN LATERAL (SELECT {_IS_LEFT} AS is_left) x
"""
_OPEN: Final = "status IN ('waits', 'runs')"


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
class Owner:
    """A campaign's job."""

    submission: str
    serial: Serial
    #: Whether it waits or runs: only a worker resumes the campaign then.
    is_open: bool


@frozen
class Delivery:
    """A job that a host has begun."""

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
    #: The number of this delivery: only the last one may end the job.
    delivery: int


@frozen
class Ended:
    """The end of a delivery: ``done``, ``failed``, ``aborted``, ``again`` for another try, or
    ``later``.
    """

    status: str
    note: str
    #: ``later``: seconds until the next delivery, which doesn't count as a try.
    wait_s: float = 0.0


@frozen
class Announced:
    """A phone as its host announces it."""

    #: Its facts as a document, empty for an unusable one that was never probed.
    facts: str
    #: The reason why it can't be used, empty when it can.
    unusable: str = ""
    #: JSON: its pools and tags.
    labels: str = ""


class FarmQueue(Database):
    """The farm in a PostgreSQL database. A context manager; may be used by several threads."""

    # Hosts and their phones

    def heartbeat(self, host: str, *, benchfarm_version: str, note: str) -> None:
        """Store a host's heartbeat, with its fault (``note``, empty for none)."""
        self.rows(
            """
            INSERT INTO farm_hosts (name, benchfarm_version, note) VALUES (%s, %s, %s)
            ON CONFLICT (name) DO UPDATE SET seen_at = now(), is_working = true,
            note = excluded.note, benchfarm_version = excluded.benchfarm_version
            """,
            host,
            benchfarm_version,
            note,
        )

    def announce(self, host: str, phones: Mapping[str, Announced]) -> bool:
        """Announce a host's phones by serial number; return whether anything changed. Only changes
        are written.
        """
        with self.connection() as connection:
            gone = connection.execute(
                """
                UPDATE farm_phones SET gone_at = now()
                WHERE host = %s AND gone_at IS NULL AND NOT serial = ANY(%s)
                """,
                (host, list(phones)),
            ).rowcount
            changes = [
                connection.execute(
                    """
                    INSERT INTO farm_phones (host, serial, facts, unusable, labels)
                    VALUES (%s, %s, %s, %s, %s) ON CONFLICT (serial, host) DO UPDATE SET
                    facts = excluded.facts, unusable = excluded.unusable,
                    labels = excluded.labels, gone_at = NULL WHERE (farm_phones.facts,
                    farm_phones.unusable, farm_phones.labels, farm_phones.gone_at IS NULL)
                    IS DISTINCT FROM (excluded.facts, excluded.unusable, excluded.labels, true)
                    """,
                    (host, serial, phone.facts, phone.unusable, phone.labels),
                ).rowcount
                for serial, phone in sorted(phones.items())
            ]
        return bool(gone) or any(changes)

    def leave(self, host: str) -> None:
        """Remove a host whose worker ends from the list; its phones are away."""
        self.announce(host, {})
        self.rows("UPDATE farm_hosts SET is_working = false WHERE name = %s", host)

    def hosts(self) -> list[dict[str, Any]]:
        """Return the hosts: name, benchfarm_version, silent_s, state, note (its fault).

        The state is ``silent``, ``paused`` or ``alive``; hosts whose worker ended aren't listed.
        """
        return self.rows(
            """
            SELECT name, benchfarm_version, note, silent_s, CASE WHEN silent_s > %s THEN 'silent'
            WHEN 'host:' || name IN (SELECT scope FROM farm_pauses) THEN 'paused'
            ELSE 'alive' END AS state FROM farm_hosts
            CROSS JOIN LATERAL (SELECT extract(epoch FROM now() - seen_at)::float AS silent_s) s
            WHERE is_working ORDER BY name
            """,
            HOST_SILENT_S,
        )

    def phones(self) -> list[dict[str, Any]]:
        """Return the announced phones, a row per phone and host.

        Columns: serial, host, facts (a document), labels (of all its hosts, a document each),
        unusable (the reason), state (``clash``, ``silent``, ``measuring``, ``quarantined``,
        ``unusable``, ``paused``, ``free``), reason (of the state), silent_s (of the host).
        """
        return self.rows(_PHONES)

    def away(self) -> list[dict[str, Any]]:
        """Return the phones that a host announced within the last _AWAY_DAYS and none does now.

        Columns: serial, host (the last one), seen_at (end of the announcement), facts (the last
        ones), labels (of all those hosts).
        """
        return self.rows(
            """
            WITH gone AS
            (SELECT * FROM farm_phones WHERE gone_at > now() - make_interval(days => %s))
            SELECT DISTINCT ON (serial) serial, host, facts, gone_at AS seen_at,
            ARRAY(SELECT o.labels FROM gone o WHERE o.serial = p.serial) AS labels
            FROM gone p WHERE facts <> '' AND NOT EXISTS
            (SELECT 1 FROM farm_phones o WHERE o.serial = p.serial AND o.gone_at IS NULL)
            ORDER BY serial, gone_at DESC
            """,
            _AWAY_DAYS,
        )

    def busy_elsewhere(self, host: str) -> set[str]:
        """Return the phones that run a job of another host now."""
        rows = self.rows(
            f"SELECT serial FROM farm_jobs f WHERE status = 'runs' AND host <> %s AND NOT {_IS_LEFT}",
            host,
        )
        return {row["serial"] for row in rows}

    def take_releases(self, host: str) -> list[str]:
        """Return the phones of a host whose release from quarantine was requested, each once."""
        rows = self.rows(
            """
            UPDATE farm_phones SET release_asked = false WHERE host = %s AND release_asked
            RETURNING serial
            """,
            host,
        )
        return [row["serial"] for row in rows]

    def ask_release(self, serial: str) -> str:
        """Request a phone's release from the host that keeps it in quarantine; return the host's
        name, empty for none.
        """
        rows = self.rows(
            """
            UPDATE farm_phones SET release_asked = true WHERE serial = %s AND gone_at IS NULL
            AND starts_with(unusable, %s) RETURNING host
            """,
            serial,
            IN_QUARANTINE,
        )
        return str(rows[0]["host"]) if rows else ""

    # Serial numbers that several phones have

    def sightings(self, serials: Collection[str]) -> list[dict[str, Any]]:
        """Return the hosts' sightings of these serial numbers.

        Columns: serial, host, facts, labels (of all its hosts, a document each), is_live (announced
        now).
        """
        return self.rows(
            f"""
            SELECT serial, host, facts, {_LABELS}, gone_at IS NULL
            AND seen_at > now() - make_interval(secs => %s) AS is_live
            FROM farm_phones p JOIN farm_hosts ON name = host
            WHERE facts <> '' AND serial = ANY(%s) ORDER BY serial, host
            """,
            HOST_SILENT_S,
            list(serials),
        )

    def remember_clash(self, serial: str, reason: str) -> None:
        """Record that several phones have a serial number; the first reason stays."""
        self.rows(
            "INSERT INTO farm_clashes (serial, reason) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            serial,
            reason,
        )

    def clashes(self) -> dict[str, str]:
        """Return the serial numbers that several phones have, with the reason."""
        rows = self.rows("SELECT serial, reason FROM farm_clashes ORDER BY serial")
        return {row["serial"]: row["reason"] for row in rows}

    # Jobs

    def submit(self, submission: Submission, phones: Mapping[str, str]) -> list[int]:
        """Create a job per phone, all or none; return their numbers.

        ``phones``: serial number -> facts (a document). The contents that the plan needs must be in
        the farm already.

        Raises UsageError for an existing submission, an invalid name or serial number, and a file
        that was cleaned away.
        """
        name = submission.submission
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} can't name a submission", hint="letters, digits, . _ - only"
            )
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
                raise UsageError(f"{name}: this submission is in the queue already")
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
            AND EXISTS (SELECT 1 FROM farm_jobs f WHERE f.submission = s.submission AND f.{_OPEN})
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

    def open_jobs(self, serials: Collection[str]) -> list[dict[str, Any]]:
        """Return the open jobs of these phones: job_id, serial, priority, is_due."""
        return self.rows(
            f"""
            SELECT f.job_id, f.serial, s.priority, f.again_at <= now() AS is_due
            FROM farm_jobs f JOIN farm_submissions s ON s.submission = f.submission
            WHERE f.{_OPEN} AND f.serial = ANY(%s) ORDER BY f.job_id
            """,
            list(serials),
        )

    def cancelled(self, job_ids: Collection[int]) -> set[int]:
        """Return those of these jobs that are cancelled or to be cancelled."""
        query = "SELECT job_id FROM farm_jobs WHERE cancel_asked AND job_id = ANY(%s)"
        return {row["job_id"] for row in self.rows(query, list(job_ids))} if job_ids else set()

    def begin(self, job_id: int, host: str) -> Delivery | None:
        """Begin an open job, also one that another host began before.

        None for a job that has ended, isn't due or is paused.
        """
        rows = self.rows(
            f"""
            UPDATE farm_jobs f SET status = 'runs', host = %s, note = '', changed_at = now(),
            delivery = delivery + 1, deaths = deaths + (status = 'runs')::integer
            FROM farm_submissions s WHERE s.submission = f.submission
            AND job_id = %s AND {_OPEN} AND again_at <= now() AND NOT EXISTS
            (SELECT 1 FROM farm_pauses
            WHERE scope IN ('farm', 'host:' || %s, 'phone:' || f.serial))
            RETURNING f.job_id, f.serial, f.submission, f.campaign_id,
            s.document, f.facts, f.tries, f.deaths, f.delivery
            """,
            host,
            job_id,
            host,
        )
        return Delivery(**rows[0]) if rows else None

    def end(
        self,
        delivery: Delivery,
        status: str,
        note: str,
        *,
        is_try: bool = False,
        wait_s: float = 0.0,
    ) -> tuple[str, datetime] | None:
        """End a delivery (``done``, ``failed``, or ``waits``); return the job's new status and the
        time of its next try. A cancelled job that would wait is ``cancelled``.

        None, changing nothing, if another host has begun the job since. ``is_try``: whether it
        counts as a try on the phone.
        """
        rows = self.rows(
            """
            UPDATE farm_jobs SET status = CASE WHEN status = 'cancelled' OR cancel_asked
            AND %s = 'waits' THEN 'cancelled' ELSE %s END,
            note = %s, tries = tries + %s, changed_at = now(),
            again_at = now() + make_interval(secs => %s)
            WHERE job_id = %s AND delivery = %s AND status IN ('runs', 'cancelled')
            RETURNING status, again_at
            """,
            status,
            status,
            note,
            int(is_try),
            wait_s,
            delivery.job_id,
            delivery.delivery,
        )
        return (rows[0]["status"], rows[0]["again_at"]) if rows else None

    def jobs(self, submission: str = "") -> list[dict[str, Any]]:
        """Return the jobs of one submission; or all open ones and the newest 1,000. Newest last.

        ``tries`` is the number of failures on the phone, ``deaths`` of deaths of the job's hosts.
        ``again_at`` is the time of a waiting job's next try.
        """
        condition = f"f.{_OPEN} OR f.job_id > (SELECT max(job_id) - 1000 FROM farm_jobs)"
        condition = "f.submission = %s" if submission else condition
        return self.rows(
            f"{_JOBS} WHERE {condition} ORDER BY f.job_id", *([submission] if submission else [])
        )

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

    def owners(self, campaign_ids: Sequence[CampaignId]) -> dict[CampaignId, Owner]:
        """Return the jobs of these campaigns; campaigns without a job are left out."""
        rows = self.rows(
            f"""
            SELECT campaign_id, submission, serial, {_OPEN} AS is_open FROM farm_jobs
            WHERE campaign_id = ANY(%s)
            """,
            list(campaign_ids),
        )
        return {row.pop("campaign_id"): Owner(**row) for row in rows}

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
                WITH open AS (SELECT job_id, CASE WHEN {_IS_LEFT} THEN 'waits' ELSE status END
                AS state FROM farm_jobs f WHERE submission = %s AND {_OPEN}
                AND (%s::text[] IS NULL OR serial = ANY(%s)) ORDER BY job_id FOR UPDATE)
                UPDATE farm_jobs f SET cancel_asked = true, changed_at = now(), status =
                CASE open.state WHEN 'waits' THEN 'cancelled' ELSE f.status END
                FROM open WHERE open.job_id = f.job_id RETURNING f.job_id, open.state
                """,
                (submission, serials, serials),
            ).fetchall()
        return {number: str(status) for number, status in rows}

    # Pauses, and what is gone for good

    def pause(self, scope: str) -> None:
        """Pause ``farm``, ``host:NAME`` or ``phone:SERIAL``."""
        self.rows("INSERT INTO farm_pauses (scope) VALUES (%s) ON CONFLICT DO NOTHING", scope)

    def resume(self, scope: str) -> None:
        """End a pause, where there is one."""
        self.rows("DELETE FROM farm_pauses WHERE scope = %s", scope)

    def pauses(self) -> list[str]:
        """Return the paused scopes."""
        return [row["scope"] for row in self.rows("SELECT scope FROM farm_pauses ORDER BY scope")]

    def forget(self, scopes: Collection[str]) -> list[str]:
        """Remove hosts (``host:NAME``) that are gone, phones (``phone:SERIAL``) that are away, and
        clashes of phones, with their pauses: all or none.

        Return the scopes that prevent it: unknown ones, live hosts, and announced phones.
        """
        with self.connection() as connection:
            # Phones first: deleting a host deletes its phones.
            unknown = [
                scope
                for scope in sorted({*scopes}, reverse=True)
                if not _forget(connection, *scope.partition(":")[::2])
            ]
            connection.execute("DELETE FROM farm_pauses WHERE scope = ANY(%s)", (list(scopes),))
            if unknown:
                connection.rollback()
        return unknown


def _forget(connection: psycopg.Connection[Any], kind: str, name: str) -> bool:
    """Delete a host, or a phone with its clash; return whether anything was deleted."""
    if kind == "host":
        gone = connection.execute(
            """
            DELETE FROM farm_hosts WHERE name = %s
            AND NOT (is_working AND seen_at > now() - make_interval(secs => %s))
            """,
            (name, HOST_SILENT_S),
        ).rowcount
    else:
        gone = connection.execute("DELETE FROM farm_clashes WHERE serial = %s", (name,)).rowcount
        gone += connection.execute(
            "DELETE FROM farm_phones WHERE serial = %s AND gone_at IS NOT NULL", (name,)
        ).rowcount
    return bool(gone)


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
            FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY
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
