"""What was changed on a device and how it is undone, written down before each change.

It is written in two places: a file on this computer, on the disk before the change is made, and a
file on the phone itself, from which any other computer can undo it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Final
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from orchestrator.errors import HostStorageError
from orchestrator.files import write_whole
from orchestrator.ports import Change
from orchestrator.records.case import Serial

_KEYS: Final = tuple(item.name for item in fields(Change))


def format_changes(changes: Sequence[Change]) -> str:
    """Return changes as text, a line of JSON for each."""
    rows = ({key: value for key, value in asdict(change).items() if value} for change in changes)
    return "".join(json.dumps(row) + "\n" for row in rows)


def parse_changes(text: str) -> list[Change]:
    """Read what format_changes wrote.

    Raises ValueError for a line that isn't a change, whose undo would be lost.
    """
    changes: list[Change] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            change = Change(**{key: str(row[key]) for key in _KEYS if key in row})
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number} can't be read: {line[:80]!r}") from error
        if not (change.undo or change.port):
            raise ValueError(f"line {number} doesn't say how it is undone: {line[:80]!r}")
        changes.append(change)
    return changes


class UndoJournal:
    """Files of each device in ``folder``; every line is on the disk before the change that it
    describes is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pending(self, serial: Serial) -> list[Change]:
        """Return the changes that weren't undone, oldest first.

        Raises HostStorageError when that can't be read: it isn't nothing, and would be overwritten.
        """
        path = self._path(serial, "undo")
        try:
            changes = parse_changes(path.read_text("utf-8"))
            if not changes:
                raise ValueError("it is empty")
            return changes
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from error

    def add(self, serial: Serial, *changes: Change) -> None:
        """Write changes down; raises HostStorageError, and the changes must not be made then."""
        self.keep(serial, [*self.pending(serial), *changes])

    def keep(self, serial: Serial, changes: Sequence[Change]) -> None:
        """Keep only these; raises HostStorageError."""
        self._store(serial, "undo", format_changes(changes))

    def forget(self, serial: Serial, undone: Change) -> None:
        """Keep all but this one."""
        self.keep(serial, [change for change in self.pending(serial) if change != undone])

    def ports_off(self, serial: Serial) -> list[Change]:
        """Return the hubs' ports that are without power because of a device."""
        return [change for change in self.pending(serial) if change.port]

    def serials(self) -> list[Serial]:
        """Return the devices on which something is to be undone, or that weren't compared since
        with what they were; raises HostStorageError.
        """
        suffixes = {".undo", ".snapshot"}
        try:
            stems = {path.stem for path in self.folder.iterdir() if path.suffix in suffixes}
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(self.folder, error) from error
        return [Serial(unquote(stem.removeprefix("device-"))) for stem in sorted(stems)]

    def snapshot(self, serial: Serial) -> dict[str, str] | None:
        """Return what the phone was before the first change that isn't undone and compared yet,
        None for no change.

        Raises HostStorageError.
        """
        path = self._path(serial, "snapshot")
        try:
            return {
                str(key): str(value) for key, value in json.loads(path.read_text("utf-8")).items()
            }
        except FileNotFoundError:
            return None
        except (OSError, ValueError, AttributeError) as error:
            raise _unreadable(path, error) from error

    def keep_snapshot(self, serial: Serial, snapshot: Mapping[str, str] | None) -> None:
        """Write a snapshot down, or forget it (None); raises HostStorageError."""
        self._store(serial, "snapshot", "" if snapshot is None else json.dumps(dict(snapshot)))

    def _store(self, serial: Serial, suffix: str, text: str) -> None:
        """Have a file with this text on the disk, for this user's eyes only; none for no text."""
        path = self._path(serial, suffix)
        try:
            if text:
                write_whole(path, text, is_durable=True)
            else:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    path.unlink()
        except OSError as error:
            raise HostStorageError(
                f"what is to be undone on {serial} can't be noted in {path}: {error}"
            ) from error

    def _path(self, serial: Serial, suffix: str) -> Path:
        return self.folder / f"device-{percent_encode(serial, safe='')}.{suffix}"


def _unreadable(path: Path, error: Exception) -> HostStorageError:
    return HostStorageError(
        f"what is to be undone on phones can't be read from {path}: {error}",
        hint="make it readable, or move it away after a look at what it names",
    )
