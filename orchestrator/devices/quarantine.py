"""Phones that are kept out until somebody has looked at them: one JSON file each, in the state folder."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from orchestrator.clock import Clock, SystemClock
from orchestrator.errors import HostStorageError
from orchestrator.files import write_whole
from orchestrator.records.identity import Serial


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
