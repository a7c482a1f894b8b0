"""Open files of the phone's processes: files, pipes, the streams of an adb service. They are
counted, so that the last process to let go closes them; a process that is killed waits no longer.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Final, Literal

from benchfarm_virtual.contract import (
    ByteSink,
    ByteSource,
    PhoneFileError,
    ProgramDiedError,
    StreamClosedError,
)
from benchfarm_virtual.processes import current_process, listed

_PIECE_BYTES: Final = 1 << 16
_CLIENT_BYTES: Final = 1 << 20


class OpenFile:
    """An open file, shared by file descriptors of several processes."""

    def __init__(self) -> None:
        self._holders = 1
        self._lock = threading.Lock()
        #: Read, and given back.
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

    def _take(self, limit: int) -> bytes:
        raise PhoneFileError(errno.EBADF, "Bad file descriptor")

    def _put(self, data: bytes) -> None:
        raise PhoneFileError(errno.EBADF, "Bad file descriptor")

    def _close(self) -> None:
        return


class DeviceFile(OpenFile):
    """/dev/null, /dev/zero, /dev/urandom: there is room for everything."""

    def __init__(self, kind: Literal["null", "zero", "random"] = "null") -> None:
        super().__init__()
        self._kind = kind

    def _take(self, limit: int) -> bytes:
        if self._kind == "null":
            return b""
        return bytes(limit) if self._kind == "zero" else os.urandom(limit)

    def _put(self, data: bytes) -> None:
        return


class ReadFile(OpenFile):
    """A file opened to read: ``part`` returns what it holds between two places."""

    def __init__(self, part: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._part = part
        self._at = 0

    @classmethod
    def of(cls, data: bytes) -> ReadFile:
        """Return a file with fixed contents."""
        return cls(lambda start, end: data[start:end])

    def _take(self, limit: int) -> bytes:
        with self._lock:
            piece = self._part(self._at, self._at + limit)
            self._at += len(piece)
        return piece


class WrittenFile(OpenFile):
    """A file opened to write: ``put`` takes what is written."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        super().__init__()
        self._write = put

    def _put(self, data: bytes) -> None:
        with self._lock:
            self._write(data)


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
        """Block while the buffer is full; raise StreamClosedError when nobody reads any more."""
        for start in range(0, len(data), self._limit_bytes):
            with self._changed:
                # Room for one piece is left over: so who has the last one written needs nobody to
                # read before it ends.
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


class _PipeEnd(OpenFile):
    """One end of a pipe: the one that is read, or the one that is written."""

    def __init__(self, pipe: _Pipe, *, is_read: bool) -> None:
        super().__init__()
        self._pipe = pipe
        self._is_read = is_read

    def _take(self, limit: int) -> bytes:
        return self._pipe.read(limit) if self._is_read else super()._take(limit)

    def _put(self, data: bytes) -> None:
        if self._is_read:
            super()._put(data)
        self._pipe.write(data)

    def _close(self) -> None:
        (self._pipe.close_read if self._is_read else self._pipe.close_write)()


def open_pipe() -> tuple[OpenFile, OpenFile]:
    """Return the ends of a new pipe: to read, and to write."""
    pipe = _Pipe(_PIECE_BYTES)
    return _PipeEnd(pipe, is_read=True), _PipeEnd(pipe, is_read=False)


class ClientSink(OpenFile):
    """The adb client's stdout or stderr. ``released`` is set when no process holds it any more."""

    def __init__(self, sink: ByteSink) -> None:
        super().__init__()
        self._sink = sink
        self.released = threading.Event()

    def _put(self, data: bytes) -> None:
        self._sink.write(data)

    def _close(self) -> None:
        self.released.set()


class ClientSource(OpenFile):
    """The adb client's stdin.

    A thread of its own reads it from the first read on, so that a reader can be killed.
    """

    def __init__(self, source: ByteSource) -> None:
        super().__init__()
        self._source = source
        self._pipe = _Pipe(_CLIENT_BYTES)
        self._pump: threading.Thread | None = None

    def _take(self, limit: int) -> bytes:
        with self._lock:
            if self._pump is None:
                self._pump = threading.Thread(target=self._read_all, daemon=True, name="stdin")
                self._pump.start()
        return self._pipe.read(limit)

    def _read_all(self) -> None:
        try:
            while data := self._source.read(_PIECE_BYTES):
                self._pipe.write(data)
        except StreamClosedError:
            pass
        finally:
            self._pipe.close_write()

    def _close(self) -> None:
        self._pipe.close_read()
