"""What was changed on a device and how it is undone, written down before each change.

It is written in two places: a file on this computer, on the disk before the change is made, and a file on the phone
itself, from which any other computer can undo it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from orchestrator.errors import HostStorageError
from orchestrator.files import make_private
from orchestrator.records.identity import Serial


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: what it is, and the shell command that restores what was before.

    With ``port`` it was made on this computer instead: a hub's port (``1-4 2`` is port 2 of hub 1-4) is without power.
    """

    what: str
    undo: str = ""
    port: str = ""


def format_changes(changes: Sequence[Change]) -> str:
    """Return changes as text, a line of JSON for each."""
    rows = ({key: value for key, value in asdict(change).items() if value} for change in changes)
    return "".join(json.dumps(row) + "\n" for row in rows)


def parse_changes(text: str) -> list[Change]:
    """Read what format_changes wrote; a line cut off by a crash was never acted on and is left out."""
    changes: list[Change] = []
    for line in text.splitlines():
        try:
            fields = json.loads(line)
            undo, port = str(fields.get("undo", "")), str(fields.get("port", ""))
            if undo or port:
                changes.append(Change(what=str(fields["what"]), undo=undo, port=port))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return changes


class UndoJournal:
    """One file per device in ``folder``; every line is on the disk before the change that it tells of is made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return self._folder

    def pending(self, serial: Serial) -> list[Change]:
        """Return the changes that weren't undone, oldest first; a line cut off by a crash was never acted on."""
        try:
            return parse_changes(self._path(serial).read_text("utf-8"))
        except OSError:
            return []

    def add(self, serial: Serial, *changes: Change) -> None:
        """Write changes down; raises HostStorageError, and the changes must not be made then."""
        self._store(self._path(serial), format_changes([*self.pending(serial), *changes]), serial)

    def keep(self, serial: Serial, changes: Sequence[Change]) -> None:
        """Keep only these."""
        if changes:
            self._store(self._path(serial), format_changes(changes), serial)
        else:
            self._remove(self._path(serial), serial)

    def forget(self, serial: Serial, undone: Change) -> None:
        """Keep all but this one."""
        self.keep(serial, [change for change in self.pending(serial) if change != undone])

    def ports_off(self, serial: Serial) -> list[Change]:
        """Return the hubs' ports that are without power because of a device."""
        return [change for change in self.pending(serial) if change.port]

    def serials(self) -> list[Serial]:
        """Return the devices on which something is still to be undone."""
        return [
            Serial(unquote(path.name.removesuffix(".undo").removeprefix("device-")))
            for path in sorted(self._folder.glob("device-*.undo"))
        ]

    def snapshot(self, serial: Serial) -> Mapping[str, str] | None:
        """Return what the phone was before the first change that isn't undone and compared yet, None when unknown."""
        try:
            content = json.loads(self._path(serial, "snapshot").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return {str(key): str(value) for key, value in content.items()} if isinstance(content, dict) else None

    def keep_snapshot(self, serial: Serial, snapshot: Mapping[str, str] | None) -> None:
        """Write a snapshot down, or forget it (None); raises HostStorageError."""
        path = self._path(serial, "snapshot")
        if snapshot is None:
            self._remove(path, serial)
        else:
            self._store(path, json.dumps(dict(snapshot)), serial)

    @staticmethod
    def _remove(path: Path, serial: Serial) -> None:
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise HostStorageError(f"that all is undone on {serial} can't be noted in {path}: {error}") from error

    def _store(self, path: Path, text: str, serial: Serial) -> None:
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            make_private(self._folder)
            # Settings may tell of a phone's owner: they are for this user's eyes only.
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise HostStorageError(f"what is to be undone on {serial} can't be noted in {path}: {error}") from error

    def _path(self, serial: Serial, suffix: str = "undo") -> Path:
        return self._folder / f"device-{percent_encode(serial, safe='')}.{suffix}"
