"""What was changed on a device and how it is undone, written down before each change."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from orchestrator.errors import HostStorageError
from orchestrator.records.identity import Serial


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: what it is, and the shell command that puts back what was before."""

    what: str
    undo: str


class UndoJournal:
    """One file per device in ``folder``; every line is on the disk before the change that it tells of is made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pending(self, serial: Serial) -> list[Change]:
        """Return the changes that weren't undone, oldest first; a line cut off by a crash was never acted on."""
        changes: list[Change] = []
        try:
            lines = self._path(serial).read_text("utf-8").splitlines()
        except OSError:
            return changes
        for line in lines:
            try:
                fields = json.loads(line)
                changes.append(Change(what=str(fields["what"]), undo=str(fields["undo"])))
            except (ValueError, KeyError, TypeError):
                continue
        return changes

    def add(self, serial: Serial, change: Change) -> None:
        """Write a change down; raises HostStorageError, and the change must not be made then."""
        self._store(serial, [*self.pending(serial), change])

    def keep(self, serial: Serial, changes: Sequence[Change]) -> None:
        """Keep only these."""
        if changes:
            self._store(serial, changes)
        else:
            self._path(serial).unlink(missing_ok=True)

    def serials(self) -> list[Serial]:
        """Return the devices on which something is still to be undone."""
        return [
            Serial(unquote(path.name.removesuffix(".undo").removeprefix("device-")))
            for path in sorted(self._folder.glob("device-*.undo"))
        ]

    def _store(self, serial: Serial, changes: Sequence[Change]) -> None:
        path = self._path(serial)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with draft.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(change)) + "\n" for change in changes)
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

    def _path(self, serial: Serial) -> Path:
        return self._folder / f"device-{percent_encode(serial, safe='')}.undo"
