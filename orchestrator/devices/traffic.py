"""Turns on USB hubs: no file goes to a phone while another phone of its hub measures, unless the plan allows it.

Phones of one hub share its way to the computer, so a file for one of them disturbs what another one measures. Turns and
limits hold among all threads and processes that use one folder, by locks on its files, which the kernel ends with their
process:

- ``HUB.measures`` and ``HUB.pushes``: each measurement or push has a shared lock on its own kind's file. It begins only
  when nobody has one on the other's.
- ``HUB.gate``: who waits for that keeps the gate, and whoever comes later waits behind it, so none waits for ever.
- ``HUB.push-N`` and ``host.push-N``: the places for pushes to one hub, and from this computer.

A push has its turn before it waits for its places: it keeps its hub's measurements waiting for as long as other pushes
take, and never the pushes of other hubs for as long as a measurement takes. Turns keep runs from being disturbed; they
don't stop a campaign: who has waited for a quarter of an hour goes on without, and says so. The same holds for a folder
that can't be written.

Turns are the computer's, and a home is not: two homes may measure on one hub. The folder is the user's own, in the
computer's own file system, where nobody else can lay anything into it. Several users need one that is made for them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.errors import InterruptedByUserError, UsageError
from orchestrator.records.plan import PushLimits
from orchestrator.units import format_duration

_MEASURES: Final = "measures"
_PUSHES: Final = "pushes"
_OTHER: Final = {_MEASURES: _PUSHES, _PUSHES: _MEASURES}
#: How often a lock that somebody has is tried again.
_POLL_S: Final = 0.05
#: After so long a wait is reported.
_REPORT_S: Final = 60.0
#: Longer than any invocation but those of sustained runs: who has a turn for so long was stopped.
_PATIENCE_S: Final = 900.0
#: In place of a lock that can't be had.
_UNLOCKED: Final = -1
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


def _not_reported(text: str) -> None:
    """Drop a note."""


def hub_of(usb: str) -> str:
    """Return the hub that a USB path leads through: ``1-2`` for ``usb:1-2.3`` and for ``1-2.3.1``; empty for no path.

    A hub behind a hub shares the first one's way to the computer. A phone at a port of the computer itself shares it
    with nobody, and is told by that port.
    """
    found = re.fullmatch(r"(?:usb:)?(\d+-\d+)(?:\.\d+)*", usb.strip())
    return found[1] if found else ""


@dataclass(slots=True, kw_only=True)
class _Wait:
    """The patience of one that waits for locks: one after the other, all in one span of time."""

    hub: str
    cancelled: threading.Event | None
    on_note: Callable[[str], None]
    report_s: float
    patience_s: float
    begun_s: float = field(default_factory=time.monotonic)
    is_reported: bool = False

    def until(self, try_lock: Callable[[], int | None]) -> int:
        """Return the lock once it is free, none after too long; raises InterruptedByUserError when cancelled."""
        while (lock := try_lock()) is None:
            if self.cancelled is not None and self.cancelled.is_set():
                raise InterruptedByUserError
            waited_s = time.monotonic() - self.begun_s
            if waited_s >= self.patience_s:
                self.on_note(
                    f"continues without its turn on hub {self.hub or 'of this computer'}: another process has kept it "
                    f"for {format_duration(self.patience_s)}; 'benchfarm status' lists what runs"
                )
                return _UNLOCKED
            if waited_s >= self.report_s and not self.is_reported:
                self.is_reported = True
                self.on_note(f"waits for its turn on hub {self.hub or 'of this computer'}: another phone has it")
            time.sleep(_POLL_S) if self.cancelled is None else self.cancelled.wait(_POLL_S)
        return lock


class HubTraffic:
    """Who may push and who may measure, among all that use the same folder."""

    def __init__(
        self, folder: Path | None = None, *, report_s: float = _REPORT_S, patience_s: float = _PATIENCE_S
    ) -> None:
        """Without a folder nobody waits; ``report_s`` and ``patience_s``: seconds of waiting (see the module)."""
        self._folder = folder
        self._report_s = report_s
        self._patience_s = patience_s

    @contextlib.contextmanager
    def measuring(
        self,
        hub: str,
        *,
        cancelled: threading.Event | None = None,
        on_note: Callable[[str], None] = _not_reported,
    ) -> Generator[None]:
        """Keep files off a hub while the context lasts; raises InterruptedByUserError when cancelled while waiting.

        ``on_note`` hears that the turn is waited for, after a while, or wasn't had.
        """
        with contextlib.ExitStack() as held:
            if hub:
                self._take_turn(held, hub, _MEASURES, self._wait(hub, cancelled, on_note))
            yield

    @contextlib.contextmanager
    def pushing(
        self,
        hub: str,
        limits: PushLimits,
        *,
        cancelled: threading.Event | None = None,
        on_note: Callable[[str], None] = _not_reported,
    ) -> Generator[None]:
        """Send one file while the context lasts; waits for the hub's measurements, then for a place.

        Raises InterruptedByUserError when cancelled while waiting. ``on_note``: see `measuring`.
        """
        wait = self._wait(hub, cancelled, on_note)
        with contextlib.ExitStack() as held:
            if hub and not limits.beside_measurements:
                self._take_turn(held, hub, _PUSHES, wait)
            if hub:
                self._take_place(held, _file_of(hub), limits.per_hub, wait)
            self._take_place(held, "host", limits.per_host, wait)
            yield

    def _wait(self, hub: str, cancelled: threading.Event | None, on_note: Callable[[str], None]) -> _Wait:
        return _Wait(
            hub=hub, cancelled=cancelled, on_note=on_note, report_s=self._report_s, patience_s=self._patience_s
        )

    def _take_turn(self, held: contextlib.ExitStack, hub: str, kind: str, wait: _Wait) -> None:
        name = _file_of(hub)
        with contextlib.ExitStack() as passing:
            passing.callback(_close, wait.until(lambda: self._lock(f"{name}.gate", fcntl.LOCK_EX)))
            passing.callback(_close, wait.until(lambda: self._lock(f"{name}.{_OTHER[kind]}", fcntl.LOCK_EX)))
            # Only who has the gate takes this one for itself.
            own = self._lock(f"{name}.{kind}", fcntl.LOCK_SH)
            held.callback(_close, _UNLOCKED if own is None else own)

    def _take_place(self, held: contextlib.ExitStack, name: str, places: int, wait: _Wait) -> None:
        def any_place() -> int | None:
            tried = (self._lock(f"{name}.push-{place}", fcntl.LOCK_EX) for place in range(places))
            return next((lock for lock in tried if lock is not None), None)

        held.callback(_close, wait.until(any_place))

    def _lock(self, name: str, kind: int) -> int | None:
        """Return a lock on a file, None when somebody has it."""
        if self._folder is None:
            return _UNLOCKED
        try:
            lock = _open(self._folder / name)
        except OSError:
            return _UNLOCKED
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        except OSError:
            os.close(lock)
            return _UNLOCKED
        return lock


def _file_of(hub: str) -> str:
    return hashlib.sha256(hub.encode()).hexdigest()[:24]


def _close(lock: int) -> None:
    if lock != _UNLOCKED:
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
    # As the folder says, whatever this process keeps from others otherwise.
    if others := path.parent.stat().st_mode & 0o022:
        os.fchmod(made, 0o600 | others | others << 1)
    return made


#: Of phones that are looked at and not measured.
_TRAFFIC: Final = HubTraffic()


class Lane:
    """One phone's part of the traffic."""

    def __init__(
        self,
        hub: str = "",
        limits: Callable[[], PushLimits] = PushLimits,
        *,
        traffic: HubTraffic = _TRAFFIC,
        cancelled: threading.Event | None = None,
        on_note: Callable[[str], None] = _not_reported,
    ) -> None:
        """``hub`` is with whom the phone shares its way to the computer; empty when that isn't known.

        ``on_note`` hears of turns that are waited for.
        """
        self.hub = hub
        self._limits = limits
        self._traffic = traffic
        self._cancelled = cancelled
        self._on_note = on_note

    def pushing(self) -> contextlib.AbstractContextManager[None]:
        """See HubTraffic.pushing."""
        return self._traffic.pushing(self.hub, self._limits(), cancelled=self._cancelled, on_note=self._on_note)

    def measuring(self, *, cancelled: threading.Event | None = None) -> contextlib.AbstractContextManager[None]:
        """See HubTraffic.measuring."""
        return self._traffic.measuring(self.hub, cancelled=cancelled or self._cancelled, on_note=self._on_note)


