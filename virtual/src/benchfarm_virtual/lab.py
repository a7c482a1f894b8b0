"""A lab of virtual phones in a process of its own: start it, ask it, stop it.

The process is ``python -m benchfarm_virtual``; it writes ``lab.json`` (its pid, the port and token
of its control channel, the phones) into the lab's folder, and holds ``lab.lock`` as long as it
lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchfarm_virtual.errors import (
    DeviceError,
    DeviceTimeoutError,
    LabError,
    LinkLostError,
    UsageError,
)
from benchfarm_virtual.spec import PhoneSpec

#: In a lab's folder: its description while it runs, the file that its process locks, and its log.
STATE_FILE: Final = "lab.json"
LOCK_FILE: Final = "lab.lock"
LOG_FILE: Final = "lab.log"
#: Where the lab's process is started, so that a source tree that isn't installed works too.
SOURCES: Final = Path(__file__).resolve().parents[1]
_LOOPBACK: Final = "127.0.0.1"
_START_S: Final = 60.0
_STOP_S: Final = 10.0
_ANSWER_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.02
_LOCK_PATIENCE_S: Final = 1.0
_LOG_TAIL_BYTES: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class LabPhone:
    """A virtual phone of a running lab."""

    serial: str
    #: What ``adb connect`` takes.
    address: str
    profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabInfo:
    """A running lab as described by its state file."""

    state_dir: Path
    pid: int
    control_port: int
    token: str
    phones: tuple[LabPhone, ...]


def start_lab(
    state_dir: Path,
    phones: Sequence[PhoneSpec],
    *,
    adb_keys: Sequence[Path],
    time_factor: float = 1.0,
    seed: int = 1,
    exit_with_parent: bool = False,
    environ: Mapping[str, str] | None = None,
) -> LabInfo:
    """Start a lab with these phones and return when they listen.

    ``adb_keys`` are the public keys (adbkey.pub) of the adb servers that get in. With
    ``exit_with_parent`` the lab ends when the calling process does. ``environ``: its variables
    (None: this process's).

    Raises UsageError when a lab is running in this folder already, and for phones, keys or figures
    that can't be; DeviceError with the lab's last words when it doesn't start, DeviceTimeoutError
    when it isn't ready in time.
    """
    state_dir = state_dir.absolute()
    state_dir.mkdir(parents=True, exist_ok=True)
    if _is_running(state_dir):
        raise UsageError(
            f"{state_dir}: virtual phones are running here already",
            hint="stop it with 'benchfarm virtual down'",
        )
    (state_dir / STATE_FILE).unlink(missing_ok=True)
    settings = {
        "adb_keys": [str(key.absolute()) for key in adb_keys],
        "time_factor": time_factor,
        "seed": seed,
        "phones": [spec.to_json() for spec in phones],
        "parent_pid": os.getpid() if exit_with_parent else 0,
    }
    with (state_dir / LOG_FILE).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchfarm_virtual", str(state_dir), json.dumps(settings)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=SOURCES,
            env=environ,
        )
    # When this process lives longer than the lab, someone has to take its exit code.
    threading.Thread(target=process.wait, name="lab reaper", daemon=True).start()
    end_s = time.monotonic() + _START_S
    while time.monotonic() < end_s:
        info = _read_state(state_dir)
        if info is not None and info.pid == process.pid:
            return info
        if process.poll() is not None:
            raise _start_error(state_dir, process.returncode)
        time.sleep(_LOOK_AGAIN_S)
    _end_group(process.pid)
    raise DeviceTimeoutError(
        f"the virtual phones weren't ready within {_START_S:g} s; see {state_dir / LOG_FILE}"
    )


def read_lab(state_dir: Path) -> LabInfo:
    """Return the lab that runs in a folder; raise UsageError when none does."""
    state_dir = state_dir.absolute()
    info = _read_state(state_dir) if _is_running(state_dir) else None
    if info is None:
        raise UsageError(
            f"{state_dir}: no virtual phones are running here",
            hint="start one with 'benchfarm virtual up'",
        )
    return info


def lab_request(
    state_dir: Path, request: Mapping[str, Any], *, timeout_s: float = _ANSWER_S
) -> dict[str, Any]:
    """Ask a running lab something (see serving.py for the requests) and return its answer.

    Raises UsageError when no lab runs or the request is wrong, DeviceError for an error in the lab,
    DeviceTimeoutError when no answer comes in time and LinkLostError when none comes at all: then
    it is unknown whether the request was done.
    """
    info = read_lab(state_dir)
    lab = f"the process of the virtual phones (pid {info.pid})"
    line = json.dumps({**request, "token": info.token}).encode() + b"\n"
    try:
        with socket.create_connection((_LOOPBACK, info.control_port), timeout=timeout_s) as sock:
            sock.sendall(line)
            with sock.makefile("rb") as reader:
                answer = json.loads(reader.readline() or b"null")
    except TimeoutError:
        raise DeviceTimeoutError(f"{lab} didn't answer within {timeout_s:g} s") from None
    except (OSError, ValueError) as fault:
        raise LinkLostError(f"{lab} can't be asked: {fault}") from None
    if not isinstance(answer, dict):
        raise LinkLostError(f"{lab} ended before it answered")
    if not answer.get("ok"):
        kind: type[LabError] = UsageError if answer.get("error") == "usage" else DeviceError
        raise kind(str(answer.get("message", "")), hint=str(answer.get("hint", "")))
    return answer


def stop_lab(state_dir: Path, *, timeout_s: float = _STOP_S) -> bool:
    """Stop the lab of a folder and return when its process has ended.

    False when none was running.

    It is asked first; a lab that doesn't answer is ended by its pid. Raises DeviceTimeoutError when it still runs after that.
    """
    state_dir = state_dir.absolute()
    if not _is_running(state_dir):
        (state_dir / STATE_FILE).unlink(missing_ok=True)
        return False
    info = _read_state(state_dir)
    try:
        lab_request(state_dir, {"request": "stop"}, timeout_s=timeout_s / 2)
    except (DeviceError, UsageError):
        pass  # it hangs, or is just ending; either way the lock tells
    if _wait_until_ended(state_dir, timeout_s / 2):
        return True
    # Its folder may be another computer's or a container's, too, where its number is another one.
    if info is not None and _is_this_lab(info.pid, state_dir):
        _end_group(info.pid)
    # What is killed ends as soon as a busy computer comes to it.
    if not _wait_until_ended(state_dir, max(timeout_s, _STOP_S)):
        raise DeviceTimeoutError(
            f"{state_dir}: the virtual phones can't be stopped; see {state_dir / LOG_FILE}"
        )
    (state_dir / STATE_FILE).unlink(missing_ok=True)
    return True


def _read_state(state_dir: Path) -> LabInfo | None:
    try:
        state = json.loads((state_dir / STATE_FILE).read_text("utf-8"))
        phones = tuple(
            LabPhone(**{name: phone[name] for name in ("serial", "address", "profile")})
            for phone in state["phones"]
        )
        fields = {name: state[name] for name in ("pid", "control_port", "token")}
        return LabInfo(state_dir=state_dir, phones=phones, **fields)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def take_lock(state_dir: Path) -> int:
    """Lock the folder until this process has ended, and return the descriptor.

    Whoever can take the lock knows that no lab runs.

    Raises UsageError when another lab has it.
    """
    descriptor = os.open(state_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    end_s = time.monotonic() + _LOCK_PATIENCE_S
    # A process that checks whether a lab runs holds it for a moment.
    while not _can_lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > end_s:
            os.close(descriptor)
            raise UsageError(f"{state_dir}: virtual phones are running here already")
        time.sleep(_LOOK_AGAIN_S)
    return descriptor


def _is_running(state_dir: Path) -> bool:
    """Say whether a process of a lab holds the folder's lock."""
    try:
        with (state_dir / LOCK_FILE).open("r+") as lock:
            return not _can_lock(lock.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _can_lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_until_ended(state_dir: Path, timeout_s: float) -> bool:
    end_s = time.monotonic() + timeout_s
    while _is_running(state_dir):
        if time.monotonic() >= end_s:
            return False
        time.sleep(_LOOK_AGAIN_S)
    return True


def _is_this_lab(pid: int, state_dir: Path) -> bool:
    """Say whether the process with this number was started for the lab of this folder."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    return f"benchfarm_virtual {state_dir} " in listed.stdout


def _end_group(pid: int) -> None:
    """Kill a lab's process, which leads a process group of its own."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _start_error(state_dir: Path, exit_code: int) -> LabError:
    log = state_dir / LOG_FILE
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        words = file.read().decode("utf-8", "replace").strip()
    if exit_code == UsageError.exit_code:
        return UsageError(words or f"the virtual phones didn't start; see {log}")
    return DeviceError(
        f"the virtual phones ended while they started (exit code {exit_code}): {words}"
    )
