"""Ownership of devices: leases among the processes of this computer, quarantine, and a claim on each
phone that names its holder.

By the claim two computers, or two homes on one, refuse each other's phone. It is valid for a short
span of the phone's own uptime and for one boot, so that clocks needn't agree. It is rewritten
before each run and renewed while its holder lives (`ClaimRenewal`), by lines appended to a second
file: a reader never reads half a claim. A process takes the lease on this computer first: the claim's
token is the same for all processes of one home, of which only one holds the lease.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import threading
import weakref
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.clock import Clock
from orchestrator.devices.probes import parse_free_bytes
from orchestrator.errors import (
    BenchfarmError,
    DeviceBusyError,
    InterruptedByUserError,
)
from orchestrator.files import file_of, keep_file, name_of
from orchestrator.ports import ShellResult
from orchestrator.processes import Locks
from orchestrator.records import frozen
from orchestrator.records.case import Serial
from orchestrator.records.device import DeviceFacts
from orchestrator.scripts import Answer, script_command

if TYPE_CHECKING:
    from orchestrator.devices.phone import AdbDevice


class FileLease(Locks):
    """Leases of devices: only one thread of one process uses a device."""

    def __init__(self, folder: Path) -> None:
        """See Locks."""
        super().__init__(folder)
        #: Leases that were taken for the next `acquire` of this object.
        self._reserved: dict[Serial, Callable[[], None]] = {}

    @contextlib.contextmanager
    def acquire(self, serial: Serial, *, wait_s: float = 0.0) -> Generator[None]:
        """Hold the device while the context lasts.

        Raises DeviceBusyError naming the holder, HostStorageError.
        """
        release = self._reserved.pop(serial, None) or self._take(serial, wait_s)
        try:
            yield
        finally:
            release()

    def reserve(self, serial: Serial, *, wait_s: float = 0.0) -> None:
        """Take the device for the next `acquire` of this object; `end_reservations` releases it.

        Raises like `acquire`.
        """
        if serial not in self._reserved:
            self._reserved[serial] = self._take(serial, wait_s)

    def end_reservations(self) -> None:
        """Release the devices that were reserved and not acquired."""
        while self._reserved:
            self._reserved.popitem()[1]()

    def _take(self, serial: Serial, wait_s: float) -> Callable[[], None]:
        release = self.take(serial, wait_s=wait_s)
        if release is None:
            raise DeviceBusyError(
                f"in use by {self.live_holder(serial) or 'another process'}",
                serial=serial,
                hint="wait until it is done, or choose another device",
            )
        return release


class QuarantineFolder:
    """The devices in quarantine until somebody releases them, for all processes of a computer."""

    def __init__(self, folder: Path) -> None:
        """Set the folder; it is created with the first entry."""
        self._folder = folder

    def reason(self, serial: Serial) -> str:
        """Return why a device is in quarantine, empty when it isn't; an unreadable file counts as
        quarantine.
        """
        try:
            note = json.loads(self.path(serial).read_text("utf-8"))
            since = datetime.fromisoformat(note["since"]).astimezone()
            return f"{note['reason']} (since {since:%Y-%m-%d %H:%M})"
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"{self.path(serial)} can't be read: {error}"

    def path(self, serial: Serial) -> Path:
        """Return the file of a device."""
        return file_of(self._folder, serial, ".json")

    def put(self, serial: Serial, reason: str) -> None:
        """Put a device in quarantine; the first reason stays. Raises HostStorageError."""
        path = self.path(serial)
        if path.exists():
            return
        note = {"serial": serial, "reason": reason, "since": datetime.now(UTC).isoformat()}
        keep_file(path, json.dumps(note) + "\n")

    def release(self, serial: Serial) -> str:
        """End a quarantine; return its reason, empty when there was none."""
        reason = self.reason(serial)
        self.path(serial).unlink(missing_ok=True)
        if reason:
            self._released(serial).touch()
        return reason

    def is_released(self, serial: Serial) -> bool:
        """Whether a user has released a device, and ``confirm_identity`` wasn't called since."""
        return self._released(serial).exists()

    def confirm_identity(self, serial: Serial) -> None:
        """Record that a device is the known one: its next release has a new reason."""
        self._released(serial).unlink(missing_ok=True)

    def _released(self, serial: Serial) -> Path:
        return self.path(serial).with_suffix(".released")

    def reasons(self) -> dict[Serial, str]:
        """Return the phones in quarantine, each with its reason."""
        serials = sorted(Serial(name_of(path)) for path in self._folder.glob("*.json"))
        return {serial: self.reason(serial) for serial in serials}


#: How long a claim is valid after its last renewal.
LEASE_S: Final = 60.0
#: Renewals within that time: one lost with its link mustn't matter.
_RENEWALS: Final = 12
#: After 1/_SILENCE of that time without a command, a heartbeat is sent.
_SILENCE: Final = 2
_SHORTEST_PAUSE_S: Final = 0.1
#: The phone's answer to a command of a process that has lost it.
LOST_EXIT_CODE: Final = 89
LOST_WORDS: Final = "benchfarm: another holds this phone"


