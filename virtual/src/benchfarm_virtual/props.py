"""System properties: getprop, setprop, and what only the system may set."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from benchfarm_virtual.contract import SYSTEM_UID

#: Properties that a shell user may set; others are refused as SELinux does.
_SHELL_MAY_SET = (
    "debug.",
    "log.",
    "persist.log.tag",
    "persist.traced.enable",
    "sys.powerctl",
    "service.adb.",
    "vendor.debug.",
    "wrap.",
)
_MAX_VALUE_BYTES = 91


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
        """Set as the system does."""
        with self._lock:
            self._props[key] = value

    def set_as(self, uid: int, key: str, value: str) -> str:
        """Set as a user does; return what is wrong, or "" when it is done."""
        if len(value.encode()) > _MAX_VALUE_BYTES and not key.startswith("ro."):
            return f"Failed to set property '{key}' to '{value}'.\nValue too long"
        if key.startswith("ro.") and key in self._props:
            return f"Failed to set property '{key}' to '{value}'.\nSee dmesg for error reason."
        if uid not in {0, SYSTEM_UID} and not key.startswith(_SHELL_MAY_SET):
            return f"Failed to set property '{key}' to '{value}'.\nSee dmesg for error reason."
        self.set(key, value)
        return ""

    def forget_volatile(self, defaults: Mapping[str, str]) -> None:
        """For a reboot: only ``persist.`` and the defaults stay."""
        with self._lock:
            kept = {key: value for key, value in self._props.items() if key.startswith("persist.")}
            self._props = dict(defaults) | kept
