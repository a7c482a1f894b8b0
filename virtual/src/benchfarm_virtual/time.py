"""A phone's time: real, or sped up by a factor, with a wall clock that can be made to jump."""

from __future__ import annotations

import threading
import time


class ScaledTime:
    """Time that passes ``factor`` times as fast as on this computer."""

    def __init__(self, factor: float = 1.0) -> None:
        self._factor = factor
        self._boot_at_s = time.monotonic()
        self._wall_start_s = time.time()
        self._wall_from_s = self._boot_at_s
        self._jumped_s = 0.0

    @property
    def factor(self) -> float:
        """How many phone seconds pass in one real second."""
        return self._factor

    def uptime_s(self) -> float:
        """Phone seconds since boot (monotonic)."""
        return (time.monotonic() - self._boot_at_s) * self._factor

    def wall_s(self) -> float:
        """The phone's wall clock as a Unix time; it starts as this computer's."""
        return (
            self._wall_start_s
            + (time.monotonic() - self._wall_from_s) * self._factor
            + self._jumped_s
        )

    def sleep(self, phone_seconds: float, cancelled: threading.Event | None = None) -> bool:
        """Sleep for a span of phone time; return True when cancelled."""
        real_s = max(0.0, phone_seconds) / self._factor
        if cancelled is None:
            time.sleep(real_s)
            return False
        return cancelled.wait(real_s)

    def jump(self, seconds: float) -> None:
        """Move the wall clock, not the uptime."""
        self._jumped_s += seconds

    def restart(self) -> None:
        """Restart the uptime, as a boot does."""
        self._boot_at_s = time.monotonic()
