"""The farm's tables on PostgreSQL, and its connections: a pool, and one for a host's locks."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from orchestrator.errors import StoreError, UsageError
from orchestrator.records.answers import OPEN_JOBS

if TYPE_CHECKING:
    import psycopg
    import psycopg_pool

# Errors that matter are raised, too, and reported once, in the form of benchfarm's logs.
for _name in ("psycopg", "procrastinate", "asyncio"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False
SCHEMA: Final = "benchfarm_queue"
#: The version of the tables, and of the documents in them.
VERSION: Final = 5
#: Seconds.
_CONNECT_S: Final = 5
#: Timeout for a connection from the pool, and for reconnecting.
_WAIT_S: Final = 10.0
#: Whether a job is open.
IS_OPEN: Final = "status IN ('" + "', '".join(OPEN_JOBS) + "')"
_TABLES: Final = f"""
CREATE TABLE farm_protocol (version integer NOT NULL);
CREATE TABLE farm_hosts (
    name text PRIMARY KEY,
    benchfarm_version text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(),
    is_working boolean NOT NULL DEFAULT true, -- its worker has not ended by itself
    note text NOT NULL DEFAULT '' -- what is wrong with it
);
CREATE TABLE farm_phones (
    serial text NOT NULL,
    host text NOT NULL REFERENCES farm_hosts (name) ON DELETE CASCADE,
    facts text NOT NULL,
    labels text NOT NULL DEFAULT '',
    unusable text NOT NULL,
    release_asked boolean NOT NULL DEFAULT false, -- from quarantine, which each host keeps for itself
    gone_at timestamptz, -- since when its host doesn't announce it any more
    PRIMARY KEY (serial, host)
);
-- Serial numbers that several phones have, until somebody forgets that: nothing is measured under them.
CREATE TABLE farm_clashes (
    serial text PRIMARY KEY,
    reason text NOT NULL
);
-- A plan with the devices that it means and all that it names, for its jobs and phones that come later.
CREATE TABLE farm_submissions (
    submission text PRIMARY KEY,
    document text NOT NULL,
    plan_name text NOT NULL,
    files text[] NOT NULL, -- sha256
    priority integer NOT NULL,
    cancelled boolean NOT NULL DEFAULT false
);
-- A phone's part of a submission: whether it is open, and what became of it. Procrastinate's jobs only wake phones.
CREATE TABLE farm_jobs (
    job_id bigserial PRIMARY KEY,
    submission text NOT NULL REFERENCES farm_submissions (submission) ON DELETE CASCADE,
    serial text NOT NULL,
    campaign_id text NOT NULL,
    status text NOT NULL DEFAULT 'waits' CHECK (status IN ('waits', 'runs', 'done', 'failed', 'cancelled')),
    cancel_asked boolean NOT NULL DEFAULT false,
    again_at timestamptz NOT NULL DEFAULT now(), -- not tried before
    changed_at timestamptz NOT NULL DEFAULT now(),
    host text NOT NULL DEFAULT '',
    note text NOT NULL DEFAULT '',
    tries integer NOT NULL DEFAULT 0, -- of the phone
    deaths integer NOT NULL DEFAULT 0, -- of its hosts
    delivery integer NOT NULL DEFAULT 0, -- who ends it shows by this that nobody has begun it again since
    facts text NOT NULL, -- of the phone that it is for
    UNIQUE (submission, serial)
);
CREATE INDEX farm_jobs_open ON farm_jobs (serial) WHERE {IS_OPEN};
CREATE INDEX farm_jobs_campaign ON farm_jobs (campaign_id);
CREATE TABLE farm_pauses (scope text PRIMARY KEY);
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
"""


def connection_settings(url: str, **settings: str) -> dict[str, Any]:
    """Return the settings of each connection to the queue besides those in its URL; ``settings``
    are server settings of the session.
    """
    from orchestrator.store.database import LIMITS

    limits = {name: limit for name, limit in LIMITS.items() if f"{name}=" not in url}
    options = " ".join(
        f"-c {name}={value}" for name, value in {"search_path": SCHEMA, **settings}.items()
    )
    return {**limits, "options": options, "connect_timeout": _CONNECT_S}


#: Settings of a pool: fifty hosts must fit into a database's limit, and a database that is back
#: must be used at once.
POOL: Final[dict[str, Any]] = {
    "min_size": 1,
    "max_idle": 30.0,
    "timeout": _WAIT_S,
    "reconnect_timeout": _WAIT_S,
}


class QueueDatabase:
    """A pool of connections for several threads. Entering it creates the tables and checks their
    version.
    """

    def __init__(self, url: str, *, connections: int = 4, is_guest: bool = False) -> None:
        """``url`` is the store's; raises UsageError for a store that isn't on PostgreSQL.

        ``connections``: at most. ``is_guest``: no tables are created; they may be missing, or of
        another version.
        """
        import psycopg_pool

        from orchestrator.store.opening import locate

        self._is_guest = is_guest
        if isinstance(locate(url), Path):
            raise UsageError(
                "a farm of many hosts needs a store on PostgreSQL",
                hint="--store postgresql://user@host/database, or $BENCHFARM_STORE; one host needs no farm commands",
            )
        # As it is written: SQLAlchemy writes spaces in another way than PostgreSQL reads them.
        self.url = f"postgresql://{url.partition('://')[2]}"
        self._pool: psycopg_pool.ConnectionPool[Any] = psycopg_pool.ConnectionPool(
            self.url,
            # A host that freezes inside a transaction loses it, and its locks with it.
            kwargs=connection_settings(
                self.url, idle_in_transaction_session_timeout="10s", lock_timeout="15s"
            ),
            max_size=connections,
            open=False,
            check=psycopg_pool.ConnectionPool.check_connection,
            **POOL,
        )

    def __enter__(self) -> Self:
        from orchestrator.store.database import check_encoding, connect_server

        try:
            with as_store_error(self.url):
                # The pool asks a server that refuses again and again.
                connect_server(conninfo=self.url, connect_timeout=_CONNECT_S).close()
                # Wait, or the first query would open a second connection.
                self._pool.open(wait=True, timeout=_WAIT_S)
            with self.connection() as connection:
                check_encoding(connection, f"database {connection.info.dbname}")
                if not self._is_guest:
                    _make_tables(connection)
        except BaseException:
            self._pool.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def is_there(self) -> bool:
        """Whether the queue's tables exist, and may be read."""
        (row,) = self.rows(
            "SELECT has_table_privilege(to_regclass('farm_protocol'), 'SELECT') AS is_there"
        )
        return bool(row["is_there"])

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield a connection with a transaction: committed at the end, rolled back after an error.

        Errors of the driver are raised as those of a store. Rows are locked in one order everywhere: a
        submission's, then its jobs' by number.
        """
        with as_store_error(self.url), self._pool.connection() as connection:
            yield connection

    def now(self) -> datetime:
        """Return the database's time (UTC), the clock that all hosts share."""
        (row,) = self.rows("SELECT clock_timestamp() AS now")
        moment: datetime = row["now"]
        return moment.astimezone(UTC)

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """Run one statement in its own transaction; return its rows by column names."""
        import psycopg

        with (
            self.connection() as connection,
            connection.cursor(row_factory=psycopg.rows.dict_row) as cursor,
        ):
            cursor.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description is not None else []


