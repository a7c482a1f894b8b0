"""Bringing a device into a state in which a number means something, and restoring what was changed.

The ladder: reachable (it answers) -> identified (the same phone, the same boot) -> clean (nothing
runs, nobody else has it, there is space) -> quiet (as planned, quiet.py) -> fit (state.py).
Each change is journalled on this computer and on the phone before it is made, so that neither a
crash nor another computer leaves anything behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.clock import Clock, Deadline, SystemClock
from orchestrator.devices.lease import FREE_MIN_BYTES, LEASE_S, Claims, Standing, check_free
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.probes import danger, unfit, wait_until_fit
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
from orchestrator.devices.rescue import HubPower, port_of
from orchestrator.devices.sockets import quote, reason_of, refusal_of
from orchestrator.errors import (
    AdbUnavailableError,
    DeviceBusyError,
    DeviceChangedError,
    DeviceCommandError,
    DeviceError,
    DeviceSetAsideError,
    DeviceStorageError,
    DeviceTimeoutError,
    may_return,
)
from orchestrator.ports import Change, Device, Fitness
from orchestrator.records.case import Serial
from orchestrator.records.device import VIRTUAL_USB, DeviceFacts, DeviceState
from orchestrator.records.plan import FitLimits, Quiet, Screen
from orchestrator.scripts import Answer, ask, call

#: How often restoring a device is tried when its connection fails, each time after this long to
#: answer again: a phone that is gone must not hold the others' end.
_RESTORES_MAX: Final = 3
_RESTORE_READY_S: Final = 20.0

#: Zone name (regular expression) -> limit in degrees, as the device's profile declares.
ZoneLimits = Callable[[DeviceFacts], Mapping[str, float]]
_Tell = Callable[[str], None]


_UNDO_FILE: Final = "undo"
_QUIET_TIMEOUT_S: Final = 120.0


class LadderConditioner:
    """Prepares devices before each run and restores them after the last; one for all devices of a
    process.
    """

    def __init__(
        self,
        journal_folder: Path,
        *,
        zone_limits: ZoneLimits = lambda facts: {},
        stray_apps: Sequence[str] = (),
        lease_s: float = LEASE_S,
        clock: Clock | None = None,
        power: HubPower | None = None,
    ) -> None:
        """``journal_folder`` is on this computer and outlives the process; ``stray_apps`` are
        stopped.

        ``lease_s``: a phone is free for others so long after the last word of its holder.
        """
        self.journal = UndoJournal(journal_folder)
        self._zone_limits = zone_limits
        self._stray_apps = tuple(stray_apps)
        self._clock = clock or SystemClock()
        self._power = power or HubPower()
        self._claims = Claims(journal_folder, clock=self._clock, lease_s=lease_s)
        #: Devices made quiet by this process, how and in which boot. Each is touched by the thread
        #: with its lease.
        self._quiet: dict[Serial, tuple[Quiet, str]] = {}
        #: Those that refused to switch their screen: they aren't asked again before they are
        #: restored, or boot.
        self._stuck: set[Serial] = set()
        #: The screens of phones that were quiet already when they were taken, and on which nothing
        #: was changed yet: a screen may go off by itself meanwhile.
        self._screens: dict[Serial, str] = {}
        #: Devices whose last restoration failed, whether or not anything is left changed there.
        self._unreleased: set[Serial] = set()

    def prepare(
        self,
        device: Device,
        limits: FitLimits,
        *,
        quiet: Quiet | None = None,
        recent: DeviceState | None = None,
        on_wait: _Tell = lambda text: None,
        on_note: _Tell = lambda text: None,
        cancelled: threading.Event | None = None,
    ) -> Fitness:
        """Identify, clean, quieten and wait until fit; each change is journalled before it is made.

        Called before every run. ``quiet`` is applied once for each boot; None means its defaults.
        From then on others are kept from the device until it is restored, or this process wasn't
        heard of for a minute. ``recent`` is the device's state if it was read just now; the device
        isn't asked again then. ``on_wait`` gets the reason when a wait begins;
        ``on_note`` what couldn't be had, and what was found.

        Raises DeviceBusyError naming the holder (another computer, home or program uses the
        device), DeviceChangedError (another device answers), DeviceStorageError, other DeviceError
        kinds, HostStorageError (nothing is changed then).
        """
        wanted = quiet or Quiet()
        if not isinstance(device, AdbDevice):
            device.kill_strays()
        else:
            boot_id = self._clean(device, on_wait, cancelled)
            if self._quiet.get(device.serial) != (wanted, boot_id):
                # What a crashed process of ours left changed must not be taken for the phone's own
                # settings; and a new boot has forgotten some of them.
                self._undo_all(device)
                self._quieten(device, wanted, on_note)
                self._quiet[device.serial] = (wanted, boot_id)
        # A dangerous one, and another screen than planned, have to be acted on.
        is_usable = recent and not danger(recent) and not _has_other_screen(recent, wanted)
        known = [recent] if recent and is_usable else []
        zone_limits = self._zone_limits(device.facts())
        return wait_until_fit(
            lambda: known.pop() if known else self._state(device, wanted, on_note),
            lambda state: unfit(state, limits, zone_limits),
            Deadline(limits.wait, self._clock),
            on_wait=on_wait,
            cancelled=cancelled,
        )

    def take(self, device: Device, *, on_wait: _Tell = lambda text: None) -> None:
        """Take a phone as it is, changes that a crash left undone restored; `restore` gives it
        back.

        Raises DeviceError kinds.
        """
        if isinstance(device, AdbDevice):
            self._clean(device, on_wait, None)
        self._undo_all(device)

    def unrestored(self) -> Sequence[Serial]:
        """Return the devices that were changed and not restored to the end since."""
        return self.journal.serials()

    def unreleased(self) -> Sequence[Serial]:
        """Return the devices of this process on which nothing is left changed, and which didn't
        answer when they were to be restored: what runs there may go on.
        """
        return sorted(self._unreleased - set(self.unrestored()))

    def power_on(self, serial: Serial) -> tuple[list[str], str]:
        """Power those hubs' ports on again that a device's measurement left off, which needs no
        device.

        Returns what was undone, and why the rest couldn't be (empty when nothing is left). Raises
        HostStorageError.
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
        """Return what is still to be undone on a phone, by this journal or by the phone's own file.

        Raises DeviceStorageError or HostStorageError where that can't be read, and DeviceError
        kinds.
        """
        changes = self.journal.pending(device.serial)
        changes += [change for change in self._phones_own(device) if change not in changes]
        return [change.what for change in changes]

    def restore(
        self, device: Device, *, on_note: _Tell = lambda text: None, take: bool = False
    ) -> Sequence[str]:
        """Undo every journalled change, also one of a crashed process or another computer; return
        what was restored.

        Tried again where the connection fails. What can't be undone stays in the journal and raises
        DeviceCommandError. ``on_note`` gets each difference from the first snapshot that is left.
        ``take``: also a phone that somebody else holds, who must be dead.
        """
        tries = 1
        while True:
            is_awaited = tries > 1
            try:
                if is_awaited:
                    device.wait_until_ready(timeout_s=_RESTORE_READY_S)
                    is_awaited = False
                restored = self._restore(device, on_note, take=take)
            except DeviceError as error:
                # What was waited for in vain isn't waited for again.
                is_gone = is_awaited and isinstance(error, DeviceTimeoutError | AdbUnavailableError)
                if is_gone or tries == _RESTORES_MAX or not may_return(error):
                    # What somebody else holds has nothing of ours that runs.
                    if not isinstance(error, DeviceBusyError):
                        self._unreleased.add(device.serial)
                    raise
                tries += 1
            else:
                self._unreleased.discard(device.serial)
                return restored

    def _restore(self, device: Device, on_note: _Tell, *, take: bool) -> Sequence[str]:
        if not isinstance(device, AdbDevice):
            return self._undo_all(device)
        try:
            standing = self._claims.take(device, by_force=take, then=self._look_for_ours(device))
            # A foreign program that runs is no reason not to restore a setting; a foreign owner is.
            self._identify(device, standing)
            # A process that was killed left its run, and one that lost the phone the folders of its
            # runs.
            device.end_strays(standing.answer)
            restored = self._undo_all(device)
            for text in self.audit(device):
                on_note(f"not as before: {text}")
            self._claims.release(device)
            # Last, so that what a killed process left of this is done.
            self.journal.keep_snapshot(device.serial, None)
            self._screens.pop(device.serial, None)
        finally:
            # One that can't be restored now is free for others soon all the same: they undo what
            # its own file tells.
            device.note.let_go()
        return restored

    def audit(self, device: Device) -> Sequence[str]:
        """Return what differs from the first snapshot since the phone was clean.

        Nothing when there is none. Raises DeviceError kinds.
        """
        before = self.journal.snapshot(device.serial)
        if before is None:
            return ()
        return differences(before, parse_snapshot(_ask(device, SNAPSHOT_COMMANDS).texts()))

    def _keep_snapshot(self, device: Device, told: Answer | None = None) -> None:
        """Keep what a phone is before its first change; ``told`` if it was asked just now."""
        if isinstance(device, AdbDevice) and self.journal.snapshot(device.serial) is None:
            found = parse_snapshot((told or _ask(device, SNAPSHOT_COMMANDS)).texts())
            if screen := self._screens.get(device.serial):
                found[SCREEN_STATE] = screen
            self.journal.keep_snapshot(device.serial, found)

    def hold(self, device: Device, change: Change, command: str) -> None:
        """Run ``command`` with ``change`` journalled before it; `restore` undoes it, whatever
        happens to this process.

        Raises HostStorageError (nothing is changed then), DeviceCommandError and the other
        DeviceError kinds.
        """
        self._keep_snapshot(device)
        fresh = self._note(device, [change])
        result = device.shell(command)
        if result.exit_code != 0:
            if self._is_as_before(device, change):
                self._drop(device, fresh)
            raise DeviceCommandError(
                f"{command!r} failed: {reason_of(result)}", serial=device.serial
            )

    def _look_for_ours(self, device: AdbDevice) -> dict[str, str]:
        """Return scripts that end our app and tell of our runs, for the round trip that takes the
        phone.
        """
        return {"apps": call("stop_apps", *self._stray_apps), **device.look_for_strays()}

    def _clean(self, device: AdbDevice, tell: _Tell, cancelled: threading.Event | None) -> str:
        """Take the phone, refuse it when somebody else has it, end what is ours; return its boot
        id.
        """
        standing = self._claims.take_over(
            device, tell=tell, then=self._look_for_ours(device), cancelled=cancelled
        )
        self._identify(device, standing)
        killed = device.end_strays(standing.answer)
        if standing.strays and killed:
            # What ran may have been our own stray, which is gone now.
            standing = self._claims.take(device)
        check_free(standing, device.serial)
        if standing.free_bytes is not None and standing.free_bytes < FREE_MIN_BYTES:
            raise DeviceStorageError(
                f"only {standing.free_bytes >> 20} MiB are free in {device.work_folder}, a run's output may need "
                f"{FREE_MIN_BYTES >> 20} MiB",
                serial=device.serial,
                hint="free some on the phone",
            )
        return standing.boot_id

    def _identify(self, device: Device, standing: Standing) -> None:
        """Raise DeviceChangedError for another phone, DeviceBusyError when somebody else has it."""
        known = device.facts().properties.get("ro.serialno", "")
        # Several words are what getprop said instead of it.
        if known and len(standing.serial.split()) == 1 and standing.serial != known:
            raise DeviceChangedError(
                f"another phone answers now: {standing.serial}", serial=device.serial
            )
        check_free(replace(standing, strays=()), device.serial)

    def _quieten(self, device: AdbDevice, quiet: Quiet, tell: _Tell) -> None:
        """Make a phone as quiet as planned: one round trip to read it, one to change it, whatever
        is asked.
        """
        steps = []
        for step in steps_for(quiet, device.facts(), over_network=_is_over_network(device)):
            if step.refusal:
                tell(f"{step.name} can't be had: {step.refusal}")
            else:
                steps.append(step)
        commands = {str(number): step.read for number, step in enumerate(steps)}
        told = _ask(device, {**commands, **SNAPSHOT_COMMANDS})
        to_do: list[tuple[QuietStep, str]] = []
        for number, step in enumerate(steps):
            original = told.value(str(number))
            if step.accepts(original):
                continue
            if not original:
                tell(f"{step.name} can't be had: the phone doesn't have it")
                continue
            to_do.append((step, original))
        if to_do:
            self._keep_snapshot(device, told)
            self._make(device, to_do, tell)
        elif screen := parse_snapshot(told.texts()).get(SCREEN_STATE):
            self._screens.setdefault(device.serial, screen)

    def _note(self, device: Device, changes: Sequence[Change]) -> list[Change]:
        """Write changes down here, then on the phone; nothing may be changed when this raises.

        Return those that weren't pending already.
        """
        pending = self.journal.pending(device.serial)
        fresh = [change for change in changes if change not in pending]
        if fresh:
            self.journal.add(device.serial, *fresh)
            self._write_phones_own(device, [*pending, *fresh])
        return fresh

    def _drop(self, device: Device, unmade: Sequence[Change]) -> None:
        """Forget changes that weren't made, in the phone's own file first: one that is in either is
        undone.
        """
        if unmade:
            left = [
                change for change in self.journal.pending(device.serial) if change not in unmade
            ]
            self._write_phones_own(device, left)
            self.journal.keep(device.serial, left)

    def _write_phones_own(self, device: Device, changes: Sequence[Change]) -> None:
        if not isinstance(device, AdbDevice):
            return
        text = format_changes([change for change in changes if not change.port])
        folder, file = quote(device.work_folder), _UNDO_FILE
        written = f"printf %s {quote(text)} >{file}.tmp && sync && mv {file}.tmp {file}"
        device.must(
            f"mkdir -p {folder} && cd {folder} && {written if text else f'rm -f {file}'}",
            what=f"writing down in {device.work_folder} what is to be undone",
        )

    def _make(self, device: Device, steps: Sequence[tuple[QuietStep, str]], tell: _Tell) -> None:
        """Take steps, each with what was read before it; one that the phone refuses is told, and
        owes no undo.
        """
        # What the screen was before the first change counts, not what it has become since.
        known = (self.journal.snapshot(device.serial) or {}).get(SCREEN_STATE)
        changes = [
            step.change(
                f"mWakefulness={known}"
                if known and step.name in {SCREEN_ON, SCREEN_OFF}
                else before
            )
            for step, before in steps
        ]
        fresh = self._note(device, changes)
        scripts = {
            f"apply {n}": f"( {step.apply} ) 2>&1; printf '\\n%s' $?"
            for n, (step, _) in enumerate(steps)
        }
        told = _ask(
            device, scripts | {f"check {n}": step.read for n, (step, _) in enumerate(steps)}
        )
        unmade: list[Change] = []
        for number, ((step, before), change) in enumerate(zip(steps, changes, strict=True)):
            said, _, code = told.text(f"apply {number}").strip().rpartition("\n")
            now = told.value(f"check {number}")
            is_made = code == "0" if step.by_exit_code else step.accepts(now)
            refusal = refusal_of(said)
            # Another step may have done what this one was refused: the screen comes on with "stay
            # awake".
            if change in fresh and (refusal or (not is_made and now == before)):
                unmade.append(change)
            if is_made:
                continue
            if step.name in {SCREEN_ON, SCREEN_OFF} and (refusal or code != "0"):
                self._stuck.add(device.serial)
            why = refusal or f"exit code {code or 'unknown'}"
            tell(f"{step.name} can't be had (the phone says {now!r}): {why}")
        self._drop(device, unmade)

    def _state(self, device: Device, quiet: Quiet, tell: _Tell) -> DeviceState:
        """Read the state; a screen that isn't as planned any more is switched again."""
        state = device.state()
        if why := danger(state):
            raise DeviceSetAsideError(
                why, serial=device.serial, hint="look at its battery before it is used again"
            )
        is_other = _has_other_screen(state, quiet) and device.serial not in self._stuck
        if isinstance(device, AdbDevice) and is_other:
            step = screen_step(quiet.screen)
            self._keep_snapshot(device)
            self._make(device, [(step, _ask(device, {"read": step.read}).value("read"))], tell)
            state = device.state()
        return state

    def _undo_all(self, device: Device) -> list[str]:
        """Undo what this computer's journal or the phone's own file tells, newest first."""
        self._quiet.pop(device.serial, None)
        self._stuck.discard(device.serial)
        restored, why = self.power_on(device.serial)
        off = self.journal.ports_off(device.serial)
        left = [change for change in self.journal.pending(device.serial) if not change.port]
        if isinstance(device, AdbDevice):
            if off and [change.port for change in off] == [port_of(device)]:
                # It is there, on that very port: somebody powered it on.
                off, why = [], ""
            elsewhere = self._phones_own(device)
            # Another computer's changes were made first, where both tell of some.
            left = [change for change in elsewhere if change not in left] + left
            if elsewhere:
                self.journal.keep(device.serial, [*left, *off])
        is_touched = bool(left)
        failed = [why] if why else []
        for change in reversed(left.copy()):
            if why := self._why_not_undone(device, change):
                failed.append(f"{change.what} can't be restored with {change.undo!r}: {why}")
                continue
            restored.append(change.what)
            left.remove(change)
            if left:
                self.journal.keep(device.serial, [*left, *off])
        if failed:
            raise DeviceCommandError("; ".join(failed), serial=device.serial)
        if is_touched and isinstance(device, AdbDevice):
            # The phone's file goes first: as long as either is there, whoever comes next undoes
            # once more.
            self._write_phones_own(device, ())
        self.journal.keep(device.serial, ())
        return restored

    def _why_not_undone(self, device: Device, change: Change) -> str:
        """Undo a change; return why that failed, empty where all is as it was."""
        result = device.shell(change.undo)
        why = refusal_of(result.text + result.stderr.decode("utf-8", "replace"))
        if result.exit_code != 0:
            why = why or reason_of(result)
        return "" if why and self._is_as_before(device, change) else why

    def _is_as_before(self, device: Device, change: Change) -> bool:
        return bool(change.read) and _ask(device, {"read": change.read}).value("read") == change.was

    def _phones_own(self, device: Device) -> list[Change]:
        """Return what a phone's own file tells; a phone can't have anything done on this computer."""
        if not isinstance(device, AdbDevice):
            return []
        path = f"{device.work_folder}/{_UNDO_FILE}"
        script = {"undo": f"[ ! -e {quote(path)} ] || cat {quote(path)}"}
        told = device.ask(script, what="reading what is to be undone")
        try:
            if told.exit_code != 0:
                raise ValueError(reason_of(told))
            return [change for change in parse_changes(told.text("undo")) if not change.port]
        except ValueError as error:
            raise DeviceStorageError(
                f"what is to be undone can't be read from {path}: {error}",
                serial=device.serial,
                hint="look at the file by 'adb shell', undo what it names, then remove it",
            ) from error


def _ask(device: Device, scripts: Mapping[str, str]) -> Answer:
    return ask(partial(device.shell, timeout_s=_QUIET_TIMEOUT_S), scripts, serial=device.serial)


def _has_other_screen(state: DeviceState, quiet: Quiet) -> bool:
    return state.screen_on is (quiet.screen is Screen.OFF)


def _is_over_network(device: AdbDevice) -> bool:
    """Whether adb reaches the phone through a network of its own, which must not be switched off
    then.
    """
    facts = device.facts()
    # A virtual phone may play one on a cable, which its server can't.
    on_cable = facts.is_virtual and bool(facts.properties.get(VIRTUAL_USB))
    return is_network_serial(device.transport) and not on_cable
