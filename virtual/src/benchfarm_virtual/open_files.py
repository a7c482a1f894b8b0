"""Open files of the phone's processes: files, pipes, the streams of an adb service. They are
counted, so that the last process to let go closes them; a process that is killed waits no longer.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Final

from benchfarm_virtual.contract import (
    PhoneFileError,
    ProgramDiedError,
    StreamClosedError,
)
from benchfarm_virtual.processes import current_process, listed

_PIECE_BYTES: Final = 1 << 16
_CLIENT_BYTES: Final = 1 << 20


def _refuse(_: object) -> bytes:
    raise PhoneFileError(errno.EBADF)


class OpenFile:
    """An open file, shared by file descriptors of several processes."""

    def __init__(
        self,
        *,
        take: Callable[[int], bytes] = _refuse,
        put: Callable[[bytes], object] = _refuse,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """``take(size)`` blocks until at least one byte is there and returns at most ``size``,
        ``b""`` at the end; ``put`` writes all; ``close`` is called after the last holder's release.
        """
        self._take = take
        self._put = put
        self._close = close
        self._holders = 1
        self._lock = threading.Lock()
        #: Bytes that were read and pushed back.
        self._ahead = b""

    def retain(self) -> OpenFile:
        """Count one more holder; return self."""
        with self._lock:
            self._holders += 1
        return self

    def release(self) -> None:
        """Count one holder less; close after the last."""
        with self._lock:
            self._holders -= 1
            is_last = self._holders == 0
        if is_last:
            self._close()

    def read(self, limit: int = -1) -> bytes:
        """Block until at least one byte is there; ``b""`` is the end.

        A negative limit reads to the end. Raises ProgramDiedError when the process is killed.
        """
        if limit < 0:
            return b"".join(iter(lambda: self.read(_PIECE_BYTES), b""))
        with self._lock:
            ahead, self._ahead = self._ahead[:limit], self._ahead[limit:]
        return ahead or self._take(limit)

    def read_line(self) -> bytes:
        """Return one line with its newline, taking nothing beyond it."""
        line = bytearray()
        while piece := self.read(4096):
            end = piece.find(b"\n") + 1
            line += piece[: end or None]
            if end:
                with self._lock:
                    self._ahead = piece[end:] + self._ahead
                break
        return bytes(line)

    def write(self, data: bytes) -> None:
        """Write all of ``data``; raise StreamClosedError when nobody reads it, PhoneFileError for a
        full phone, ProgramDiedError when the process is killed.
        """
        process = current_process()
        if process is not None and process.killed.is_set():
            raise ProgramDiedError(process.signal)
        self._put(data)


def null_file() -> OpenFile:
    """Return /dev/null, opened."""
    return OpenFile(take=lambda limit: b"", put=lambda data: None)


class _Pipe:
    """A bounded buffer between two processes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._changed = threading.Condition()
        self._held = bytearray()
        self._read_closed = False
        self._write_closed = False

    def read(self, limit: int) -> bytes:
        """Block until bytes are there or the writers are gone."""
        with self._changed:
            self._wait(lambda: bool(self._held) or self._write_closed)
            piece = bytes(self._held[:limit])
            del self._held[:limit]
            self._changed.notify_all()
            return piece

    def write(self, data: bytes) -> None:
        """Block while the buffer is full; raise StreamClosedError when the reader has closed."""
        for start in range(0, len(data), self._limit_bytes):
            with self._changed:
                # Room for one piece more: the writer of the last piece can end before it is read.
                self._wait(lambda: len(self._held) < self._limit_bytes or self._read_closed)
                if self._read_closed:
                    raise StreamClosedError("Broken pipe")
                self._held += data[start : start + self._limit_bytes]
                self._changed.notify_all()

    def _wait(self, is_ready: Callable[[], bool]) -> None:
        process = current_process()
        if is_ready():
            return
        if process is None:
            self._changed.wait_for(is_ready)
            return
        with listed(process.wakers, self._wake):
            self._changed.wait_for(lambda: is_ready() or process.killed.is_set())
        if not is_ready():
            raise ProgramDiedError(process.signal)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def close_read(self) -> None:
        """Nobody reads any more."""
        with self._changed:
            self._read_closed = True
            self._held.clear()
            self._changed.notify_all()

    def close_write(self) -> None:
        """Nobody writes any more."""
        with self._changed:
            self._write_closed = True
            self._changed.notify_all()


def open_pipe() -> tuple[OpenFile, OpenFile]:
    """Return the ends of a new pipe: to read, and to write."""
    pipe = _Pipe(_PIECE_BYTES)
    return (
        OpenFile(take=pipe.read, close=pipe.close_read),
        OpenFile(put=pipe.write, close=pipe.close_write),
    )


def client_input(read: Callable[[int], bytes]) -> OpenFile:
    """Return the adb client's stdin.

    A thread of its own reads it from the first read on, so that a reader can be killed.
    """
    pipe, starting = _Pipe(_CLIENT_BYTES), threading.Lock()

    def read_all() -> None:
        try:
            while data := read(_PIECE_BYTES):
                pipe.write(data)
        except StreamClosedError:
            pass
        finally:
            pipe.close_write()

    pump = threading.Thread(target=read_all, daemon=True, name="stdin")

    def take(limit: int) -> bytes:
        with starting:
            if pump.ident is None:
                pump.start()
        return pipe.read(limit)

    return OpenFile(take=take, close=pipe.close_read)
