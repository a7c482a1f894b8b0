"""Opening a store by path or URL."""

from __future__ import annotations

import functools
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import tzinfo
from pathlib import Path
from typing import Final

from sqlalchemy import URL, Connection, delete, insert, inspect, make_url, select
from sqlalchemy.exc import ArgumentError

from orchestrator.clock import own_timezone, zone_of
from orchestrator.errors import HostStorageError, StoreError, StoreMissingError, UsageError
from orchestrator.installation import require_packages
from orchestrator.store import sqlite_file
from orchestrator.store.campaigns import Campaigns
from orchestrator.store.database import Database, postgresql_engine, sqlite_engine
from orchestrator.store.retention import Retention
from orchestrator.store.schema import METADATA, SETTINGS, VERSION
from orchestrator.store.usage import Usage

#: The stores in files that this process has open, and who opens one more.
_OPENED: Final[weakref.WeakSet[Store]] = weakref.WeakSet()
_OPENING: Final = threading.Lock()
#: The name of a store that is gone with its process.
IN_MEMORY: Final = ":memory:"


class Store(Campaigns, Usage, Retention):
    """A store in SQLite or PostgreSQL.

    Each method is one transaction. It may be used from several threads, and the same database from
    several processes. Every method raises StoreError, one of its kinds, or HostStorageError.
    """

    @functools.cached_property
    def zone(self) -> tzinfo | None:
        """The time zone in which nights begin and end, whoever reads them.

        None for that of the one who reads.
        """
        with self.reading() as connection:
            name = connection.scalar(select(SETTINGS.c.value).where(SETTINGS.c.name == "timezone"))
        return zone_of(name or "")

    def set_zone(self, name: str) -> None:
        """Keep in which time zone nights begin and end, as ``Europe/Berlin``; raises UsageError."""
        if zone_of(name) is None:
            raise UsageError(
                f"{name!r} isn't a time zone that this computer knows",
                hint="for example Europe/Berlin",
            )
        with self.writing() as connection:
            connection.execute(delete(SETTINGS).where(SETTINGS.c.name == "timezone"))
            connection.execute(insert(SETTINGS), {"name": "timezone", "value": name})
        vars(self).pop("zone", None)


class MemoryStore(Store):
    """A store in an SQLite file in a temporary folder, which is deleted with the store.

    Raises HostStorageError when there is no room for temporary files.
    """

    def __init__(self, name: str = IN_MEMORY) -> None:
        try:
            folder = Path(tempfile.mkdtemp(prefix="benchfarm-store-"))
            self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            path = folder / "store.sqlite"
            path.write_bytes(_empty())
        except OSError as error:
            raise HostStorageError(f"a temporary file can't be written: {error}") from error
        engine = sqlite_engine(path, busy_timeout_s=30.0, is_durable=False)
        super().__init__(engine, name=name, path=path, busy_timeout_s=30.0)

    def close(self) -> None:
        """Let go of the database, and delete it."""
        super().close()
        self._remove()


@functools.cache
def _empty() -> bytes:
    """Return the file of an empty store: copying it takes a tenth of making its tables."""
    with tempfile.TemporaryDirectory(prefix="benchfarm-store-") as folder:
        path = Path(folder) / "store.sqlite"
        open_store(path).close()
        return path.read_bytes()


def open_store(where: str | Path, *, makes_new: bool = True, busy_timeout_s: float = 30.0) -> Store:
    """Open a store, made new when there is none.

    Args:
        where: path of an SQLite file, ``sqlite:///path``, ``postgresql://user@host/database``, or
            ``:memory:``.
        makes_new: whether a store is made where there is none.
        busy_timeout_s: how long to wait for another process that writes.

    Raises:
        UsageError: the URL can't be understood, or names another kind of database.
        StoreMissingError: there is none, and none is to be made; nothing was created.
        StoreCorruptError: the file is damaged or of another program; it was left untouched.
        StoreReadOnlyError: the file or its folder can't be written.
        StoreError: made by a newer benchfarm, locked, or can't be reached.
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


def _absolute(path: Path) -> Path:
    if path == Path() or "\x00" in str(path):
        raise UsageError("the store's path is empty or holds a NUL character; name a file")
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(
            f"{path}: there is no such user, whose home folder this could be"
        ) from error


def _open_file(path: Path, makes_new: bool, busy_timeout_s: float) -> Store:
    if not makes_new and sqlite_file.is_missing(path):
        raise _missing(f"{path}: there is no store")
    sqlite_file.create_folder(path)
    with _OPENING:
        # Whoever opens and closes the file beside SQLite takes the locks from all connections of
        # this process (POSIX): another process then deletes the log in which they write.
        if not any(other.is_in(path) for other in _OPENED):
            sqlite_file.check_file(path)
        sqlite_file.prepare_file(path, busy_timeout_s=busy_timeout_s)
        engine = sqlite_engine(path, busy_timeout_s=busy_timeout_s)
        store = Store(engine, name=str(path), path=path, busy_timeout_s=busy_timeout_s)
        _OPENED.add(store)
    with _closed_on_failure(store):
        _prepare(store, makes_new=True)
    return store


def _open_server(url: URL, makes_new: bool, busy_timeout_s: float) -> Store:
    require_packages("a store on PostgreSQL", "psycopg")
    engine = postgresql_engine(url, busy_timeout_s=busy_timeout_s)
    # Parameters may hold a password too.
    name = url.set(query={}).render_as_string(hide_password=True)
    store = Store(engine, name=name, path=None, busy_timeout_s=busy_timeout_s)
    with _closed_on_failure(store):
        _prepare(store, makes_new=makes_new)
    return store


def _prepare(store: Database, *, makes_new: bool) -> None:
    """Check a database's schema, and make the tables where there are none."""
    with store.reading() as connection:
        has_tables = _has_tables(connection, store.name)
    if has_tables:
        return
    if not makes_new:
        raise _missing(f"{store.name}: there is no store in this database")
    with store.writing(is_long=True) as connection:
        # Another process may have made them.
        if not _has_tables(connection, store.name):
            METADATA.create_all(connection, checkfirst=False)
            settings = {"version": str(VERSION), "timezone": own_timezone()}
            connection.execute(
                insert(SETTINGS),
                [{"name": name, "value": value} for name, value in settings.items()],
            )


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


@contextmanager
def _closed_on_failure(store: Database) -> Iterator[None]:
    try:
        yield
    except BaseException:
        store.close()
        raise
