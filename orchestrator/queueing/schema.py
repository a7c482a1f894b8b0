"""The tables of the queue, in a schema of their own beside the store's: Procrastinate's, and those of the farm."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from procrastinate.schema import SchemaManager

from orchestrator.errors import StoreError

SCHEMA: Final = "benchfarm_queue"
#: The version of the tables.
VERSION: Final = 3
#: Any number that no other program of this database locks.
_MIGRATING: Final = 7_220_311
_TABLES: Final = """
CREATE TABLE farm_protocol (
    version integer NOT NULL,
    -- Until when, and from when on without a pause, somebody has looked for phones that come and go.
    watched_at timestamptz NOT NULL DEFAULT now(),
    watched_since timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE farm_hosts (
    name text PRIMARY KEY,
    host_id text NOT NULL, -- which computer has the name
    worker_id bigint NOT NULL,
    benchfarm_version text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    note text NOT NULL DEFAULT ''
);
CREATE TABLE farm_phones (
    serial text NOT NULL,
    host text NOT NULL REFERENCES farm_hosts (name) ON DELETE CASCADE,
    facts text NOT NULL,
    facts_md5 text GENERATED ALWAYS AS (md5(facts)) STORED, -- shows when they change
    labels text NOT NULL DEFAULT '',
    unusable text NOT NULL,
    release_asked boolean NOT NULL DEFAULT false, -- from quarantine, which each host keeps for itself
    changed_at timestamptz NOT NULL DEFAULT now(), -- anything of it
    PRIMARY KEY (serial, host)
);
CREATE TABLE farm_jobs (
    job_id bigint PRIMARY KEY,
    submission text NOT NULL,
    serial text NOT NULL,
    campaign_id text NOT NULL,
    host text NOT NULL DEFAULT '',
    note text NOT NULL DEFAULT '',
    tries integer NOT NULL DEFAULT 0, -- of the phone
    deaths integer NOT NULL DEFAULT 0, -- of its hosts
    facts text NOT NULL, -- of the phone that it is for
    came_later boolean NOT NULL,
    replaces text NOT NULL,
    replaced_by text NOT NULL DEFAULT '',
    is_lost boolean NOT NULL DEFAULT false,
    UNIQUE (submission, serial)
);
CREATE TABLE farm_holds (
    scope text PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('pause', 'drain')),
    since timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE farm_files (
    sha256 text PRIMARY KEY,
    size_bytes bigint NOT NULL,
    used_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE farm_file_parts (
    sha256 text NOT NULL REFERENCES farm_files (sha256) ON DELETE CASCADE,
    part_no integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (sha256, part_no)
);

-- A plan with the devices that it means and all that it names, for its jobs, phones that come later and spare ones.
CREATE TABLE farm_submissions (
    submission text PRIMARY KEY,
    protocol integer NOT NULL, -- the version of the document
    document text NOT NULL,
    plan_name text NOT NULL,
    files text[] NOT NULL, -- sha256
    priority integer NOT NULL,
    joins boolean NOT NULL,
    replaces_lost boolean NOT NULL,
    opens_at timestamptz NOT NULL,
    until timestamptz,
    cancelled boolean NOT NULL DEFAULT false
);

-- Phones that were taken out of the list, as they were last: unplugged, or their host's worker has ended. Noted by the
-- database itself, so that it holds whatever takes them out; in one order, so that hosts of the same phones don't wait
-- for each other.
CREATE TABLE farm_sightings (
    serial text PRIMARY KEY,
    host text NOT NULL,
    facts text NOT NULL,
    labels text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now()
);
CREATE FUNCTION farm_note_sighting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO benchfarm_queue.farm_sightings (serial, host, facts, labels)
    SELECT DISTINCT ON (serial) serial, host, facts, labels FROM gone WHERE facts <> '' ORDER BY serial, host
    ON CONFLICT (serial) DO UPDATE SET host = excluded.host, facts = excluded.facts,
    labels = excluded.labels, seen_at = now();
    RETURN NULL;
END $$;
CREATE TRIGGER farm_phones_sighting AFTER DELETE ON farm_phones REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION farm_note_sighting();
"""


def make_tables(connection: psycopg.Connection[Any]) -> None:
    """Make the tables where there are none; one process at a time. Raises StoreError for those of another version."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        there = connection.execute("SELECT to_regclass('farm_protocol')").fetchone()
        if there is None or there[0] is None:
            connection.execute(SchemaManager.get_schema())
            # Without parameters, so that several statements go at once.
            connection.execute(_TABLES)
            connection.execute("INSERT INTO farm_protocol VALUES (%s)", (VERSION,))
        row = connection.execute("SELECT version FROM farm_protocol").fetchone()
    if row is None or row[0] != VERSION:
        found = "no" if row is None else row[0]
        raise StoreError(
            f"the farm's queue is of version {found}, this benchfarm knows version {VERSION}",
            hint=f"drop the schema {SCHEMA} and submit again"
            if row is not None and row[0] < VERSION
            else "a newer benchfarm works on this queue: install it here too",
        )
