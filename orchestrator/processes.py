"""Programs that this computer starts: their environment, their end, and which process is which.

They get what programs need, and no token, password or key of ours. A pid is given again, by the
next boot and in each pid namespace: a process is known by its start and its folder too. Whatever
differs between systems (macOS has no /proc) stands here.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from orchestrator.errors import UsageError
from orchestrator.files import head_and_tail

#: Names further variables that programs get, with commas between them.
PASS_ENV: Final = "BENCHFARM_PASS_ENV"  # noqa: S105 - the name of a setting
#: Who and where; language and time; files; how libraries, Python and compute libraries are found;
#: Android's tools.
_NAMES: Final = frozenset(
    (  # noqa: SIM905 - thirty names on a line each say no more
        "PATH HOME USER LOGNAME SHELL TERM LANG LANGUAGE TZ TMPDIR TMP TEMP "
        "XDG_RUNTIME_DIR XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME "
        "LD_LIBRARY_PATH LD_PRELOAD PYTHONPATH PYTHONHOME PYTHONNOUSERSITE PYTHONDONTWRITEBYTECODE VIRTUAL_ENV "
        "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CUDA_VISIBLE_DEVICES GLIBC_TUNABLES "
        "OCL_ICD_VENDORS VK_ICD_FILENAMES VK_DRIVER_FILES "
        "ANDROID_HOME ANDROID_SDK_ROOT ANDROID_SDK_HOME ANDROID_USER_HOME ANDROID_NDK_HOME ANDROID_SERIAL "
        "ANDROID_ADB_SERVER_ADDRESS ANDROID_ADB_SERVER_PORT ANDROID_ADB_LOG_PATH"
    ).split()
)
_PREFIXES: Final = ("LC_", "ADB_", "DYLD_", "OMP_", "TF_")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def child_environment(environ: Mapping[str, str] | None = None, **further: str) -> dict[str, str]:
    """Return the variables that a program gets: those of a fixed list, those that the user passes
    on, ``further``.

    ``environ`` (None: this process's) may hold ``BENCHFARM_PASS_ENV=NAME,NAME``. Raises UsageError
    when that isn't a list of names.
    """
    have = os.environ if environ is None else environ
    asked = [name.strip() for name in have.get(PASS_ENV, "").split(",") if name.strip()]
    for name in asked:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{PASS_ENV}: {name!r} isn't the name of a variable",
                hint=f"write {PASS_ENV}=NAME,NAME",
            )
    passed = {
        name: value for name, value in have.items() if name in _NAMES or name.startswith(_PREFIXES)
    }
    return passed | {name: have[name] for name in asked if name in have} | further


#: The system's own estimate of a process's start moves by so much.
_START_S: Final = 2.0
#: How long killed processes may take to be gone.
_KILLED_S: Final = 2.0
_POLL_S: Final = 0.02
#: What psutil raises where a process isn't there, or the system doesn't tell of it.
_UNKNOWN: Final = (psutil.Error, OSError, ValueError, RuntimeError)


def started_at(pid: int) -> float | None:
    """Return when a process was started, in seconds since 1970.

    None when there is none, or nobody tells.
    """
    try:
        return psutil.Process(pid).create_time()
    except _UNKNOWN:
        return None


def is_still(pid: int, started_s: float, *, folder: Path) -> bool:
    """Whether a process runs now that has this number, was started then and works in this folder.

    False if unknown.
    """
    try:
        process = psutil.Process(pid)
        return (
            abs(process.create_time() - started_s) <= _START_S
            and process.status() != psutil.STATUS_ZOMBIE
            and Path(process.cwd()).samefile(folder)
        )
    except _UNKNOWN:
        return False


def running(arguments: Sequence[str]) -> list[psutil.Process]:
    """Return the processes of any program that were started with exactly these arguments; none
    where nobody tells.
    """
    found: list[psutil.Process] = []
    # psutil takes for granted that there is one process at least (IndexError).
    with contextlib.suppress(*_UNKNOWN, IndexError):
        for process in psutil.process_iter():
            with contextlib.suppress(*_UNKNOWN):
                if process.cmdline()[1:] == list(arguments):
                    found.append(process)
    return found


def end_running(arguments: Sequence[str]) -> None:
    """End the processes that were started with these arguments, by force where they don't end."""
    left = running(arguments)
    for kind in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.send_signal(kind)
        left = _left_of(left)


def _left_of(left: list[psutil.Process]) -> list[psutil.Process]:
    """Wait for the end of processes that were told to, not for long; return those that go on."""
    end_s = time.monotonic() + _KILLED_S
    while left and time.monotonic() < end_s:
        _, left = psutil.wait_procs(left, timeout=_POLL_S)
        left = [process for process in left if _is_alive(process)]
    return left


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def kill_group(leader: int) -> None:
    """Kill a process group; not an error when it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def wait_for_group(leader: int) -> None:
    """Wait until no process of a group that was killed goes on ending, not for long: a large one's
    memory is given back meanwhile, which takes the cores.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, 0)
        members = [item for item in psutil.process_iter() if _group_of(item) == leader]
        _left_of([item for item in members if _is_alive(item)])


def _group_of(process: psutil.Process) -> int | None:
    with contextlib.suppress(OSError):
        return os.getpgid(process.pid)
    return None


def kill_family(leader: int) -> None:
    """Kill a child of ours with its process group and all that descends from it, in sessions of
    their own too.
    """
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(leader).children(recursive=True)
    for process in below:
        # Each is known by its start as well: a stranger with its number isn't killed.
        with contextlib.suppress(psutil.Error):
            process.kill()
    kill_group(leader)
    psutil.wait_procs(below, timeout=_KILLED_S)


def shell_code(returncode: int) -> int:
    """Return an exit code as a shell tells it: 128 + the signal's number for a process that died of
    one.
    """
    return 128 - returncode if returncode < 0 else returncode


def run_program(
    command: Sequence[str], *, environ: Mapping[str, str], timeout_s: float
) -> tuple[int, bytes, bytes]:
    """Run a program to its end; return its exit code and both streams, of long ones both ends.

    All that it started is killed when it takes longer. Raises subprocess.TimeoutExpired, OSError.
    """
    # Files, not pipes: what it leaves behind may hold them open for as long as it likes.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            process.wait(timeout=timeout_s)
        finally:
            if process.poll() is None:
                kill_family(process.pid)
                process.wait()
        return process.returncode, head_and_tail(out), head_and_tail(err)
