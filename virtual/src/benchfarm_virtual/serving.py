"""The lab process itself: phones, their control channel, the state file, and the reasons to end."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchfarm_virtual.control import ControlServer, PhoneDesk
from benchfarm_virtual.errors import UsageError
from benchfarm_virtual.farm import open_lab
from benchfarm_virtual.lab import LOCK_FILE, STATE_FILE, LabSettings
from benchfarm_virtual.loop import take_short_turns
from benchfarm_virtual.shares import Share, SpreadLab
from benchfarm_virtual.spec import PhoneSpec

_LOOK_AROUND_S: Final = 1.0
_LOCK_PATIENCE_S: Final = 1.0
_LOCK_RETRY_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What a lab is started with."""

    settings: LabSettings
    phones: Sequence[PhoneSpec]
    #: How many processes run the phones at most; 0: as suits the phones and this computer.
    processes: int = 0
    #: End when this process has ended; 0: don't look.
    parent_pid: int = 0
    #: End when no adb server was connected and nothing asked for this long; 0: never.
    idle_s: float = 0.0


def serve(options: ServeOptions) -> None:
    """Run a lab until it is told to stop, gets SIGTERM or SIGINT, its parent has ended, or it was
    idle for too long.

    Raises UsageError when another lab uses the same folder, and what VirtualLab, PhoneSpec and
    Share raise.
    """
    settings = options.settings
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    take_short_turns()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    lock = _take_lock(settings.state_dir)

    def start_share(on_end: Callable[[Share], None]) -> Share:
        return Share(settings, lock=lock, on_end=on_end)

    try:
        with (
            open_lab(settings) as lab,
            closing(
                SpreadLab(
                    PhoneDesk(lab), start_share, processes=options.processes, stop=stopping.set
                )
            ) as spread,
        ):
            spread.add_all(options.phones)
            token = secrets.token_urlsafe(24)
            control = ControlServer(spread, token)
            writing = threading.Lock()

            def write_state() -> None:
                with writing:
                    _write_state(settings, spread, control.port, token)

            spread.changed = write_state
            write_state()
            _wait(options, spread, control, stopping)
    finally:
        (settings.state_dir / STATE_FILE).unlink(missing_ok=True)


def _take_lock(state_dir: Path) -> int:
    """Lock the folder until this process and those that inherit the descriptor have ended, and
    return that.

    Whoever can take the lock knows that no process of a lab runs.

    Raises UsageError when another lab has it.
    """
    descriptor = os.open(state_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    end_s = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # Someone who only looks whether a lab runs holds it for a moment.
            if time.monotonic() > end_s:
                os.close(descriptor)
                raise UsageError(f"{state_dir}: a virtual lab is running here already") from None
            time.sleep(_LOCK_RETRY_S)
        else:
            return descriptor


def _write_state(settings: LabSettings, spread: SpreadLab, control_port: int, token: str) -> None:
    state = {
        "pid": os.getpid(),
        "pids": spread.pids,
        "control_port": control_port,
        "token": token,
        "time_factor": settings.time_factor,
        "seed": settings.seed,
        "phones": spread.phones(),
    }
    fresh = settings.state_dir / f"{STATE_FILE}.{os.getpid()}"
    descriptor = os.open(
        fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
    )  # the token is a secret
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(state, file, indent=1)
    fresh.replace(settings.state_dir / STATE_FILE)


def _wait(
    options: ServeOptions, spread: SpreadLab, control: ControlServer, stopping: threading.Event
) -> None:
    parent = _Parent(options.parent_pid) if options.parent_pid else None
    busy_s = time.monotonic()
    while not stopping.wait(_LOOK_AROUND_S if parent or options.idle_s else None):
        if parent is not None and parent.ended():
            return
        if options.idle_s and spread.connected():
            busy_s = time.monotonic()
        if (
            options.idle_s
            and time.monotonic() - max(busy_s, control.last_request_s) > options.idle_s
        ):
            return


class _Parent:
    """A process to outlive by no more than a moment.

    Told apart from a later one with its number where that can be.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        try:
            self._descriptor = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1
        except OSError:
            self._descriptor = -1  # it has ended already, or this kernel can't; ended() will see

    def ended(self) -> bool:
        """Say whether it has ended."""
        if self._descriptor >= 0:
            return bool(select.select([self._descriptor], [], [], 0)[0])
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False
