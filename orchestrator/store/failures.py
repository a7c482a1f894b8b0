"""Every error of a database driver, said in benchfarm's own words."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError, NoSuchModuleError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from orchestrator.errors import BenchfarmError, HostStorageError, StoreCorruptError, StoreError, StoreReadOnlyError

#: Below this much free space a failed write is told as a full disk: SQLite has codes of its own for some of them only.
_FULL_BELOW_BYTES = 1 << 20

_SQLSTATES: dict[str, tuple[type[BenchfarmError], str]] = {
    "53100": (HostStorageError, "the database server's disk is full; what was stored before is kept"),
    "25006": (StoreReadOnlyError, "the database server only allows reading now"),
    "42501": (StoreReadOnlyError, "this database user may not do that; grant it the rights to read and write"),
    "XX001": (StoreCorruptError, "the database server found damaged data"),
    "XX002": (StoreCorruptError, "the database server found a damaged index"),
    "55P03": (StoreError, "another process kept the store locked for too long; try again when it is done"),
    "40P01": (StoreError, "another process kept the store locked; try again when it is done"),
    "28P01": (StoreError, "the database server refused the password"),
    "28000": (StoreError, "the database server refused this user"),
    "3D000": (StoreError, "the database server has no such database; create it first"),
}


@contextmanager
def told(name: str, *, path: Path | None = None) -> Iterator[None]:
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
        if _code_of(error) == sqlite3.SQLITE_TOOBIG:
            # Nothing of ours is stored by a bare connection: it was read, from a length that is none.
            raise _damaged(name, error) from error
        raise _of_driver(error, name, path) from error
    except OverflowError as error:
        raise StoreError(f"{name}: a number is too large to be stored: {error}") from error
    except PoolTimeoutError as error:
        raise StoreError(
            f"{name}: this process waited for too long for one of its connections to the database, all in use",
            hint="see whether the database server still answers (pg_stat_activity shows what it is at), and try again",
        ) from error
    except NoSuchModuleError as error:
        raise StoreError(f"{name}: this kind of database isn't supported; use SQLite or PostgreSQL") from error


def _of_driver(error: BaseException | None, name: str, path: Path | None) -> BenchfarmError:
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error, name, path)
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate in _SQLSTATES:
        kind, meaning = _SQLSTATES[sqlstate]
        return kind(f"{name}: {meaning}")
    said = " ".join(str(error).split()) or type(error).__name__
    if sqlstate is None or sqlstate.startswith(("08", "57")):
        return StoreError(f"{name}: the database server can't be reached or ended the connection: {said}")
    return StoreError(f"{name}: the database refused: {said}")


def _of_sqlite(error: sqlite3.Error, name: str, path: Path | None) -> BenchfarmError:
    code = _code_of(error)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(name, error)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreReadOnlyError(f"{name}: can't be written ({error}); check the permissions of file and folder")
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return HostStorageError(f"{name}: no space left on this computer; free some, what was stored before is kept")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return locked(name)
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreError(f"{name}: can't be opened ({error}); check the path and its permissions")
    return StoreError(f"{name}: {error}")


def _code_of(error: sqlite3.Error) -> int:
    # The low byte is the kind, the rest says more about it (https://www.sqlite.org/rescode.html).
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _damaged(name: str, error: sqlite3.Error) -> StoreCorruptError:
    return StoreCorruptError(
        f"{name}: the file is damaged or isn't a benchfarm store ({error}); it was left untouched",
        hint="restore it from a backup, or name another file",
    )


def locked(name: str) -> StoreError:
    """Return the error for a store whose lock didn't come free in time."""
    return StoreError(f"{name}: another process kept the store locked for too long; try again when it is done")


def unanswered(name: str) -> StoreError:
    """Return the error for a run that is being stored for so long that nobody waits any more."""
    return StoreError(
        f"{name}: didn't answer for too long; whether the run was stored isn't known",
        hint="see whether the disk or the database server still answers, and resume: what was stored isn't run again",
    )


def _is_full(path: Path | None) -> bool:
    return path is not None and shutil.disk_usage(path.parent).free < _FULL_BELOW_BYTES
