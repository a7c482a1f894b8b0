"""Time, as a thing that can be passed in: the system's clock, one set by hand, and deadlines."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from orchestrator.errors import DeviceTimeoutError


class Clock(Protocol):
    """Wall time for records, monotonic time for durations, and a wait that can be cut short."""

    def now(self) -> datetime:
        """Return the wall-clock time, timezone-aware, in UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        ...

    def wait(self, seconds: float, cancelled: threading.Event | None = None) -> bool:
        """Wait; return True when ``cancelled`` was set before the time was over."""
        ...


class SystemClock:
    """The clock of this computer."""

    def now(self) -> datetime:
        """Return the wall-clock time, timezone-aware, in UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()

    def wait(self, seconds: float, cancelled: threading.Event | None = None) -> bool:
        """Wait; return True when ``cancelled`` was set before the time was over."""
        if cancelled is None:
            time.sleep(max(0.0, seconds))
            return False
        return cancelled.wait(max(0.0, seconds))


class ManualClock:
    """A clock that moves only when it is told to, or waited on; for tests."""

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


class Deadline:
    """A point in monotonic time by which a whole operation must be over."""

    def __init__(self, seconds: float, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.seconds = seconds
        self._end_s = self._clock.monotonic_s() + seconds

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end_s - self._clock.monotonic_s())

    @property
    def expired(self) -> bool:
        """Whether the time is over."""
        return self._clock.monotonic_s() >= self._end_s

    def check(self, what: str, *, serial: str = "") -> None:
        """Raise DeviceTimeoutError naming ``what`` when the time is over."""
        if self.expired:
            raise DeviceTimeoutError(f"{what} took longer than {self.seconds:g} s", serial=serial)
