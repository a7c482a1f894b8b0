"""Errors of database drivers in benchfarm's own words, and rows that can't be read."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy.exc import DBAPIError, NoSuchModuleError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from orchestrator.errors import (
    BenchfarmError,
    HostStorageError,
    StoreCorruptError,
    StoreError,
    StoreReadOnlyError,
)

Row = TypeVar("Row")
Read = TypeVar("Read")
Kind = type[BenchfarmError]

_LOG: Final = logging.getLogger("orchestrator.store")
#: Warnings given already: the same row is read many times.
_warned: Final[set[str]] = set()
#: A failed write with less free space than this is reported as a full disk: SQLite has codes for
#: some of them only.
_FULL_BELOW_BYTES: Final = 1 << 20
_LOCKED: Final = "another process kept the store locked for too long; try again when it is done"

#: PostgreSQL's code -> kind of error and what it means.
_SQLSTATES: Final[dict[str, tuple[Kind, str]]] = {
    "53100": (
        HostStorageError,
        "the database server's disk is full; what was stored before is kept",
    ),
    "25006": (StoreReadOnlyError, "the database server only allows reading now"),
    "42501": (
        StoreReadOnlyError,
        "this database user may not do that; grant it the rights to read and write",
    ),
    "XX001": (StoreCorruptError, "the database server found damaged data"),
    "XX002": (StoreCorruptError, "the database server found a damaged index"),
    "55P03": (StoreError, _LOCKED),
    "40P01": (StoreError, "another process kept the store locked; try again when it is done"),
    "28P01": (StoreError, "the database server refused the password"),
    "28000": (StoreError, "the database server refused this user"),
    "3D000": (StoreError, "the database server has no such database; create it first"),
}
_NO_SPACE: Final = "no space left on this computer; free some, what was stored before is kept"
#: SQLite's code -> kind of error and what it means, with SQLite's own words in the place of {}.
_SQLITE: Final[dict[int, tuple[Kind, str]]] = {
    sqlite3.SQLITE_READONLY: (
        StoreReadOnlyError,
        "can't be written ({}); check the permissions of file and folder",
    ),
    sqlite3.SQLITE_PERM: (
        StoreReadOnlyError,
        "can't be written ({}); check the permissions of file and folder",
    ),
    sqlite3.SQLITE_FULL: (HostStorageError, _NO_SPACE),
    sqlite3.SQLITE_BUSY: (StoreError, _LOCKED),
    sqlite3.SQLITE_LOCKED: (StoreError, _LOCKED),
    sqlite3.SQLITE_CANTOPEN: (
        StoreError,
        "can't be opened ({}); check the path and its permissions",
    ),
}
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
            raise _of_driver(error.orig, name, path) from error
        if isinstance(error.orig, BenchfarmError):
            raise error.orig from error
        raise StoreError(f"{name}: a value can't be stored: {error.orig}") from error
    except sqlite3.Error as error:
        raise _of_driver(error, name, path) from error
    except OverflowError as error:
        raise StoreError(f"{name}: a number is too large to be stored: {error}") from error
    except PoolTimeoutError as error:
        raise StoreError(
            f"{name}: this process waited for too long for one of its connections to the database, all in use",
            hint="see whether the database server still answers (pg_stat_activity shows what it is at), and try again",
        ) from error
    except NoSuchModuleError as error:
        raise StoreError(
            f"{name}: this kind of database isn't supported; use SQLite or PostgreSQL"
        ) from error


def _of_driver(error: BaseException | None, name: str, path: Path | None) -> BenchfarmError:
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error, name, path)
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate in _SQLSTATES:
        kind, meaning = _SQLSTATES[sqlstate]
        return kind(f"{name}: {meaning}")
    words = " ".join(str(error).split()) or type(error).__name__
    if sqlstate is None or sqlstate.startswith(("08", "57")):
        return StoreError(
            f"{name}: the database server can't be reached or ended the connection: {words}"
        )
    return StoreError(f"{name}: the database refused: {words}")


def _of_sqlite(error: sqlite3.Error, name: str, path: Path | None) -> BenchfarmError:
    # The low byte is the kind, the rest says more about it (https://www.sqlite.org/rescode.html).
    code = int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
    if code in _DAMAGE:
        return StoreCorruptError(
            f"{name}: the file is damaged or isn't a benchfarm store ({error}); it was left untouched",
            hint="restore it from a backup, or name another file",
        )
    if (
        code == sqlite3.SQLITE_IOERR
        and path
        and shutil.disk_usage(path.parent).free < _FULL_BELOW_BYTES
    ):
        code = sqlite3.SQLITE_FULL
    kind, meaning = _SQLITE.get(code, (StoreError, "{}"))
    return kind(f"{name}: {meaning.format(error)}")


def locked(name: str) -> StoreError:
    """Return the error for a store whose lock wasn't free in time."""
    return StoreError(f"{name}: {_LOCKED}")


def readable(rows: Iterable[Row], read: Callable[[Row], Read]) -> Iterator[tuple[Row, Read]]:
    """Yield each row with what was read of it; a row that can't be read is left out, with a
    warning.
    """
    for row in rows:
        try:
            record = read(row)
        except StoreError as error:
            warn(error)
        else:
            yield row, record


def warn(error: StoreError) -> None:
    """Log that something is left out because it can't be read, once in a process."""
    message = f"left out: {error}"
    if message not in _warned:
        _warned.add(message)
        _LOG.warning("%s", message)
