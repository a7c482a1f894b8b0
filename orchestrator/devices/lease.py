"""Which devices may be used by whom: leases among the processes of this computer, and the phones
that are kept out until somebody has looked at them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from orchestrator.errors import DeviceBusyError
from orchestrator.files import keep_file
from orchestrator.locks import Locks
from orchestrator.records.case import Serial


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
