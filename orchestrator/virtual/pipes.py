"""Open files of the phone's processes: pipes, files, the streams of an adb service; counted, so that ends are noticed."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, Protocol

from orchestrator.virtual.contract import (
    ByteSink,
    ByteSource,
    FileWriter,
    PhoneFileError,
    ProgramDiedError,
    StreamClosedError,
)
from orchestrator.virtual.processes import Process

_PIPE_BYTES: Final = 65536
_EBADF: Final = 9


class Handle:
    """An open file shared by file descriptors of several processes; closed when the last one lets go of it."""

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

    @property
    def is_terminal(self) -> bool:
        """Whether ``test -t`` says yes."""
        return False

    def _close(self) -> None:
        return


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
        """Block until bytes are there or the writers are gone; raise ProgramDiedError when the reader is killed."""
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
        if not data:
            return
        with self._changed:
            self._wait(lambda: self._size_bytes < self._limit_bytes or self._read_closed, writer)
            if self._read_closed:
                raise StreamClosedError("Broken pipe")
            self._pieces.append(bytes(data))
            self._size_bytes += len(data)
            self._changed.notify_all()

    def _wait(self, ready: Ready, waiter: Process | None) -> None:
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


class Ready(Protocol):
    """A condition that a pipe's end waits for."""

    def __call__(self) -> bool:
        """Say whether waiting is over."""
        ...


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


class BytesHandle(Handle):
    """A here-document, or nothing at all (/dev/null read)."""

    def __init__(self, data: bytes = b"") -> None:
        super().__init__()
        self._data = data
        self._at = 0
        self._lock = threading.Lock()

    def read(self, limit: int, reader: Process | None) -> bytes:
        """Return the next bytes."""
        with self._lock:
            end = len(self._data) if limit < 0 else min(len(self._data), self._at + limit)
            piece = self._data[self._at : end]
            self._at = end
            return piece

    def read_line(self, reader: Process | None) -> bytes:
        """Return the next line."""
        with self._lock:
            end = self._data.find(b"\n", self._at) + 1 or len(self._data)
            line = self._data[self._at : end]
            self._at = end
            return line


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

    def _close(self) -> None:
        closer = getattr(self._source, "close", None)
        if closer is not None:
            closer()


class WriterHandle(Handle):
    """A file opened to write."""

    def __init__(self, writer: FileWriter) -> None:
        super().__init__()
        self._writer = writer
        self._lock = threading.Lock()

    def write(self, data: bytes, writer: Process | None) -> None:
        """Append to the file."""
        with self._lock:
            self._writer.write(data)

    def _close(self) -> None:
        self._writer.close()


class ClientSink(Handle):
    """The adb client's stdout or stderr. ``released`` is set when no process holds it any more."""

    def __init__(self, sink: ByteSink, *, pty: bool = False) -> None:
        super().__init__()
        self._sink = sink
        self._pty = pty
        self.released = threading.Event()

    def write(self, data: bytes, writer: Process | None) -> None:
        """Send to the client; a pty turns newlines into CR LF."""
        self._sink.write(data.replace(b"\n", b"\r\n") if self._pty else data)

    @property
    def is_terminal(self) -> bool:
        """Whether it is a pty."""
        return self._pty

    def _close(self) -> None:
        self.released.set()


class ClientSource(Handle):
    """The adb client's stdin. A thread of its own reads it from the first read on, so that a reader can be killed."""

    def __init__(self, source: ByteSource, *, pty: bool = False) -> None:
        super().__init__()
        self._source = source
        self._pty = pty
        self._pipe: Pipe | None = None
        self._lock = threading.Lock()

    def _started(self) -> Pipe:
        with self._lock:
            if self._pipe is None:
                self._pipe = Pipe(1 << 20)
                threading.Thread(target=self._pump, args=(self._pipe,), daemon=True, name="phone-stdin").start()
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

    @property
    def is_terminal(self) -> bool:
        """Whether it is a pty."""
        return self._pty

    def _close(self) -> None:
        if self._pipe is not None:
            self._pipe.close_read()


class HandleSource:
    """A handle as one process reads it (contract: ByteSource)."""

    def __init__(self, handle: Handle, process: Process) -> None:
        self._handle = handle
        self._process = process

    def read(self, limit: int = -1) -> bytes:
        """Block until bytes are there; raise ProgramDiedError when the process is killed meanwhile."""
        return self._handle.read(limit, self._process)


class HandleSink:
    """A handle as one process writes it (contract: ByteSink)."""

    def __init__(self, handle: Handle, process: Process) -> None:
        self._handle = handle
        self._process = process

    def write(self, data: bytes) -> None:
        """Write; raise StreamClosedError when nobody reads, ProgramDiedError when the process is killed."""
        if self._process.killed.is_set():
            raise ProgramDiedError(self._process.signal)
        self._handle.write(data, self._process)
