"""Small parts of one phone's system: properties, clock, screen, settings."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from benchfarm_virtual.data import DEFAULTS

_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = DEFAULTS["settings"]


NAMESPACES: Final = tuple(_SETTINGS)


class PhoneSettings:
    """The settings of one phone; they outlive a reboot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed: dict[str, dict[str, str | None]] = {
            namespace: {} for namespace in NAMESPACES
        }

    def get(self, namespace: str, name: str) -> str | None:
        """Return a value, None when there is none."""
        changed = self._changed[namespace]
        return changed[name] if name in changed else _SETTINGS[namespace].get(name)

    def put(self, namespace: str, name: str, value: str | None) -> None:
        """Set a value; None deletes it."""
        with self._lock:
            self._changed[namespace][name] = value

    def all(self, namespace: str) -> Mapping[str, str]:
        """Return everything in a table, sorted."""
        merged: dict[str, str | None] = {**_SETTINGS[namespace], **self._changed[namespace]}
        return {name: value for name, value in sorted(merged.items()) if value is not None}


@dataclass(slots=True)
class PhoneState:
    """Screen, radios, doze."""

    screen_on: bool = True
    keyguard: bool = False
    fixed_performance: bool = False
    #: The kinds of doze (``deep``, ``light``) that ``dumpsys deviceidle disable`` has switched off.
    doze_off: set[str] = field(default_factory=set)

    def wake(self) -> None:
        """Turn the screen on."""
        self.screen_on = True

    def lock(self) -> None:
        """Turn the screen off; the keyguard comes with it."""
        self.screen_on = False
        self.keyguard = True


class PhoneProps(Mapping[str, str]):
    """The properties of one phone, as a mapping that programs read."""

    def __init__(self, props: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._props = dict(props)

    def __getitem__(self, key: str) -> str:
        return self._props[key]

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(sorted(self._props))

    def __len__(self) -> int:
        return len(self._props)

    @property
    def sdk(self) -> int:
        """Android's API level; 0 where no property tells it."""
        text = self._props.get("ro.build.version.sdk", "")
        return int(text) if text.isdigit() else 0

    def set(self, key: str, value: str) -> None:
        """Set a property."""
        with self._lock:
            self._props[key] = value

    def forget_volatile(self, defaults: Mapping[str, str]) -> None:
        """For a reboot: only ``persist.`` and the defaults stay."""
        with self._lock:
            persistent = {
                key: value for key, value in self._props.items() if key.startswith("persist.")
            }
            self._props = dict(defaults) | persistent


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
