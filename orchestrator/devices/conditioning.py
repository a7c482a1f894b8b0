"""Preparing a device for measurement, and restoring what was changed.

The steps: reachable (it answers) -> identified (the same phone, the same boot) -> clean (nothing
runs, nobody else has it, there is space) -> quiet (as planned, quiet.py) -> fit (probes.py).
Each change is journalled on this computer and on the phone before it is made, so that neither a
crash nor another computer leaves anything behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Final

from orchestrator.clock import Clock, Deadline, SystemClock
from orchestrator.devices.lease import FREE_MIN_BYTES, LEASE_S, ClaimResult, Claims, check_free
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.probes import danger_reason, unfit_reasons, wait_until_fit
from orchestrator.devices.quiet import (
    SCREEN_OFF,
    SCREEN_ON,
    SCREEN_STATE,
    SNAPSHOT_COMMANDS,
    QuietStep,
    UndoJournal,
    differences,
    format_changes,
    is_network_serial,
    parse_changes,
    parse_snapshot,
    screen_step,
    steps_for,
)
from orchestrator.devices.rescue import HubPower, hub_port
from orchestrator.devices.retries import RESTORING
from orchestrator.devices.sockets import shell_refusal
from orchestrator.errors import (
    DeviceBusyError,
    DeviceChangedError,
    DeviceCommandError,
    DeviceError,
    DeviceSetAsideError,
    DeviceStorageError,
    DeviceTimeoutError,
)
from orchestrator.ports import Device, Fitness, SettingChange
from orchestrator.records.case import APP_PACKAGE, Serial
from orchestrator.records.device import VIRTUAL_USB, DeviceFacts, DeviceState
from orchestrator.records.plan import PlanTerms, Quiet, Screen
from orchestrator.scripts import Answer, check_success, failure_reason, run_scripts, script_command
from orchestrator.units import format_duration

#: The time that a device gets to answer before another try to restore it: an offline phone must not
#: delay the end of the others.
_AWAY_S: Final = 20.0
#: A phone that hangs gets twice this time: for an empty command, and before another try.
_HUNG_S: Final = 10.0

#: Zone name (regular expression) -> limit in degrees, as the device's profile declares.
ZoneLimits = Callable[[DeviceFacts], Mapping[str, float]]
_Report = Callable[[str], None]


_UNDO_FILE: Final = "undo"
_QUIET_TIMEOUT_S: Final = 120.0


class Conditioner:
    """Prepares devices before each run and restores them after the last; one for all devices of a
    process.
    """

    def __init__(
        self,
        journal_folder: Path,
        *,
        zone_limits: ZoneLimits = lambda facts: {},
        lease_s: float = LEASE_S,
        clock: Clock | None = None,
        power: HubPower | None = None,
    ) -> None:
        """``journal_folder`` is on this computer and outlives the process.

        ``lease_s``: a phone is free for others this long after its holder's last renewal.
        """
        self.journal = UndoJournal(journal_folder)
        self._zone_limits = zone_limits
        self._clock = clock or SystemClock()
        self._power = power or HubPower()
        self._claims = Claims(journal_folder, clock=self._clock, lease_s=lease_s)
        #: Serial -> quiet mode that this process has set, and boot id. Each entry is used by the
        #: thread that holds the device's lease.
        self._quiet: dict[Serial, tuple[Quiet, str]] = {}
        #: Devices that refused to switch their screen: no further try until they are restored, or
        #: reboot.
        self._stuck_screens: set[Serial] = set()
        #: Screen states of phones that were quiet already when they were taken, and aren't changed
        #: yet: a screen may go off by itself meanwhile.
        self._screens: dict[Serial, str] = {}
        #: Devices whose last restoration failed, whether or not changes remain there.
        self._unreleased: set[Serial] = set()

    def prepare(
        self,
        device: Device,
        terms: PlanTerms,
        *,
        recent: DeviceState | None = None,
        on_note: Callable[[str, bool], None] = lambda text, is_problem: None,
        cancelled: threading.Event | None = None,
    ) -> Fitness:
        """Identify, clean, quieten and wait until fit; each change is journalled before it is made.

        Called before every run. The terms' quiet mode is applied once for each boot. From then on
        the device is reserved until it is restored, or until this process hasn't renewed its lease
        for a minute. ``recent`` is the device's state if it was read just now; it isn't read again
        then. ``on_note`` gets the reason when a wait begins, and as problems the unavailable steps
        and other findings.

        Raises DeviceBusyError naming the holder (another computer, home or program uses the
        device), DeviceChangedError (another device answers), DeviceStorageError, other DeviceError
        kinds, HostStorageError (nothing is changed then).
        """
        quiet_mode = terms.quiet

        def on_wait(reason: str) -> None:
            on_note(f"waiting until it is fit: {reason}", False)

        def on_problem(text: str) -> None:
            on_note(text, True)

        if not isinstance(device, AdbDevice):
            device.kill_leftover_runs()
        else:
            boot_id = self._clean(device, on_wait, cancelled)
            if self._quiet.get(device.serial) != (quiet_mode, boot_id):
                # A crashed process's changes must not be taken for the phone's own settings, and a
                # new boot has lost some of them.
                self._undo_all(device)
                is_remote = _is_over_network(device)
                steps = steps_for(quiet_mode, device.facts(), over_network=is_remote)
                self._quieten(device, steps, on_problem)
                self._quiet[device.serial] = (quiet_mode, boot_id)
        # A dangerous state, or another screen than planned, needs action in `_state`.
        is_usable = (
            recent and not danger_reason(recent) and not _has_other_screen(recent, quiet_mode)
        )
        usable_states = [recent] if recent and is_usable else []
        zone_limits = self._zone_limits(device.facts())
        longest = format_duration(terms.limits.wait)
        return wait_until_fit(
            lambda: (
                usable_states.pop()
                if usable_states
                else self._state(device, quiet_mode, on_problem)
            ),
            lambda state: unfit_reasons(state, terms.limits, zone_limits),
            Deadline(terms.limits.wait, self._clock),
            on_wait=lambda reason: on_wait(f"{reason} (at most for {longest})"),
            cancelled=cancelled,
        )

    def take(self, device: Device, *, on_wait: _Report = lambda text: None) -> None:
        """Take a phone and restore the changes that a crash left; `restore` releases it.

        Raises DeviceError kinds.
        """
        if isinstance(device, AdbDevice):
            self._clean(device, on_wait, None)
        self._undo_all(device)

    def unrestored(self) -> Sequence[Serial]:
        """Return the devices that were changed and not completely restored since."""
        return self.journal.serials()

    def unreleased(self) -> Sequence[Serial]:
        """Return the devices of this process that have no changes left, but didn't answer when they
        were to be restored: runs may continue there.
        """
        return sorted(self._unreleased - set(self.unrestored()))

    def power_on(self, serial: Serial) -> tuple[list[str], str]:
        """Power on the hub ports that a device's measurement left off; the device isn't needed.

        Returns the undone changes, and why the rest couldn't be undone (empty when nothing is
        left). Raises HostStorageError.
        """
        undone: list[str] = []
        for change in self.journal.ports_off(serial):
            if not self._power.does(change.port, "on"):
                hub, _, number = change.port.partition(" ")
                why = "failed" if self._power.is_there else "isn't installed here"
                return undone, f"{change.what}: 'uhubctl -l {hub} -p {number} -a on' {why}"
            self.journal.forget(serial, change)
            undone.append(change.what)
        return undone, ""

    def pending(self, device: Device) -> Sequence[str]:
        """Return the names of a phone's changes that aren't undone yet, by this journal or the
        phone's own file.

        Raises DeviceStorageError or HostStorageError when one is unreadable, and DeviceError kinds.
        """
        return [change.what for change in self._changes(device)]

    def _changes(self, device: Device) -> list[SettingChange]:
        """Return the changes in either journal: where both have some, those of another computer were
        made first.
        """
        changes = self.journal.pending(device.serial)
        return [change for change in self._phone_journal(device) if change not in changes] + changes

    def restore(
        self, device: Device, *, on_note: _Report = lambda text: None, take: bool = False
    ) -> Sequence[str]:
        """Undo every journalled change, also one of a crashed process or another computer; return
        the names of the restored changes.

        Retried when the connection fails. Changes that can't be undone stay in the journal and
        raise DeviceCommandError. ``on_note`` gets each remaining difference from the first
        snapshot. ``take``: also a phone that somebody else holds, whose process must be dead.
        """

        def wait(error: DeviceError, deadline: Deadline) -> None:
            device.wait_until_ready(
                timeout_s=_HUNG_S if isinstance(error, DeviceTimeoutError) else _AWAY_S
            )

        try:
            restored = RESTORING.run(
                lambda: self._restore(device, on_note, take=take), between=wait, clock=self._clock
            )
        except DeviceError as error:
            # On a phone that somebody else holds no run of ours is left.
            if not isinstance(error, DeviceBusyError):
                self._unreleased.add(device.serial)
            raise
        self._unreleased.discard(device.serial)
        return restored

    def _restore(self, device: Device, on_note: _Report, *, take: bool) -> Sequence[str]:
        if not isinstance(device, AdbDevice):
            return self._undo_all(device)
        try:
            # The steps have longer timeouts, which a phone that hangs mustn't take each.
            device.shell(":", timeout_s=_HUNG_S, action="restoring the phone")
            claim = self._claims.take(
                device, by_force=take, next_scripts=self._takeover_scripts(device)
            )
            # A foreign program doesn't prevent restoring a setting; a foreign holder does.
            self._identify(device, claim)
            # A killed process left its run; one that lost the phone left its runs' folders.
            device.end_leftover_runs(claim.answer)
            restored = self._undo_all(device)
            for text in self.audit(device):
                on_note(f"not as before: {text}")
            self._claims.release(device)
            # Last, so that a killed process's restoration is completed.
            self.journal.keep_snapshot(device.serial, None)
            self._screens.pop(device.serial, None)
        finally:
            # A phone that can't be restored now still becomes free for others soon: they undo the
            # changes in its own file.
            device.claim_renewal.stop()
        return restored

    def audit(self, device: Device) -> Sequence[str]:
        """Return the differences from the first snapshot since the phone was clean.

        Empty without a snapshot. Raises DeviceError kinds.
        """
        before = self.journal.snapshot(device.serial)
        if before is None:
            return ()
        return differences(before, parse_snapshot(_ask(device, SNAPSHOT_COMMANDS).texts()))

    def _keep_snapshot(self, device: Device, answer: Answer | None = None) -> None:
        """Keep a snapshot before the first change; ``answer`` if it was read just now."""
        if isinstance(device, AdbDevice) and self.journal.snapshot(device.serial) is None:
            snapshot = parse_snapshot((answer or _ask(device, SNAPSHOT_COMMANDS)).texts())
            if screen := self._screens.get(device.serial):
                snapshot[SCREEN_STATE] = screen
            self.journal.keep_snapshot(device.serial, snapshot)

    def hold(self, device: Device, change: SettingChange, command: str) -> None:
        """Journal ``change``, then run ``command``; `restore` undoes it, whatever happens to this
        process.

        Raises HostStorageError (nothing is changed then), DeviceCommandError and the other
        DeviceError kinds.
        """
        self._keep_snapshot(device)
        fresh = self._journal_changes(device, [change])
        result = device.shell(command)
        if result.exit_code != 0 and self._is_as_before(device, change):
            self._forget_unmade(device, fresh)
        check_success(result, serial=device.serial, action=repr(command))

    def _takeover_scripts(self, device: AdbDevice) -> dict[str, str]:
        """Return the scripts that end our apps and list our runs, for the round trip that takes the
        phone.
        """
        return {"apps": script_command("stop_apps", APP_PACKAGE), **device.leftover_run_scripts()}

    def _clean(self, device: AdbDevice, on_wait: _Report, cancelled: threading.Event | None) -> str:
        """Take the phone unless it is in use, end leftover runs of ours; return its boot id."""
        claim = self._claims.take_over(
            device,
            on_wait=on_wait,
            next_scripts=self._takeover_scripts(device),
            cancelled=cancelled,
        )
        self._identify(device, claim)
        killed = device.end_leftover_runs(claim.answer)
        if claim.foreign_programs and killed:
            # The program may have been our own leftover run, which has ended now.
            claim = self._claims.take(device)
        check_free(claim, device.serial)
        if claim.free_bytes is not None and claim.free_bytes < FREE_MIN_BYTES:
            raise DeviceStorageError(
                f"only {claim.free_bytes >> 20} MiB are free in {device.work_folder}, a run's output may need "
                f"{FREE_MIN_BYTES >> 20} MiB",
                serial=device.serial,
                hint="free some on the phone",
            )
        return claim.boot_id

    def _identify(self, device: Device, claim: ClaimResult) -> None:
        """Raise DeviceChangedError for another phone, DeviceBusyError when somebody else has it."""
        serial = device.facts().properties.get("ro.serialno", "")
        # Several words are an error message of getprop.
        if serial and len(claim.serial.split()) == 1 and claim.serial != serial:
            raise DeviceChangedError(
                f"another phone answers now: {claim.serial}", serial=device.serial
            )
        check_free(replace(claim, foreign_programs=()), device.serial)

    def _quieten(self, device: AdbDevice, steps: Sequence[QuietStep], on_note: _Report) -> None:
        """Take steps: one round trip to read the phone, one to change it."""
        commands = {step.name: step.read for step in steps if not step.refusal}
        answer = _ask(device, {**commands, **SNAPSHOT_COMMANDS})
        open_steps: list[tuple[QuietStep, str]] = []
        for step in steps:
            original = answer.value(step.name)
            if step.refusal:
                on_note(f"{step.name} is unavailable: {step.refusal}")
            elif step.accepts(original):
                continue
            elif not original:
                on_note(f"{step.name} is unavailable: the phone doesn't have it")
            else:
                open_steps.append((step, original))
        if open_steps:
            self._keep_snapshot(device, answer)
            self._apply_steps(device, open_steps, on_note)
        elif screen := parse_snapshot(answer.texts()).get(SCREEN_STATE):
            self._screens.setdefault(device.serial, screen)

    def _journal_changes(
        self, device: Device, changes: Sequence[SettingChange]
    ) -> list[SettingChange]:
        """Journal changes here, then on the phone; nothing may be changed when this raises.

        Return the changes that weren't pending already.
        """
        pending = self.journal.pending(device.serial)
        fresh = [change for change in changes if change not in pending]
        if fresh:
            changes = [*pending, *fresh]
            self.journal.keep(device.serial, changes)
            self._write_phone_journal(device, changes)
        return fresh

    def _forget_unmade(self, device: Device, unmade: Sequence[SettingChange]) -> None:
        """Remove unmade changes from both journals, the phone's first: a change that is in either
        is undone.
        """
        if unmade:
            remaining = [
                change for change in self.journal.pending(device.serial) if change not in unmade
            ]
            self._write_phone_journal(device, remaining)
            self.journal.keep(device.serial, remaining)

    def _write_phone_journal(self, device: Device, changes: Sequence[SettingChange]) -> None:
        if not isinstance(device, AdbDevice):
            return
        text = format_changes([change for change in changes if not change.port])
        folder, file = quote(device.work_folder), _UNDO_FILE
        write_command = f"printf %s {quote(text)} >{file}.tmp && sync && mv {file}.tmp {file}"
        command = (
            f"mkdir -p {folder} && cd {folder} && {write_command if text else f'rm -f {file}'}"
        )
        action = f"writing the undo file in {device.work_folder}"
        device.ask({"undo": command}, action=action, must=True)

    def _apply_steps(
        self, device: Device, steps: Sequence[tuple[QuietStep, str]], on_note: _Report
    ) -> None:
        """Apply steps, each with the value read before it; a refused step is reported and needs no
        undo.
        """
        # The screen's state before the first change counts, not the present one.
        wakefulness = (self.journal.snapshot(device.serial) or {}).get(SCREEN_STATE)
        changes = [
            step.change(
                f"mWakefulness={wakefulness}"
                if wakefulness and step.name in {SCREEN_ON, SCREEN_OFF}
                else before
            )
            for step, before in steps
        ]
        fresh = self._journal_changes(device, changes)
        scripts = {
            f"apply {step.name}": f"( {step.apply} ) 2>&1; printf '\\n%s' $?" for step, _ in steps
        }
        answer = _ask(device, scripts | {f"check {step.name}": step.read for step, _ in steps})
        unmade: list[SettingChange] = []
        for (step, before), change in zip(steps, changes, strict=True):
            output, _, code = answer.text(f"apply {step.name}").strip().rpartition("\n")
            now = answer.value(f"check {step.name}")
            is_made = code == "0" if step.by_exit_code else step.accepts(now)
            refusal = shell_refusal(output)
            # Another step may have done it: the screen comes on with "stay awake".
            if change in fresh and (refusal or (not is_made and now == before)):
                unmade.append(change)
            if is_made:
                continue
            if step.name in {SCREEN_ON, SCREEN_OFF} and (refusal or code != "0"):
                self._stuck_screens.add(device.serial)
            why = refusal or f"exit code {code or 'unknown'}"
            on_note(f"{step.name} is unavailable (the phone says {now!r}): {why}")
        self._forget_unmade(device, unmade)

    def _state(self, device: Device, quiet: Quiet, on_note: _Report) -> DeviceState:
        """Read the state; switch the screen again if it isn't as planned any more."""
        state = device.state()
        if why := danger_reason(state):
            raise DeviceSetAsideError(
                why, serial=device.serial, hint="check its battery before you use it again"
            )
        is_unplanned = _has_other_screen(state, quiet) and device.serial not in self._stuck_screens
        if isinstance(device, AdbDevice) and is_unplanned:
            self._quieten(device, [screen_step(quiet.screen)], on_note)
            state = device.state()
        return state

    def _undo_all(self, device: Device) -> list[str]:
        """Undo the changes in this computer's journal or the phone's own file, newest first."""
        self._quiet.pop(device.serial, None)
        self._stuck_screens.discard(device.serial)
        restored, why = self.power_on(device.serial)
        changes = self._changes(device)
        if why and isinstance(device, AdbDevice) and hub_port(device) in {c.port for c in changes}:
            # It is online on that port: somebody powered it on.
            changes, why = [change for change in changes if not change.port], ""
        self.journal.keep(device.serial, changes)
        remaining, failed = changes.copy(), [why] if why else []
        for change in reversed([change for change in changes if change.undo]):
            if why := self._undo_change(device, change):
                failed.append(f"{change.what} can't be restored with {change.undo!r}: {why}")
                continue
            restored.append(change.what)
            remaining.remove(change)
            if remaining:
                self.journal.keep(device.serial, remaining)
        if failed:
            raise DeviceCommandError("; ".join(failed), serial=device.serial)
        if any(change.undo for change in changes):
            # The phone's file is removed first: while either is left, the next process undoes the
            # changes again.
            self._write_phone_journal(device, ())
        self.journal.keep(device.serial, ())
        return restored

    def _undo_change(self, device: Device, change: SettingChange) -> str:
        """Undo a change; return the reason of a failure, empty when it is restored."""
        result = device.shell(change.undo)
        why = shell_refusal(result.text + result.stderr.decode("utf-8", "replace"))
        if result.exit_code != 0:
            why = why or failure_reason(result)
        return "" if why and self._is_as_before(device, change) else why

    def _is_as_before(self, device: Device, change: SettingChange) -> bool:
        return bool(change.read) and _ask(device, {"read": change.read}).value("read") == change.was

    def _phone_journal(self, device: Device) -> list[SettingChange]:
        """Return the changes in the phone's own file, without those of this computer's ports."""
        if not isinstance(device, AdbDevice):
            return []
        path = f"{device.work_folder}/{_UNDO_FILE}"
        script = {"undo": f"[ ! -e {quote(path)} ] || cat {quote(path)}"}
        answer = device.ask(script, action="reading the undo file")
        try:
            if answer.exit_code != 0:
                raise ValueError(failure_reason(answer))
            return [change for change in parse_changes(answer.text("undo")) if not change.port]
        except ValueError as error:
            raise DeviceStorageError(
                f"the undo file {path} can't be read: {error}",
                serial=device.serial,
                hint="read the file by 'adb shell', undo the changes that it names, then remove it",
            ) from error


def _ask(device: Device, scripts: Mapping[str, str]) -> Answer:
    return run_scripts(
        partial(device.shell, timeout_s=_QUIET_TIMEOUT_S), scripts, serial=device.serial
    )


def _has_other_screen(state: DeviceState, quiet: Quiet) -> bool:
    return state.screen_on is (quiet.screen is Screen.OFF)


def _is_over_network(device: AdbDevice) -> bool:
    """Whether adb reaches the phone through the phone's network, which then must stay on."""
    facts = device.facts()
    # A virtual phone may play a phone on USB, though its server can't.
    on_cable = facts.is_virtual and bool(facts.properties.get(VIRTUAL_USB))
    return is_network_serial(device.transport) and not on_cable
