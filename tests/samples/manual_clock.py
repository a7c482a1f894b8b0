"""A clock that is set by hand."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta


class ManualClock:
    """A clock that moves only when it is told to, or waited on."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._monotonic_s = 0.0

    def now(self) -> datetime:
        """Return the time set by hand."""
        return self._now

    def monotonic_s(self) -> float:
        """Return the seconds that this clock was advanced by."""
        return self._monotonic_s

    def wait(self, seconds: float, cancelled: threading.Event | None = None) -> bool:
        """Advance by ``seconds`` at once, unless ``cancelled`` is set."""
        if cancelled is not None and cancelled.is_set():
            return True
        self.advance(seconds)
        return False

    def advance(self, seconds: float) -> None:
        """Move both faces of the clock forward."""
        self._now += timedelta(seconds=seconds)
        self._monotonic_s += seconds
