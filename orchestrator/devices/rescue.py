"""Recovery of a phone that stopped answering: reconnect, power its port off and on, reboot it; then
wait for it.

Every attempt to connect restarts our own adb server if it has died or hangs, but never a server of
others.
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

from orchestrator.devices.discovery import parse_devices
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.quiet import UndoJournal
from orchestrator.errors import DeviceError
from orchestrator.ports import Device, SettingChange
from orchestrator.processes import child_environment, run_program

#: How long a phone may take to answer after each attempt.
_ANSWER_S: Final = 20.0
#: ... and after a reboot.
_BOOT_S: Final = 120.0
_SHORTEST_PAUSE_S: Final = 0.5
#: A TCP phone isn't announced by its server, but must be connected: at least this often.
_LONGEST_PAUSE_S: Final = 10.0


class Rescuer:
    """Recovers phones; one for all phones of a process."""

    def __init__(self, power: HubPower, *, answer_s: float = _ANSWER_S) -> None:
        """``answer_s``: how long a phone may take to answer after each attempt except a reboot."""
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
        """Make each attempt in turn, then wait while ``keep_waiting``; return whether the device answers
        again.

        ``on_note`` is called with each attempt. A device is rebooted only with ``may_reboot``.
        """
        if not isinstance(device, AdbDevice):
            return False
        # Its connection is replaced, also one that the server reports as good.
        device.hangs = True
        for note, attempt, answer_s in self._attempts(device, may_reboot=may_reboot):
            if cancelled.is_set():
                return False
            on_note(note)
            if attempt() and self._answers(device, answer_s):
                return True
        pause_s = _SHORTEST_PAUSE_S
        while not self._answers(device, self._answer_s):
            if not keep_waiting() or cancelled.wait(pause_s):
                return False
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
        return True

    def _attempts(
        self, device: AdbDevice, *, may_reboot: bool
    ) -> Iterator[tuple[str, Callable[[], bool], float]]:
        """Yield the attempts (note, operation, seconds to answer); consumed until one helps."""
        # It is reconnected whenever it is awaited.
        yield "is being reconnected", lambda: True, self._answer_s
        port = hub_port(device) if self._power.is_there else None
        if port is not None:
            yield (
                "its USB port is being powered off and on",
                lambda: self._power.does(port, "cycle"),
                self._answer_s,
            )
        if may_reboot:
            yield "is being rebooted", lambda: _reboots(device), _BOOT_S

    def _answers(self, device: AdbDevice, timeout_s: float) -> bool:
        try:
            device.wait_until_ready(timeout_s=timeout_s)
        except DeviceError:
            return False
        return True


def _reboots(device: AdbDevice) -> bool:
    """Ask the phone's adbd for a reboot: it may answer when no shell does."""
    try:
        device.reboot()
    except DeviceError as error:
        # The link ends with the phone's system.
        return error.transient
    return True


#: Runs in its own process: powers the port on when its time is over, or at once when benchfarm
#: closes its input or has ended.
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
#: Timeout of uhubctl; the switching process may have to wait for two calls.
_SWITCH_S: Final = 60.0


class HubPower:
    """Switches hub ports by the program ``uhubctl``, if installed; one for all devices."""

    def __init__(
        self, journal: UndoJournal | None = None, *, search_path: str | None = None
    ) -> None:
        """``journal`` records the ports that are off; ``search_path`` of uhubctl: $PATH if None."""
        self._journal = journal
        self._path = shutil.which("uhubctl", path=search_path)

    @property
    def is_there(self) -> bool:
        """Whether uhubctl is installed."""
        return self._path is not None

    def can_switch(self, device: Device) -> bool:
        """Whether a device's port is known and uhubctl is installed."""
        return self.is_there and isinstance(device, AdbDevice) and hub_port(device) is not None

    def does(self, port: str, action: str) -> bool:
        """Switch a port (``1-4 2`` is port 2 of hub 1-4; ``on``, ``off``, ``cycle``).

        False when it can't be switched.
        """
        if self._path is None or not re.fullmatch(r"\d+(-\d+(\.\d+)*)? \d+", port):
            return False
        try:
            command = [*self._command(port), action]
            code, _, _ = run_program(command, environ=child_environment(), timeout_s=_SWITCH_S)
            return code == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    @contextlib.contextmanager
    def off(self, device: Device, *, after_s: float, lasts_s: float) -> Iterator[None]:
        """Power a device's port off after ``after_s`` for ``lasts_s``; it is on again at the end in
        any case.

        If this process is killed, the port is powered on at once; if both processes are, or this
        computer loses power, the next benchfarm does it from the journal. Requires
        :meth:`can_switch`. Raises HostStorageError (nothing is switched then).
        """
        port = hub_port(device) if isinstance(device, AdbDevice) else None
        assert port is not None
        assert self._journal is not None
        hub, _, number = port.partition(" ")
        change = SettingChange(what=f"USB port {number} of hub {hub} powered off", port=port)
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
            # Otherwise it stays in the journal, and is retried when the phone is restored.
            if is_on or self.does(port, "on"):
                self._journal.forget(device.serial, change)

    def _command(self, port: str) -> list[str]:
        """Return uhubctl's command line for a port, without the action; it must be installed."""
        assert self._path is not None
        hub, _, number = port.partition(" ")
        return [self._path, "-l", hub, "-p", number, "-a"]


def hub_port(device: AdbDevice) -> str | None:
    """Return a phone's USB port: ``1-4 2`` for port 2 of hub 1-4, None when it is unknown."""
    try:
        listed = parse_devices(device.server.device_list())
    except DeviceError:
        return None
    paths = {item.address: item.usb for item in listed}
    # A phone that dropped off its bus isn't listed: its last port counts, unless another phone is
    # there now.
    remembered = "" if device.usb_path in paths.values() else device.usb_path
    return usb_port(paths.get(device.transport) or remembered)


def usb_port(path: str) -> str | None:
    """Return a USB path's hub and port: ``1-4 2`` for ``1-4.2``, ``1 4`` for ``1-4`` at the root.

    None for no path.
    """
    match = re.fullmatch(r"(?:usb:)?(\d+-\d+(?:\.\d+)*)", path)
    if match is None:
        return None
    hub, _, number = match[1].rpartition("." if "." in match[1] else "-")
    return f"{hub} {number}"
