"""What a phone's services have been told and what its screen shows; the physics are the hardware's."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PhoneState:
    """Screen, radios, doze."""

    screen_on: bool = True
    keyguard: bool = False
    wifi: bool = True
    mobile_data: bool = True
    fixed_performance: bool = False
    #: The kinds of doze (``deep``, ``light``) that ``dumpsys deviceidle disable`` has switched off.
    doze_off: set[str] = field(default_factory=set)
    #: What the battery says of its health, None: what its heat means.
    battery_health: int | None = None

    def wake(self) -> None:
        """Turn the screen on."""
        self.screen_on = True

    def lock(self) -> None:
        """Turn the screen off; the keyguard comes with it."""
        self.screen_on = False
        self.keyguard = True

    def restart(self) -> None:
        """What a reboot does to it."""
        self.screen_on = True
        self.keyguard = False
        self.fixed_performance = False
        self.doze_off.clear()
