"""A database with many readers and one writer at a time, and its errors as benchfarm's."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from orchestrator.clock import Deadline
from orchestrator.errors import (
    BenchfarmError,
    HostStorageError,
    StoreAwayError,
    StoreBusyError,
    StoreCorruptError,
    StoreEncodingError,
    StoreError,
)

if TYPE_CHECKING:
    import psycopg

#: Name of PostgreSQL's advisory lock that a writer holds; any constant that others are unlikely to
#: use ("bfar").
_WRITER_LOCK: Final = 0x62666172
#: Connections to PostgreSQL that a process keeps open, and further ones for a moment: a farm has
#: many hosts, each with many threads that read. A thread never holds two.
_POOL_SIZE: Final = 2
_POOL_OVERFLOW: Final = 3
#: Limits of libpq for a server or host that can't be reached: in seconds, the last in milliseconds.
LIMITS: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
#: What a server says that accepts connections later; there is no code without a connection.
_PASSING: Final = (
    "the database system is",
    "too many clients",
    "too many connections",
    "connection slots are reserved",
)
#: Seconds between two tries to connect.
_AGAIN_S: Final = 0.5


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
        self._file = _file_at(path)
        self._engine = engine
        # A call reads one snapshot, on PostgreSQL as on SQLite.
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
            if self.path is not None:
                connection.exec_driver_sql("BEGIN")
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Hold the write lock and a connection; commit durably at the end, roll back on an error."""
        self._check_open()
        if not self._turn.acquire(timeout=self._busy_timeout_s):
            raise _locked(self.name)
        try:
            with store_errors(self.name, path=self.path), self._engine.begin() as connection:
                connection.exec_driver_sql(
                    f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})"
                    if self.path is None
                    else "BEGIN IMMEDIATE"
                )
                if self.is_lost:
                    raise StoreError(
                        f"{self.name}: the file was deleted or replaced while it was open",
                        hint="restore it, or its newest copy, before you measure more",
                    )
                yield connection
        finally:
            self._turn.release()

    @property
    def is_lost(self) -> bool:
        """Whether its file was deleted or replaced: SQLite continues in the deleted one."""
        return _file_at(self.path) != self._file

    def close(self) -> None:
        """Close all connections; any further use is refused."""
        self._is_open = False
        with store_errors(self.name, path=self.path):
            self._engine.dispose()

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError("the store is closed")


def _file_at(path: Path | None) -> tuple[int, int] | None:
    """Return the device and inode of the file at a path; None where there is none."""
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status is not None else None


def sqlite_engine(path: Path, *, busy_timeout_s: float, is_durable: bool = True) -> Engine:
    """Return the engine of an SQLite file; nothing is opened yet."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"check_same_thread": False, "timeout": busy_timeout_s},
        max_overflow=-1,
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        # The driver's own implicit BEGIN comes too late, and never for a read.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        # A commit returns when it is on the disk. NORMAL would lose the newest runs when the power
        # fails.
        connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'OFF'}")

    return engine


def postgresql_engine(url: URL, *, busy_timeout_s: float) -> Engine:
    """Return the engine of a PostgreSQL database; nothing is connected yet.

    Raises:
        ModuleNotFoundError: psycopg isn't installed.
    """
    # At least one: none is no limit.
    options = f"-c timezone=UTC -c lock_timeout={max(1, round(busy_timeout_s * 1000))}"
    url_options = url.query.get("options")
    engine = create_engine(
        url.set(drivername="postgresql+psycopg").difference_update_query(["options"]),
        connect_args={
            "options": f"{url_options} {options}" if isinstance(url_options, str) else options,
            **{name: limit for name, limit in LIMITS.items() if name not in url.query},
        },
        pool_size=_POOL_SIZE,
        max_overflow=_POOL_OVERFLOW,
        pool_timeout=busy_timeout_s,
        pool_pre_ping=True,
    )

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, _args: object, params: dict[str, Any]) -> Any:  # noqa: ANN401 - the driver is an extra
        connection = connect_server(**params)
        try:
            check_encoding(connection, url.set(query={}).render_as_string(hide_password=True))
        except StoreEncodingError:
            connection.close()
            raise
        return connection

    return engine


def connect_server(**params: Any) -> psycopg.Connection[Any]:  # noqa: ANN401 - psycopg's own
    """Connect to a server; one that starts, or has no connection left, is asked again for as long
    as one that doesn't answer.
    """
    import psycopg

    deadline, is_passing = Deadline(LIMITS["connect_timeout"]), False
    while True:
        try:
            return psycopg.connect(**params)
        except psycopg.OperationalError as error:
            # One that stops may be started again.
            is_passing = is_passing or any(words in str(error) for words in _PASSING)
            if not is_passing or deadline.expired:
                raise
            time.sleep(_AGAIN_S)


def check_encoding(connection: psycopg.Connection[Any], name: str) -> None:
    """Raise StoreEncodingError for a connection to a database that isn't in UTF8."""
    # The server reports it with each connection, without a query.
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreEncodingError(name, str(encoding))


