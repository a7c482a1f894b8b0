"""The ladder for a phone that stopped answering: reconnect, power its port off and on, boot it;
then wait for it.

Our own adb server is started again by every attempt to connect when it has died or hangs; a server
of others never is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final

from orchestrator.clock import Clock, SystemClock
from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.hub_power import HubPower, port_of, usb_port
from orchestrator.errors import DeviceError
from orchestrator.ports import Device

#: How long a phone may take to answer after each rung.
_ANSWER_S: Final = 20.0
#: ... and after one that boots it.
_BOOT_S: Final = 120.0
_SHORTEST_PAUSE_S: Final = 0.5
#: A TCP phone isn't announced by its server, it has to be connected: so often at the least.
_LONGEST_PAUSE_S: Final = 10.0


class LadderRescuer:
    """Gets phones back; one for all phones of a process."""

    def __init__(
        self, power: HubPower, *, answer_s: float = _ANSWER_S, clock: Clock | None = None
    ) -> None:
        """``answer_s``: how long a phone may take to answer after each rung but a boot."""
        self._answer_s = answer_s
        self._power = power
        self._clock = clock or SystemClock()

    def rescue(
        self,
        device: Device,
        *,
        keep_waiting: Callable[[], bool],
        may_reboot: bool,
        on_note: Callable[[str], None],
        cancelled: threading.Event,
    ) -> bool:
        """Climb the ladder, then wait as long as ``keep_waiting`` says; whether the device answers
        again.

        ``on_note`` hears of each rung that is tried. A device is rebooted only with ``may_reboot``.
        """
        if not isinstance(device, AdbDevice):
            return False
        for what, rung, answer_s in self._rungs(device, may_reboot=may_reboot):
            if cancelled.is_set():
                return False
            on_note(what)
            if rung() and self._answers(device, answer_s):
                return True
        pause_s = _SHORTEST_PAUSE_S
        while not self._answers(device, self._answer_s):
            if not keep_waiting() or self._clock.wait(pause_s, cancelled):
                return False
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
        return True

    def cycle_port(self, usb_path: str) -> bool:
        """Power the port of a USB path off and on; False when that can't be done.

        A hub may switch all of its ports.
        """
        port = usb_port(usb_path)
        return port is not None and self._power.does(port, "cycle")

    def _rungs(
        self, device: AdbDevice, *, may_reboot: bool
    ) -> Iterator[tuple[str, Callable[[], bool], float]]:
        """Yield what may help, each asked for when those before it didn't."""
        yield (
            "is reconnected",
            lambda: _succeeds(lambda: device.reconnect(timeout_s=self._answer_s)),
            self._answer_s,
        )
        port = port_of(device) if self._power.is_there else None
        if port is not None:
            yield (
                "its USB port is powered off and on",
                lambda: self._power.does(port, "cycle"),
                self._answer_s,
            )
        if may_reboot:
            yield "is rebooted", lambda: _reboots(device), _BOOT_S

    def _answers(self, device: AdbDevice, timeout_s: float) -> bool:
        return _succeeds(lambda: device.wait_until_ready(timeout_s=timeout_s))


def _succeeds(operation: Callable[[], None]) -> bool:
    try:
        operation()
    except DeviceError:
        return False
    return True


def _reboots(device: AdbDevice) -> bool:
    """Ask the phone's adbd for a reboot: it may answer where no shell does."""
    try:
        device.reboot()
    except DeviceError as error:
        # The link ends with the phone's system.
        return error.transient
    return True
