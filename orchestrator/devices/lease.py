"""Who may use a device: the right to it is a lock on a file, which ends with its process, however that ends.

A pid alone doesn't identify a process: it is given again, and two containers of one name have the same ones. A *life*
names the computer's boot, the pid namespace, the pid and when it was started; it is empty where one can't be read.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Generator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from filelock import FileLock, Timeout

from orchestrator.clock import Clock, SystemClock
from orchestrator.errors import DeviceBusyError, HostStorageError
from orchestrator.files import make_private
from orchestrator.records.identity import Serial

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")
#: Fields of /proc/PID/stat after the name in parentheses: state is the first, the start in clock ticks the 20th.
_STATE, _STARTED = 0, 19
_POLL_S: Final = 0.05


def own_life() -> str:
    """Return this process's life, empty where the system doesn't tell (no Linux)."""
    return life_of(os.getpid())


def life_of(pid: int) -> str:
    """Return a process's life, empty where the system doesn't tell or there is none."""
    place, started = _place(), _stat(pid)
    return f"{place} {pid} {started[1]}" if place and started else ""


def is_dead(life: str) -> bool:
    """Whether the process that wrote this life is certainly gone; False when nothing is known of it."""
    place, pid, started = (*life.rsplit(" ", 2), "", "")[:3]
    if not place or place != _place() or not pid.isdigit():
        return False
    found = _stat(int(pid))
    # A zombie does nothing any more, its parent just hasn't looked.
    return found is None or found[0] in {"Z", "X"} or found[1] != started


def own_boot() -> str:
    """Return an id of this computer's boot, empty where the system doesn't tell (no Linux)."""
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


class FileLease:
    """Leases among the processes (and threads) of one computer, one file per device in ``folder``."""

    def __init__(self, folder: Path, *, purpose: str = "", clock: Clock | None = None) -> None:
        """``purpose`` is shown to others who want the device."""
        self._folder = folder
        self._purpose = purpose
        self._clock = clock or SystemClock()

    @contextlib.contextmanager
    def acquire(self, serial: Serial, *, wait_s: float = 0.0) -> Generator[None]:
        """Hold the device while the context lasts; raises DeviceBusyError naming the holder."""
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
            raise HostStorageError(f"the lease of {serial} can't be kept in {self._folder}: {error}") from error
        note = {
            "pid": os.getpid(), "life": own_life(), "host": socket.gethostname(), "purpose": self._purpose,
            "since": self._clock.now().isoformat(),
        }  # fmt: skip
        try:
            # The note is for people: the lock holds without it, also on a full disk.
            with contextlib.suppress(OSError):
                self._path(serial, "holder").write_text(json.dumps(note), "utf-8")
            yield
        finally:
            self._path(serial, "holder").unlink(missing_ok=True)
            lock.release()

    def holder(self, serial: Serial) -> str:
        """Return who holds the device in words, empty when nobody said so; a killed process leaves its note."""
        return self._noted(serial)[0]

    def live_holder(self, serial: Serial) -> str:
        """Return who holds the device now, empty for nobody: a killed process's note doesn't count."""
        words, life = self._noted(serial)
        return "" if is_dead(life) else words

    def live_holders(self) -> dict[Serial, str]:
        """Return the devices that somebody holds now, each with its holder; a killed process's note doesn't count."""
        names = (path.name.removeprefix("device-").removesuffix(".holder") for path in self._folder.glob("*.holder"))
        serials = sorted(Serial(unquote(name)) for name in names)
        return {serial: holder for serial in serials if (holder := self.live_holder(serial))}

    def _noted(self, serial: Serial) -> tuple[str, str]:
        try:
            note: Mapping[str, Any] = json.loads(self._path(serial, "holder").read_text("utf-8"))
            since = datetime.fromisoformat(note["since"]).astimezone()
            purpose = f" ({note['purpose']})" if note["purpose"] else ""
            words = f"process {note['pid']} on {note['host']}{purpose} since {since:%Y-%m-%d %H:%M:%S}"
            return words, str(note["life"])
        except (OSError, ValueError, KeyError, TypeError):
            return "", ""

    def _path(self, serial: Serial, suffix: str) -> Path:
        return self._folder / f"device-{percent_encode(serial, safe='')}.{suffix}"
