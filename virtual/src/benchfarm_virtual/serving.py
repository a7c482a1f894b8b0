"""The lab process itself: phones, their control channel, the state file, and the reasons to end."""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import threading
from typing import Final

from benchfarm_virtual.control import ControlServer, PhoneDesk
from benchfarm_virtual.farm import VirtualLab
from benchfarm_virtual.lab import STATE_FILE, LabSettings, take_lock
from benchfarm_virtual.loop import take_short_turns

_LOOK_AROUND_S: Final = 1.0


def serve(settings: LabSettings) -> None:
    """Run a lab until it is told to stop, gets SIGTERM or SIGINT, or its parent has ended.

    Raises UsageError when another lab uses the same folder, and what VirtualLab and PhoneSpec
    raise.
    """
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    take_short_turns()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    take_lock(settings.state_dir)
    try:
        with VirtualLab(
            adb_public_keys=settings.adb_keys,
            time_factor=settings.time_factor,
            seed=settings.seed,
        ) as lab:
            for spec in settings.phones:
                lab.add_spec(spec)
            desk = PhoneDesk(lab, stop=stopping.set)
            token = secrets.token_urlsafe(24)
            control = ControlServer(desk, token)
            writing = threading.Lock()

            def write_state() -> None:
                with writing:
                    _write_state(settings, desk, control.port, token)

            desk.changed = write_state
            write_state()
            _wait(settings.parent_pid, stopping)
    finally:
        (settings.state_dir / STATE_FILE).unlink(missing_ok=True)


def _write_state(settings: LabSettings, desk: PhoneDesk, control_port: int, token: str) -> None:
    state = {
        "pid": os.getpid(),
        "control_port": control_port,
        "token": token,
        "time_factor": settings.time_factor,
        "seed": settings.seed,
        "phones": desk.phones(),
    }
    fresh = settings.state_dir / f"{STATE_FILE}.{os.getpid()}"
    descriptor = os.open(
        fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
    )  # the token is a secret
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(state, file, indent=1)
    fresh.replace(settings.state_dir / STATE_FILE)


def _wait(parent_pid: int, stopping: threading.Event) -> None:
    parent = _Parent(parent_pid) if parent_pid else None
    while not stopping.wait(_LOOK_AROUND_S if parent else None):
        if parent is not None and parent.ended():
            return


class _Parent:
    """A process to outlive by no more than a moment; told apart from a later one with its number
    where that can be.
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
