"""The tables of the queue, in a schema of their own beside the store's: Procrastinate's, and those of the farm.

A later version adds a step and changes none: an older worker that still runs does its own jobs to the end on the tables
that it knows, and is refused when it is started again.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from procrastinate.schema import SchemaManager

from orchestrator.errors import StoreError
from orchestrator.queueing.schedule_tables import SCHEDULES
from orchestrator.queueing.submissions import SUBMISSIONS

SCHEMA: Final = "benchfarm_queue"
#: Any number that no other program of this database locks.
_MIGRATING: Final = 7_220_311
_FIRST: Final = """
CREATE TABLE farm_protocol (version integer NOT NULL);
CREATE TABLE farm_hosts (
    name text PRIMARY KEY,
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
    unusable text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (serial, host)
);
CREATE TABLE farm_jobs (
    job_id bigint PRIMARY KEY,
    submission text NOT NULL,
    serial text NOT NULL,
    plan_name text NOT NULL,
    campaign_id text NOT NULL,
    host text NOT NULL DEFAULT '',
    note text NOT NULL DEFAULT '',
    UNIQUE (submission, serial)
);
CREATE TABLE farm_files (sha256 text PRIMARY KEY, size_bytes bigint NOT NULL);
CREATE TABLE farm_file_parts (
    sha256 text NOT NULL REFERENCES farm_files (sha256) ON DELETE CASCADE,
    part_no integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (sha256, part_no)
);
CREATE TABLE farm_holds (
    scope text PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('pause', 'drain')),
    since timestamptz NOT NULL DEFAULT now()
);
INSERT INTO farm_protocol VALUES (1);
"""
#: Messages of version 2: which files a job needs and where they lie; tries of a phone apart from deaths of hosts;
#: what a host can read and what its phones are for. A host of version 1 says neither, hence the defaults.
_SECOND: Final = """
ALTER TABLE farm_hosts ADD COLUMN protocol integer NOT NULL DEFAULT 1;
ALTER TABLE farm_phones ADD COLUMN labels text NOT NULL DEFAULT '';
ALTER TABLE farm_jobs ADD COLUMN tries integer NOT NULL DEFAULT 0, ADD COLUMN deaths integer NOT NULL DEFAULT 0;
ALTER TABLE farm_files ADD COLUMN used_at timestamptz NOT NULL DEFAULT now();
CREATE TABLE farm_file_places (
    sha256 text NOT NULL REFERENCES farm_files (sha256) ON DELETE CASCADE,
    place text NOT NULL,
    PRIMARY KEY (sha256, place)
);
INSERT INTO farm_file_places SELECT sha256, '' FROM farm_files;
CREATE TABLE farm_job_files (
    job_id bigint NOT NULL REFERENCES farm_jobs (job_id) ON DELETE CASCADE,
    sha256 text NOT NULL REFERENCES farm_files (sha256),
    PRIMARY KEY (job_id, sha256)
);
CREATE INDEX farm_job_files_sha256 ON farm_job_files (sha256);
INSERT INTO farm_job_files
SELECT DISTINCT f.job_id, k.sha256 FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id
CROSS JOIN LATERAL jsonb_array_elements((j.args->>'plan')::jsonb->'models') m
JOIN farm_files k ON k.sha256 = m->>'sha256';
UPDATE farm_jobs f SET tries = j.attempts FROM procrastinate_jobs j WHERE j.id = f.job_id;
"""
#: Which computer has a name, empty for a host of a version before; by what a change of a phone's facts is seen.
_FOURTH: Final = """
ALTER TABLE farm_hosts ADD COLUMN host_id text NOT NULL DEFAULT '';
ALTER TABLE farm_phones ADD COLUMN facts_md5 text GENERATED ALWAYS AS (md5(facts)) STORED;
"""
#: When a schedule went on after a pause: what went wrong before it is nobody's concern any more.
_FIFTH: Final = "ALTER TABLE farm_schedules ADD COLUMN went_on_at timestamptz;"
#: Phones that were taken out of the list, as they were last: unplugged, or their host's worker has ended. Noted by the
#: database itself, so that it holds whatever takes them out, and of whatever version that is; in one order, so that
#: hosts that have the same phones don't wait for each other.
_SIXTH: Final = """
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
#: Whether somebody wants its host to release a phone from quarantine, which each host keeps for itself.
_SEVENTH: Final = "ALTER TABLE farm_phones ADD COLUMN release_asked boolean NOT NULL DEFAULT false;"
#: What makes the tables of each version out of those of the one before.
_STEPS: Final = (_FIRST, _SECOND + SCHEDULES, SUBMISSIONS, _FOURTH, _FIFTH, _SIXTH, _SEVENTH)
#: The version of the tables.
VERSION: Final = len(_STEPS)


def make_tables(connection: psycopg.Connection[Any]) -> None:
    """Make the tables or bring them up to date; one process at a time. Raises StoreError for a newer benchfarm's."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        version = _version(connection)
        if version == 0:
            connection.execute(SchemaManager.get_schema())
        # Without parameters, so that several statements go at once.
        for step in _STEPS[version:]:
            connection.execute(step)
        if version < VERSION:
            connection.execute("UPDATE farm_protocol SET version = %s", (VERSION,))
    if version > VERSION:
        raise StoreError(
            f"the farm's queue is of version {version}, this benchfarm knows versions up to {VERSION}",
            hint="a newer benchfarm works on this queue: install it here too",
        )


def _version(connection: psycopg.Connection[Any]) -> int:
    """Return the version of the tables that are there, 0 when there are none."""
    there = connection.execute("SELECT to_regclass('farm_protocol')").fetchone()
    if there is None or there[0] is None:
        return 0
    row = connection.execute("SELECT version FROM farm_protocol").fetchone()
    return int(row[0]) if row is not None else 0
