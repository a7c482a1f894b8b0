"""Who uses a phone, as a note on the phone itself: two computers, or two homes on one, refuse each
other's phone.

The note is valid for a short span of the phone's own uptime and for one boot, so that no clock has
to agree with another. It is rewritten before each run and renewed while its holder lives
(heartbeat.py), by lines that are added to a second file: a reader never meets half a note. A lease
on this computer (lease.py) comes first: the note's token is the same for all processes of one home,
of which only one holds the lease.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.clock import Clock
from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.connection import writing_failure
from orchestrator.devices.heartbeat import LEASE_S, LOST_EXIT_CODE, LOST_WORDS
from orchestrator.devices.shell import reason_of
from orchestrator.errors import DeviceBusyError, DeviceCommandError, InterruptedByUserError
from orchestrator.ports import Device, ShellResult
from orchestrator.records.device import DeviceFacts
from orchestrator.scripts import Answer, ask, call

#: Less than that, and a run's output may not fit.
FREE_MIN_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What one look at a phone tells: who it is, who uses it, what it lacks."""

    serial: str
    boot_id: str
    #: The foreign holder's words, empty when the phone is ours now.
    holder: str
    #: It is ours, by a note that is on the phone now.
    is_written: bool
    #: For how many seconds of the phone's the foreign note is valid unless it is renewed.
    held_s: float
    #: Until which second of the phone's uptime: it moves when the note is renewed.
    held_until_s: float
    #: Foreign programs that measure right now: name and pid.
    strays: tuple[str, ...]
    #: None when df can't be read.
    free_bytes: int | None
    #: What the scripts printed that were to be run then.
    then: Answer | None = None


def parse_standing(text: str) -> Standing:
    """Read what the claim's script printed."""
    found: dict[str, str] = {}
    strays: list[str] = []
    is_written = False
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "written":
            is_written = True
        elif word == "stray":
            name, _, pids = rest.partition(" ")
            strays.append(f"{name} (pid {pids.strip()})")
        elif word in {"held", "serial", "boot", "free"}:
            found.setdefault(word, rest.strip())
    held, until, words = (*found.get("held", "").split(" ", 2), "", "", "")[:3]
    return Standing(
        serial=found.get("serial", ""),
        boot_id=found.get("boot", ""),
        holder=f"{_writer_of(words)} (its note on the phone is valid for {held} s more)"
        if "held" in found
        else "",
        is_written=is_written,
        held_s=float(held) if held.isdigit() else 0.0,
        held_until_s=float(until) if until.isdigit() else 0.0,
        strays=tuple(strays),
        free_bytes=_free_bytes(found.get("free", "")),
    )


def check_free(standing: Standing, serial: str) -> None:
    """Raise DeviceBusyError when somebody else uses the phone: another home, or a program that none
    of ours started.
    """
    if standing.holder:
        raise DeviceBusyError(
            f"in use by {standing.holder}",
            serial=serial,
            hint="wait until it is done; the note expires by itself when its owner has died, and "
            "'benchfarm device restore --take SERIAL' is for who knows that it has",
        )
    if standing.strays:
        raise DeviceBusyError(
            f"{', '.join(standing.strays)} runs on the phone and wasn't started by benchfarm",
            serial=serial,
            hint="wait for its end or kill it: two programs at once would measure each other",
        )


def _writer_of(words: str) -> str:
    """Return who wrote a foreign note; what can't be read comes from another computer."""
    try:
        note = json.loads(words)
        return f"process {int(note['pid'])} on {note['host']}"
    except (ValueError, KeyError, TypeError):
        return "another computer"


def _free_bytes(line: str) -> int | None:
    fields = line.split()
    return int(fields[3]) * 1024 if len(fields) >= 6 and fields[3].isdigit() else None


#: How often a phone is looked at whose holder may have died.
_LOOK_S: Final = 2.0


class Claims:
    """The notes of one home; each phone is claimed by the thread with its lease."""

    def __init__(self, home: Path, *, clock: Clock, lease_s: float = LEASE_S) -> None:
        """``home`` is a folder that only one home has; a phone is free again ``lease_s`` after its
        last renewal.
        """
        self._host = socket.gethostname()
        seed = f"{self._host}\n{os.getuid()}\n{home.absolute()}"
        self.token = hashlib.sha256(seed.encode()).hexdigest()[:16]
        self._lease_s = lease_s
        self._clock = clock

    def script(self, folder: str, *, hold_s: float, take: bool = False) -> str:
        """Return the script that takes or renews the phone unless another holds it, and prints its
        standing.

        ``take``: also a phone that another holds.
        """
        seconds = max(1, round(hold_s))
        words = json.dumps({"host": self._host, "pid": os.getpid(), "hold_s": seconds})
        return call("claim", folder, self.token, seconds, words, "1" if take else "")

    def take(
        self, device: AdbDevice, *, by_force: bool = False, then: Mapping[str, str] | None = None
    ) -> Standing:
        """Take a phone, or renew that it is ours; the result names the holder when another has it.

        ``by_force``: take it from whoever has it. ``then``: scripts that are run in the same round
        trip if it is ours. Raises DeviceError kinds.
        """
        self.let_go(device)
        hold_s = self._lease_s * _speed_of(device.facts())
        script = self.script(device.work_folder, hold_s=hold_s, take=by_force)
        answer = ask(device.shell, {"claim": script, **(then or {})}, serial=device.serial)
        _check(device, answer)
        standing = replace(parse_standing(answer.text("claim")), then=answer)
        if standing.is_written:
            # Builtins only; after another boot it does nothing.
            renewal = call(
                "hold",
                device.work_folder,
                standing.boot_id,
                self.token,
                max(1, round(hold_s)),
                LOST_EXIT_CODE,
                LOST_WORDS,
            )
            device.note.hold(renewal, lease_s=self._lease_s, beat=device.beat)
        return standing

    def take_over(
        self,
        device: AdbDevice,
        *,
        tell: Callable[[str], None],
        then: Mapping[str, str] | None = None,
        cancelled: threading.Event | None = None,
    ) -> Standing:
        """Take a phone, also one whose holder has died: his note isn't renewed and expires, a
        living one's is.

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

    def let_go(self, device: AdbDevice) -> None:
        """Stop renewing the note; it expires by itself."""
        device.note.let_go()

    def release(self, device: AdbDevice) -> None:
        """Remove our note; raises DeviceError kinds."""
        self.let_go(device)
        must(device, call("release", device.work_folder, self.token))


def must(device: Device, script: str) -> ShellResult:
    """Run a script in our folder that has to succeed.

    Raises DeviceStorageError, DeviceCommandError.
    """
    result = device.shell(script)
    _check(device, result)
    return result


def _check(device: Device, result: ShellResult | Answer) -> None:
    if result.exit_code != 0:
        text = reason_of(result)
        what = f"our folder {device.work_folder} can't be used"
        raise writing_failure(text, serial=device.serial, what=what) or DeviceCommandError(
            f"{what}: {text}", serial=device.serial
        )


def _speed_of(facts: DeviceFacts) -> float:
    """Return how many seconds of the phone's uptime pass in one of ours: 1, but for virtual phones
    in a hurry.
    """
    try:
        return max(1.0, float(facts.properties.get("ro.benchfarm.speed", "1")))
    except ValueError:
        return 1.0
