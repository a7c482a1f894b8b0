"""Time, as a thing that can be passed in: the system's clock and deadlines."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as time_of_day
from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo

from orchestrator.errors import DeviceTimeoutError


class Clock(Protocol):
    """Wall time for records, monotonic time for durations, and a wait that can be cut short."""

    def now(self) -> datetime:
        """Return the wall-clock time, timezone-aware, in UTC."""

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""

    def wait(self, seconds: float, cancelled: threading.Event | None = None) -> bool:
        """Wait; return True when ``cancelled`` was set before the time was over."""


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


class Deadline:
    """A point in monotonic time by which a whole operation must be over."""

    def __init__(self, seconds: float, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.seconds = seconds
        self._begun_s = self._clock.monotonic_s()
        self._end_s = self._begun_s + seconds

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end_s - self._clock.monotonic_s())

    @property
    def expired(self) -> bool:
        """Whether the time is over."""
        return self._clock.monotonic_s() >= self._end_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since it was set."""
        return self._clock.monotonic_s() - self._begun_s

    def wait(self, seconds: float, cancelled: threading.Event | None = None) -> bool:
        """Wait, no longer than until the deadline; return True when ``cancelled`` was set before."""
        return self._clock.wait(min(seconds, self.remaining_s), cancelled)

    def check(self, operation: str, *, serial: str = "") -> None:
        """Raise DeviceTimeoutError naming ``operation`` when the time is over."""
        if self.expired:
            raise DeviceTimeoutError(
                f"{operation} took longer than {self.seconds:g} s", serial=serial
            )


def find_zone(name: str) -> ZoneInfo | None:
    """Return the time zone of a name such as ``Europe/Berlin``, None for an unknown one."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None


def local_timezone() -> str:
    """Return the name of this computer's time zone.

    If its settings don't name it, the zone of its present offset (``Etc/GMT-2`` is east of
    Greenwich), or UTC if that isn't in whole hours.
    """
    name = os.environ.get("TZ", "").removeprefix(":")
    if find_zone(name) is not None:
        return name
    with suppress(OSError):
        name = str(Path("/etc/localtime").readlink()).rpartition("zoneinfo/")[2]
        if _is_local_zone(name):
            return name
    with suppress(OSError, ValueError):
        name = Path("/etc/timezone").read_text("ascii").strip()
        if _is_local_zone(name):
            return name
    hours, rest = divmod(datetime.now().astimezone().utcoffset() or timedelta(), timedelta(hours=1))
    name = f"Etc/GMT{-hours:+d}"
    return name if hours and not rest and find_zone(name) is not None else "UTC"


def _is_local_zone(name: str) -> bool:
    """Whether a zone's offsets are this computer's: $TZ may set others without naming a zone."""
    zone = find_zone(name)
    moments = [datetime(datetime.now(UTC).year, month, 1, tzinfo=UTC) for month in (1, 7)]
    return zone is not None and all(
        moment.astimezone(zone).utcoffset() == moment.astimezone().utcoffset() for moment in moments
    )


def night_of(moment: datetime, zone: tzinfo | None) -> date:
    """Return the night of a moment, in a time zone; None: in this computer's."""
    return (moment.astimezone(zone) - timedelta(hours=12)).date()


def first_moment(night: date, zone: tzinfo | None) -> datetime:
    """Return when a night begins: at its date's noon."""
    return datetime.combine(night, time_of_day(12), zone).astimezone(zone)
