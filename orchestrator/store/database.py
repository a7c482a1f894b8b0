"""One database and the two ways to use it: many readers, one writer at a time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from sqlalchemy import URL, Connection, Engine, create_engine, event

from orchestrator.clock import Deadline
from orchestrator.errors import StoreEncodingError, StoreError
from orchestrator.store.failures import locked, store_errors

#: Name of PostgreSQL's advisory lock that a writer holds; any constant that others are unlikely to
#: use ("bfar").
_WRITER_LOCK: Final = 0x62666172
#: Option of a writer's connection: for how many seconds it waits for the write lock.
_LOCK_S: Final = "benchfarm_lock_s"
#: Option of a writer's connection: whether one statement may take as long as it likes.
_IS_LONG: Final = "benchfarm_is_long"
#: Connections to PostgreSQL that a process keeps, and those that it opens for a moment: a farm has
#: many hosts, each with many threads that read. No thread that has one asks for a second.
_KEPT: Final = 2
_MORE: Final = 3
#: Seconds for a server to take a connection, and for its answer to one question of a reader.
_CONNECT_S: Final = 10
_READ_S: Final = 900.0


class Database:
    """An engine with one writer at a time, whose errors are benchfarm's.

    A writer begins with the database's write lock (``BEGIN IMMEDIATE``, an advisory lock on
    PostgreSQL), so that what it reads can't change before it writes, and rows are numbered in the
    order of their commits. The writers of one process take turns first: SQLite's waiting is by
    polling.
    """

    def __init__(
        self, engine: Engine, *, name: str, path: Path | None, busy_timeout_s: float
    ) -> None:
        #: The file, or the database's address without its password.
        self.name = name
        #: The file of an SQLite store, None for a server.
        self.path = path
        self._engine = engine
        # All that one call reads is of one moment, on PostgreSQL as on SQLite.
        self._reader = (
            engine.execution_options(isolation_level="REPEATABLE READ") if path is None else engine
        )
        self._busy_timeout_s = busy_timeout_s
        self._turn = threading.Lock()
        self._is_open = True

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Hold a connection inside a transaction that only reads."""
        self._check_open()
        with store_errors(self.name, path=self.path), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self, *, is_long: bool = False) -> Iterator[Connection]:
        """Hold the write lock and a connection; commit durably at the end, roll all back when
        anything is raised.

        ``is_long``: whether a server may work on one statement for as long as it takes.
        """
        deadline = Deadline(self._busy_timeout_s)
        if not self._turn.acquire(timeout=self._busy_timeout_s):
            raise locked(self.name)
        try:
            with self._transaction(deadline, is_long=is_long) as connection:
                yield connection
        finally:
            self._turn.release()

    @contextmanager
    def _transaction(self, deadline: Deadline, *, is_long: bool) -> Iterator[Connection]:
        self._check_open()
        if deadline.expired:
            raise locked(self.name)
        options: dict[str, Any] = {_LOCK_S: deadline.remaining_s, _IS_LONG: is_long}
        with (
            store_errors(self.name, path=self.path),
            self._engine.connect() as connection,
            connection.execution_options(**options).begin(),
        ):
            yield connection

    def close(self) -> None:
        """Close all connections; any further use is refused."""
        self._is_open = False
        with store_errors(self.name, path=self.path):
            self._engine.dispose()

    def is_in(self, path: Path) -> bool:
        """Whether it is open, and lies in this file."""
        try:
            return self._is_open and self.path is not None and path.samefile(self.path)
        except OSError:
            return False

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError("the store is closed")


def sqlite_engine(path: Path, *, busy_timeout_s: float, is_durable: bool = True) -> Engine:
    """Return the engine of an SQLite file; nothing is opened yet."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"check_same_thread": False},
        max_overflow=-1,
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        # The driver's own implicit BEGIN comes too late, and never for a read: transactions are
        # begun below.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        # A commit returns when it is on the disk. NORMAL would lose the newest runs when the power
        # fails.
        connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'OFF'}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        lock_s = connection.get_execution_options().get(_LOCK_S)
        if lock_s is not None:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {_ms(lock_s)}")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            return
        driver = cast("sqlite3.Connection", connection.connection.dbapi_connection)
        driver.execute(f"PRAGMA busy_timeout = {_ms(busy_timeout_s)}")
        driver.execute("BEGIN")

    return engine


def postgresql_engine(url: URL, *, busy_timeout_s: float) -> Engine:
    """Return the engine of a PostgreSQL database; nothing is connected yet.

    Raises:
        ModuleNotFoundError: psycopg isn't installed.
    """
    from orchestrator.store.answering import PROMPT_S, AnsweringConnection

    options = f"-c timezone=UTC -c lock_timeout={_ms(busy_timeout_s)}"
    given = url.query.get("options")
    limits = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_S}
    engine = create_engine(
        url.set(drivername="postgresql+psycopg").difference_update_query(["options"]),
        connect_args={
            "options": f"{given} {options}" if isinstance(given, str) else options,
            **limits,
        },
        pool_size=_KEPT,
        max_overflow=_MORE,
        pool_timeout=busy_timeout_s,
        pool_pre_ping=True,
    )

    @event.listens_for(engine, "do_connect")
    def _connect(
        _dialect: object, _record: object, _given: object, named: dict[str, Any]
    ) -> AnsweringConnection:
        connection = AnsweringConnection.connect(**named)
        # The server says it with each connection: it costs no question.
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            connection.close()
            raise StoreEncodingError(
                url.set(query={}).render_as_string(hide_password=True), str(encoding)
            )
        return connection

    @event.listens_for(engine, "checkin")
    def _prepare(connection: AnsweringConnection | None, _record: object) -> None:
        if connection is not None:
            # For the question whether it still lives, before it is used again.
            connection.answer_s = PROMPT_S

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        lock_s = options.get(_LOCK_S)
        driver = cast("AnsweringConnection", connection.connection.dbapi_connection)
        driver.answer_s = _READ_S
        if lock_s is not None:
            # The server itself ends the waiting for a lock.
            driver.answer_s = None if options.get(_IS_LONG) else busy_timeout_s + PROMPT_S
            # In this order, and in one question: what comes after the lock waits in full again.
            connection.exec_driver_sql(
                f"SELECT set_config('lock_timeout', %s, true), pg_advisory_xact_lock({_WRITER_LOCK}),"
                f" set_config('lock_timeout', '{_ms(busy_timeout_s)}', true)",
                (str(_ms(lock_s)),),
            )

    return engine


def _ms(seconds: float) -> int:
    # At least one: none is no limit to PostgreSQL.
    return max(1, round(seconds * 1000))
