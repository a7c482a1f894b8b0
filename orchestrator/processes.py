"""Programs that this computer starts: their environment, their end and their identity; and locks by
name among processes, whose holders the system itself proves.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import psutil

from orchestrator.clock import Deadline
from orchestrator.errors import BenchfarmError, HostStorageError, InterruptedByUserError, UsageError
from orchestrator.files import file_of, head_and_tail, make_private, name_of

#: Names further variables that programs get, with commas between them.
PASS_ENV: Final = "BENCHFARM_PASS_ENV"  # noqa: S105 - the name of a setting
#: User; language and time; folders; search paths of libraries, Python and compute libraries;
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
    """Return a program's environment: the variables of a fixed list, those that the user passes on,
    and ``further``.

    ``environ`` (None: this process's) may hold ``BENCHFARM_PASS_ENV=NAME,NAME``. Raises UsageError
    when that isn't a list of names.
    """
    available = os.environ if environ is None else environ
    passed_on = [name.strip() for name in available.get(PASS_ENV, "").split(",") if name.strip()]
    for name in passed_on:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{PASS_ENV}: {name!r} isn't the name of a variable",
                hint=f"write {PASS_ENV}=NAME,NAME",
            )
    passed = {
        name: value
        for name, value in available.items()
        if name in _NAMES or name.startswith(_PREFIXES)
    }
    return passed | {name: available[name] for name in passed_on if name in available} | further


#: The system's estimate of a process's start varies by this much.
_START_S: Final = 2.0
#: How long killed processes may take to be gone.
_KILLED_S: Final = 2.0
_POLL_S: Final = 0.02
#: Errors of psutil for a process that isn't there, or that the system doesn't describe.
_UNKNOWN: Final = (psutil.Error, OSError, ValueError, RuntimeError)


def started_at(pid: int) -> float | None:
    """Return the start of a process in seconds since 1970, None if there is none or it's unknown."""
    try:
        return psutil.Process(pid).create_time()
    except _UNKNOWN:
        return None


def is_still(pid: int, started_s: float, *, folder: Path) -> bool:
    """Whether a process with this number, start and working folder runs now; False if unknown."""
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
    """Return the processes of any program that were started with exactly these arguments; none if
    unknown.
    """
    processes: list[psutil.Process] = []
    # psutil assumes that there is at least one process (IndexError).
    with contextlib.suppress(*_UNKNOWN, IndexError):
        for process in psutil.process_iter():
            with contextlib.suppress(*_UNKNOWN):
                if process.cmdline()[1:] == list(arguments):
                    processes.append(process)
    return processes


def end_running(arguments: Sequence[str]) -> None:
    """End the processes that were started with these arguments: SIGTERM, then SIGKILL."""
    alive = running(arguments)
    for kind in (signal.SIGTERM, signal.SIGKILL):
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.send_signal(kind)
        alive = _wait_for_ends(alive)


def _wait_for_ends(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Wait up to 2 s for processes that got a signal; return those that still run."""
    end_s = time.monotonic() + _KILLED_S
    while processes and time.monotonic() < end_s:
        _, processes = psutil.wait_procs(processes, timeout=_POLL_S)
        processes = [process for process in processes if _is_alive(process)]
    return processes


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def kill_group(leader: int) -> None:
    """Kill a process group; not an error when it is gone. Wait up to 2 s until all of its processes
    have ended: freeing the memory of a large one takes CPU time.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
        members = [item for item in psutil.process_iter() if _process_group(item) == leader]
        _wait_for_ends([item for item in members if _is_alive(item)])


def _process_group(process: psutil.Process) -> int | None:
    with contextlib.suppress(OSError):
        return os.getpgid(process.pid)
    return None


def kill_family(leader: int) -> None:
    """Kill a child of ours with its process group and all its descendants, also those in other
    sessions.
    """
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(leader).children(recursive=True)
    for process in below:
        # psutil compares the start too: another process with a reused number isn't killed.
        with contextlib.suppress(psutil.Error):
            process.kill()
    kill_group(leader)
    psutil.wait_procs(below, timeout=_KILLED_S)


def shell_code(returncode: int) -> int:
    """Return an exit code as a shell reports it: 128 + the signal's number for a process that a
    signal ended.
    """
    return 128 - returncode if returncode < 0 else returncode


def run_program(
    command: Sequence[str], *, environ: Mapping[str, str], timeout_s: float
) -> tuple[int, bytes, bytes]:
    """Run a program to its end; return its exit code and both streams, of long ones both ends.

    After the timeout it is killed with all its descendants. Raises subprocess.TimeoutExpired,
    OSError.
    """
    # Files, not pipes: descendants that outlive it may hold pipes open.
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


_FREE_POLL_S: Final = 0.05
#: How often a waiting thread checks whether it is cancelled.
_TURN_POLL_S: Final = 0.2
#: The shortest wait for a lock, so that a holder that is just releasing it has time.
_SHORTEST_WAIT_S: Final = 0.25
#: With flock, checking whether a lock is held takes a shared lock for a moment, longer on a busy
#: computer. Such a checker isn't a holder: ``take`` waits this long for it.
_LONGEST_PROBE_S: Final = 10.0
#: Linux has locks of an open file (fcntl(2), "open file description locks") that can be checked
#: without taking them.
_OPEN_FILE_LOCKS: Final = sys.platform == "linux"
#: `struct flock` of 64-bit offsets: type, whence, start, length, pid.
_FLOCK: Final = "hhqqi"
_LONGEST_NOTE_BYTES: Final = 4096


@contextlib.contextmanager
def hold_slot(free: threading.Semaphore, cancelled: threading.Event) -> Generator[None]:
    """Hold a semaphore that a process's threads take in turns, while the context lasts.

    Raises InterruptedByUserError when cancelled while waiting.
    """
    while not free.acquire(timeout=_TURN_POLL_S):
        if cancelled.is_set():
            raise InterruptedByUserError
    try:
        yield
    finally:
        free.release()


#: Phones asked, opened or restored at once; each is one connection to the server.
_PHONES_AT_ONCE: Final = 32
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_in_threads(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return the results of the items in their order; a phone that hangs doesn't delay others."""
    with ThreadPoolExecutor(max_workers=max(1, min(_PHONES_AT_ONCE, len(items)))) as pool:
        return list(pool.map(work, items))


class Locks:
    """Locks by name among the processes (and threads) of one computer; each held lock is a file in
    ``folder``.
    """

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made with the first lock."""
        self._folder = folder

    def take(self, name: str, *, wait_s: float = 0.0) -> Callable[[], None] | None:
        """Take a lock; return the function that releases it, None if it is still held after
        ``wait_s``.

        Raises HostStorageError.
        """
        path, wait_s = self._path(name), max(wait_s, _SHORTEST_WAIT_S)
        deadline, longest = Deadline(wait_s), Deadline(wait_s + _LONGEST_PROBE_S)
        try:
            make_private(self._folder)
            while (descriptor := _locked(path)) is None:
                if deadline.expired and (longest.expired or _holder(path)):
                    return None
                time.sleep(_FREE_POLL_S)
        except OSError as error:
            raise HostStorageError(f"{path} can't be locked: {error}") from error
        note = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(),
        }
        # The note is for people: the lock holds without it, also on a full disk.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(note).encode())

        def release() -> None:
            # Unlink before the release: a waiting process sees that the file has no name any more,
            # and makes another.
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(descriptor)

        return release

    @contextlib.contextmanager
    def held(self, name: str, *, wait_s: float, busy: BenchfarmError) -> Generator[None]:
        """Hold a lock while the context lasts; raises ``busy``, HostStorageError."""
        release = self.take(name, wait_s=wait_s)
        if release is None:
            raise busy
        try:
            yield
        finally:
            release()

    def live_holder(self, name: str) -> str:
        """Return the description of a lock's current holder; empty for none."""
        return _holder(self._path(name))

    def live_holders(self) -> dict[str, str]:
        """Return the locks that are held now, with the description of each holder."""
        holders = {name_of(path): _holder(path) for path in sorted(self._folder.glob("*.lock"))}
        return {name: holder for name, holder in holders.items() if holder}

    def _path(self, name: str) -> Path:
        return file_of(self._folder, name, ".lock")


def _locked(path: Path) -> int | None:
    """Return the descriptor of a file locked for this process, None when another holds the lock.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if _OPEN_FILE_LOCKS:
            fcntl.fcntl(
                descriptor,
                fcntl.F_OFD_SETLK,
                struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0),
            )
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        if _is_locked(file.fileno()):
            return _describe_holder(file.read(_LONGEST_NOTE_BYTES))
    return ""


def _is_locked(descriptor: int) -> bool:
    """Whether another process holds a file's lock now; raises OSError."""
    if _OPEN_FILE_LOCKS:
        request = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        lock_type: int = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, request))[
            0
        ]
        return lock_type != fcntl.F_UNLCK
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _describe_holder(note: bytes) -> str:
    """Return the description in a holder's note."""
    try:
        holder = json.loads(note)
        since = datetime.fromisoformat(holder["since"]).astimezone()
        return f"process {holder['pid']} on {holder['host']} since {since:%Y-%m-%d %H:%M:%S}"
    except (ValueError, KeyError, TypeError):
        return "another process"
