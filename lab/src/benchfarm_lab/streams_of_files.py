"""Open files: what PhoneTree hands out for real, computed and device files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Literal

from benchfarm_lab.contract import PhoneFileError
from benchfarm_lab.space import Storage

_CHUNK_BYTES = 1 << 20


class HostFileReader:
    """A real file, read."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        """``size_bytes`` is how long it was when it was opened; it may have grown."""
        self._fd = fd
        self._size_bytes = size_bytes

    def read(self, limit: int = -1) -> bytes:
        """Return the next bytes; ``b""`` at the end."""
        if self._fd < 0:
            return b""
        if limit >= 0:
            return os.read(self._fd, limit)
        chunk_bytes = max(4096, min(_CHUNK_BYTES, self._size_bytes + 1))
        return b"".join(iter(lambda: os.read(self._fd, chunk_bytes), b""))

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class HostFileWriter:
    """A real file, written while there is space."""

    def __init__(self, fd: int, storage: Storage, passing: Callable[[int], int]) -> None:
        self._fd = fd
        self._storage = storage
        self._passing = passing

    def write(self, data: bytes) -> None:
        """Append; raise PhoneFileError with ENOSPC when the phone is full (what fits is written)."""
        if self._fd < 0:
            raise PhoneFileError(errno.EBADF, "Bad file descriptor")
        allowed = self._passing(len(data))
        size = min(len(data), allowed)
        if not self._storage.take(size):
            size = min(size, self._storage.free_bytes)
            if not self._storage.take(size):
                size = 0
        view = memoryview(data)[:size]
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except OSError as exc:
                raise PhoneFileError(exc.errno or errno.EIO, os.strerror(exc.errno or errno.EIO)) from exc
        if size < len(data):
            raise PhoneFileError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        """Finish."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class MemorySource:
    """A computed file, as it was when it was opened."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, limit: int = -1) -> bytes:
        """Return the next bytes."""
        end = len(self._data) if limit < 0 else self._at + limit
        piece = self._data[self._at : end]
        self._at += len(piece)
        return piece


class ComputedWriter:
    """A computed file that does something with what is written (sysfs)."""

    def __init__(self, store: Callable[[bytes], None]) -> None:
        self._store = store

    def write(self, data: bytes) -> None:
        """Do what the node does; raise PhoneFileError when it refuses the value."""
        self._store(data)

    def close(self) -> None:
        """Finish."""


class DeviceSource:
    """/dev/null, /dev/zero, /dev/urandom, read."""

    def __init__(self, kind: Literal["null", "zero", "random"]) -> None:
        self._kind = kind

    def read(self, limit: int = -1) -> bytes:
        """Return as many bytes as were asked for; /dev/null has none."""
        if self._kind == "null":
            return b""
        count = 65536 if limit < 0 else limit
        return bytes(count) if self._kind == "zero" else os.urandom(count)


class DeviceWriter:
    """A device that swallows everything."""

    def write(self, data: bytes) -> None:
        """Forget the data."""

    def close(self) -> None:
        """Finish."""
