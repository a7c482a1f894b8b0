"""The ladder for a phone that stopped answering: reconnect, power its port off and on, boot it;
then wait for it.

Our own adb server is started again by every attempt to connect when it has died or hangs; a server
of others never is.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.devices.discovery import parse_devices
from orchestrator.devices.phone import AdbDevice
from orchestrator.errors import DeviceError
from orchestrator.ports import Device
from orchestrator.processes import child_environment

#: How long a phone may take to answer after each rung.
_ANSWER_S: Final = 20.0
#: ... and after one that boots it.
_BOOT_S: Final = 120.0
#: What uhubctl may take.
_SWITCH_S: Final = 60.0
_SHORTEST_PAUSE_S: Final = 0.5
#: A TCP phone isn't announced by its server, it has to be connected: so often at the least.
_LONGEST_PAUSE_S: Final = 10.0


class LadderRescuer:
    """Gets phones back; one for all phones of a process.

    USB ports are switched by the program ``uhubctl``, where that is installed and the hub can.
    """

    def __init__(self, *, search_path: str | None = None, answer_s: float = _ANSWER_S) -> None:
        """``search_path``: where uhubctl is looked for, $PATH when None; ``answer_s``: how long a
        phone may take to answer after each rung but a boot.
        """
        self._uhubctl = shutil.which("uhubctl", path=search_path)
        self._answer_s = answer_s

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
            if not keep_waiting() or cancelled.wait(pause_s):
                return False
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
        return True

    def cycle_port(self, usb_path: str) -> bool:
        """Power the port of a USB path off and on; False when that can't be done.

        A hub may switch all of its ports.
        """
        port = usb_port(usb_path)
        if port is None or self._uhubctl is None:
            return False
        try:
            done = subprocess.run(
                [self._uhubctl, "-l", port[0], "-p", port[1], "-a", "cycle"],
                capture_output=True,
                timeout=_SWITCH_S,
                check=False,
                env=child_environment(),
                stdin=subprocess.DEVNULL,
            )
            return done.returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    def _rungs(
        self, device: AdbDevice, *, may_reboot: bool
    ) -> Iterator[tuple[str, Callable[[], bool], float]]:
        """Yield what may help, each asked for when those before it didn't."""
        yield (
            "is reconnected",
            lambda: _succeeds(lambda: device.reconnect(Deadline(self._answer_s), fresh=True)),
            self._answer_s,
        )
        path = _usb_path(device) if self._uhubctl is not None else ""
        if usb_port(path) is not None:
            yield (
                "its USB port is powered off and on",
                lambda: self.cycle_port(path),
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


def _usb_path(device: AdbDevice) -> str:
    """Return where a phone is plugged in, empty when that isn't known."""
    try:
        listed = parse_devices(device.server.device_list())
    except DeviceError:
        return ""
    paths = {item.address: item.usb for item in listed}
    # One that has dropped off its bus isn't listed: where it was plugged in is known, unless
    # another is there now.
    remembered = "" if device.usb_path in paths.values() else device.usb_path
    return paths.get(device.transport) or remembered


def usb_port(path: str) -> tuple[str, str] | None:
    """Return a USB path's hub and port: ``1-4`` and ``2`` of ``1-4.2``, ``1`` and ``4`` of ``1-4``
    at the root.

    None for no path.
    """
    found = re.fullmatch(r"(?:usb:)?(\d+-\d+(?:\.\d+)*)", path)
    if found is None:
        return None
    hub, _, number = found[1].rpartition("." if "." in found[1] else "-")
    return hub, number
