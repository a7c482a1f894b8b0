"""Who holds a phone or a campaign, and which process is which: answers that are proven now, by the
system itself.

A lock on a file (flock) ends with its process, however that ends; notes only tell people who it is.
A pid is given again, by the next boot and in each pid namespace. Whatever differs between systems
(macOS has no /proc) stands here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Generator
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

import psutil

from orchestrator.clock import Clock, Deadline, SystemClock
from orchestrator.errors import DeviceBusyError, HostStorageError
from orchestrator.files import make_private, write_whole
from orchestrator.records.case import Serial

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_POLL_S: Final = 0.05
#: Where the system can't only be asked (no Linux), who asks whether a lock is held has it for a
#: moment: that mustn't look like a holder.
_SHORTEST_WAIT_S: Final = 0.25
#: Linux locks for an open file, as flock's are (fcntl(2), "open file description locks"), which can
#: be asked for without being taken.
_OPEN_FILE_LOCKS: Final = hasattr(fcntl, "F_OFD_GETLK")
#: `struct flock` of 64-bit offsets: type, whence, start, length, pid.
_FLOCK: Final = "hhqqi"
#: The system's own estimate of a process's start moves by so much.
_START_S: Final = 2.0
#: How long killed processes may take to be gone.
_KILLED_S: Final = 2.0
_LONGEST_NOTE_BYTES: Final = 4096
#: What psutil raises where a process isn't there, or the system doesn't tell of it.
_UNKNOWN: Final = (psutil.Error, OSError, ValueError, RuntimeError)


def own_boot() -> str:
    """Return an id of this computer's boot, empty where the system doesn't tell (no Linux)."""
    try:
        return _BOOT.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def started_at(pid: int) -> float | None:
    """Return when a process was started, in seconds since 1970.

    None when there is none, or nobody tells.
    """
    try:
        return psutil.Process(pid).create_time()
    except _UNKNOWN:
        return None


def is_still(pid: int, started_s: float, *, folder: Path) -> bool:
    """Whether a process runs now that has this number, was started then and works in this folder.

    False if unknown.
    """
    try:
        process = psutil.Process(pid)
        return (
            abs(process.create_time() - started_s) <= _START_S
            and process.status() != psutil.STATUS_ZOMBIE
            and Path(process.cwd()).samefile(folder)
        )
    except _UNKNOWN:
        return False


def command_line(pid: int) -> str:
    """Return a process's command line; empty when there is none, or nobody tells."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except _UNKNOWN:
        return ""


def kill_group(leader: int) -> None:
    """Kill a process group; not an error when it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def kill_family(leader: int) -> None:
    """Kill a child of ours with its process group and all that descends from it, in sessions of
    their own too.
    """
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(leader).children(recursive=True)
    for process in below:
        # Each is known by its start as well: a stranger with its number isn't killed.
        with contextlib.suppress(psutil.Error):
            process.kill()
    kill_group(leader)
    psutil.wait_procs(below, timeout=_KILLED_S)


class Locks:
    """Locks by name among the processes (and threads) of one computer, a file in ``folder`` for
    each that is held.
    """

    def __init__(self, folder: Path, *, purpose: str = "", clock: Clock | None = None) -> None:
        """``purpose`` is shown to others who want what is locked."""
        self._folder = folder
        self._purpose = purpose
        self._clock = clock or SystemClock()

    def take(self, name: str, *, wait_s: float = 0.0) -> Callable[[], None] | None:
        """Return what releases the lock, None when another has it still after ``wait_s``.

        Raises HostStorageError.
        """
        path, deadline = self._path(name), Deadline(max(wait_s, _SHORTEST_WAIT_S))
        try:
            make_private(self._folder)
            while (descriptor := _locked(path)) is None:
                if deadline.expired:
                    return None
                time.sleep(_POLL_S)
        except OSError as error:
            raise HostStorageError(f"{path} can't be locked: {error}") from error
        note = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "purpose": self._purpose,
            "since": self._clock.now().isoformat(),
        }
        # The note is for people: the lock holds without it, also on a full disk.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(note).encode())

        def release() -> None:
            # While it is held: who waits for it sees that the file has no name any more, and makes
            # another.
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(descriptor)

        return release

    def live_holder(self, name: str) -> str:
        """Return who holds a lock now, in words; empty for nobody."""
        return _holder(self._path(name))

    def live_holders(self) -> dict[str, str]:
        """Return the locks that somebody holds now, each with its holder."""
        found = {unquote(path.stem): _holder(path) for path in sorted(self._folder.glob("*.lock"))}
        return {name: holder for name, holder in found.items() if holder}

    def _path(self, name: str) -> Path:
        return self._folder / f"{percent_encode(name, safe='')}.lock"


def _locked(path: Path) -> int | None:
    """Return a file that is locked for this process, None when another has the lock.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if _OPEN_FILE_LOCKS:
            fcntl.fcntl(
                descriptor,
                fcntl.F_OFD_SETLK,
                struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0),
            )
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        if _is_locked(file.fileno()):
            return _who(file.read(_LONGEST_NOTE_BYTES))
    return ""


def _is_locked(descriptor: int) -> bool:
    """Whether another has an open file's lock now; raises OSError."""
    if _OPEN_FILE_LOCKS:
        asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        told: int = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))[0]
        return told != fcntl.F_UNLCK
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _who(note: bytes) -> str:
    """Return a holder's note in words."""
    try:
        found = json.loads(note)
        since = datetime.fromisoformat(found["since"]).astimezone()
        purpose = f" ({found['purpose']})" if found["purpose"] else ""
        return f"process {found['pid']} on {found['host']}{purpose} since {since:%Y-%m-%d %H:%M:%S}"
    except (ValueError, KeyError, TypeError):
        return "another process"


class FileLease:
    """Leases of devices: a thread of one process uses a device, and nobody else."""

    def __init__(self, folder: Path, *, purpose: str = "", clock: Clock | None = None) -> None:
        """See Locks."""
        self._locks = Locks(folder, purpose=purpose, clock=clock)
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

    def live_holder(self, serial: Serial) -> str:
        """Return who holds the device now, in words; empty for nobody."""
        return self._locks.live_holder(_lock_name(serial))

    def live_holders(self) -> dict[Serial, str]:
        """Return the devices that somebody holds now, each with its holder."""
        return {
            Serial(name.removeprefix("device-")): who
            for name, who in self._locks.live_holders().items()
        }

    def _take(self, serial: Serial, wait_s: float) -> Callable[[], None]:
        release = self._locks.take(_lock_name(serial), wait_s=wait_s)
        if release is None:
            raise DeviceBusyError(
                f"in use by {self.live_holder(serial) or 'another process'}",
                serial=serial,
                hint="wait until it is done, or choose another device",
            )
        return release


def _lock_name(serial: Serial) -> str:
    return f"device-{serial}"


class QuarantineFolder:
    """The devices that are kept out until somebody has looked at them, for all processes of one
    computer.
    """

    def __init__(self, folder: Path, *, clock: Clock | None = None) -> None:
        """Name the folder; it is made when the first phone is kept out."""
        self._folder = folder
        self._clock = clock or SystemClock()

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
        note = {"serial": serial, "reason": reason, "since": self._clock.now().isoformat()}
        try:
            write_whole(path, json.dumps(note) + "\n")
        except OSError as error:
            raise HostStorageError(f"{path} can't be written: {error}") from error

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
