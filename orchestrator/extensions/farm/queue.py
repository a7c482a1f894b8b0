"""The farm as its tables have it: hosts, phones, jobs and pauses.

A job is a phone's part of a submission. Procrastinate's queue only distributes jobs: what has
become of one stands here, and is changed only by whoever began it last (``Delivery``). Any host may
ask anything at any time.
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

#: A host that wasn't heard for so long isn't given as alive.
HOST_SILENT_S: Final = 15.0
#: Phones of a host that is silent for so long aren't chosen.
GONE_S: Final = 900.0
#: A job at which this many hosts died isn't given to another one: it may well be what kills them.
DEATHS_MAX: Final = 10
#: What was seen longer ago was taken away on purpose, as likely as not.
_AWAY_DAYS: Final = 7
#: A submission's name is part of campaign ids, and those are part of file names.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
#: Procrastinate's own names are 128 characters at most.
_LONGEST_SERIAL: Final = 112
#: Why a phone can't have jobs whose serial number no job can be given.
NO_JOBS: Final = (
    f"no job can be given to its serial number: it is '{HOST_SERIAL}', longer than"
    f" {_LONGEST_SERIAL} characters, or unprintable"
)
#: How the reason begins for which a phone can't be used that its host keeps in quarantine.
IN_QUARANTINE: Final = "in quarantine: "
#: What the hosts that announce a phone (p) say of its pools and tags, a document each; those that
#: are gone only of their own.
_LABELS: Final = f"""ARRAY(SELECT o.labels FROM farm_phones o JOIN farm_hosts l ON l.name = o.host
    WHERE o.serial = p.serial AND o.gone_at IS NULL AND (o.host = p.host
    OR l.seen_at > now() - make_interval(secs => {GONE_S}))) AS labels"""
#: The phones that are announced, with their hosts, their job, what pauses them and whether several
#: have the number.
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
#: Whether a job (f) is none's that lives.
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
    #: The plan with the devices that it means, and all that it names (manifest.py).
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
    #: It waits or runs: a worker resumes the campaign, and nobody else.
    is_open: bool


@frozen
class Delivery:
    """A job that is begun."""

    job_id: int
    serial: Serial
    submission: str
    campaign_id: CampaignId
    #: The submission's plan with all that it names.
    document: str
    #: Those of the phone that it was made for, as a document.
    facts: str
    #: How often it failed on the phone before; deaths of hosts aren't counted.
    tries: int
    deaths: int
    #: The number of this beginning: whoever ends it must be who began it last.
    delivery: int


@frozen
class Ended:
    """How a delivery ended: ``done``, ``failed``, ``aborted``, ``again`` for another try, or
    ``later``.
    """

    status: str
    note: str
    #: ``later``: it isn't its time yet, which is no try of the phone.
    wait_s: float = 0.0


@frozen
class Announced:
    """A phone as its host announces it."""

    #: Its facts as a document, empty for one that can't be used and was never asked.
    facts: str
    #: Why it can't be used, empty when it can.
    unusable: str = ""
    #: JSON: its pools and tags.
    labels: str = ""


class FarmQueue(Database):
    """The farm in a PostgreSQL database. A context manager; may be used by several threads."""

    # Hosts and their phones

    def beat(self, host: str, *, benchfarm_version: str, note: str) -> None:
        """Say that a host lives, and what is wrong with it if anything."""
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
        """Announce a host's phones by serial number, and whether anything of them is new; that
        alone is written.
        """
        with self.connection() as connection:
            gone = connection.execute(
                """
                UPDATE farm_phones SET gone_at = now()
                WHERE host = %s AND gone_at IS NULL AND NOT serial = ANY(%s)
                """,
                (host, list(phones)),
            ).rowcount
            written = [
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
        return bool(gone) or any(written)

    def leave(self, host: str) -> None:
        """Take a host that ends out of the list; its phones are away."""
        self.announce(host, {})
        self.rows("UPDATE farm_hosts SET is_working = false WHERE name = %s", host)

    def hosts(self) -> list[dict[str, Any]]:
        """Return the hosts: name, benchfarm_version, silent_s, state, note (what is wrong with it).

        The state is ``silent``, ``paused`` or ``alive``; hosts that ended by themselves aren't
        listed.
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
        """Return the phones announced, one row for each host that has it.

        Of each: serial, host, facts (a document), labels (of all its hosts, a document each),
        unusable (why), state (``clash``, ``silent``, ``measuring``, ``quarantined``,
        ``unusable``, ``paused``, ``free``), reason (of the state), and of the host: silent_s.
        """
        return self.rows(_PHONES)

    def away(self) -> list[dict[str, Any]]:
        """Return the phones that a host announced within the last days and none does now.

        Of each serial, host (the last one), seen_at (until when it was announced), facts of then
        and labels of all those hosts.
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
        """Return the phones that do a job of another host now."""
        rows = self.rows(
            f"SELECT serial FROM farm_jobs f WHERE status = 'runs' AND host <> %s AND NOT {_IS_LEFT}",
            host,
        )
        return {row["serial"] for row in rows}

    def take_releases(self, host: str) -> list[str]:
        """Return the phones of a host that somebody wants to be released from quarantine, each
        once.
        """
        rows = self.rows(
            """
            UPDATE farm_phones SET release_asked = false WHERE host = %s AND release_asked
            RETURNING serial
            """,
            host,
        )
        return [row["serial"] for row in rows]

    def ask_release(self, serial: str) -> str:
        """Have the host release a phone that keeps it in quarantine; return its name, empty when
        none does.
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
        """Return who has seen some serial numbers, and what: serial, host, facts, labels (of all
        its hosts, a document each), is_live (announced now).
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
        """Remember that several phones have a serial number; the first reason stays."""
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
        """Make a job for each phone, or none; return their numbers.

        ``phones``: serial number -> facts (a document). The contents that the plan needs are in the
        farm already.

        Raises UsageError for a submission that is there already, a name or serial number that can't
        be used, and a file that was taken away meanwhile.
        """
        name = submission.submission
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} can't name a submission", hint="letters, digits, . _ - only"
            )
        if wrong := [serial for serial in phones if not can_have_jobs(serial)]:
            raise UsageError(f"{wrong[0]!r} can't be a serial number")
        with self.connection() as connection:
            kept = connection.execute(
                """
                INSERT INTO farm_submissions (submission, document, plan_name, files, priority)
                VALUES (%(submission)s, %(document)s, %(plan_name)s, %(files)s, %(priority)s)
                ON CONFLICT DO NOTHING
                """,
                asdict(submission),
            )
            if not kept.rowcount:
                raise UsageError(f"{name}: this submission is in the queue already")
            held = connection.execute(
                """
                WITH kept AS MATERIALIZED
                (SELECT sha256 FROM farm_files WHERE sha256 = ANY(%s) ORDER BY sha256 FOR UPDATE)
                UPDATE farm_files f SET used_at = now() FROM kept WHERE f.sha256 = kept.sha256
                """,
                (list(submission.files),),
            )
            if held.rowcount < len(set(submission.files)):
                raise UsageError("a file was cleaned away before it was used", hint="submit again")
            return sorted(number for number, _ in _add(connection, name, phones))

    def to_join(self, serials: Collection[str]) -> list[tuple[str, str]]:
        """Return name and document of the open submissions in which one of some phones has no
        job.
        """
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
        """Add phones (serial number -> facts) to a submission unless it was cancelled; return those
        that had no job of it yet.
        """
        with self.connection() as connection:
            is_wanted = connection.execute(
                "SELECT 1 FROM farm_submissions WHERE submission = %s AND NOT cancelled FOR UPDATE",
                (name,),
            ).fetchone()
            added = _add(connection, name, phones) if is_wanted else []
        return [serial for _, serial in added]

    def open_jobs(self, serials: Collection[str]) -> list[dict[str, Any]]:
        """Return the jobs of some phones that wait or run: job_id, serial, priority, is_due."""
        return self.rows(
            f"""
            SELECT f.job_id, f.serial, s.priority, f.again_at <= now() AS is_due
            FROM farm_jobs f JOIN farm_submissions s ON s.submission = f.submission
            WHERE f.{_OPEN} AND f.serial = ANY(%s) ORDER BY f.job_id
            """,
            list(serials),
        )

    def cancelled(self, job_ids: Collection[int]) -> set[int]:
        """Return those of some jobs that somebody cancelled, or asked to be."""
        query = "SELECT job_id FROM farm_jobs WHERE cancel_asked AND job_id = ANY(%s)"
        return {row["job_id"] for row in self.rows(query, list(job_ids))} if job_ids else set()

    def begin(self, job_id: int, host: str) -> Delivery | None:
        """Begin a job that is open, also one that somebody else began before.

        None for one that is over, or was paused since its worker looked.
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
        self, begun: Delivery, status: str, note: str, *, is_try: bool = False, wait_s: float = 0.0
    ) -> tuple[str, datetime] | None:
        """End a delivery (``done``, ``failed``, or ``waits``); return what the job is then, and from
        when on it waits. One that waits and that somebody cancelled is ``cancelled``.

        None, changing nothing, if somebody else has begun it since. ``is_try``: whether it counts
        as one of the phone.
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
            begun.job_id,
            begun.delivery,
        )
        return (rows[0]["status"], rows[0]["again_at"]) if rows else None

    def jobs(self, submission: str = "") -> list[dict[str, Any]]:
        """Return the jobs of one submission; or all that are open, and the newest 1,000.

        The newest last.

        ``tries`` failed on the phone, ``deaths`` is how often the job's host died. ``again_at`` is
        when one that waits may be tried.
        """
        which = f"f.{_OPEN} OR f.job_id > (SELECT max(job_id) - 1000 FROM farm_jobs)"
        which = "f.submission = %s" if submission else which
        return self.rows(
            f"{_JOBS} WHERE {which} ORDER BY f.job_id", *([submission] if submission else [])
        )

    def left_out(self, submission: str) -> dict[str, str]:
        """Return the phones that a submission means and that have no job of it -> why they had none
        when it was made.
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
        """Return the jobs that some campaigns belong to; campaigns of no job aside."""
        rows = self.rows(
            f"""
            SELECT campaign_id, submission, serial, {_OPEN} AS is_open FROM farm_jobs
            WHERE campaign_id = ANY(%s)
            """,
            list(campaign_ids),
        )
        return {row.pop("campaign_id"): Owner(**row) for row in rows}

    def cancel(self, submission: str, serials: list[str] | None = None) -> dict[int, str]:
        """Cancel what waits of a submission, ask for the end of what runs; return job number ->
        what it was.

        ``serials`` narrows it to some phones; without, no phone that comes later is added to it any
        more.
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
        """Return what is paused."""
        return [row["scope"] for row in self.rows("SELECT scope FROM farm_pauses ORDER BY scope")]

    def forget(self, scopes: Collection[str]) -> list[str]:
        """Take hosts (``host:NAME``) that are gone, and phones (``phone:SERIAL``) that are away, out
        of the farm with their pauses, or forget clashes: all or none.

        Return those that aren't there, hosts that were heard lately, and phones that a host
        announces.
        """
        with self.connection() as connection:
            # Phones first: those that were a host's alone go with it.
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
    """Delete a host, or a phone with its clash; return whether anything was there to be deleted."""
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
    """Whether a phone can be called so; this computer is none: what comes with a job is never run
    on a host.
    """
    return (
        serial not in {"", HOST_SERIAL} and len(serial) <= _LONGEST_SERIAL and serial.isprintable()
    )


def _add(
    connection: psycopg.Connection[Any], submission: str, phones: Mapping[str, str]
) -> list[tuple[int, str]]:
    """Make jobs for those phones that have none of a submission; return number and phone."""
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
