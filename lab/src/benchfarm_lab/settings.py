"""What ``settings`` reads and writes: three tables of names and values."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

NAMESPACES: Final = ("system", "secure", "global")
_DEFAULTS: Final[Mapping[str, Mapping[str, str]]] = {
    "system": {
        "screen_off_timeout": "60000", "screen_brightness": "102", "screen_brightness_mode": "1",
        "accelerometer_rotation": "1", "peak_refresh_rate": "60.0",
    },
    "secure": {
        "android_id": "9774d56d682e549c", "location_mode": "3", "ui_night_mode": "1", "lockscreen.disabled": "0",
    },
    "global": {
        "adb_enabled": "1", "airplane_mode_on": "0", "auto_time": "1", "bluetooth_on": "1", "boot_count": "7",
        "development_settings_enabled": "1", "device_provisioned": "1", "low_power": "0", "mobile_data": "1",
        "package_verifier_user_consent": "1", "stay_on_while_plugged_in": "0", "wifi_on": "1",
        "window_animation_scale": "1.0", "transition_animation_scale": "1.0", "animator_duration_scale": "1.0",
        "zen_mode": "0",
    },
}  # fmt: skip


class PhoneSettings:
    """The settings of one phone; they outlive a reboot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed: dict[str, dict[str, str | None]] = {namespace: {} for namespace in NAMESPACES}

    def get(self, namespace: str, name: str) -> str | None:
        """Return a value, None when there is none."""
        changed = self._changed[namespace]
        return changed[name] if name in changed else _DEFAULTS[namespace].get(name)

    def put(self, namespace: str, name: str, value: str | None) -> None:
        """Set a value; None deletes it."""
        with self._lock:
            self._changed[namespace][name] = value

    def all(self, namespace: str) -> Mapping[str, str]:
        """Return everything in a table, sorted."""
        merged: dict[str, str | None] = {**_DEFAULTS[namespace], **self._changed[namespace]}
        return {name: value for name, value in sorted(merged.items()) if value is not None}
