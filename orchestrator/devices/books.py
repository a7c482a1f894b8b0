"""Records about devices, one JSON file each in a folder: what their power meters are, and quarantine."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from orchestrator.clock import Clock, SystemClock
from orchestrator.errors import HostStorageError
from orchestrator.files import write_whole
from orchestrator.records.energy import PowerMeters
from orchestrator.records.identity import Serial

_Record = TypeVar("_Record")


class _Folder:
    """A folder with a file for each device."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, serial: Serial) -> Path:
        """Return the file of a device."""
        return self._folder / f"{percent_encode(serial, safe='')}.json"

    def _write(self, serial: Serial, text: str) -> Path:
        path = self.path(serial)
        try:
            write_whole(path, text + "\n")
        except OSError as error:
            raise HostStorageError(f"{path} can't be written: {error}") from error
        return path

    def _read(self, kind: type[_Record], serial: Serial) -> _Record:
        """Return a stored record; raises OSError, ValueError."""
        from orchestrator.documents import adapter_of

        return adapter_of(kind).validate_json(self.path(serial).read_bytes(), strict=True)


class MeterBook(_Folder):
    """What was found out about phones' power meters."""

    def load(self, serial: Serial, fingerprint: str) -> PowerMeters | None:
        """Return what is known of a phone with this system image; None where it has to be found out (again)."""
        try:
            known = self._read(PowerMeters, serial)
        except (OSError, ValueError):
            return None
        return known if known.serial == serial and known.fingerprint == fingerprint else None

    def save(self, meters: PowerMeters) -> None:
        """Keep what was found, whole or not at all. Raises HostStorageError."""
        from orchestrator.documents import dump_document

        self._write(meters.serial, dump_document(meters))


class QuarantineFolder(_Folder):
    """The devices that are kept out until somebody has looked at them, for all processes of one computer."""

    def __init__(self, folder: Path, *, clock: Clock | None = None) -> None:
        """Name the folder; it is made when the first phone is kept out."""
        super().__init__(folder)
        self._clock = clock or SystemClock()

    def reason(self, serial: Serial) -> str:
        """Return why a device is kept out, empty when it isn't; a file that can't be read keeps its phone out too."""
        try:
            note = json.loads(self.path(serial).read_text("utf-8"))
            since = datetime.fromisoformat(note["since"]).astimezone()
            return f"{note['reason']} (since {since:%Y-%m-%d %H:%M})"
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"{self.path(serial)} can't be read: {error}"

    def put(self, serial: Serial, reason: str) -> None:
        """Keep a device out; the first reason stays. Raises HostStorageError."""
        if not self.path(serial).exists():
            note = {"serial": serial, "reason": reason, "since": self._clock.now().isoformat()}
            self._write(serial, json.dumps(note))

    def release(self, serial: Serial) -> str:
        """Let a device in again; return why it was kept out, empty when it wasn't."""
        reason = self.reason(serial)
        self.path(serial).unlink(missing_ok=True)
        if reason:
            self._released(serial).touch()
        return reason

    def is_released(self, serial: Serial) -> bool:
        """Whether somebody has let a device in, and it hasn't been as it was known since (``is_as_known``)."""
        return self._released(serial).exists()

    def is_as_known(self, serial: Serial) -> None:
        """Note that a device is the one that it was known as: who lets it in the next time does so for a new reason."""
        self._released(serial).unlink(missing_ok=True)

    def _released(self, serial: Serial) -> Path:
        return self.path(serial).with_suffix(".released")

    def serials(self) -> list[Serial]:
        """Return all phones that are kept out."""
        return sorted(Serial(unquote(path.stem)) for path in self._folder.glob("*.json"))
