"""Bringing a device into a state in which a number means something, and putting back what was changed.

The ladder: reachable (it answers) -> clean (nothing of ours runs) -> quiet (it stays awake) -> fit (not hot, not
empty). Each change is journalled before it is made, so that a crash leaves nothing behind for good.
"""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from orchestrator.clock import Clock, Deadline, SystemClock
from orchestrator.devices.journal import Change, UndoJournal
from orchestrator.devices.probes import parse_screen
from orchestrator.errors import DeviceCommandError
from orchestrator.ports import Device, Fitness
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.identity import Serial
from orchestrator.records.plan import FitLimits

#: Zone name (regular expression) -> limit in degrees, as the device's profile declares.
ZoneLimits = Callable[[DeviceFacts], Mapping[str, float]]

_STAY_ON: Final = "stay_on_while_plugged_in"
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 10.0


class LadderConditioner:
    """Prepares devices before each run and restores them after the last; one for all devices of a process."""

    def __init__(
        self,
        journal_folder: Path,
        *,
        zone_limits: ZoneLimits | None = None,
        stray_apps: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        """``journal_folder`` is on this computer and outlives the process; ``stray_apps`` are stopped."""
        self.journal = UndoJournal(journal_folder)
        self._zone_limits = zone_limits
        self._stray_apps = tuple(stray_apps)
        self._clock = clock or SystemClock()
        #: Devices made quiet by this process. Each is touched by the one thread that holds its lease.
        self._quiet: set[Serial] = set()

    def prepare(
        self,
        device: Device,
        limits: FitLimits,
        *,
        recent: DeviceState | None = None,
        on_wait: Callable[[str], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> Fitness:
        """See Conditioner.prepare. Raises DeviceError kinds, HostStorageError (nothing is changed then)."""
        device.kill_strays()
        self._stop_apps(device)
        if device.kind is DeviceKind.ANDROID and device.serial not in self._quiet:
            # What a crashed process of ours left changed must not be taken for the phone's own settings.
            self.restore(device)
            self._quieten(device)
            self._quiet.add(device.serial)
        return self._wait_until_fit(device, limits, recent, on_wait, cancelled)

    def unrestored(self) -> Sequence[Serial]:
        """Return the devices on which a change is still to be undone."""
        return self.journal.serials()

    def restore(self, device: Device) -> Sequence[str]:
        """See Conditioner.restore; what can't be undone stays in the journal and raises DeviceCommandError."""
        self._quiet.discard(device.serial)
        left = self.journal.pending(device.serial)
        restored: list[str] = []
        while left:
            change = left[-1]
            result = device.shell(change.undo)
            if result.exit_code != 0:
                said = (result.stderr or result.stdout).decode("utf-8", "replace").strip()
                raise DeviceCommandError(
                    f"{change.what} can't be put back with {change.undo!r}: {said or 'no reason given'}",
                    serial=device.serial,
                )
            left.pop()
            self.journal.keep(device.serial, left)
            restored.append(change.what)
        return restored

    def hold(self, device: Device, change: Change, command: str) -> None:
        """Run ``command`` with ``change`` journalled before it; `restore` undoes it, whatever happens to this process.

        Raises HostStorageError (nothing is changed then), DeviceCommandError and the other DeviceError kinds.
        """
        self._change(device, change, command)

    def _stop_apps(self, device: Device) -> None:
        if device.kind is DeviceKind.ANDROID and self._stray_apps:
            apps = " ".join(map(shlex.quote, self._stray_apps))
            device.shell(f'for app in {apps}; do [ -z "$(pidof $app)" ] || am force-stop $app; done')

    def _quieten(self, device: Device) -> None:
        """Keep the phone awake while it is plugged in: a phone that dozes off gives its cores less."""
        told = device.shell(f"settings get global {_STAY_ON}; dumpsys power | grep mWakefulness=").text
        before, _, power = told.partition("\n")
        if parse_screen(power).on is False:
            # First, because svc wakes the phone too, and what was before couldn't be told any more.
            self._wake(device)
        undo = (
            f"settings put global {_STAY_ON} {before.strip()}"
            if re.fullmatch(r"\d+", before.strip())
            else f"settings delete global {_STAY_ON}"
        )
        self._change(device, Change(what="staying awake while plugged in", undo=undo), "svc power stayon true")

    def _wake(self, device: Device) -> None:
        self._change(
            device,
            Change(what="the screen being on", undo="input keyevent KEYCODE_SLEEP"),
            "input keyevent KEYCODE_WAKEUP",
        )

    def _change(self, device: Device, change: Change, command: str) -> None:
        if change not in self.journal.pending(device.serial):
            self.journal.add(device.serial, change)
        result = device.shell(command)
        if result.exit_code != 0:
            said = (result.stderr or result.stdout).decode("utf-8", "replace").strip()
            raise DeviceCommandError(f"{command!r} failed: {said or 'no reason given'}", serial=device.serial)

    def _wait_until_fit(
        self,
        device: Device,
        limits: FitLimits,
        recent: DeviceState | None,
        on_wait: Callable[[str], None] | None,
        cancelled: threading.Event | None,
    ) -> Fitness:
        zone_limits = self._zone_limits(device.facts()) if self._zone_limits is not None else {}
        deadline = Deadline(limits.wait_s, self._clock)
        begun_s = self._clock.monotonic_s()
        pause_s = _FIRST_PAUSE_S
        while True:
            state, recent = recent or device.state(), None
            if state.screen_on is False:
                self._wake(device)
                state = device.state()
            reasons = unfit_reasons(state, limits, zone_limits)
            waited_s = self._clock.monotonic_s() - begun_s
            if not reasons or deadline.expired or _is_hopeless(state, limits):
                return Fitness(reason="; ".join(reasons), waited_s=waited_s, state=state)
            if on_wait is not None:
                on_wait("; ".join(reasons))
                on_wait = None
            if self._clock.wait(min(pause_s, deadline.remaining_s), cancelled):
                return Fitness(reason="cancelled while waiting: " + "; ".join(reasons), waited_s=waited_s, state=state)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)


def unfit_reasons(state: DeviceState, limits: FitLimits, zone_limits: Mapping[str, float]) -> list[str]:
    """Return why a device in this state is not fit, one reason each; what is unknown is no reason."""
    reasons: list[str] = []
    if state.battery_percent is not None and state.battery_percent < limits.battery_percent_min:
        reasons.append(f"battery at {state.battery_percent} %, at least {limits.battery_percent_min} % wanted")
    if state.battery_heat_c is not None and state.battery_heat_c > limits.battery_heat_c_max:
        reasons.append(f"battery at {state.battery_heat_c:.1f} C, at most {limits.battery_heat_c_max:g} C wanted")
    if state.thermal_status is not None and state.thermal_status > limits.thermal_status_max:
        reasons.append(f"thermal status {state.thermal_status}, at most {limits.thermal_status_max} wanted")
    for pattern, limit_c in zone_limits.items():
        for zone, heat_c in state.heat_c.items():
            if heat_c > limit_c and re.search(pattern, zone):
                reasons.append(f"{zone} at {heat_c:.1f} C, at most {limit_c:g} C wanted")
    return reasons


def _is_hopeless(state: DeviceState, limits: FitLimits) -> bool:
    """Whether waiting is in vain: a low battery that isn't being charged only gets lower."""
    is_low = state.battery_percent is not None and state.battery_percent < limits.battery_percent_min
    return is_low and state.plugged == "none"
