"""Whose device it is: leases among the processes of this computer, the phones that are kept out until
somebody has looked at them, and who uses a phone, as a note on the phone itself.

By the note two computers, or two homes on one, refuse each other's phone. It is valid for a short
span of the phone's own uptime and for one boot, so that no clock has to agree with another. It is
rewritten before each run and renewed while its holder lives (`HeldNote`), by lines that are added
to a second file: a reader never meets half a note. A lease on this computer comes first: the note's
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
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from orchestrator.clock import Clock
from orchestrator.devices.probes import parse_free_bytes
from orchestrator.errors import (
    BenchfarmError,
    DeviceBusyError,
    InterruptedByUserError,
)
from orchestrator.files import keep_file
from orchestrator.frozen import frozen
from orchestrator.ports import ShellResult
from orchestrator.processes import Locks
from orchestrator.records.case import Serial
from orchestrator.records.device import DeviceFacts
from orchestrator.scripts import Answer, call

if TYPE_CHECKING:
    from orchestrator.devices.phone import AdbDevice


class FileLease(Locks):
    """Leases of devices: a thread of one process uses a device, and nobody else."""

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
        """Take the device for the next `acquire` of this object; `end_reservations` gives it back.

        Raises as that.
        """
        if serial not in self._reserved:
            self._reserved[serial] = self._take(serial, wait_s)

    def end_reservations(self) -> None:
        """Give back what was reserved and not acquired."""
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
    """The devices that are kept out until somebody has looked at them, for all processes of one
    computer.
    """

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made when the first phone is kept out."""
        self._folder = folder

    def reason(self, serial: Serial) -> str:
        """Return why a device is kept out, empty when it isn't; a file that can't be read keeps its
        phone out too.
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
        return self._folder / f"{percent_encode(serial, safe='')}.json"

    def put(self, serial: Serial, reason: str) -> None:
        """Keep a device out; the first reason stays. Raises HostStorageError."""
        path = self.path(serial)
        if path.exists():
            return
        note = {"serial": serial, "reason": reason, "since": datetime.now(UTC).isoformat()}
        keep_file(path, json.dumps(note) + "\n")

    def release(self, serial: Serial) -> str:
        """Let a device in again; return why it was kept out, empty when it wasn't."""
        reason = self.reason(serial)
        self.path(serial).unlink(missing_ok=True)
        if reason:
            self._released(serial).touch()
        return reason

    def is_released(self, serial: Serial) -> bool:
        """Whether somebody has let a device in, and it hasn't been as it was known since
        (``is_as_known``).
        """
        return self._released(serial).exists()

    def is_as_known(self, serial: Serial) -> None:
        """Note that a device is the one that it was known as: who lets it in the next time does so
        for a new reason.
        """
        self._released(serial).unlink(missing_ok=True)

    def _released(self, serial: Serial) -> Path:
        return self.path(serial).with_suffix(".released")

    def serials(self) -> list[Serial]:
        """Return all phones that are kept out."""
        return sorted(Serial(unquote(path.stem)) for path in self._folder.glob("*.json"))


#: How long a phone stays ours after our last command.
LEASE_S: Final = 60.0
#: How many renewals fit into it: one that is lost with its link mustn't matter.
_RENEWALS: Final = 12
#: After this part of it without any command, one is sent for the note alone.
_SILENCE: Final = 2
_SHORTEST_PAUSE_S: Final = 0.1
#: What the phone answers instead of running a command of somebody who has lost it.
LOST_EXIT_CODE: Final = 89
LOST_WORDS: Final = "benchfarm: another holds this phone"


