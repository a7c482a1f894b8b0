"""Opening a store by path or URL, with creation, and copying it."""

from __future__ import annotations

import functools
import os
import shutil
import sqlite3
import stat
import tempfile
import weakref
from contextlib import ExitStack, closing, suppress
from datetime import tzinfo
from pathlib import Path
from typing import Final

from sqlalchemy import URL, Connection, insert, inspect, make_url, select
from sqlalchemy.exc import ArgumentError

from orchestrator.clock import find_zone, local_timezone
from orchestrator.errors import (
    HostStorageError,
    StoreCorruptError,
    StoreError,
    StoreMissingError,
    UsageError,
)
from orchestrator.files import draft_of, expanded, make_private
from orchestrator.installation import require_packages
from orchestrator.store import IN_MEMORY
from orchestrator.store.campaigns import Campaigns
from orchestrator.store.database import postgresql_engine, sqlite_engine, store_errors
from orchestrator.store.retention import Retention
from orchestrator.store.schema import METADATA, SETTINGS, VERSION
from orchestrator.store.usage import Usage


class Store(Campaigns, Usage, Retention):
    """A store in SQLite or PostgreSQL.

    Each method is one transaction. It may be used from several threads, and the same database from
    several processes. Every method raises StoreError, one of its kinds, or HostStorageError.
    """

    @functools.cached_property
    def zone(self) -> tzinfo | None:
        """The time zone in which nights begin and end; None for the reader's own."""
        with self.reading() as connection:
            name = connection.scalar(select(SETTINGS.c.value).where(SETTINGS.c.name == "timezone"))
        return find_zone(name or "")


class MemoryStore(Store):
    """A store in an SQLite file in a temporary folder, which is deleted with the store.

    Raises HostStorageError when there is no room for temporary files.
    """

    def __init__(self, name: str = IN_MEMORY) -> None:
        try:
            folder = Path(tempfile.mkdtemp(prefix="benchfarm-store-"))
        except OSError as error:
            raise HostStorageError(f"a temporary file can't be written: {error}") from error
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = folder / "store.sqlite"
        prepare_file(path, busy_timeout_s=30.0)
        engine = sqlite_engine(path, busy_timeout_s=30.0, is_durable=False)
        super().__init__(engine, name=name, path=path, busy_timeout_s=30.0)
        _prepared(self)

    def close(self) -> None:
        """Close the database and delete it."""
        super().close()
        self._remove()


def open_store(where: str | Path, *, makes_new: bool = True, busy_timeout_s: float = 30.0) -> Store:
    """Open a store; create it when there is none.

    Args:
        where: path of an SQLite file, ``sqlite:///path``, ``postgresql://user@host/database``, or
            ``:memory:``.
        makes_new: whether a store is made where there is none.
        busy_timeout_s: how long to wait for another process that writes.

    Raises:
        UsageError: the URL can't be understood, or names another kind of database.
        StoreMissingError: there is none, and none is to be made; nothing was created.
        StoreCorruptError: the file is damaged or of another program; it was left untouched.
        StoreError: made by a newer benchfarm, locked, or can't be written or reached.
        MissingPackageError: psycopg isn't installed.
        HostStorageError: no space left.
    """
    if str(where) == IN_MEMORY:
        return MemoryStore()
    place = locate(where)
    if isinstance(place, Path):
        return _open_file(place, makes_new, busy_timeout_s)
    return _open_server(place, makes_new, busy_timeout_s)


def locate(where: str | Path) -> Path | URL:
    """Return the file of an SQLite store, absolute, or the URL of a PostgreSQL one.

    Raises UsageError.
    """
    if isinstance(where, Path) or "://" not in where:
        return _absolute(Path(where))
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):
        # Not raised from the original, whose message repeats the URL, and with it a password.
        raise UsageError(
            "the store's URL can't be understood; write it as postgresql://user@host/database"
        ) from None
    scheme = url.drivername.split("+")[0]
    if scheme == "sqlite":
        if url.query or not url.database:
            raise UsageError(
                f"{where}: an SQLite store is a path and nothing else, for example sqlite:///runs.sqlite"
            )
        return _absolute(Path(url.database))
    if scheme not in ("postgresql", "postgres"):
        raise UsageError(
            f"a store can't be kept in {scheme!r}; use a path (SQLite) or postgresql://user@host/database"
        )
    return url


def title_of(place: Path | URL) -> str:
    """Return a store's name for messages, without a password."""
    if isinstance(place, Path):
        return str(place)
    # Parameters may hold a password too.
    return place.set(query={}).render_as_string(hide_password=True)


def _absolute(path: Path) -> Path:
    if path == Path() or "\x00" in str(path):
        raise UsageError("the store's path is empty or holds a NUL character; name a file")
    return expanded(path).absolute()


def _open_file(path: Path, makes_new: bool, busy_timeout_s: float) -> Store:
    if not makes_new and is_missing(path):
        raise _missing(f"{path}: there is no store")
    try:
        make_private(path.parent)
    except OSError as error:
        raise StoreError(
            f"{path.parent}: the store's folder can't be made: {error.strerror}"
        ) from error
    prepare_file(path, busy_timeout_s=busy_timeout_s)
    engine = sqlite_engine(path, busy_timeout_s=busy_timeout_s)
    return _prepared(Store(engine, name=str(path), path=path, busy_timeout_s=busy_timeout_s))


