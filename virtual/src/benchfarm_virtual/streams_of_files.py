"""Files as streams, and how much room the phone has for them."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from typing import Literal

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.trees.node import HeldFile


class FileSource:
    """A held file, read; what is written meanwhile is read, too."""

    def __init__(self, file: HeldFile) -> None:
        self._file = file
        self._at = 0

    def read(self, limit: int = -1) -> bytes:
        """Return the next bytes; ``b""`` at the end."""
        with self._file.lock:
            end = None if limit < 0 else self._at + limit
            piece = bytes(memoryview(self._file.data)[self._at : end])
        self._at += len(piece)
        return piece


class FileSink:
    """A held file, written while there is space."""

    def __init__(
        self, file: HeldFile, storage: Storage, passing: Callable[[int], int], *, append: bool
    ) -> None:
        self._file = file
        self._storage = storage
        self._passing = passing
        self._append = append
        self._at = 0

    def write(self, data: bytes) -> None:
        """Write on; raise PhoneFileError with ENOSPC when the phone is full (what fits is written)."""
        size = min(len(data), self._passing(len(data)))
        file = self._file
        with file.lock:
            at = len(file.data) if self._append else self._at
            growth = max(0, at + size - len(file.data))
            size = max(0, size - growth + self._storage.take_most(growth))
            file.data += bytes(max(0, at - len(file.data)))
            file.data[at : at + size] = data[:size]
            self._at = at + size
            file.mtime_s = time.time()
        if size < len(data):
            raise PhoneFileError(errno.ENOSPC, "No space left on device")


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


class ComputedSink:
    """A computed file that does something with what is written (sysfs), or a device that swallows
    it.
    """

    def __init__(self, store: Callable[[bytes], None]) -> None:
        self._store = store

    def write(self, data: bytes) -> None:
        """Do what the node does; raise PhoneFileError when it refuses the value."""
        self._store(data)


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


class Storage:
    """The space of the phone's data partition, in bytes.

    ``used_bytes`` counts what the phone ships with too.
    """

    def __init__(self, *, total_bytes: int, shipped_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = shipped_bytes
        self._lock = threading.Lock()

    @property
    def free_bytes(self) -> int:
        """What is left."""
        return self.total_bytes - self.used_bytes

    def take_most(self, size_bytes: int) -> int:
        """Take space, at most what is free (negative: give it back); return how much was taken."""
        with self._lock:
            taken = min(size_bytes, self.free_bytes)
            self.used_bytes += taken
            return taken

    def fill(self, *, free_bytes: int) -> None:
        """Make the phone as full as that, as if other apps had filled it."""
        with self._lock:
            self.used_bytes = self.total_bytes - free_bytes