class HeldNote:
    """The renewal of one phone's note, in front of commands that are sent anyway. Any thread may use
    it.

    A phone that isn't spoken to for long (its model is being sent, this computer computes) gets a
    command of its own from a thread. A process that was killed, stopped or suspended renews nothing;
    when it continues and another has taken the phone meanwhile, the phone itself refuses its next
    command.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._script = ""
        self._lease_s = LEASE_S
        self._renewed_s = 0.0
        self._renewed_at = clock.now()
        self._is_beating = False

    def hold(self, script: str, *, lease_s: float, beat: Callable[[], None]) -> None:
        """Renew a note that was just written by this script, valid for ``lease_s`` of this
        computer's time.

        ``beat``: a method that sends an empty command. Its object may be dropped: nothing is
        renewed then.
        """
        with self._lock:
            self._script, self._lease_s = script, lease_s
            self._renewed_s, self._renewed_at = self._clock.monotonic_s(), self._clock.now()
            if not self._is_beating:
                self._is_beating = True
                threading.Thread(
                    target=self._live, args=(weakref.WeakMethod(beat),), daemon=True
                ).start()

    def let_go(self) -> None:
        """Stop renewing; the note expires by itself."""
        with self._lock:
            self._script = ""

    def before(self, command: str) -> tuple[str, bool]:
        """Return a command with the renewal in front if it is time for one, and whether it is."""
        with self._lock:
            is_due = bool(self._script) and self._age_s() >= self._lease_s / _RENEWALS
            return (f"{self._script}\n{command}", True) if is_due else (command, False)

    def after(self, result: ShellResult, *, serial: str) -> None:
        """Take note of a renewal's answer.

        Raises DeviceBusyError when another holds the phone by now.
        """
        if (
            result.exit_code == LOST_EXIT_CODE
            and LOST_WORDS.encode() in result.stderr + result.stdout
        ):
            raise DeviceBusyError(
                "another computer or home has taken the phone meanwhile",
                serial=serial,
                hint="this process wasn't heard of for too long; see 'benchfarm devices' for who has it",
            )
        with self._lock:
            self._renewed_s, self._renewed_at = self._clock.monotonic_s(), self._clock.now()

    def _age_s(self) -> float:
        """Return how long ago the last renewal was, by whichever clock says longer: one of them
        stops in sleep.
        """
        by_wall_s = (self._clock.now() - self._renewed_at).total_seconds()
        return max(self._clock.monotonic_s() - self._renewed_s, by_wall_s)

    def _live(self, beat: weakref.WeakMethod[Callable[[], None]]) -> None:
        """Send a beat whenever the phone was silent for too long, until the note is let go."""
        pause = threading.Event()
        while True:
            with self._lock:
                send = beat()
                if not self._script or send is None:
                    self._is_beating = False
                    return
                silence_s = self._lease_s / _SILENCE
                is_silent = self._age_s() >= silence_s
            if is_silent:
                # Whoever uses the phone learns of an error by its own next command.
                with contextlib.suppress(BenchfarmError):
                    send()
            del send
            pause.wait(max(_SHORTEST_PAUSE_S, silence_s / 4))


#: Less than that, and a run's output may not fit.
FREE_MIN_BYTES: Final = 32 << 20


@frozen
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
    #: With what the scripts printed that were to be run then.
    answer: Answer


def parse_standing(answer: Answer) -> Standing:
    """Read what the claim's script printed."""
    found: dict[str, str] = {}
    strays: list[str] = []
    is_written = False
    text, _, free = answer.text("claim").partition("\nfree\n")
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "written":
            is_written = True
        elif word == "stray":
            name, _, pids = rest.partition(" ")
            strays.append(f"{name} (pid {pids.strip()})")
        elif word in {"held", "serial", "boot"}:
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
        free_bytes=parse_free_bytes(free),
        answer=answer,
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
            "'benchfarm device restore --force SERIAL' is for who knows that it has",
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
        device.note.let_go()
        hold_s = self._lease_s * _speed_of(device.facts())
        script = self.script(device.work_folder, hold_s=hold_s, take=by_force)
        answer = device.ask({"claim": script, **(then or {})}, what=_using(device), must=True)
        standing = parse_standing(answer)
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

    def release(self, device: AdbDevice) -> None:
        """Remove our note; raises DeviceError kinds."""
        device.note.let_go()
        device.must(call("release", device.work_folder, self.token), what=_using(device))


def _using(device: AdbDevice) -> str:
    return f"using our folder {device.work_folder}"


def _speed_of(facts: DeviceFacts) -> float:
    """Return how many seconds of the phone's uptime pass in one of ours: 1, but for virtual phones
    in a hurry.
    """
    try:
        return max(1.0, float(facts.properties.get("ro.benchfarm.speed", "1")))
    except ValueError:
        return 1.0
