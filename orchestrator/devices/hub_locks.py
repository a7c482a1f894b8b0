"""Turns of hubs and places for pushes among the processes of one computer: locks on files of one folder.

A process that measures or pushes on a hub is in one of the hub's two rooms: it has a shared lock on that room's file,
and nobody is in the other one. Who finds the other room taken waits at the hub's gate, a third file, and keeps it:
whoever comes after waits behind it, those of the room that is taken too, so that none waits for ever. Places
for pushes are files of which each process that pushes has some for itself. The kernel ends a lock with its process.

A process that was stopped (Ctrl-Z) or hangs keeps its locks. So whoever has a lock writes its process's number into the
file, and the time again and again. Who is kept out by processes that have all been silent for too long removes the file
and goes on with a new one, as if they weren't there; when they come to life again they begin with that, too. Where
the whole computer stood still (a virtual machine that was paused) all have been silent: so they are looked at twice.

Nothing here waits. A folder that can't be written to limits nothing: what is measured then is only disturbed more.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MEASURES: Final = "measures"
PUSHES: Final = "pushes"
_OTHER: Final = {MEASURES: PUSHES, PUSHES: MEASURES}
#: Of the time after which a process is silent: so much later it is looked at again before it is passed over.
_SECOND_LOOK: Final = 0.2
#: In place of a lock where none can be had.
_UNLOCKED: Final = -1
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
#: So often a lock is tried for whose file was replaced meanwhile.
_TRIES: Final = 3
#: Each process that has a lock on a file has one of these there: its number, and when it was last alive.
_NOTE_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """A process that has a lock on a file."""

    place: int
    pid: int
    #: On this computer's monotonic clock.
    alive_s: float


class HubLocks:
    """The locks that this process holds; to be used by one thread at a time."""

    def __init__(self, folder: Path | None, *, silent_s: float) -> None:
        """Without a folder there are no other processes; ``silent_s``: when a silent one is no longer waited for."""
        self._folder = folder
        self._silent_s = silent_s
        self._gates: dict[str, int] = {}
        self._rooms: dict[str, tuple[str, int]] = {}
        #: Every lock, with the place of its note in the file.
        self._notes: dict[int, int] = {}
        #: Hub -> the processes that kept this one out when it last tried.
        self._waited_for: dict[str, set[int]] = {}
        #: Process -> when it was first found to be silent.
        self._silent_since: dict[int, float] = {}
        #: Hub -> silent processes whose locks were passed over, until told.
        self._passed_over: dict[str, set[int]] = {}

    def waited_for(self, hub: str) -> Sequence[int]:
        """Return the processes that keep this one from a hub, or from a push at all."""
        return sorted(self._waited_for.get(hub, set()) | self._waited_for.get("", set()))

    def take_passed_over(self, hub: str) -> Sequence[int]:
        """Return the silent processes without whose leave this one is on a hub; each is told once."""
        return sorted(self._passed_over.pop(hub, set()) | self._passed_over.pop("", set()))

    @property
    def are_held(self) -> bool:
        """Whether other processes may have to wait for this one."""
        return bool(self._notes)

    def renew(self) -> bool:
        """Write into each lock's file that this process is alive; False when it holds none."""
        for lock, place in self._notes.items():
            _write_note(lock, place)
        return bool(self._notes)

    def enter(self, hub: str, room: str) -> bool:
        """Enter a hub's room, or stay in it; False when that must wait: it is to be tried again, or the hub left."""
        if self._folder is None or self._is_in(hub, room):
            return True
        self.leave_room(hub)
        self._waited_for.pop(hub, None)
        if hub not in self._gates:
            gate = self._locked(hub, "gate", fcntl.LOCK_EX)
            if gate is None:
                return False
            self._gates[hub] = gate
        other = self._locked(hub, _OTHER[room], fcntl.LOCK_EX)
        if other is None:
            return False
        own = self._locked(hub, room, fcntl.LOCK_SH)
        self._close(other)
        if own is None:
            return False
        self._rooms[hub] = (room, own)
        self.leave_gate(hub)
        return True

    def is_awaited(self, hub: str) -> bool:
        """Whether another process waits for its turn at a hub: no more of this one's are to begin there."""
        if self._folder is None:
            return False
        gate = self._locked(hub, "gate", fcntl.LOCK_EX)
        if gate is None:
            return True
        self._close(gate)
        return False

    def leave_gate(self, hub: str) -> None:
        """Let others go before this process, which can't go on for another reason; it may stay in a room."""
        self._close(self._gates.pop(hub, _UNLOCKED))

    def leave_room(self, hub: str) -> None:
        """Leave the hub's room that this process is in, if any."""
        _, lock = self._rooms.pop(hub, ("", _UNLOCKED))
        self._close(lock)

    def leave(self, hub: str) -> None:
        """Leave the hub altogether."""
        self.leave_room(hub)
        self.leave_gate(hub)
        self._waited_for.pop(hub, None)

    def places(self, wanted: Iterable[tuple[str, int]]) -> list[int] | None:
        """Return a place of each name, of so many; None when one has none left. They are given back by ``free``."""
        held: list[int] = []
        for name, number in wanted if self._folder is not None else ():
            self._waited_for.pop(name, None)
            tried = (self._locked(name, f"place-{place}", fcntl.LOCK_EX) for place in range(number))
            found = next((lock for lock in tried if lock is not None), None)
            if found is None:
                self.free(held)
                return None
            self._waited_for.pop(name, None)
            held.append(found)
        return held

    def free(self, places: Iterable[int]) -> None:
        """Give places back."""
        for lock in places:
            self._close(lock)

    def _is_in(self, hub: str, room: str) -> bool:
        return hub in self._rooms and self._rooms[hub][0] == room

    def _locked(self, hub: str, name: str, kind: int) -> int | None:
        """Return a lock on a file of a hub, None when another one has it."""
        assert self._folder is not None, "only asked where there are others"
        path = self._folder / f"{hashlib.sha256(hub.encode()).hexdigest()[:24]}.{name}"
        for _ in range(_TRIES):
            try:
                lock = _open(path)
            except OSError:
                return _UNLOCKED
            try:
                fcntl.flock(lock, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if not self._is_passed_over(hub, path, lock):
                    return None
                continue
            except OSError:
                os.close(lock)
                return _UNLOCKED
            if _is_file(lock, path):
                self._notes[lock] = _free_place(lock) if kind == fcntl.LOCK_SH else 0
                _write_note(lock, self._notes[lock])
                return lock
            os.close(lock)
        return None

    def _is_passed_over(self, hub: str, path: Path, lock: int) -> bool:
        """Remove a file all of whose holders are silent; the descriptor is closed."""
        try:
            alive = {note.pid: note.alive_s for note in _notes(lock) if _is_alive(note.pid)}
            holders = set(alive)
            silent = {pid for pid, alive_s in alive.items() if self._is_silent(pid, alive_s)} - {os.getpid()}
            # One of a version that writes no notes is waited for, as long as that takes.
            if not holders or len(silent) < len(holders):
                self._waited_for.setdefault(hub, set()).update(holders - {os.getpid()})
                return False
            if _is_file(lock, path):
                path.unlink(missing_ok=True)
                self._passed_over.setdefault(hub, set()).update(silent)
            return True
        except OSError:
            return False
        finally:
            os.close(lock)

    def _is_silent(self, pid: int, alive_s: float) -> bool:
        """Whether a process gave no sign of life for too long, nor since that was seen for the first time."""
        now_s = time.monotonic()
        if now_s - alive_s < self._silent_s:
            return False
        if alive_s > self._silent_since.get(pid, -1.0):
            self._silent_since[pid] = now_s
        return now_s - self._silent_since[pid] >= self._silent_s * _SECOND_LOOK

    def _close(self, lock: int) -> None:
        if lock == _UNLOCKED:
            return
        with contextlib.suppress(OSError):
            os.pwrite(lock, b" " * _NOTE_BYTES, self._notes[lock])
        del self._notes[lock]
        os.close(lock)


def _open(path: Path) -> int:
    """Return the file, made where there is none for all who may write to its folder; never what a link leads to."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, _FLAGS)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        made = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, _FLAGS)
    if others := path.parent.stat().st_mode & 0o022:
        # As the folder says, whatever this process keeps from others otherwise: who writes reads notes too.
        os.fchmod(made, 0o600 | others | others << 1)
    return made


def _is_file(lock: int, path: Path) -> bool:
    """Whether what is open is still the file of that name: another process may have removed it."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except OSError:
        return False


def _write_note(lock: int, place: int) -> None:
    """Write that this process is alive; on a full disk it is waited for without end, as one that says nothing."""
    with contextlib.suppress(OSError):
        os.pwrite(lock, f"{os.getpid()} {time.monotonic():.3f}".encode().ljust(_NOTE_BYTES), place)


def _notes(lock: int) -> Sequence[_Note]:
    text = os.pread(lock, os.fstat(lock).st_size, 0)
    found = []
    for start in range(0, len(text), _NOTE_BYTES):
        with contextlib.suppress(ValueError):
            pid, alive_s = text[start : start + _NOTE_BYTES].split()
            found.append(_Note(place=start, pid=int(pid), alive_s=float(alive_s)))
    return found


def _free_place(lock: int) -> int:
    """Return where in a file that several share a note can be written: only one who is at the gate asks."""
    taken = {note.place for note in _notes(lock) if _is_alive(note.pid)}
    return next(place for place in itertools.count(step=_NOTE_BYTES) if place not in taken)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
