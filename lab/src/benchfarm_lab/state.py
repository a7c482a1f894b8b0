"""What a phone's services have been told and what its screen shows; the physics are the hardware's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from benchfarm_lab.contract import Battery, Hardware


@dataclass(slots=True)
class PhoneState:
    """Screen, radios, and figures that a test put in place of the measured ones."""

    hardware: Hardware
    screen_on: bool = True
    keyguard: bool = False
    last_wake_s: float = 0.0
    wifi: bool = True
    mobile_data: bool = True
    night_mode: str = "no"
    fixed_performance: bool = False
    thermal_override: int | None = None
    size_override: tuple[int, int] | None = None
    density_override: int | None = None
    device_idle: bool = False
    #: The kinds of doze (``deep``, ``light``) that ``dumpsys deviceidle disable`` has switched off.
    doze_off: set[str] = field(default_factory=set)
    #: ``dumpsys battery set``: what was set, by name.
    battery_override: dict[str, int] = field(default_factory=dict)
    #: What the battery says of its health, None: what its heat means.
    battery_health: int | None = None

    def battery(self) -> Battery:
        """Return the battery as dumpsys reports it: measured, with what was set by hand on top."""
        battery = self.hardware.battery()
        override = self.battery_override
        if not override:
            return battery
        plugged: Literal["none", "ac", "usb"] = battery.plugged
        if {"ac", "usb", "wireless"} & override.keys():
            plugged = "ac" if override.get("ac") else "usb" if override.get("usb") else "none"
        return replace(
            battery, plugged=plugged, level_percent=override.get("level", battery.level_percent),
            heat_c=override["temp"] / 10 if "temp" in override else battery.heat_c,
        )  # fmt: skip

    def thermal_status(self) -> int:
        """Return the thermal status, measured or set by hand."""
        return self.hardware.thermal_status() if self.thermal_override is None else self.thermal_override

    def wake(self, uptime_s: float) -> None:
        """Turn the screen on."""
        if not self.screen_on:
            self.screen_on = True
            self.last_wake_s = uptime_s

    def lock(self) -> None:
        """Turn the screen off; the keyguard comes with it."""
        self.screen_on = False
        self.keyguard = True

    def restart(self) -> None:
        """What a reboot does to it."""
        self.screen_on = True
        self.keyguard = False
        self.fixed_performance = False
        self.thermal_override = None
        self.battery_override.clear()
        self.device_idle = False
        self.doze_off.clear()
        self.last_wake_s = 0.0
