"""The connections to the farm's PostgreSQL, and what its driver's errors become."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Self

import psycopg
import psycopg_pool
from procrastinate import exceptions

from orchestrator.errors import StoreEncodingError, StoreError, UsageError
from orchestrator.queueing.schema import SCHEMA, make_tables

# Each error that matters is raised too, and reported once, in the form that logs have here.
logging.getLogger("psycopg").addHandler(logging.NullHandler())
logging.getLogger("psycopg").propagate = False
#: Seconds.
_CONNECT_S: Final = 5
#: How long a connection is waited for, and tried to be had.
_WAIT_S: Final = 10.0
#: A host that freezes inside a transaction loses it after this time, and its locks with it.
_FROZEN: Final = "60s"
#: The same where others want the rows at once, and how long is waited for one there: longer than a frozen host has it.
_FROZEN_BRIEF: Final = "8s"
_LOCKED_BRIEF: Final = "10s"
_AWAY: Final = "look whether the database runs, and can be reached from here as --store or $BENCHFARM_STORE names it"
#: What says that another process has it, or took it at the same moment.
_HELD: Final = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.UniqueViolation,
)


class QueueHeldError(StoreError):
    """Another process has what is asked for, or this one had it and stood still for too long."""


class QueueDatabase:
    """A pool of connections for several threads; the tables are made and brought up to date on entering."""

    def __init__(self, url: str, *, connections: int = 4, is_guest: bool = False) -> None:
        """Name the database as the store's URL does; raises UsageError for a store that isn't on PostgreSQL.

        ``connections``: at most. ``is_guest``: nothing is made there; the tables may be missing, or of another
        version.
        """
        self._is_guest = is_guest
        scheme, separator, rest = url.partition("://")
        if not separator or scheme.split("+")[0] not in {"postgresql", "postgres"}:
            raise UsageError(
                "a farm of many hosts needs a store on PostgreSQL",
                hint="--store postgresql://user@host/database, or $BENCHFARM_STORE; one host needs no farm commands",
            )
        self._url = f"postgresql://{rest}"
        self._pool: psycopg_pool.ConnectionPool[Any] = psycopg_pool.ConnectionPool(
            self._url,
            kwargs={
                "options": f"-c search_path={SCHEMA} -c idle_in_transaction_session_timeout={_FROZEN}",
                "connect_timeout": _CONNECT_S,
            },
            min_size=1,
            max_size=connections,
            # Fifty hosts are to fit into what a database takes by default.
            max_idle=30.0,
            timeout=_WAIT_S,
            # Later it would only be tried after 15, 31, 63 s and so on, when the database may be back for long.
            reconnect_timeout=_WAIT_S,
            open=False,
            check=psycopg_pool.ConnectionPool.check_connection,
        )

    def __enter__(self) -> Self:
        try:
            with self._as_store_error():
                # Waiting, or the first question would open a second connection.
                self._pool.open(wait=True, timeout=_WAIT_S)
            with self.connection() as connection:
                encoding = connection.info.parameter_status("server_encoding")
                if encoding != "UTF8":
                    raise StoreEncodingError(f"database {connection.info.dbname}", str(encoding))
                if not self._is_guest:
                    make_tables(connection)
        except BaseException:
            self._pool.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def is_there(self) -> bool:
        """Return whether the queue has been made, and may be read."""
        (row,) = self.rows("SELECT has_table_privilege(to_regclass('farm_protocol'), 'SELECT') AS is_there")
        return bool(row["is_there"])

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Give a connection; what was done with it is committed at the end, undone after an error.

        What the driver raises is a StoreError then.
        """
        with self._as_store_error(), self._pool.connection() as connection:
            yield connection

    @contextmanager
    def brief(self) -> Iterator[psycopg.Connection[Any]]:
        """Give a transaction for rows that others want too: nothing that takes seconds between its statements.

        Rows are locked in one order everywhere: a submission's, its jobs' by number, what the farm keeps of these.
        """
        with self.connection() as connection, connection.transaction():
            connection.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, true),"
                " set_config('lock_timeout', %s, true)",
                (_FROZEN_BRIEF, _LOCKED_BRIEF),
            )
            yield connection

    @contextmanager
    def _as_store_error(self) -> Iterator[None]:
        try:
            yield
        except _HELD as error:
            raise QueueHeldError(
                "the farm's queue: another process holds what is asked for", hint="ask again in some seconds"
            ) from error
        except (psycopg.Error, psycopg_pool.PoolTimeout, exceptions.ConnectorException) as error:
            cause = error.__cause__ or error
            if isinstance(error, psycopg_pool.PoolTimeout):
                # The pool tells only how long it waited.
                try:
                    psycopg.connect(self._url, connect_timeout=_CONNECT_S).close()
                except psycopg.Error as reason:
                    cause = reason
            is_away = isinstance(error, psycopg.OperationalError | psycopg_pool.PoolTimeout)
            raise StoreError(f"the farm's queue: {str(cause).strip()}", hint=_AWAY if is_away else "") from error

    def now(self) -> datetime:
        """Return the database's time."""
        with self.connection() as connection:
            return database_time(connection)

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """Do one statement by itself; return its rows by column names."""
        with self.connection() as connection, connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            cursor.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description is not None else []


def database_time(connection: psycopg.Connection[Any]) -> datetime:
    """Return the database's time (UTC), the one clock that all hosts have in common."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None, "a clock always answers"
    moment: datetime = row[0]
    return moment.astimezone(UTC)
