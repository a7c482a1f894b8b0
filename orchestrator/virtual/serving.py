"""The lab process itself: phones, their control channel, the state file, and the reasons to end."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import select
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.virtual.control import ControlServer, describe_phone
from orchestrator.virtual.farm import VirtualLab
from orchestrator.virtual.spec import PhoneSpec

STATE_FILE: Final = "lab.json"
LOCK_FILE: Final = "lab.lock"
PHONES_FOLDER: Final = "phones"
_LOOK_AROUND_S: Final = 1.0
_LOCK_PATIENCE_S: Final = 1.0
_LOCK_RETRY_S: Final = 0.02
#: So long a phone's thread computes before the others get their turn: the loop that all links share is one of them.
_SWITCH_S: Final = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What a lab process is started with."""

    state_dir: Path
    phones: Sequence[PhoneSpec]
    adb_keys: Sequence[Path]
    time_factor: float = 1.0
    seed: int = 1
    #: End when this process has ended; 0: don't look.
    parent_pid: int = 0
    #: End when no adb server was connected and nothing asked for this long; 0: never.
    idle_s: float = 0.0


def serve(options: ServeOptions) -> None:
    """Run a lab until it is told to stop, gets SIGTERM or SIGINT, its parent has ended, or it was idle for too long.

    Raises UsageError when another lab uses the same folder, and what VirtualLab and PhoneSpec raise.
    """
    options.state_dir.mkdir(parents=True, exist_ok=True)
    sys.setswitchinterval(_SWITCH_S)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    _take_lock(options.state_dir)
    with (
        VirtualLab(
            options.state_dir / PHONES_FOLDER, adb_public_keys=options.adb_keys, time_factor=options.time_factor,
            seed=options.seed,
        ) as lab,
    ):  # fmt: skip
        for spec in options.phones:
            lab.add_spec(spec)
        token = secrets.token_urlsafe(24)
        writing = threading.Lock()

        def write_state() -> None:
            with writing:
                _write_state(options.state_dir, lab, control.port, token)

        control = ControlServer(lab, token, changed=write_state, stop=stopping.set)
        write_state()
        try:
            _wait(options, lab, control, stopping)
        finally:
            (options.state_dir / STATE_FILE).unlink(missing_ok=True)


def _take_lock(state_dir: Path) -> None:
    """Lock the folder until this very process ends; whoever can take the lock knows that no lab runs.

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
            return


def _write_state(state_dir: Path, lab: VirtualLab, control_port: int, token: str) -> None:
    state = {
        "pid": os.getpid(), "control_port": control_port, "token": token, "time_factor": lab.time_factor,
        "seed": lab.seed, "phones": [describe_phone(phone) for phone in lab.phones.values()],
    }  # fmt: skip
    fresh = state_dir / f"{STATE_FILE}.{os.getpid()}"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # the token is a secret
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(state, file, indent=1)
    fresh.replace(state_dir / STATE_FILE)


def _wait(options: ServeOptions, lab: VirtualLab, control: ControlServer, stopping: threading.Event) -> None:
    parent = _Parent(options.parent_pid) if options.parent_pid else None
    busy_s = time.monotonic()
    while not stopping.wait(_LOOK_AROUND_S if parent or options.idle_s else None):
        if parent is not None and parent.ended():
            return
        if any(phone.online_count for phone in lab.phones.values()):
            busy_s = time.monotonic()
        if options.idle_s and time.monotonic() - max(busy_s, control.last_request_s) > options.idle_s:
            return


class _Parent:
    """A process to outlive by no more than a moment; told apart from a later one with its number where that can be."""

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
