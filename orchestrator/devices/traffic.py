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
don't stop a campaign: a folder that can't be written limits nothing.

Turns are the computer's, and a home is not: two homes may measure on one hub. The folder is the user's own, in the
computer's own file system, where nobody else can lay anything into it. Several users need one that is made for them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from orchestrator.errors import InterruptedByUserError, UsageError
from orchestrator.records.plan import PushLimits

#: How often a lock that somebody has is tried again.
_POLL_S: Final = 0.05
#: After so long a wait is reported.
_REPORT_S: Final = 60.0
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


def hub_of(usb: str) -> str:
    """Return the hub that a USB path leads through: ``1-2`` for ``usb:1-2.3`` and for ``1-2.3.1``; empty for no path.

    A hub behind a hub shares the first one's way to the computer. A phone at a port of the computer itself shares it
    with nobody, and is told by that port.
    """
    found = re.fullmatch(r"(?:usb:)?(\d+-\d+)(?:\.\d+)*", usb.strip())
    return found[1] if found else ""


class Lane:
    """One phone's part of the traffic: when it may measure, and when a file may go to it."""

    def __init__(
        self,
        folder: Path | None = None,
        hub: str = "",
        limits: Callable[[], PushLimits] = PushLimits,
        *,
        cancelled: threading.Event | None = None,
        on_note: Callable[[str], None] = lambda _: None,
        report_s: float = _REPORT_S,
    ) -> None:
        """Nothing is locked yet.

        Args:
            folder: of the locks; None: nobody waits.
            hub: with whom the phone shares its way to the computer; empty when that isn't known.
            limits: what the plan allows, at the moment.
            cancelled: ends all waiting.
            on_note: hears of turns that are waited for.
            report_s: after so many seconds of waiting.
        """
        self.hub = hub
        self._folder = folder
        self._limits = limits
        self._cancelled = cancelled
        self._on_note = on_note
        self._report_s = report_s

    @contextlib.contextmanager
    def measuring(self, *, cancelled: threading.Event | None = None) -> Generator[None]:
        """Keep files off the hub while the context lasts; raises InterruptedByUserError when cancelled meanwhile."""
        with contextlib.ExitStack() as held:
            self._take_turn(held, "measures", "pushes", cancelled or self._cancelled)
            yield

    @contextlib.contextmanager
    def pushing(self) -> Generator[None]:
        """Send one file while the context lasts; waits for the hub's measurements, then for a place.

        Raises InterruptedByUserError when cancelled while waiting.
        """
        limits, hub = self._limits(), _file_of(self.hub)
        with contextlib.ExitStack() as held:
            if not limits.beside_measurements:
                self._take_turn(held, "pushes", "measures", self._cancelled)
            for name, places in ((hub, limits.per_hub), ("host", limits.per_host)):
                names = [f"{name}.push-{place}" for place in range(places)] if name else []
                self._take(held, names, self._cancelled)
            yield

    def _take_turn(self, held: contextlib.ExitStack, own: str, other: str, cancelled: threading.Event | None) -> None:
        if not (hub := _file_of(self.hub)):
            return
        with contextlib.ExitStack() as passing:
            self._take(passing, [f"{hub}.gate"], cancelled)
            self._take(passing, [f"{hub}.{other}"], cancelled)
            # Only who has the gate takes this one for itself.
            self._is_had(held, f"{hub}.{own}", fcntl.LOCK_SH)

    def _take(self, held: contextlib.ExitStack, names: list[str], cancelled: threading.Event | None) -> None:
        """Wait for one of these locks, for oneself alone; raises InterruptedByUserError when cancelled."""
        due_s = time.monotonic() + self._report_s
        while names and not any(self._is_had(held, name, fcntl.LOCK_EX) for name in names):
            if cancelled is not None and cancelled.is_set():
                raise InterruptedByUserError
            if time.monotonic() >= due_s:
                due_s = float("inf")
                self._on_note(f"waits for its turn on hub {self.hub or 'of this computer'}: another phone has it")
            time.sleep(_POLL_S) if cancelled is None else cancelled.wait(_POLL_S)

    def _is_had(self, held: contextlib.ExitStack, name: str, kind: int) -> bool:
        """Try to lock a file; False when somebody has it."""
        if self._folder is None:
            return True
        try:
            lock = _open(self._folder / name)
        except OSError:
            return True
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            return not isinstance(error, BlockingIOError)
        held.callback(os.close, lock)
        return True


def _file_of(hub: str) -> str:
    return hashlib.sha256(hub.encode()).hexdigest()[:24] if hub else ""


def _open(path: Path) -> int:
    """Return the file, made where there is none for all who may write to its folder; never what a link leads to."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, _FLAGS)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = os.open(path, _FLAGS | os.O_CREAT, 0o600)
    # As the folder says, whatever this process keeps from others otherwise.
    if others := path.parent.stat().st_mode & 0o022:
        with contextlib.suppress(PermissionError):  # another user was first
            os.fchmod(made, 0o600 | others | others << 1)
    return made


def hub_folder(configured: str, own: Path, *, temporary: Path | None = None) -> Path:
    """Return the folder for the locks of hubs.

    Args:
        configured: what the user says, empty for nothing; made when it isn't there.
        own: of this home alone, for where no folder of the user's is to be had.
        temporary: local on this computer, and the same one in every session (files.own_temporary).

    Raises UsageError for a configured folder that can't be used.
    """
    if not configured:
        return temporary or own
    folder, problem = Path(configured), ""
    try:
        if not folder.is_absolute():
            problem = "it must begin with /"
        else:
            folder.mkdir(parents=True, exist_ok=True)
            problem = "" if os.access(folder, os.W_OK | os.X_OK) else "this user may not write there"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        hint = "name a folder that all who measure here may write to: install -d -m 2770 -g GROUP FOLDER"
        raise UsageError(f"BENCHFARM_HUBS={folder}: {problem}", hint=hint)
    return folder
