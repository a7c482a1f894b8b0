"""A lab of virtual phones in a process of its own: start it, ask it, stop it.

The process is ``python -m orchestrator.virtual serve``; it writes ``lab.json`` (its pid, the port and token of its
control channel, its phones) into the lab's folder and holds ``lab.lock`` there as long as it lives.
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

from orchestrator.errors import BenchfarmError, DeviceError, DeviceTimeoutError, UsageError
from orchestrator.virtual.spec import PhoneSpec

STATE_FILE: Final = "lab.json"
LOCK_FILE: Final = "lab.lock"
LOG_FILE: Final = "lab.log"
_LOOPBACK: Final = "127.0.0.1"
_START_S: Final = 60.0
_STOP_S: Final = 10.0
_ANSWER_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.02
_LOG_TAIL_BYTES: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class LabPhone:
    """A virtual phone of a running lab."""

    serial: str
    #: What ``adb connect`` takes.
    address: str
    port: int
    profile: str
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LabInfo:
    """A running lab as its state file tells of it."""

    state_dir: Path
    pid: int
    control_port: int
    token: str
    time_factor: float
    phones: tuple[LabPhone, ...]


def start_lab(
    state_dir: Path, phones: Sequence[PhoneSpec], *, adb_keys: Sequence[Path], time_factor: float = 1.0, seed: int = 1,
    exit_with_parent: bool = False, idle_s: float = 0.0, timeout_s: float = _START_S,
) -> LabInfo:  # fmt: skip
    """Start a lab with these phones and return when they listen.

    ``adb_keys`` are the public keys (adbkey.pub) of the adb servers that get in. With ``exit_with_parent`` the lab ends
    when the calling process does; with ``idle_s`` after so long without a connection.

    Raises UsageError when a lab is running in this folder already, and for phones, keys or figures that can't be;
    DeviceError with the lab's last words when it doesn't start, DeviceTimeoutError when it isn't ready in time.
    """
    state_dir = state_dir.absolute()
    state_dir.mkdir(parents=True, exist_ok=True)
    if _is_running(state_dir):
        raise UsageError(
            f"{state_dir}: a virtual lab is running here already", hint="stop it with 'benchfarm lab down'"
        )
    (state_dir / STATE_FILE).unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "orchestrator.virtual", "serve", f"--state-dir={state_dir}",
        f"--time-factor={time_factor!r}", f"--seed={seed}", f"--idle={idle_s!r}",
        *(f"--adb-key={Path(key).absolute()}" for key in adb_keys),
        *(f"--phone={json.dumps(spec.to_json())}" for spec in phones),
    ]  # fmt: skip
    if exit_with_parent:
        command.append(f"--exit-with-parent={os.getpid()}")
    with (state_dir / LOG_FILE).open("wb") as log:
        # From the package's own folder, so that a source tree that isn't installed works too.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            cwd=Path(__file__).resolve().parents[2],
        )  # fmt: skip
    # When this process lives longer than the lab, someone has to take its exit code.
    threading.Thread(target=process.wait, name="lab reaper", daemon=True).start()
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        info = _read_state(state_dir)
        if info is not None and info.pid == process.pid:
            return info
        if process.poll() is not None:
            raise _start_error(state_dir, process.returncode)
        time.sleep(_LOOK_AGAIN_S)
    _end_group(process.pid)
    raise DeviceTimeoutError(f"the virtual lab wasn't ready within {timeout_s:g} s; see {state_dir / LOG_FILE}")


def read_lab(state_dir: Path) -> LabInfo:
    """Return the lab that runs in a folder; raise UsageError when none does."""
    state_dir = state_dir.absolute()
    info = _read_state(state_dir) if _is_running(state_dir) else None
    if info is None:
        raise UsageError(f"{state_dir}: no virtual lab is running here", hint="start one with 'benchfarm lab up'")
    return info


def lab_request(state_dir: Path, request: Mapping[str, Any], *, timeout_s: float = _ANSWER_S) -> dict[str, Any]:
    """Ask a running lab something (see control.py for the requests) and return its answer.

    Raises UsageError when no lab runs or the request is wrong, DeviceTimeoutError when it doesn't answer in time,
    DeviceError for what went wrong in the lab.
    """
    info = read_lab(state_dir)
    line = json.dumps({**request, "token": info.token}).encode() + b"\n"
    try:
        with socket.create_connection((_LOOPBACK, info.control_port), timeout=timeout_s) as sock:
            sock.sendall(line)
            with sock.makefile("rb") as reader:
                answer = json.loads(reader.readline() or b"null")
    except TimeoutError:
        raise DeviceTimeoutError(f"the virtual lab (pid {info.pid}) didn't answer within {timeout_s:g} s") from None
    except (OSError, ValueError) as fault:
        raise DeviceError(f"the virtual lab (pid {info.pid}) can't be asked: {fault}") from None
    if not isinstance(answer, dict):
        raise DeviceError(f"the virtual lab (pid {info.pid}) ended before it answered")
    if not answer.get("ok"):
        kind: type[BenchfarmError] = UsageError if answer.get("error") == "usage" else DeviceError
        raise kind(str(answer.get("message", "")), hint=str(answer.get("hint", "")))
    return answer


def stop_lab(state_dir: Path, *, timeout_s: float = _STOP_S) -> bool:
    """Stop the lab of a folder and return when its process has ended; False when none was running.

    It is asked first; a lab that doesn't answer is ended by its pid, after a look that the process is this lab.
    Raises DeviceTimeoutError when it still runs after that.
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
    if info is not None and _is_this_lab(info.pid, state_dir):
        _end_group(info.pid)
    if not _wait_until_ended(state_dir, timeout_s):
        raise DeviceTimeoutError(f"{state_dir}: the virtual lab can't be stopped; see {state_dir / LOG_FILE}")
    (state_dir / STATE_FILE).unlink(missing_ok=True)
    return True


def _read_state(state_dir: Path) -> LabInfo | None:
    try:
        state = json.loads((state_dir / STATE_FILE).read_text("utf-8"))
        phones = tuple(
            LabPhone(
                serial=str(phone["serial"]), address=str(phone["address"]), port=int(phone["port"]),
                profile=str(phone["profile"]), folder=Path(phone["folder"]),
            )
            for phone in state["phones"]
        )  # fmt: skip
        return LabInfo(
            state_dir=state_dir, pid=int(state["pid"]), control_port=int(state["control_port"]),
            token=str(state["token"]), time_factor=float(state["time_factor"]), phones=phones,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_running(state_dir: Path) -> bool:
    """Say whether a lab process holds the folder's lock."""
    try:
        with (state_dir / LOCK_FILE).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _wait_until_ended(state_dir: Path, timeout_s: float) -> bool:
    end_s = time.monotonic() + timeout_s
    while _is_running(state_dir):
        if time.monotonic() >= end_s:
            return False
        time.sleep(_LOOK_AGAIN_S)
    return True


def _is_this_lab(pid: int, state_dir: Path) -> bool:
    """Say whether the process with this number was started as the lab of this folder."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False, errors="replace"
    )
    return "orchestrator.virtual serve" in listed.stdout and f"--state-dir={state_dir}" in listed.stdout


def _end_group(pid: int) -> None:
    """Kill a lab process, which leads a process group of its own."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _start_error(state_dir: Path, exit_code: int) -> BenchfarmError:
    log = state_dir / LOG_FILE
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        words = file.read().decode("utf-8", "replace").strip()
    if exit_code == UsageError.exit_code:
        return UsageError(words or f"the virtual lab didn't start; see {log}")
    return DeviceError(f"the virtual lab ended while it started (exit code {exit_code}): {words}")
