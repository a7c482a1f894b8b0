"""Small parts of one phone's system: properties, clock, screen, settings."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class PhoneState:
    """Screen, radios, doze."""

    screen_on: bool = True
    keyguard: bool = False
    #: The kinds of doze (``deep``, ``light``) that ``dumpsys deviceidle disable`` has switched off.
    doze_off: set[str] = field(default_factory=set)

    def wake(self) -> None:
        """Turn the screen on."""
        self.screen_on = True

    def lock(self) -> None:
        """Turn the screen off; the keyguard comes with it."""
        self.screen_on = False
        self.keyguard = True


class PhoneProps(dict[str, str]):
    """The properties of one phone."""

    @property
    def sdk(self) -> int:
        """Android's API level; 0 where no property tells it."""
        text = self.get("ro.build.version.sdk", "")
        return int(text) if text.isdigit() else 0

    def forget_volatile(self, defaults: Mapping[str, str]) -> None:
        """For a reboot: only ``persist.`` and the defaults stay."""
        for key in list(self):
            if not key.startswith("persist."):
                del self[key]
        self.update({key: value for key, value in defaults.items() if key not in self})


class ScaledTime:
    """Time that passes ``factor`` times as fast as on this computer."""

    def __init__(self, factor: float = 1.0) -> None:
        #: How many phone seconds pass in one real second.
        self.factor = factor
        self._boot_at_s = time.monotonic()
        self._wall_start_s = time.time()
        self._wall_from_s = self._boot_at_s
        self._jumped_s = 0.0

    def uptime_s(self) -> float:
        """Phone seconds since boot (monotonic)."""
        return (time.monotonic() - self._boot_at_s) * self.factor

    def wall_s(self) -> float:
        """The phone's wall clock as a Unix time; it starts as this computer's."""
        return (
            self._wall_start_s
            + (time.monotonic() - self._wall_from_s) * self.factor
            + self._jumped_s
        )

    def sleep(self, phone_seconds: float, cancelled: threading.Event) -> bool:
        """Sleep for a span of phone time; return True when cancelled."""
        return cancelled.wait(max(0.0, phone_seconds) / self.factor)

    def jump(self, seconds: float) -> None:
        """Move the wall clock, not the uptime."""
        self._jumped_s += seconds

    def restart(self) -> None:
        """Restart the uptime, as a boot does."""
        self._boot_at_s = time.monotonic()
