"""What files of this computer hold: read once as long as they stay as they are."""

from __future__ import annotations

from pathlib import Path

from orchestrator.artifacts.program import ProgramFacts, inspect_program
from orchestrator.artifacts.shelf import sha256_of

#: Which file it is, and what changes when somebody writes it.
_State = tuple[Path, int, int, int, int]


class KnownFiles:
    """Hashes of files, and looks inside programs: one for each content, however many phones it goes to."""

    def __init__(self) -> None:
        self._hashes: dict[_State, str] = {}
        self._programs: dict[_State, ProgramFacts] = {}

    def sha256(self, path: Path | None) -> str:
        """Return the hash of a file's content, empty when it can't be read."""
        state = None if path is None else _state_of(path)
        if state is None:
            return ""
        if state not in self._hashes:
            self._hashes[state] = sha256_of(path)
        return self._hashes[state]

    def program(self, path: Path) -> ProgramFacts:
        """Return what a program is; raises ArtifactError as inspect_program does."""
        state = _state_of(path)
        if state is None:
            return inspect_program(path)
        if state not in self._programs:
            self._programs[state] = inspect_program(path)
        return self._programs[state]


def _state_of(path: Path) -> _State | None:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
