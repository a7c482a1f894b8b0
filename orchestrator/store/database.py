"""One database and the two ways to use it: many readers, one writer at a time."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import URL, Connection, Engine, create_engine, event

from orchestrator.store import admission
from orchestrator.store.failures import locked, told
from orchestrator.store.turns import Turns

#: Name of PostgreSQL's advisory lock that a writer holds; any constant that others are unlikely to use ("bfar").
_WRITER_LOCK: Final = 0x62666172
_WRITES: Final = "benchfarm_writes"


class Database:
    """An engine whose writers queue up and whose errors are benchfarm's.

    A writer begins with the database's write lock (``BEGIN IMMEDIATE``, an advisory lock on PostgreSQL), so that what
    it reads can't change before it writes, and rows are numbered in the order of their commits. The writers of one
    process take turns first: SQLite's waiting is by polling, and isn't fair.
    """

    def __init__(self, engine: Engine, *, name: str, path: Path | None, busy_timeout_s: float) -> None:
        self.name = name
        #: The file of an SQLite store, None for a server.
        self.path = path
        self._busy_timeout_s = busy_timeout_s
        self._reader = engine
        if path is None:
            # All that one call reads is of one moment, as it is on SQLite.
            self._reader = engine.execution_options(isolation_level="REPEATABLE READ")
        self._writer = engine.execution_options(**{_WRITES: True})
        self._turns = Turns()
        self._is_open = True
        self._pid = os.getpid()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Hold a connection inside a transaction that only reads."""
        self._check()
        with told(self.name, path=self.path), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Hold the write lock and a connection; commit durably at the end, roll all back when anything is raised."""
        self._check()
        if not self._turns.take(patience_s=self._busy_timeout_s):
            raise locked(self.name)
        try:
            with told(self.name, path=self.path), self._writer.begin() as connection:
                yield connection
        finally:
            self._turns.end()

    def close(self) -> None:
        """Close all connections; any further use is refused."""
        self._is_open = False
        with told(self.name, path=self.path):
            self._writer.dispose()

    def _check(self) -> None:
        if not self._is_open:
            raise admission.closed()
        if self._pid != os.getpid():
            # A forked child must not speak over its parent's connections, nor wait for a thread that it hasn't got.
            self._writer.dispose(close=False)
            self._turns = Turns()
            self._pid = os.getpid()


def sqlite_engine(path: Path, *, busy_timeout_s: float, checks_references: bool = True) -> Engine:
    """Return the engine of an SQLite file; nothing is opened yet."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)), connect_args={"check_same_thread": False}, max_overflow=-1
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        # The driver's own implicit BEGIN comes too late, and never for a read: transactions are begun below.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {round(busy_timeout_s * 1000)}")
        connection.execute(f"PRAGMA foreign_keys = {'ON' if checks_references else 'OFF'}")
        # A commit returns when it is on the disk. NORMAL would lose the newest runs when the power fails.
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def postgresql_engine(url: URL, *, busy_timeout_s: float) -> Engine:
    """Return the engine of a PostgreSQL database; nothing is connected yet.

    Raises:
        ModuleNotFoundError: psycopg isn't installed.
    """
    options = f"-c timezone=UTC -c lock_timeout={round(busy_timeout_s * 1000)}"
    given = url.query.get("options")
    engine = create_engine(
        url.set(drivername="postgresql+psycopg").difference_update_query(["options"]),
        connect_args={"options": f"{given} {options}" if isinstance(given, str) else options},
        max_overflow=-1,
        # One writes at a time and few read; each of a farm's hosts keeps as many open.
        pool_size=2,
        pool_pre_ping=True,
    )

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if connection.get_execution_options().get(_WRITES, False):
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})")

    return engine