#: Local on every computer, also where a home is on a network, and the same one in every session.
_RUNTIME: Final = Path("/tmp")  # noqa: S108 - what is made there is checked
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def hub_folder(configured: str, own: Path, *, runtime: Path = _RUNTIME) -> Path:
    """Return the folder for the locks of hubs.

    Args:
        configured: what the user says, empty for nothing; made when it isn't there.
        own: of this home alone, for where no folder of the user's is to be had.
        runtime: where folders that don't outlive the computer's start are made.

    Raises UsageError for a configured folder that can't be used.
    """
    if configured:
        return _checked(Path(configured))
    folder = runtime / f"benchfarm-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Not what a link leads to: anybody may lay one there.
        found = folder.lstat()
    except OSError:
        return own
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & _OTHERS_WRITE
    return folder if is_ours else own


def _checked(folder: Path) -> Path:
    problem = "" if folder.is_absolute() else "it must begin with /"
    try:
        if not problem:
            folder.mkdir(parents=True, exist_ok=True)
            problem = "" if os.access(folder, os.W_OK | os.X_OK) else "this user may not write there"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        hint = "name a folder that all who measure here may write to: install -d -m 2770 -g GROUP FOLDER"
        raise UsageError(f"BENCHFARM_HUBS={folder}: {problem}", hint=hint)
    return folder
