"""Locks by name among the processes of one computer, and who holds one: answers that are proven
now, by the system itself.

A lock on an open file (``F_OFD_SETLK``; flock where the system has no such) ends with its process,
however that ends; the note in it only tells people who it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from orchestrator.clock import Deadline
from orchestrator.errors import BenchfarmError, HostStorageError, InterruptedByUserError
from orchestrator.files import make_private

_POLL_S: Final = 0.05
#: How often one that waits for its turn checks whether all is cancelled.
_TURN_POLL_S: Final = 0.2
#: A holder that is just giving it back has this long, whatever is asked.
_SHORTEST_WAIT_S: Final = 0.25
#: Where a lock can't be asked for without being taken (flock), who asks whether it is held shares it for
#: a moment, longer on a busy computer: that isn't a holder, and is waited for this long.
_LONGEST_ASKED_S: Final = 10.0
#: Linux locks for an open file, as flock's are (fcntl(2), "open file description locks"), which can
#: be asked for without being taken.
_OPEN_FILE_LOCKS: Final = sys.platform == "linux"
#: `struct flock` of 64-bit offsets: type, whence, start, length, pid.
_FLOCK: Final = "hhqqi"
_LONGEST_NOTE_BYTES: Final = 4096


@contextlib.contextmanager
def turn(free: threading.Semaphore, cancelled: threading.Event) -> Generator[None]:
    """Have one of what a process's threads take turns at, while the context lasts.

    Raises InterruptedByUserError when cancelled while waiting.
    """
    while not free.acquire(timeout=_TURN_POLL_S):
        if cancelled.is_set():
            raise InterruptedByUserError
    try:
        yield
    finally:
        free.release()


class Locks:
    """Locks by name among the processes (and threads) of one computer, a file in ``folder`` for
    each that is held.
    """

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made with the first lock."""
        self._folder = folder

    def take(self, name: str, *, wait_s: float = 0.0) -> Callable[[], None] | None:
        """Return what releases the lock, None when another has it still after ``wait_s``.

        Raises HostStorageError.
        """
        path, wait_s = self._path(name), max(wait_s, _SHORTEST_WAIT_S)
        deadline, longest = Deadline(wait_s), Deadline(wait_s + _LONGEST_ASKED_S)
        try:
            make_private(self._folder)
            while (descriptor := _locked(path)) is None:
                if deadline.expired and (longest.expired or _holder(path)):
                    return None
                time.sleep(_POLL_S)
        except OSError as error:
            raise HostStorageError(f"{path} can't be locked: {error}") from error
        note = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(),
        }
        # The note is for people: the lock holds without it, also on a full disk.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(note).encode())

        def release() -> None:
            # While it is held: who waits for it sees that the file has no name any more, and makes
            # another.
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(descriptor)

        return release

    @contextlib.contextmanager
    def held(self, name: str, *, wait_s: float, busy: BenchfarmError) -> Generator[None]:
        """Hold a lock while the context lasts; raises ``busy``, HostStorageError."""
        release = self.take(name, wait_s=wait_s)
        if release is None:
            raise busy
        try:
            yield
        finally:
            release()

    def live_holder(self, name: str) -> str:
        """Return who holds a lock now, in words; empty for nobody."""
        return _holder(self._path(name))

    def live_holders(self) -> dict[str, str]:
        """Return the locks that somebody holds now, each with its holder."""
        found = {unquote(path.stem): _holder(path) for path in sorted(self._folder.glob("*.lock"))}
        return {name: holder for name, holder in found.items() if holder}

    def _path(self, name: str) -> Path:
        return self._folder / f"{percent_encode(name, safe='')}.lock"


def _locked(path: Path) -> int | None:
    """Return a file that is locked for this process, None when another has the lock.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if _OPEN_FILE_LOCKS:
            fcntl.fcntl(
                descriptor,
                fcntl.F_OFD_SETLK,
                struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0),
            )
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        if _is_locked(file.fileno()):
            return _who(file.read(_LONGEST_NOTE_BYTES))
    return ""


def _is_locked(descriptor: int) -> bool:
    """Whether another has an open file's lock now; raises OSError."""
    if _OPEN_FILE_LOCKS:
        asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        told: int = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))[0]
        return told != fcntl.F_UNLCK
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _who(note: bytes) -> str:
    """Return a holder's note in words."""
    try:
        found = json.loads(note)
        since = datetime.fromisoformat(found["since"]).astimezone()
        return f"process {found['pid']} on {found['host']} since {since:%Y-%m-%d %H:%M:%S}"
    except (ValueError, KeyError, TypeError):
        return "another process"
