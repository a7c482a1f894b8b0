"""The file of an SQLite store: looked at before SQLite may touch it, created, and copied before it
is changed.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import struct
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.errors import (
    BenchfarmError,
    HostStorageError,
    StoreCorruptError,
    StoreError,
    StoreReadOnlyError,
)
from orchestrator.files import make_private
from orchestrator.store.failures import store_errors

#: What tells a benchfarm store from any other SQLite database: "bfar" in the file's header.
APPLICATION_ID: Final = 0x62666172

_MAGIC: Final = b"SQLite format 3\x00"
_HEADER_BYTES: Final = 100
_PAGE_BYTES: Final = 8_192
_RETRY_S: Final = 0.01
#: Errors of the system that have a kind of their own.
_KINDS: Final[dict[int, type[BenchfarmError]]] = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), StoreReadOnlyError),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), HostStorageError),
}


def check_file(path: Path) -> None:
    """Raise when a file isn't a writable benchfarm store; a missing or empty one is fine.

    Reads the header only.

    Raises:
        StoreCorruptError: no SQLite database, one of another program, or one that was cut off.
        StoreReadOnlyError: the file or its folder can't be written.
        StoreError: a folder, or something that can't be read.
    """
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise StoreReadOnlyError(
            f"{path.parent}: the store's folder can't be written, and SQLite keeps its log there"
        )
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise StoreError(
                f"{path} is a folder; name a file in it, for example {path / 'benchfarm.sqlite'}"
            )
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(f"{path} is no regular file; name another one")
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{path}: the store can't be read: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise StoreReadOnlyError(
            f"{path}: the store can't be written; check the permissions of the file"
        )
    if not header:
        return
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise _corrupt(path, "isn't an SQLite database")
    # https://www.sqlite.org/fileformat2.html#the_database_header
    (page_bytes,) = struct.unpack_from(">H", header, 16)
    (page_count,) = struct.unpack_from(">I", header, 28)
    (application_id,) = struct.unpack_from(">I", header, 68)
    if application_id != APPLICATION_ID:
        raise _corrupt(path, "is a database of another program")
    expected_bytes = page_count * (65536 if page_bytes == 1 else page_bytes)
    if status.st_size < expected_bytes and not _has_log(path):
        raise _corrupt(path, f"was cut off: it has {status.st_size} of {expected_bytes} bytes")


def is_missing(path: Path) -> bool:
    """Whether a file isn't there or holds nothing; what can't be looked at counts as there."""
    try:
        status = path.stat()
        return stat.S_ISREG(status.st_mode) and status.st_size == 0
    except FileNotFoundError:
        return True
    except OSError:
        return False


def create_folder(path: Path) -> None:
    """Make the folder that a store's file lies in, unless it is there."""
    try:
        make_private(path.parent)
    except OSError as error:
        kind = _KINDS.get(error.errno or 0, StoreError)
        raise kind(f"{path.parent}: the store's folder can't be made: {error.strerror}") from error


def prepare_file(path: Path, *, busy_timeout_s: float) -> None:
    """Mark a new file as ours and switch it to a write-ahead log; does nothing to a file that is
    prepared.

    Nobody but its owner may read a new one: it holds what programs and phones printed. SQLite gives
    its log the same mode.
    """
    with suppress(OSError):  # SQLite tells what is wrong with the place.
        path.touch(mode=0o600, exist_ok=True)
    with store_errors(str(path), path=path), closing(_connect(path, busy_timeout_s)) as connection:
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            # Of a new file only. Runs leave less of a large page unused, and each commit writes
            # whole pages.
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        # Readers and the writer don't wait for each other; where a file system can't do it, SQLite
        # stays as it is.
        deadline = Deadline(busy_timeout_s)
        while connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete":
            try:
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
                return
            except sqlite3.OperationalError as error:
                # Two processes that switch at once: SQLite lets neither wait for the other.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or deadline.expired:
                    raise
                time.sleep(_RETRY_S)


def compact(path: Path) -> None:
    """Rewrite a store without unused space; writers wait. Raises StoreError, HostStorageError."""
    with store_errors(str(path), path=path), closing(_connect(path, 30.0)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def copy_to(path: Path, copy: Path) -> Path:
    """Copy a store that others may be writing, checked and on the disk when this returns; return
    the copy's path.

    Raises StoreError, StoreCorruptError or HostStorageError; no part of a copy is left then.
    """
    unfinished = copy.with_name(f"{copy.name}.unfinished")
    try:
        unfinished.unlink(missing_ok=True)
        # Before SQLite opens it, which would say the same of a place where nothing can be as of a
        # store.
        unfinished.touch()
        with store_errors(str(path), path=copy):
            with (
                closing(_connect(path, 30.0)) as source,
                closing(sqlite3.connect(unfinished)) as target,
            ):
                source.backup(target)
                damage = target.execute("PRAGMA quick_check(1)").fetchone()[0]
            if damage != "ok":
                raise StoreCorruptError(f"{path}: the store is damaged: {damage}")
            with unfinished.open("rb+") as file:
                os.fsync(file.fileno())
            unfinished.rename(copy)
    except (HostStorageError, OSError) as error:
        kept = "the store itself is as it was"
        if isinstance(error, HostStorageError) or error.errno == errno.ENOSPC:
            raise HostStorageError(
                f"{copy}: no space left for a copy of {path}", hint=f"free some there; {kept}"
            ) from error
        raise StoreError(
            f"{copy}: the copy of {path} can't be written: {error.strerror or error}",
            hint=f"check the path and its permissions; {kept}",
        ) from error
    finally:
        # SQLite leaves its journal where it found no space.
        for left in (unfinished, unfinished.with_name(f"{unfinished.name}-journal")):
            with suppress(OSError):
                left.unlink(missing_ok=True)
    return copy


def _connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _corrupt(path: Path, what: str) -> StoreCorruptError:
    return StoreCorruptError(
        f"{path} {what}; it was left untouched",
        hint="restore it from a backup, or name another file",
    )
