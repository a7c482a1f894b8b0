"""The farm's queue: its jobs, its hosts and their phones, and pauses. Any host may query anything at
any time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from orchestrator.extensions.farm.job_table import HOST_SILENT_S, JobTable, paused
from orchestrator.records import frozen

if TYPE_CHECKING:
    import psycopg

#: Seconds without a heartbeat after which a host's phones aren't selected.
GONE_S: Final = 900.0
#: Days for which a phone counts as away; after that it was probably removed on purpose.
_AWAY_DAYS: Final = 7
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
    CROSS JOIN LATERAL (SELECT string_agg(scope, ', ' ORDER BY scope) AS paused
        FROM {paused("h.name", "p.serial")} pauses) d
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


@frozen
class Announced:
    """A phone as its host announces it."""

    #: Its facts as a document, empty for an unusable one that was never probed.
    facts: str
    #: The reason why it can't be used, empty when it can.
    unusable: str = ""
    #: JSON: its pools and tags.
    labels: str = ""


class FarmQueue(JobTable):
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
        serials = sorted(phones)
        # %b: in an array as text, each quote of the facts is escaped, which takes long.
        changes = self.rows(
            """
            WITH gone AS (UPDATE farm_phones SET gone_at = now()
            WHERE host = %s AND gone_at IS NULL AND NOT serial = ANY(%s) RETURNING serial),
            changed AS (INSERT INTO farm_phones AS p (host, serial, facts, unusable, labels)
            SELECT %s, * FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[])
            ON CONFLICT (serial, host) DO UPDATE SET facts = excluded.facts,
            unusable = excluded.unusable, labels = excluded.labels, gone_at = NULL
            WHERE (p.facts, p.unusable, p.labels, p.gone_at IS NULL)
            IS DISTINCT FROM (excluded.facts, excluded.unusable, excluded.labels, true)
            RETURNING serial) SELECT serial FROM gone UNION ALL SELECT serial FROM changed
            """,
            host,
            serials,
            host,
            serials,
            [phones[serial].facts for serial in serials],
            [phones[serial].unusable for serial in serials],
            [phones[serial].labels for serial in serials],
        )
        return bool(changes)

    def may_begin(self, host: str) -> list[str]:
        """Return the phones of a host that may begin a job if it has their locks: usable ones that
        aren't paused, each the only one of its serial number.
        """
        rows = self.rows(
            f"""
            SELECT p.serial FROM farm_phones p WHERE p.host = %s AND p.gone_at IS NULL
            AND p.unusable = '' AND NOT EXISTS
            (SELECT 1 FROM farm_clashes c WHERE c.serial = p.serial)
            AND NOT EXISTS {paused("p.host", "p.serial")} ORDER BY p.serial
            """,
            host,
        )
        return [row["serial"] for row in rows]

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
    gone = 0
    if kind == "host":
        gone = connection.execute(
            """
            DELETE FROM farm_hosts WHERE name = %s
            AND NOT (is_working AND seen_at > now() - make_interval(secs => %s))
            """,
            (name, HOST_SILENT_S),
        ).rowcount
    elif kind == "phone":
        gone = connection.execute("DELETE FROM farm_clashes WHERE serial = %s", (name,)).rowcount
        gone += connection.execute(
            "DELETE FROM farm_phones WHERE serial = %s AND gone_at IS NOT NULL", (name,)
        ).rowcount
    return bool(gone)
