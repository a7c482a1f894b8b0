"""Open files of the phone's processes, counted, so that the last one to let go closes them."""

from __future__ import annotations

import threading
from typing import Final

from benchfarm_virtual.contract import ByteSink, ByteSource, PhoneFileError, ProgramDiedError
from benchfarm_virtual.processes import Process

_EBADF: Final = 9


class Handle:
    """An open file shared by file descriptors of several processes; closed when the last one lets
    go of it.
    """

    def __init__(self) -> None:
        self._holders = 1
        self._holders_lock = threading.Lock()

    def retain(self) -> Handle:
        """Count one more holder; return self."""
        with self._holders_lock:
            self._holders += 1
        return self

    def release(self) -> None:
        """Count one holder less; close after the last."""
        with self._holders_lock:
            self._holders -= 1
            last = self._holders == 0
        if last:
            self._close()

    def read(self, limit: int, reader: Process | None) -> bytes:
        """Return up to ``limit`` bytes (negative: all until the end); ``b""`` at the end."""
        raise PhoneFileError(_EBADF, "Bad file descriptor")

    def read_line(self, reader: Process | None) -> bytes:
        """Return one line with its newline, taking nothing beyond it."""
        line = bytearray()
        while piece := self.read(1, reader):
            line += piece
            if piece == b"\n":
                break
        return bytes(line)

    def write(self, data: bytes, writer: Process | None) -> None:
        """Write all of ``data``."""
        raise PhoneFileError(_EBADF, "Bad file descriptor")

    def _close(self) -> None:
        return


class NullHandle(Handle):
    """/dev/null: nothing to read, and room for everything."""

    def read(self, limit: int, reader: Process | None) -> bytes:
        """Return the end of the file."""
        return b""

    def write(self, data: bytes, writer: Process | None) -> None:
        """Forget the data."""


class CollectHandle(Handle):
    """What a command substitution writes, collected."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def write(self, data: bytes, writer: Process | None) -> None:
        """Keep the data."""
        self._pieces.append(bytes(data))

    @property
    def collected(self) -> bytes:
        """Everything written so far."""
        return b"".join(self._pieces)


class SourceHandle(Handle):
    """A file opened to read."""

    def __init__(self, source: ByteSource) -> None:
        super().__init__()
        self._source = source
        self._ahead = b""
        self._lock = threading.Lock()

    def read(self, limit: int, reader: Process | None) -> bytes:
        """Read on."""
        with self._lock:
            if not self._ahead:
                return self._source.read(limit)
            if limit < 0:
                data, self._ahead = self._ahead, b""
                return data + self._source.read(-1)
            data, self._ahead = self._ahead[:limit], self._ahead[limit:]
            return data

    def read_line(self, reader: Process | None) -> bytes:
        """Read one line."""
        with self._lock:
            line = bytearray()
            while True:
                piece = self._ahead or self._source.read(4096)
                end = piece.find(b"\n") + 1
                if end or not piece:
                    line += piece[: end or len(piece)]
                    self._ahead = piece[end:] if end else b""
                    return bytes(line)
                line += piece
                self._ahead = b""


class WriterHandle(Handle):
    """A file opened to write."""

    def __init__(self, writer: ByteSink) -> None:
        super().__init__()
        self._writer = writer
        self._lock = threading.Lock()

    def write(self, data: bytes, writer: Process | None) -> None:
        """Append to the file."""
        with self._lock:
            self._writer.write(data)


class HandleSource:
    """A handle as one process reads it."""

    def __init__(self, handle: Handle, process: Process) -> None:
        self._handle = handle
        self._process = process

    def read(self, limit: int = -1) -> bytes:
        """Block until bytes are there; raise ProgramDiedError when the process is killed meanwhile."""
        return self._handle.read(limit, self._process)


class HandleSink:
    """A handle as one process writes it."""

    def __init__(self, handle: Handle, process: Process) -> None:
        self._handle = handle
        self._process = process

    def write(self, data: bytes) -> None:
        """Write; raise StreamClosedError when nobody reads, ProgramDiedError when the process is
        killed.
        """
        if self._process.killed.is_set():
            raise ProgramDiedError(self._process.signal)
        self._handle.write(data, self._process)
