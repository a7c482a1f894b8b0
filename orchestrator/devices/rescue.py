"""The ladder for a phone that stopped answering: reconnect, power its port off and on, boot it;
then wait for it.

Our own adb server is started again by every attempt to connect when it has died or hangs; a server
of others never is.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.devices.discovery import parse_devices
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.quiet import UndoJournal
from orchestrator.errors import DeviceError
from orchestrator.ports import Change, Device
from orchestrator.processes import child_environment

#: How long a phone may take to answer after each rung.
_ANSWER_S: Final = 20.0
#: ... and after one that boots it.
_BOOT_S: Final = 120.0
_SHORTEST_PAUSE_S: Final = 0.5
#: A TCP phone isn't announced by its server, it has to be connected: so often at the least.
_LONGEST_PAUSE_S: Final = 10.0


class LadderRescuer:
    """Gets phones back; one for all phones of a process."""

    def __init__(self, power: HubPower, *, answer_s: float = _ANSWER_S) -> None:
        """``answer_s``: how long a phone may take to answer after each rung but a boot."""
        self._answer_s = answer_s
        self._power = power

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

    def _rungs(
        self, device: AdbDevice, *, may_reboot: bool
    ) -> Iterator[tuple[str, Callable[[], bool], float]]:
        """Yield what may help, each asked for when those before it didn't."""
        yield (
            "is being reconnected",
            lambda: _succeeds(
                lambda: device.reconnect(Deadline(self._answer_s, device.clock), fresh=True)
            ),
            self._answer_s,
        )
        port = port_of(device) if self._power.is_there else None
        if port is not None:
            yield (
                "its USB port is being powered off and on",
                lambda: self._power.does(port, "cycle"),
                self._answer_s,
            )
        if may_reboot:
            yield "is being rebooted", lambda: _reboots(device), _BOOT_S

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


#: A process of its own: it powers the port on at its time, and at once when benchfarm closes its
#: input or is gone.
_SCRIPT: Final = """
import select, subprocess, sys
*command, after_s, lasts_s = sys.argv[1:]
def power(action):
    return subprocess.call([*command, action], stdin=subprocess.DEVNULL, timeout=60)
def is_over(seconds):
    return bool(select.select([0], [], [], float(seconds))[0])
if not is_over(after_s):
    try:
        power("off")
        is_over(lasts_s)
    finally:
        sys.exit(power("on"))
"""
#: What uhubctl may take; the process beside us may have to wait for two of them.
_SWITCH_S: Final = 60.0


class HubPower:
    """Switches ports by the program ``uhubctl``, where that is installed and the hub can; one for
    all devices.
    """

    def __init__(
        self, journal: UndoJournal | None = None, *, search_path: str | None = None
    ) -> None:
        """``journal`` keeps which ports are off; ``search_path``: where uhubctl is looked for,
        $PATH when None.
        """
        self._journal = journal
        self._path = shutil.which("uhubctl", path=search_path)

    @property
    def is_there(self) -> bool:
        """Whether uhubctl is installed."""
        return self._path is not None

    def can_switch(self, device: Device) -> bool:
        """Whether a device's port is known, and there is a program that can power it off."""
        return self.is_there and isinstance(device, AdbDevice) and port_of(device) is not None

    def does(self, port: str, action: str) -> bool:
        """Switch a port (``1-4 2`` is port 2 of hub 1-4; ``on``, ``off``, ``cycle``).

        False when that can't be done.
        """
        if self._path is None or not re.fullmatch(r"\d+(-\d+(\.\d+)*)? \d+", port):
            return False
        try:
            done = subprocess.run(
                [*self._command(port), action],
                capture_output=True,
                timeout=_SWITCH_S,
                check=False,
                env=child_environment(),
                stdin=subprocess.DEVNULL,
            )
            return done.returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    @contextlib.contextmanager
    def off(self, device: Device, *, after_s: float, lasts_s: float) -> Iterator[None]:
        """Power a device's port off for a span that begins after a while, and on again at the end
        in any case.

        When this process is killed it is on again at once, and when all are killed, or this
        computer loses its power, by whoever comes next: it is journalled before. Only for a device
        that :meth:`can_switch` is true of. Raises HostStorageError (nothing is switched then).
        """
        port = port_of(device) if isinstance(device, AdbDevice) else None
        assert port is not None
        assert self._journal is not None
        hub, _, number = port.partition(" ")
        change = Change(what=f"USB port {number} of hub {hub} powered off", port=port)
        self._journal.add(device.serial, change)
        process = subprocess.Popen(
            [sys.executable, "-ISc", _SCRIPT, *self._command(port), f"{after_s:g}", f"{lasts_s:g}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=child_environment(),
        )
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                is_on = process.wait(2 * _SWITCH_S) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                is_on = False
            # Else it stays in the journal, and is tried again when the phone is restored.
            if is_on or self.does(port, "on"):
                self._journal.forget(device.serial, change)

    def _command(self, port: str) -> list[str]:
        """Return uhubctl's command line for a port, but for the action's name; it must be there."""
        assert self._path is not None
        hub, _, number = port.partition(" ")
        return [self._path, "-l", hub, "-p", number, "-a"]


def port_of(device: AdbDevice) -> str | None:
    """Return where a phone is plugged in: ``1-4 2`` for port 2 of hub 1-4, None when that isn't
    known.
    """
    try:
        listed = parse_devices(device.server.device_list())
    except DeviceError:
        return None
    paths = {item.address: item.usb for item in listed}
    # One that has dropped off its bus isn't listed: where it was plugged in is known, unless
    # another is there now.
    remembered = "" if device.usb_path in paths.values() else device.usb_path
    return usb_port(paths.get(device.transport) or remembered)


def usb_port(path: str) -> str | None:
    """Return a USB path's hub and port: ``1-4 2`` for ``1-4.2``, ``1 4`` for ``1-4`` at the root.

    None for no path.
    """
    found = re.fullmatch(r"(?:usb:)?(\d+-\d+(?:\.\d+)*)", path)
    if found is None:
        return None
    hub, _, number = found[1].rpartition("." if "." in found[1] else "-")
    return f"{hub} {number}"
