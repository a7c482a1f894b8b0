"""Taking a phone for this home and keeping it: its note is written, renewed while we live, and removed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from orchestrator.clock import Clock
from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.failures import writing_failure
from orchestrator.devices.heartbeat import LEASE_S, Heart
from orchestrator.devices.owner_note import OwnerNote, Standing, parse_standing
from orchestrator.devices.shell import reason_of
from orchestrator.errors import DeviceCommandError, InterruptedByUserError
from orchestrator.ports import Device, ShellResult
from orchestrator.records.device import DeviceFacts

#: So often a phone is looked at whose holder may have died.
_LOOK_S: Final = 2.0


class Claims:
    """The phones that one process holds; each is claimed by the thread with its lease."""

    def __init__(self, owner: OwnerNote, *, clock: Clock, lease_s: float = LEASE_S) -> None:
        """``lease_s``: a phone is free for others so long after the last word of its holder."""
        self._owner = owner
        self._lease_s = lease_s
        self._clock = clock
        self._heart = Heart()

    def take(self, device: Device, *, by_force: bool = False, then: str = "") -> Standing:
        """Take a phone, or renew that it is ours; if another has it, what is returned names him.

        ``by_force``: whoever has it, it is ours then. ``then``: a script that is run in the same round trip if it is
        ours. Raises DeviceError kinds.
        """
        self.let_go(device)
        standing = self._write(device, by_force=by_force, then=then)
        if standing.holder_is_dead:
            # Known for certain, on this computer: its note needn't expire.
            standing = self._write(device, by_force=True, then=then)
        if isinstance(device, AdbDevice) and standing.is_written:
            hold_s = self._lease_s * _speed_of(device.facts())
            renewal = self._owner.renewal_command(device.work_folder, boot_id=standing.boot_id, hold_s=hold_s)
            device.note.hold(renewal, lease_s=self._lease_s)
            self._heart.watch(device)
        return standing

    def take_over(
        self,
        device: Device,
        *,
        tell: Callable[[str], None],
        then: str = "",
        cancelled: threading.Event | None = None,
    ) -> Standing:
        """Take a phone, also one whose holder has died: his note isn't renewed and expires, a living one's is.

        Raises DeviceError kinds, InterruptedByUserError when cancelled.
        """
        longest_s = 2 * self._lease_s * _speed_of(device.facts())
        standing = self.take(device, then=then)
        until_s = standing.held_until_s
        if standing.holder and standing.held_s <= longest_s:
            tell(f"in use by {standing.holder}; it is taken over unless the note is renewed")
        while standing.holder and standing.held_s <= longest_s and standing.held_until_s == until_s:
            if self._clock.wait(min(_LOOK_S, self._lease_s / 4), cancelled):
                raise InterruptedByUserError
            standing = self.take(device, then=then)
        return standing

    def let_go(self, device: Device) -> None:
        """Renew the note no more; it expires by itself."""
        if isinstance(device, AdbDevice):
            device.note.let_go()

    def release(self, device: Device) -> None:
        """Remove our note; raises DeviceError kinds."""
        self.let_go(device)
        must(device, self._owner.release_command(device.work_folder))

    def _write(self, device: Device, *, by_force: bool, then: str) -> Standing:
        hold_s = self._lease_s * _speed_of(device.facts())
        script = self._owner.claim_command(device.work_folder, hold_s=hold_s, take=by_force, then=then)
        return parse_standing(must(device, script).text)


def must(device: Device, script: str) -> ShellResult:
    """Run a script in our folder that has to succeed; raises DeviceStorageError, DeviceCommandError."""
    result = device.shell(script)
    if result.exit_code != 0:
        text = reason_of(result)
        what = f"our folder {device.work_folder} can't be used"
        raise writing_failure(text, serial=device.serial, what=what) or DeviceCommandError(
            f"{what}: {text}", serial=device.serial
        )
    return result


def _speed_of(facts: DeviceFacts) -> float:
    """Return how many seconds of the phone's uptime pass in one of ours: 1, but for virtual phones in a hurry."""
    try:
        return max(1.0, float(facts.properties.get("ro.benchfarm.speed", "1")))
    except ValueError:
        return 1.0
