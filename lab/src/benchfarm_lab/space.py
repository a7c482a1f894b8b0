"""How full the phone's storage is."""

from __future__ import annotations

import threading


class Storage:
    """The space of the phone's data partition, in bytes. ``used_bytes`` counts what the phone ships with too."""

    def __init__(self, *, total_bytes: int, shipped_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._lock = threading.Lock()
        self._shipped_bytes = shipped_bytes
        self._files_bytes = 0

    @property
    def used_bytes(self) -> int:
        """What is taken."""
        return self._shipped_bytes + self._files_bytes

    @property
    def free_bytes(self) -> int:
        """What is left."""
        return max(0, self.total_bytes - self.used_bytes)

    def take(self, size_bytes: int) -> bool:
        """Take space (negative: give back); False when there isn't enough."""
        with self._lock:
            if size_bytes > 0 and self._shipped_bytes + self._files_bytes + size_bytes > self.total_bytes:
                return False
            self._files_bytes = max(0, self._files_bytes + size_bytes)
            return True

    def fill(self, *, free_bytes: int) -> None:
        """Make the phone as full as that, as if other apps had filled it."""
        with self._lock:
            self._shipped_bytes = self.total_bytes - self._files_bytes - free_bytes
