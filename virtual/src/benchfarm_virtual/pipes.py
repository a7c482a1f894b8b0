"""Pipes between the phone's processes, and the streams of an adb service."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from benchfarm_virtual.contract import ByteSink, ByteSource, ProgramDiedError, StreamClosedError
from benchfarm_virtual.handles import Handle
from benchfarm_virtual.processes import Process

_PIPE_BYTES: Final = 65536


class Pipe:
    """A bounded buffer between two processes."""

    def __init__(self, limit_bytes: int = _PIPE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._changed = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._size_bytes = 0
        self._read_closed = False
        self._write_closed = False

    def read(self, limit: int, reader: Process | None) -> bytes:
        """Block until bytes are there or the writers are gone; raise ProgramDiedError when the
        reader is killed.
        """
        if limit < 0:
            return b"".join(iter(lambda: self.read(_PIPE_BYTES, reader), b""))
        with self._changed:
            self._wait(lambda: bool(self._pieces) or self._write_closed, reader)
            if not self._pieces:
                return b""
            piece = self._pieces.popleft()
            if len(piece) > limit:
                self._pieces.appendleft(piece[limit:])
                piece = piece[:limit]
            self._size_bytes -= len(piece)
            self._changed.notify_all()
            return piece

    def read_line(self, reader: Process | None) -> bytes:
        """Take one line and nothing beyond it."""
        line = bytearray()
        while True:
            piece = self.read(_PIPE_BYTES, reader)
            end = piece.find(b"\n")
            if end < 0:
                line += piece
                if piece:
                    continue
                return bytes(line)
            line += piece[: end + 1]
            rest = piece[end + 1 :]
            if rest:
                with self._changed:
                    self._pieces.appendleft(rest)
                    self._size_bytes += len(rest)
                    self._changed.notify_all()
            return bytes(line)

    def write(self, data: bytes, writer: Process | None) -> None:
        """Block while the buffer is full; raise StreamClosedError when nobody reads any more."""
        for start in range(0, len(data), self._limit_bytes):
            piece = bytes(data[start : start + self._limit_bytes])
            with self._changed:
                # Room for one piece is left over: so who has the last one written needs nobody to
                # read before it ends.
                self._wait(
                    lambda: self._size_bytes < self._limit_bytes or self._read_closed, writer
                )
                if self._read_closed:
                    raise StreamClosedError("Broken pipe")
                self._pieces.append(piece)
                self._size_bytes += len(piece)
                self._changed.notify_all()

    def _wait(self, ready: Callable[[], bool], waiter: Process | None) -> None:
        if ready():
            return
        if waiter is None:
            self._changed.wait_for(ready)
            return
        waiter.add_waker(self._wake)
        try:
            self._changed.wait_for(lambda: ready() or waiter.killed.is_set())
        finally:
            waiter.remove_waker(self._wake)
        if not ready():
            raise ProgramDiedError(waiter.signal)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def close_read(self) -> None:
        """Nobody reads any more."""
        with self._changed:
            self._read_closed = True
            self._pieces.clear()
            self._size_bytes = 0
            self._changed.notify_all()

    def close_write(self) -> None:
        """Nobody writes any more."""
        with self._changed:
            self._write_closed = True
            self._changed.notify_all()


class PipeReader(Handle):
    """The end of a pipe that is read."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self._pipe = pipe

    def read(self, limit: int, reader: Process | None) -> bytes:
        """Read from the pipe."""
        return self._pipe.read(limit, reader)

    def read_line(self, reader: Process | None) -> bytes:
        """Read one line from the pipe."""
        return self._pipe.read_line(reader)

    def _close(self) -> None:
        self._pipe.close_read()


class PipeWriter(Handle):
    """The end of a pipe that is written."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self._pipe = pipe

    def write(self, data: bytes, writer: Process | None) -> None:
        """Write into the pipe."""
        self._pipe.write(data, writer)

    def _close(self) -> None:
        self._pipe.close_write()


def open_pipe() -> tuple[PipeReader, PipeWriter]:
    """Return both ends of a new pipe."""
    pipe = Pipe()
    return PipeReader(pipe), PipeWriter(pipe)


class ClientSink(Handle):
    """The adb client's stdout or stderr. ``released`` is set when no process holds it any more."""

    def __init__(self, sink: ByteSink) -> None:
        super().__init__()
        self._sink = sink
        self.released = threading.Event()

    def write(self, data: bytes, writer: Process | None) -> None:
        """Send to the client."""
        self._sink.write(data)

    def _close(self) -> None:
        self.released.set()


class ClientSource(Handle):
    """The adb client's stdin.

    A thread of its own reads it from the first read on, so that a reader can be killed.
    """

    def __init__(self, source: ByteSource) -> None:
        super().__init__()
        self._source = source
        self._pipe: Pipe | None = None
        self._lock = threading.Lock()

    def _started(self) -> Pipe:
        with self._lock:
            if self._pipe is None:
                self._pipe = Pipe(1 << 20)
                threading.Thread(
                    target=self._pump, args=(self._pipe,), daemon=True, name="phone-stdin"
                ).start()
            return self._pipe

    def _pump(self, pipe: Pipe) -> None:
        try:
            while data := self._source.read(1 << 16):
                pipe.write(data, None)
        except StreamClosedError:
            pass
        finally:
            pipe.close_write()

    def read(self, limit: int, reader: Process | None) -> bytes:
        """Read what the client sent."""
        return self._started().read(limit, reader)

    def read_line(self, reader: Process | None) -> bytes:
        """Read one line that the client sent."""
        return self._started().read_line(reader)

    def _close(self) -> None:
        if self._pipe is not None:
            self._pipe.close_read()