class ClaimRenewal:
    """Renews one phone's claim in front of commands that are sent anyway. Thread-safe.

    After a long silence (a model is being sent, this computer computes) a thread sends a heartbeat.
    A killed, stopped or suspended process renews nothing; if it continues after another one has
    taken the phone, the phone refuses its next command.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._script = ""
        self._lease_s = LEASE_S
        self._renewed_s = 0.0
        self._renewed_at = clock.now()
        self._is_running = False

    def start(self, script: str, *, lease_s: float, send_heartbeat: Callable[[], None]) -> None:
        """Renew a just written claim by this script; it is valid for ``lease_s`` of this computer's
        time.

        ``send_heartbeat``: a bound method that sends an empty command. Renewal ends when its object
        is dropped.
        """
        with self._lock:
            self._script, self._lease_s = script, lease_s
            self._renewed_s, self._renewed_at = self._clock.monotonic_s(), self._clock.now()
            if not self._is_running:
                self._is_running = True
                threading.Thread(
                    target=self._run, args=(weakref.WeakMethod(send_heartbeat),), daemon=True
                ).start()

    def stop(self) -> None:
        """Stop the renewal; the claim expires by itself."""
        with self._lock:
            self._script = ""

    def before(self, command: str) -> tuple[str, bool]:
        """Return a command, with the renewal in front if one is due, and whether it is due."""
        with self._lock:
            is_due = bool(self._script) and self._age_s() >= self._lease_s / _RENEWALS
            return (f"{self._script}\n{command}", True) if is_due else (command, False)

    def after(self, result: ShellResult, *, serial: str) -> None:
        """Check and record a renewal's answer.

        Raises DeviceBusyError when another holds the phone by now.
        """
        if (
            result.exit_code == LOST_EXIT_CODE
            and LOST_WORDS.encode() in result.stderr + result.stdout
        ):
            raise DeviceBusyError(
                "another computer or home has taken the phone meanwhile",
                serial=serial,
                hint="this process didn't renew its lease in time; 'benchfarm devices' shows the holder",
            )
        with self._lock:
            self._renewed_s, self._renewed_at = self._clock.monotonic_s(), self._clock.now()

    def _age_s(self) -> float:
        """Return the seconds since the last renewal, by the clock that shows more: one of them stops
        in suspend.
        """
        by_wall_s = (self._clock.now() - self._renewed_at).total_seconds()
        return max(self._clock.monotonic_s() - self._renewed_s, by_wall_s)

    def _run(self, heartbeat_ref: weakref.WeakMethod[Callable[[], None]]) -> None:
        """Send a heartbeat after each long silence, until the renewal is stopped."""
        pause = threading.Event()
        while True:
            with self._lock:
                send = heartbeat_ref()
                if not self._script or send is None:
                    self._is_running = False
                    return
                silence_s = self._lease_s / _SILENCE
                is_silent = self._age_s() >= silence_s
            if is_silent:
                # The user of the phone gets the error from its own next command.
                with contextlib.suppress(BenchfarmError):
                    send()
            del send
            pause.wait(max(_SHORTEST_PAUSE_S, silence_s / 4))


#: With less free space a run's output may not fit.
FREE_MIN_BYTES: Final = 32 << 20


@frozen
class ClaimResult:
    """The answer to a claim of a phone: its identity, its holder, foreign programs, free space."""

    serial: str
    boot_id: str
    #: The foreign holder, for people; empty when the phone is ours now.
    holder: str
    #: Whether our claim is on the phone now.
    is_written: bool
    #: Seconds of the phone's uptime until the foreign claim expires unless it is renewed.
    held_s: float
    #: The phone's uptime when it expires, in seconds: it moves with each renewal.
    held_until_s: float
    #: Running foreign benchmark programs: name and pid.
    foreign_programs: tuple[str, ...]
    #: None when df's output is unreadable.
    free_bytes: int | None
    #: Includes the outputs of the scripts to be run after the claim.
    answer: Answer


def parse_claim(answer: Answer) -> ClaimResult:
    """Read the output of the claim script."""
    values: dict[str, str] = {}
    programs: list[str] = []
    is_written = False
    text, _, free = answer.text("claim").partition("\nfree\n")
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "written":
            is_written = True
        elif word == "stray":
            name, _, pids = rest.partition(" ")
            programs.append(f"{name} (pid {pids.strip()})")
        elif word in {"held", "serial", "boot"}:
            values.setdefault(word, rest.strip())
    held, until, claim_text = (*values.get("held", "").split(" ", 2), "", "", "")[:3]
    return ClaimResult(
        serial=values.get("serial", ""),
        boot_id=values.get("boot", ""),
        holder=f"{_claim_author(claim_text)} (its lease on the phone expires in {held} s)"
        if "held" in values
        else "",
        is_written=is_written,
        held_s=float(held) if held.isdigit() else 0.0,
        held_until_s=float(until) if until.isdigit() else 0.0,
        foreign_programs=tuple(programs),
        free_bytes=parse_free_bytes(free),
        answer=answer,
    )


def check_free(claim: ClaimResult, serial: str) -> None:
    """Raise DeviceBusyError when somebody else uses the phone: another home, or a program that none
    of ours started.
    """
    if claim.holder:
        raise DeviceBusyError(
            f"in use by {claim.holder}",
            serial=serial,
            hint="wait until it is done; if that process has died, the lease expires by itself, or "
            "'benchfarm device restore --force SERIAL' ends it at once",
        )
    if claim.foreign_programs:
        raise DeviceBusyError(
            f"{', '.join(claim.foreign_programs)} runs on the phone and wasn't started by benchfarm",
            serial=serial,
            hint="wait for its end or kill it: two programs at once disturb each other",
        )


def _claim_author(claim_text: str) -> str:
    """Return the writer of a foreign claim, for people; "another computer" if unreadable."""
    try:
        words = json.loads(claim_text)
        return f"process {int(words['pid'])} on {words['host']}"
    except (ValueError, KeyError, TypeError):
        return "another computer"


#: Interval between two claims of a phone whose holder may have died.
_POLL_S: Final = 2.0


class Claims:
    """The claims of one home; each phone is claimed by the thread with its lease."""

    def __init__(self, home: Path, *, clock: Clock, lease_s: float = LEASE_S) -> None:
        """``home`` is a folder unique to the home; a claim is valid for ``lease_s`` after its last
        renewal.
        """
        self._host = socket.gethostname()
        seed = f"{self._host}\n{os.getuid()}\n{home.absolute()}"
        self.token = hashlib.sha256(seed.encode()).hexdigest()[:16]
        self._lease_s = lease_s
        self._clock = clock

    def script(self, folder: str, *, hold_s: float, take: bool = False) -> str:
        """Return the script that takes or renews the phone unless another holds it; `parse_claim`
        reads its output.

        ``take``: also a phone that another holds.
        """
        seconds = max(1, round(hold_s))
        claim_text = json.dumps({"host": self._host, "pid": os.getpid(), "hold_s": seconds})
        return script_command("claim", folder, self.token, seconds, claim_text, "1" if take else "")

    def take(
        self,
        device: AdbDevice,
        *,
        by_force: bool = False,
        next_scripts: Mapping[str, str] | None = None,
    ) -> ClaimResult:
        """Take a phone, or renew our claim; the result names the holder when another has it.

        ``by_force``: take it from any holder. ``next_scripts`` run in the same round trip if it is
        ours. Raises DeviceError kinds.
        """
        device.claim_renewal.stop()
        hold_s = self._lease_s * _uptime_speed(device.facts())
        script = self.script(device.work_folder, hold_s=hold_s, take=by_force)
        answer = device.ask(
            {"claim": script, **(next_scripts or {})}, action=_using(device), must=True
        )
        claim = parse_claim(answer)
        if claim.is_written:
            # Builtins only; after another boot it does nothing.
            renewal = script_command(
                "hold",
                device.work_folder,
                claim.boot_id,
                self.token,
                max(1, round(hold_s)),
                LOST_EXIT_CODE,
                LOST_WORDS,
            )
            device.claim_renewal.start(
                renewal, lease_s=self._lease_s, send_heartbeat=device.send_heartbeat
            )
        return claim

    def take_over(
        self,
        device: AdbDevice,
        *,
        on_wait: Callable[[str], None],
        next_scripts: Mapping[str, str] | None = None,
        cancelled: threading.Event | None = None,
    ) -> ClaimResult:
        """Take a phone, also one whose holder has died: only a living holder renews its claim.

        Raises DeviceError kinds, InterruptedByUserError when cancelled.
        """
        longest_s = 2 * self._lease_s * _uptime_speed(device.facts())
        claim = self.take(device, next_scripts=next_scripts)
        until_s = claim.held_until_s
        if claim.holder and claim.held_s <= longest_s:
            on_wait(f"in use by {claim.holder}; it is taken over unless that lease is renewed")
        while claim.holder and claim.held_s <= longest_s and claim.held_until_s == until_s:
            if self._clock.wait(min(_POLL_S, self._lease_s / 4), cancelled):
                raise InterruptedByUserError
            claim = self.take(device, next_scripts=next_scripts)
        return claim

    def release(self, device: AdbDevice) -> None:
        """Remove our claim; raises DeviceError kinds."""
        device.claim_renewal.stop()
        release = script_command("release", device.work_folder, self.token)
        device.ask({"release": release}, action=_using(device), must=True)


def _using(device: AdbDevice) -> str:
    return f"using our folder {device.work_folder}"


def _uptime_speed(facts: DeviceFacts) -> float:
    """Return the seconds of the phone's uptime per second of ours: 1, or more for a virtual phone
    with a faster clock.
    """
    try:
        return max(1.0, float(facts.properties.get("ro.benchfarm.speed", "1")))
    except ValueError:
        return 1.0
