"""Turns of hubs and places for pushes among the processes of one computer and user: locks on files of one folder.

A process that measures or pushes on a hub is in one of the hub's two rooms: it has a shared lock on that room's file,
and nobody is in the other one. Who finds the other room taken waits at the hub's gate, a third file, and keeps it:
whoever comes after waits behind it, those of the room that is taken too, so that none waits for ever. Places
for pushes are files of which each process that pushes has some for itself. The kernel ends a lock with its process.

Nothing here waits. A folder that can't be written to limits nothing: what is measured then is only disturbed more.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

MEASURES: Final = "measures"
PUSHES: Final = "pushes"
_OTHER: Final = {MEASURES: PUSHES, PUSHES: MEASURES}
#: In place of a lock where none can be had.
_UNLOCKED: Final = -1


class HubLocks:
    """The locks that this process holds; to be used by one thread at a time."""

    def __init__(self, folder: Path | None) -> None:
        """Without a folder there are no other processes."""
        self._folder = folder
        self._gates: dict[str, int] = {}
        self._rooms: dict[str, tuple[str, int]] = {}

    def enter(self, hub: str, room: str) -> bool:
        """Enter a hub's room, or stay in it; False when that must wait: it is to be tried again, or the hub left."""
        if self._folder is None or self._is_in(hub, room):
            return True
        self.leave_room(hub)
        if hub not in self._gates:
            gate = self._locked(hub, "gate", fcntl.LOCK_EX)
            if gate is None:
                return False
            self._gates[hub] = gate
        other = self._locked(hub, _OTHER[room], fcntl.LOCK_EX)
        if other is None:
            return False
        own = self._locked(hub, room, fcntl.LOCK_SH)
        _close(other)
        _close(self._gates.pop(hub))
        # Taken for itself by nobody who isn't at the gate.
        self._rooms[hub] = (room, _UNLOCKED if own is None else own)
        return True

    def is_awaited(self, hub: str) -> bool:
        """Whether another process waits for its turn at a hub: no more of this one's are to begin there."""
        if self._folder is None:
            return False
        gate = self._locked(hub, "gate", fcntl.LOCK_EX)
        if gate is None:
            return True
        _close(gate)
        return False

    def leave_room(self, hub: str) -> None:
        """Leave the hub's room that this process is in, if any."""
        _, lock = self._rooms.pop(hub, ("", _UNLOCKED))
        _close(lock)

    def leave(self, hub: str) -> None:
        """Leave the hub altogether."""
        self.leave_room(hub)
        _close(self._gates.pop(hub, _UNLOCKED))

    def places(self, wanted: Iterable[tuple[str, int]]) -> list[int] | None:
        """Return a place of each name, of so many; None when one has none left. They are given back by ``free``."""
        held: list[int] = []
        for name, number in wanted if self._folder is not None else ():
            tried = (self._locked(name, f"place-{place}", fcntl.LOCK_EX) for place in range(number))
            found = next((lock for lock in tried if lock is not None), None)
            if found is None:
                free(held)
                return None
            held.append(found)
        return held

    def _is_in(self, hub: str, room: str) -> bool:
        return hub in self._rooms and self._rooms[hub][0] == room

    def _locked(self, hub: str, name: str, kind: int) -> int | None:
        """Return a lock on a file of a hub, None when another one has it."""
        assert self._folder is not None, "only asked where there are others"
        path = self._folder / f"{hashlib.sha256(hub.encode()).hexdigest()[:24]}.{name}"
        try:
            lock = _open(path)
        except OSError:
            return _UNLOCKED
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            _close(lock)
            return None
        except OSError:
            _close(lock)
            return _UNLOCKED
        return lock


def free(places: Iterable[int]) -> None:
    """Give places back."""
    for lock in places:
        _close(lock)


def _open(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _close(lock: int) -> None:
    if lock != _UNLOCKED:
        os.close(lock)
