"""The tables of the queue, in a schema of their own beside the store's: Procrastinate's, and those of the farm."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from procrastinate.schema import SchemaManager

from orchestrator.errors import StoreError
from orchestrator.queueing.messages import PROTOCOL

SCHEMA: Final = "benchfarm_queue"
#: Any number that no other program of this database locks.
_MIGRATING: Final = 7_220_311
_TABLES: Final = """
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
"""


def make_tables(connection: psycopg.Connection[Any]) -> None:
    """Make the tables when there are none; one process at a time. Raises StoreError for those of a newer benchfarm."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        has_tables = connection.execute("SELECT to_regclass('farm_protocol')").fetchone()
        if has_tables is None or has_tables[0] is None:
            # Without parameters, so that several statements go at once.
            connection.execute(SchemaManager.get_schema())
            connection.execute(_TABLES)
            connection.execute("INSERT INTO farm_protocol VALUES (%s)", (PROTOCOL,))
        version = connection.execute("SELECT version FROM farm_protocol").fetchone() or (0,)
    if version[0] != PROTOCOL:
        raise StoreError(
            f"the farm's queue is of version {version[0]}, this benchfarm speaks version {PROTOCOL}",
            hint="install the same benchfarm on every host",
        )
