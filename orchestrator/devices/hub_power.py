"""A USB hub's port without power for a while, so that a phone runs on its battery; its link is away meanwhile."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from typing import Final

from orchestrator.child_environment import child_environment
from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.recovery import port_of
from orchestrator.ports import Device

#: A process of its own, in a session of its own: it powers the port on again whatever becomes of this one.
_SCRIPT: Final = """
power() { "$1" -l "$2" -p "$3" -a "$4" >/dev/null 2>&1 </dev/null; }
hub=$1 at=$2 port=$3
s=
trap 'power "$hub" "$at" "$port" on' EXIT
trap '[ -z "$s" ] || kill $s; exit 1' TERM INT HUP
sleep "$4" & s=$!; wait $s
power "$hub" "$at" "$port" off
sleep "$5" & s=$!; wait $s
"""
#: Until the process that is told to end has powered the port on.
_ON_S: Final = 60.0


class HubPower:
    """Switches ports by ``uhubctl``, where that is installed and the hub can."""

    def __init__(self, *, search_path: str | None = None) -> None:
        """``search_path`` is where ``uhubctl`` is looked for ($PATH's form); None is this process's."""
        self._uhubctl = shutil.which("uhubctl", path=search_path)

    def can_switch(self, device: Device) -> bool:
        """Whether a device's port is known, and there is a program that can power it off."""
        return self._uhubctl is not None and isinstance(device, AdbDevice) and port_of(device) is not None

    @contextlib.contextmanager
    def off(self, device: Device, *, after_s: float, lasts_s: float) -> Iterator[None]:
        """Power a device's port off for a span that begins after a while, and on again at the end in any case.

        Also when this process is killed meanwhile. Only for a device that :meth:`can_switch` is true of.
        """
        port = port_of(device) if isinstance(device, AdbDevice) else None
        assert port is not None
        assert self._uhubctl is not None
        process = subprocess.Popen(
            ["sh", "-c", _SCRIPT, "sh", self._uhubctl, *port, f"{after_s:g}", f"{lasts_s:g}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=child_environment(),
        )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_ON_S)