def _open_server(url: URL, makes_new: bool, busy_timeout_s: float) -> Store:
    require_packages("a store on PostgreSQL", "psycopg")
    engine = postgresql_engine(url, busy_timeout_s=busy_timeout_s)
    store = Store(engine, name=title_of(url), path=None, busy_timeout_s=busy_timeout_s)
    return _prepared(store, makes_new=makes_new)


def _prepared(store: Store, *, makes_new: bool = True) -> Store:
    """Return a store after its schema was checked, and its tables made where there were none."""
    with ExitStack() as stack:
        stack.callback(store.close)
        with store.reading() as connection:
            has_tables = _has_tables(connection, store.name)
        if not has_tables:
            if not makes_new:
                raise _missing(f"{store.name}: there is no store in this database")
            with store.writing() as connection:
                # Another process may have made them.
                if not _has_tables(connection, store.name):
                    METADATA.create_all(connection, checkfirst=False)
                    settings = {"version": str(VERSION), "timezone": local_timezone()}
                    rows = [{"name": name, "value": value} for name, value in settings.items()]
                    connection.execute(insert(SETTINGS), rows)
        stack.pop_all()
    return store


def _has_tables(connection: Connection, name: str) -> bool:
    """Return whether a database has a store's tables.

    Raises StoreError for those of another version.
    """
    if not inspect(connection).has_table(SETTINGS.name):
        return False
    version = connection.scalar(select(SETTINGS.c.value).where(SETTINGS.c.name == "version"))
    if version != str(VERSION):
        raise StoreError(
            f"{name}: made by a newer benchfarm (schema {version}, this one knows {VERSION}); it was left untouched",
            hint="upgrade benchfarm, or name another store",
        )
    return True


def _missing(message: str) -> StoreMissingError:
    return StoreMissingError(
        message, hint="name the one that is meant; 'benchfarm bench' and 'run' make a new one"
    )


#: Marks a benchfarm store among SQLite databases: "bfar" in the file's header.
APPLICATION_ID: Final = 0x62666172

_PAGE_BYTES: Final = 8_192


def is_missing(path: Path) -> bool:
    """Whether a file doesn't exist or is empty; one that can't be checked counts as existing."""
    try:
        status = path.stat()
        return stat.S_ISREG(status.st_mode) and status.st_size == 0
    except FileNotFoundError:
        return True
    except OSError:
        return False


def prepare_file(path: Path, *, busy_timeout_s: float) -> None:
    """Mark a new file as ours and switch it to a write-ahead log; does nothing to a file that is
    prepared.

    Only SQLite opens the file: another open and close in this process would drop the locks of all
    its connections (POSIX), and another process would delete the log in which they write.

    Raises:
        StoreCorruptError: no SQLite database, or one of another program.
        StoreError: no regular file, or one that can't be opened or written.
    """
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise StoreError(
            f"{path.parent}: the store's folder can't be written, and SQLite keeps its log there"
        )
    if not os.path.exists(path):  # noqa: PTH110 - of a name that is too long it says no
        # Only its owner may read it: it holds the output of programs and phones.
        with suppress(OSError):
            path.touch(mode=0o600)
    elif not os.path.isfile(path):  # noqa: PTH113
        raise StoreError(f"{path} is no regular file; name another one")
    elif not os.access(path, os.W_OK):
        raise StoreError(f"{path}: the store can't be written; check its permissions")
    with store_errors(str(path), path=path), closing(_connect(path, busy_timeout_s)) as connection:
        # In this order: a process that makes the store at the same time makes its tables last.
        (has_tables,) = connection.execute("PRAGMA schema_version").fetchone()
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        if application_id != APPLICATION_ID:
            if has_tables:
                raise StoreCorruptError(
                    f"{path} is a database of another program; it was left untouched",
                    hint="name another file",
                )
            # Of a new file only. Runs leave less of a large page unused, and each commit writes
            # whole pages.
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        # Readers and the writer don't wait for each other; where a file system can't do it, SQLite
        # stays as it is.
        if connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete":
            # Of two processes that switch at once SQLite lets none wait for the other.
            with suppress(sqlite3.OperationalError):
                connection.execute("PRAGMA journal_mode = WAL").fetchone()


def compact(path: Path) -> None:
    """Rewrite a store without unused space; writers wait. Raises StoreError, HostStorageError."""
    with store_errors(str(path), path=path), closing(_connect(path, 30.0)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def copy_to(path: Path, copy: Path) -> None:
    """Copy a store that others may be writing, whole and on the disk when this returns.

    Raises StoreError, StoreCorruptError or HostStorageError; no part of a copy is left then.
    """
    try:
        with draft_of(copy) as draft:
            # Before SQLite does, which would report a fault of the copy's path as one of the store.
            draft.touch()
            try:
                with (
                    store_errors(str(path), path=copy),
                    closing(_connect(path, 30.0)) as connection,
                ):
                    connection.execute("VACUUM INTO ?", (str(draft),))
            finally:
                # SQLite leaves its journal when the disk is full.
                draft.with_name(f"{draft.name}-journal").unlink(missing_ok=True)
            with draft.open("rb+") as file:
                os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(
            f"{copy}: the copy of {path} can't be written: {error.strerror}"
        ) from error


def _connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)