class HostLocks:
    """Advisory locks of a host on one connection. They end with the connection, and that ends when
    its process hangs.

    Only the holder of a phone's lock may measure on it.
    """

    def __init__(self, url: str, *, dead_after_s: float) -> None:
        """``dead_after_s``: the server ends the connection when it is idle for this time."""
        self._url = url
        self._dead_after_s = dead_after_s
        self._connection: psycopg.Connection[Any] | None = None
        self.held: set[str] = set()

    def is_alive(self) -> bool:
        """Whether the connection lives, and with it all locks. To be called often, or the server
        ends it.
        """
        import psycopg

        if self._connection is not None:
            try:
                self._connection.execute("SELECT 1")
            except psycopg.Error:
                self.close()
        return self._connection is not None

    def take(self, name: str) -> bool:
        """Take a lock, with a new connection if there is none; False when another host has it.

        Raises StoreError.
        """
        import psycopg

        if name not in self.held:
            with as_store_error(self._url):
                if self._connection is None:
                    silence_ms = round(self._dead_after_s * 1000)
                    settings = connection_settings(self._url, idle_session_timeout=f"{silence_ms}")
                    # A lost connection is noticed here before the server gives the locks to others.
                    settings["tcp_user_timeout"] = silence_ms // 2
                    self._connection = psycopg.connect(self._url, autocommit=True, **settings)
                row = self._connection.execute(
                    "SELECT pg_try_advisory_lock(%s)", (_key(name),)
                ).fetchone()
                if row is not None and row[0]:
                    self.held.add(name)
        return name in self.held

    def release(self, name: str) -> None:
        """Release a lock."""
        if name in self.held and self._connection is not None:
            self.held.discard(name)
            with as_store_error(self._url):
                self._connection.execute("SELECT pg_advisory_unlock(%s)", (_key(name),))

    def close(self) -> None:
        """Release all locks."""
        self.held.clear()
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def _key(name: str) -> int:
    return int.from_bytes(
        hashlib.sha256(f"benchfarm {name}".encode()).digest()[:8], "big", signed=True
    )


@contextmanager
def as_store_error(url: str) -> Iterator[None]:
    """Raise the driver's errors in the block as those of a store."""
    import psycopg
    import psycopg_pool

    from orchestrator.store.database import server_error

    try:
        yield
    except psycopg.Error as error:
        cause: BaseException = error
        if isinstance(error, psycopg_pool.PoolTimeout):
            # The pool's error has only the time that it waited.
            try:
                psycopg.connect(url, connect_timeout=_CONNECT_S).close()
            except psycopg.Error as reason:
                cause = reason
        raise server_error(cause, "the farm's queue") from error


def _make_tables(connection: psycopg.Connection[Any]) -> None:
    """Create the tables if there are none; one process at a time.

    Raises StoreError for tables of another version.
    """
    from procrastinate.schema import SchemaManager

    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_key("tables"),))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        table = connection.execute("SELECT to_regclass('farm_protocol')").fetchone()
        if table is None or table[0] is None:
            connection.execute(SchemaManager.get_schema())
            # Without parameters, so that one call runs several statements.
            connection.execute(_TABLES)
            connection.execute("INSERT INTO farm_protocol VALUES (%s)", (VERSION,))
        row = connection.execute("SELECT version FROM farm_protocol").fetchone()
    if row is None or row[0] != VERSION:
        version = "no" if row is None else row[0]
        raise StoreError(
            f"the farm's queue is of version {version}, this benchfarm knows version {VERSION}",
            hint=f"drop the schema {SCHEMA} and submit again"
            if row is not None and row[0] < VERSION
            else "a newer benchfarm works on this queue: install it here too",
        )
