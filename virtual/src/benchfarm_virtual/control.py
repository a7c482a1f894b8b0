"""Virtual phones in a process of their own: start it, ask it, stop it.

The process is ``python -m benchfarm_virtual``; it writes ``virtual.json`` (its pid, the port and token
of its control channel, the phones) into its folder, and holds ``virtual.lock`` as long as it
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from benchfarm_virtual.errors import (
    DeviceError,
    DeviceTimeoutError,
    LinkLostError,
    UsageError,
    VirtualError,
)
from benchfarm_virtual.spec import PhoneSpec

#: In the folder: the process while it runs, the file that it locks, and its log.
STATE_FILE: Final = "virtual.json"
LOCK_FILE: Final = "virtual.lock"
LOG_FILE: Final = "virtual.log"
#: Where the process is started, so that a source tree that isn't installed works too.
SOURCES: Final = Path(__file__).resolve().parents[1]
_LOOPBACK: Final = "127.0.0.1"
_START_S: Final = 60.0
_STOP_S: Final = 10.0
_ANSWER_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.02
_LOCK_PATIENCE_S: Final = 1.0
_LOG_TAIL_BYTES: Final = 2000
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPhone:
    """A virtual phone of a running process."""

    serial: str
    #: What ``adb connect`` takes.
    address: str
    profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPhones:
    """A running process of virtual phones as described by its state file."""

    state_dir: Path
    pid: int
    control_port: int
    token: str
    phones: tuple[RunningPhone, ...]


def start_phones(
    state_dir: Path,
    phones: Sequence[PhoneSpec],
    *,
    adb_keys: Sequence[Path],
    time_factor: float = 1.0,
    seed: int = 1,
    exit_with_parent: bool = False,
    environ: Mapping[str, str] | None = None,
) -> RunningPhones:
    """Start a process with these phones and return when they listen.

    ``adb_keys`` are the public keys (adbkey.pub) of the adb servers that get in. With
    ``exit_with_parent`` the process ends when the calling process does. ``environ``: its variables
    (None: this process's).

    Raises UsageError when one is running in this folder already, and for phones, keys or figures
    that can't be; DeviceError with its last words when it doesn't start, DeviceTimeoutError
    when it isn't ready in time.
    """
    state_dir = state_dir.absolute()
    state_dir.mkdir(parents=True, exist_ok=True)
    if _is_running(state_dir):
        raise UsageError(
            f"{state_dir}: virtual phones are running here already",
            hint="stop them with 'benchfarm virtual down'",
        )
    (state_dir / STATE_FILE).unlink(missing_ok=True)
    settings = {
        "adb_keys": [str(key.absolute()) for key in adb_keys],
        "time_factor": time_factor,
        "seed": seed,
        "phones": [asdict(spec) for spec in phones],
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
    # When this process lives longer, someone has to take the exit code.
    threading.Thread(target=process.wait, name="reaper of virtual phones", daemon=True).start()

    def started() -> RunningPhones | None:
        if process.poll() is not None:
            raise _start_error(state_dir, process.returncode)
        info = _read_state(state_dir)
        return info if info is not None and info.pid == process.pid else None

    if (info := _awaited(started, _START_S)) is None:
        _end_group(process.pid)
        raise DeviceTimeoutError(
            f"the virtual phones weren't ready within {_START_S:g} s; see {state_dir / LOG_FILE}"
        )
    return info


def read_phones(state_dir: Path) -> RunningPhones:
    """Return the process that runs in a folder; raise UsageError when none does."""
    state_dir = state_dir.absolute()
    info = _read_state(state_dir) if _is_running(state_dir) else None
    if info is None:
        raise UsageError(
            f"{state_dir}: no virtual phones are running here",
            hint="start one with 'benchfarm virtual up'",
        )
    return info


def ask_phones(
    state_dir: Path, request: Mapping[str, Any], *, timeout_s: float = _ANSWER_S
) -> dict[str, Any]:
    """Ask a running process something (see serving.py for the requests) and return its answer.

    Raises UsageError when none runs or the request is wrong, DeviceError for an error in it,
    DeviceTimeoutError when no answer comes in time and LinkLostError when none comes at all: then
    it is unknown whether the request was done.
    """
    info = read_phones(state_dir)
    process = f"the process of the virtual phones (pid {info.pid})"
    line = json.dumps({**request, "token": info.token}).encode() + b"\n"
    try:
        with socket.create_connection((_LOOPBACK, info.control_port), timeout=timeout_s) as sock:
            sock.sendall(line)
            with sock.makefile("rb") as reader:
                answer = json.loads(reader.readline() or b"null")
    except TimeoutError:
        raise DeviceTimeoutError(f"{process} didn't answer within {timeout_s:g} s") from None
    except (OSError, ValueError) as fault:
        raise LinkLostError(f"{process} can't be asked: {fault}") from None
    if not isinstance(answer, dict):
        raise LinkLostError(f"{process} ended before it answered")
    if not answer.get("ok"):
        kind: type[VirtualError] = UsageError if answer.get("error") == "usage" else DeviceError
        raise kind(str(answer.get("message", "")), hint=str(answer.get("hint", "")))
    return answer


def stop_phones(state_dir: Path, *, timeout_s: float = _STOP_S) -> bool:
    """Stop the process of a folder and return when it has ended.

    False when none was running.

    It is asked first; one that doesn't answer is ended by its pid. Raises DeviceTimeoutError when it still runs after that.
    """
    state_dir = state_dir.absolute()
    if not _is_running(state_dir):
        (state_dir / STATE_FILE).unlink(missing_ok=True)
        return False
    info = _read_state(state_dir)
    try:
        ask_phones(state_dir, {"request": "stop"}, timeout_s=timeout_s / 2)
    except (DeviceError, UsageError):
        pass  # it hangs, or is just ending; either way the lock tells

    def ended() -> bool:
        return not _is_running(state_dir)

    if _awaited(ended, timeout_s / 2):
        return True
    # Its folder may be another computer's or a container's, too, where its number is another one.
    if info is not None and _is_ours(info.pid, state_dir):
        _end_group(info.pid)
    # What is killed ends as soon as a busy computer comes to it.
    if not _awaited(ended, max(timeout_s, _STOP_S)):
        raise DeviceTimeoutError(
            f"{state_dir}: the virtual phones can't be stopped; see {state_dir / LOG_FILE}"
        )
    (state_dir / STATE_FILE).unlink(missing_ok=True)
    return True


def _read_state(state_dir: Path) -> RunningPhones | None:
    try:
        state = json.loads((state_dir / STATE_FILE).read_text("utf-8"))
        phones = tuple(
            RunningPhone(**{name: phone[name] for name in ("serial", "address", "profile")})
            for phone in state["phones"]
        )
        fields = {name: state[name] for name in ("pid", "control_port", "token")}
        return RunningPhones(state_dir=state_dir, phones=phones, **fields)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def take_lock(state_dir: Path) -> int:
    """Lock the folder until this process has ended, and return the descriptor.

    Whoever can take the lock knows that no process runs.

    Raises UsageError when another process has it, or there is no such folder.
    """
    try:
        descriptor = os.open(state_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as fault:
        raise UsageError(f"{state_dir}: no folder for virtual phones: {fault.strerror}") from None
    # A process that checks whether another runs holds it for a moment.
    if not _awaited(lambda: _can_lock(descriptor, fcntl.LOCK_EX), _LOCK_PATIENCE_S):
        os.close(descriptor)
        raise UsageError(f"{state_dir}: virtual phones are running here already")
    return descriptor


def _is_running(state_dir: Path) -> bool:
    """Say whether a process holds the folder's lock."""
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


def _awaited(look: Callable[[], Result], timeout_s: float) -> Result:
    """Look until there is something, or the time is over; return the last result."""
    end_s = time.monotonic() + timeout_s
    while not (result := look()) and time.monotonic() < end_s:
        time.sleep(_LOOK_AGAIN_S)
    return result


def _is_ours(pid: int, state_dir: Path) -> bool:
    """Say whether the process with this number was started for this folder."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    return f"benchfarm_virtual {state_dir} " in listed.stdout


def _end_group(pid: int) -> None:
    """Kill a process of virtual phones, which leads a process group of its own."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _start_error(state_dir: Path, exit_code: int) -> VirtualError:
    log = state_dir / LOG_FILE
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        words = file.read().decode("utf-8", "replace").strip()
    if exit_code == UsageError.exit_code:
        return UsageError(words or f"the virtual phones didn't start; see {log}")
    return DeviceError(
        f"the virtual phones ended while they started (exit code {exit_code}): {words}"
    )
