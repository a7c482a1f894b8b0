"""The phone's log buffers as logd keeps them: bounded rings of messages."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import LogPriority, encoded

if TYPE_CHECKING:
    from benchfarm_virtual.system import ScaledTime

BUFFERS: Final = ("main", "system", "crash")
#: liblog formats a native message into this many bytes, the NUL at its end included.
LOG_BUF_BYTES: Final = 1024
#: How many messages a buffer keeps.
_RING_ENTRIES: Final = 4000


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One message. ``number`` grows over all buffers."""

    number: int
    wall_s: float
    buffer: str
    priority: LogPriority
    tag: str
    message: bytes
    pid: int


class PhoneLogs:
    """All buffers of one phone. Methods may be called from any thread."""

    def __init__(self, time: ScaledTime) -> None:
        self._time = time
        self._changed = threading.Condition()
        #: The number of the newest message of all buffers.
        self.last_number = 0
        self._rings = {name: deque[LogEntry](maxlen=_RING_ENTRIES) for name in BUFFERS}

    def log(self, priority: LogPriority, tag: str, message: str, *, pid: int) -> None:
        """Append one message, cut to what liblog's format buffer holds."""
        data = encoded(message)
        self.append(priority, tag, data[: LOG_BUF_BYTES - 1], pid=pid)

    def append(
        self,
        priority: LogPriority,
        tag: str,
        message: str | bytes,
        *,
        pid: int,
        buffer: str = "main",
    ) -> None:
        """Append one message as Java code and the system do: whole."""
        data = encoded(message) if isinstance(message, str) else message
        with self._changed:
            self.last_number += 1
            self._rings[buffer].append(
                LogEntry(
                    number=self.last_number,
                    wall_s=self._time.wall_s(),
                    buffer=buffer,
                    priority=priority,
                    tag=tag,
                    message=data,
                    pid=pid,
                )
            )
            self._changed.notify_all()

    def entries(self, buffers: Sequence[str], after: int = 0) -> list[LogEntry]:
        """Return the stored entries of some buffers after a number, in order."""
        entries: list[LogEntry] = []
        with self._changed:
            for name in buffers:
                for entry in reversed(self._rings[name]):
                    if entry.number <= after:
                        break
                    entries.append(entry)
        return sorted(entries, key=lambda entry: entry.number)

    def wait(
        self, buffers: Sequence[str], after: int, stopped: Callable[[], bool]
    ) -> list[LogEntry]:
        """Block until there are messages after number ``after`` or ``stopped`` says so (see
        ``wake``).
        """
        with self._changed:
            self._changed.wait_for(lambda: stopped() or bool(self.entries(buffers, after)))
            return self.entries(buffers, after)

    def wake(self) -> None:
        """Have those that wait look again whether they are to stop."""
        with self._changed:
            self._changed.notify_all()

    def clear(self) -> None:
        """Forget everything, as a reboot does."""
        with self._changed:
            for ring in self._rings.values():
                ring.clear()
