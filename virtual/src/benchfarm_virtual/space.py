"""How full the phone's storage is."""

from __future__ import annotations

import threading


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
