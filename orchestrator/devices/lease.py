"""Who may use a device: the right to it, a lock on a file that ends with its process, however; and quarantine.

A pid alone doesn't tell: it is given again, and two containers of one name have the same ones. A *life* names the
computer's boot, the pid namespace, the pid and when it was started; where one of them can't be read, nothing is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Generator
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from filelock import FileLock, Timeout

from orchestrator.clock import Clock, SystemClock
from orchestrator.errors import DeviceBusyError, HostStorageError, UsageError
from orchestrator.files import make_private, write_whole
from orchestrator.records.identity import Serial

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")
#: Fields of /proc/PID/stat after the name in parentheses: state is the first, the start in clock ticks the 20th.
_STATE, _STARTED = 0, 19


def own_life() -> str:
    """Return this process's life, empty where the system doesn't tell (no Linux)."""
    place, started = _place(), _stat(os.getpid())
    return f"{place} {os.getpid()} {started[1]}" if place and started else ""


def is_dead(life: str) -> bool:
    """Whether the process that wrote this life is certainly gone; False when nothing is known of it."""
    place, _, rest = life.rpartition(" ")
    place, _, pid = place.rpartition(" ")
    if not place or place != _place() or not pid.isdigit():
        return False
    found = _stat(int(pid))
    # A zombie does nothing any more, its parent just hasn't looked.
    return found is None or found[0] in {"Z", "X"} or found[1] != rest


def own_boot() -> str:
    """Return what is another one after each start of this computer, empty where the system doesn't tell (no Linux)."""
    try:
        return _BOOT.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _place() -> str:
    """Return within what a pid means something: this boot and this pid namespace."""
    boot = own_boot()
    try:
        return f"{boot} {_NAMESPACE.readlink()}" if boot else ""
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, str] | None:
    """Return a process's state and start; None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return (fields[_STATE], fields[_STARTED]) if len(fields) > _STARTED else None


_POLL_S = 0.05


class FileLease:
    """Leases among the processes (and threads) of one computer, one file per device in ``folder``."""

    def __init__(self, folder: Path, *, purpose: str = "", clock: Clock | None = None) -> None:
        """``purpose`` is told to others who want the device."""
        self._folder = folder
        self._purpose = purpose
        self._clock = clock or SystemClock()

    def acquire(self, serial: Serial, *, wait_s: float = 0.0) -> AbstractContextManager[None]:
        """See Lease.acquire."""
        return self._hold(serial, wait_s)

    @contextlib.contextmanager
    def _hold(self, serial: Serial, wait_s: float) -> Generator[None]:
        try:
            make_private(self._folder)
            # A lock object of its own for each holder: one object would let its own process in again.
            lock = FileLock(self._path(serial, "lock"), timeout=max(0.0, wait_s), poll_interval=_POLL_S)
            lock.acquire()
        except Timeout:
            raise DeviceBusyError(
                f"in use by {self.holder(serial) or 'another process'}",
                serial=serial,
                hint="wait until it is done, or choose another device",
            ) from None
        except OSError as error:
            raise UsageError(f"the lease of {serial} can't be kept in {self._folder}: {error}") from error
        try:
            self._note(serial)
            yield
        finally:
            self._path(serial, "holder").unlink(missing_ok=True)
            lock.release()

    def holder(self, serial: Serial) -> str:
        """Return who holds the device in words, empty when nobody said so."""
        try:
            note = json.loads(self._path(serial, "holder").read_text("utf-8"))
            since = datetime.fromisoformat(note["since"]).astimezone()
            purpose = f" ({note['purpose']})" if note["purpose"] else ""
            return f"process {note['pid']} on {note['host']}{purpose} since {since:%Y-%m-%d %H:%M:%S}"
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def noted(self) -> list[Serial]:
        """Return the devices of which somebody noted that he holds them; a killed process leaves its note."""
        names = (path.name.removeprefix("device-").removesuffix(".holder") for path in self._folder.glob("*.holder"))
        return sorted(Serial(unquote(name)) for name in names)

    def live_holder(self, serial: Serial) -> str:
        """Return who holds the device now, empty for nobody: a killed process leaves its note, but not its lock."""
        try:
            note = json.loads(self._path(serial, "holder").read_text("utf-8"))
            is_gone = is_dead(str(note["life"]))
        except (OSError, ValueError, KeyError, TypeError):
            return ""
        return "" if is_gone else self.holder(serial)

    def live_holders(self) -> dict[Serial, str]:
        """Return the devices that somebody holds now, each with its holder."""
        return {serial: holder for serial in self.noted() if (holder := self.live_holder(serial))}

    def _note(self, serial: Serial) -> None:
        note = {
            "pid": os.getpid(),
            "life": own_life(),
            "host": socket.gethostname(),
            "purpose": self._purpose,
            "since": self._clock.now().isoformat(),
        }
        # The note is for people: the lock holds without it, also on a full disk.
        with contextlib.suppress(OSError):
            self._path(serial, "holder").write_text(json.dumps(note), "utf-8")

    def _path(self, serial: Serial, suffix: str) -> Path:
        return self._folder / f"device-{percent_encode(serial, safe='')}.{suffix}"


class QuarantineFolder:
    """Quarantine among the processes of one computer."""

    def __init__(self, folder: Path, *, clock: Clock | None = None) -> None:
        """Name the folder; it is made when the first phone is kept out."""
        self._folder = folder
        self._clock = clock or SystemClock()

    def reason(self, serial: Serial) -> str:
        """See Quarantine.reason. A file that can't be read keeps its phone out too."""
        try:
            note = json.loads(self._path(serial).read_text("utf-8"))
            since = datetime.fromisoformat(note["since"]).astimezone()
            return f"{note['reason']} (since {since:%Y-%m-%d %H:%M})"
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"{self._path(serial)} can't be read: {error}"

    def put(self, serial: Serial, reason: str) -> None:
        """See Quarantine.put."""
        path = self._path(serial)
        if path.exists():
            return
        note = {"serial": serial, "reason": reason, "since": self._clock.now().isoformat()}
        try:
            write_whole(path, json.dumps(note) + "\n")
        except OSError as error:
            raise HostStorageError(f"{path} can't be written: {error}") from error

    def release(self, serial: Serial) -> str:
        """See Quarantine.release."""
        reason = self.reason(serial)
        self._path(serial).unlink(missing_ok=True)
        return reason

    def serials(self) -> list[Serial]:
        """Return all phones that are kept out."""
        return sorted(Serial(unquote(path.stem)) for path in self._folder.glob("*.json"))

    def _path(self, serial: Serial) -> Path:
        return self._folder / f"{percent_encode(serial, safe='')}.json"