Row = TypeVar("Row")
Read = TypeVar("Read")

_LOG: Final = logging.getLogger("orchestrator.store")
#: Warnings logged already: the same row is read many times.
_warned: Final[set[str]] = set()
#: A failed write with less free space than this is reported as a full disk: SQLite has codes for
#: some of them only.
_FULL_BELOW_BYTES: Final = 1 << 20
#: PostgreSQL's codes: a lock that wasn't free in time, a deadlock.
_LOCKS: Final = ("55P03", "40P01")
_AWAY: Final = (
    "check that the database runs and that this host reaches it as --store or $BENCHFARM_STORE"
    " names it"
)
#: SQLite's codes of a file that may not be opened or written.
_ACCESS: Final = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
#: Too big: nothing so large is stored, so it was read, from a damaged length.
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_TOOBIG)


@contextmanager
def store_errors(name: str, *, path: Path | None = None) -> Iterator[None]:
    """Turn whatever a database driver raises inside into one of benchfarm's errors.

    Args:
        name: the store as the operator knows it, without any password.
        path: the file of an SQLite store.
    """
    try:
        yield
    except StatementError as error:
        if isinstance(error, DBAPIError):
            raise _driver_error(error.orig, name, path) from error
        raise StoreError(f"{name}: a value can't be stored: {error.orig}") from error
    except sqlite3.Error as error:
        raise _driver_error(error, name, path) from error
    except OverflowError as error:
        raise StoreError(f"{name}: a number is too large to be stored: {error}") from error
    except PoolTimeoutError as error:
        raise StoreAwayError(
            f"{name}: no answer of the database server in time: {error}"
        ) from error


def _driver_error(error: BaseException | None, name: str, path: Path | None) -> BenchfarmError:
    if isinstance(error, sqlite3.Error):
        return _sqlite_error(error, name, path)
    return server_error(error, name)


def server_error(error: BaseException | None, name: str) -> BenchfarmError:
    """Return benchfarm's error for one of PostgreSQL's driver; ``name`` is what it was used for."""
    import psycopg

    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate == "53100":
        return StoreAwayError(
            f"{name}: the database server's disk is full; what was stored before is kept",
            hint="free some space there",
        )
    if sqlstate in _LOCKS:
        return _locked(name)
    words = " ".join(str(error).split()) or type(error).__name__
    # Without a connection there is no code; nor is there one for a value that can't be sent.
    is_away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if sqlstate.startswith(("08", "57")) if sqlstate else is_away:
        return StoreAwayError(
            f"{name}: the database server can't be reached or ended the connection: {words}",
            hint=_AWAY,
        )
    return StoreError(f"{name}: the database refused: {words}")


def _sqlite_error(error: sqlite3.Error, name: str, path: Path | None) -> BenchfarmError:
    # The low byte is the kind, the rest says more about it (https://www.sqlite.org/rescode.html).
    code = int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
    if code in _DAMAGE:
        return StoreCorruptError(
            f"{name}: the file is damaged or isn't a benchfarm store ({error}); it was left untouched",
            hint="restore it from a backup, or name another file",
        )
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return _locked(name)
    is_full = code == sqlite3.SQLITE_FULL
    if code == sqlite3.SQLITE_IOERR and path:
        is_full = shutil.disk_usage(path.parent).free < _FULL_BELOW_BYTES
    if is_full:
        return HostStorageError(
            f"{name}: no space left on this computer; free some, what was stored before is kept"
        )
    hint = "check the path, and the permissions of file and folder" if code in _ACCESS else ""
    return StoreError(f"{name}: {error}", hint=hint)


def _locked(name: str) -> StoreBusyError:
    """Return the error for a store whose lock wasn't free in time."""
    return StoreBusyError(
        f"{name}: another process kept the store locked for too long; try again when it is done"
    )


def readable_rows(rows: Iterable[Row], read: Callable[[Row], Read]) -> Iterator[tuple[Row, Read]]:
    """Yield each row with its record; a row that can't be read is left out, with a warning."""
    for row in rows:
        try:
            record = read(row)
        except StoreError as error:
            warn(error)
        else:
            yield row, record


def warn(error: StoreError) -> None:
    """Log once in a process that an unreadable row is left out."""
    message = f"left out: {error}"
    if message not in _warned:
        _warned.add(message)
        _LOG.warning("%s", message)
