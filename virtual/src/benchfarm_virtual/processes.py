"""The phone's process table: who runs, as whom, and signals that reach them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from benchfarm_virtual.contract import SHELL_UID
from benchfarm_virtual.data import DEFAULTS

if TYPE_CHECKING:
    from benchfarm_virtual.system import ScaledTime

Group = Literal["top-app", "shell"]

#: A phone's signals by number; a trap's EXIT stands first.
_SIGNALS: Final = (
    "EXIT HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT "
    "STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
)
#: What the shell says of a foreground command that ended by a signal (mksh's words).
SIGNAL_WORDS: Final[Mapping[int, str]] = {
    1: "Hangup",
    4: "Illegal instruction",
    5: "Trap",
    6: "Aborted",
    7: "Bus error",
    8: "Floating point exception",
    9: "Killed",
    11: "Segmentation fault",
    15: "Terminated",
}
#: What ends no process; nothing stops and continues one here.
_HARMLESS: Final = frozenset({17, 18, 19, 20, 21, 22, 23, 28})
#: Where app uids begin; u0_a0 is uid 10000.
FIRST_APP_UID: Final = 10000
_USER_NAMES: Final[Mapping[int, str]] = {
    0: "root",
    1000: "system",
    1001: "radio",
    1036: "logd",
    SHELL_UID: "shell",
}


def user_name(uid: int) -> str:
    """Return Android's name of a user: ``shell``, ``u0_a123``; the number for one without a name."""
    if uid >= FIRST_APP_UID:
        return f"u0_a{uid - FIRST_APP_UID}"
    return _USER_NAMES.get(uid, str(uid))


def signal_number(name: str) -> int:
    """Return a signal's number for ``TERM`` or ``15``; raise ValueError when there is none."""
    return int(name) if name.isdigit() else _SIGNALS.split().index(name)


@dataclass(slots=True, kw_only=True, eq=False)
class Process:
    """One entry of the process table."""

    pid: int
    ppid: int
    argv: tuple[str, ...]
    uid: int
    affinity: int
    group: Group = "shell"
    is_shell: bool = False
    started_s: float = 0.0
    #: The process group: its parent's, unless it leads one (``setsid``, a shell of adbd's).
    pgid: int
    nice: int = 0
    #: Signals that don't reach it (nohup, ``trap ''``).
    ignored: set[int] = field(default_factory=set)
    #: Signals that it catches, and those caught but not yet dealt with.
    caught: set[int] = field(default_factory=set)
    pending: list[int] = field(default_factory=list)
    signal: int = 0
    killed: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    status: int = 0
    #: Every descendant that has ended, for the processor time in ``times``.
    ended_children: list[int] = field(default_factory=list)
    #: Whether a benchmark program runs in it.
    computes: bool = False
    #: Held while a signal's effect is decided.
    _deciding: threading.Lock = field(default_factory=threading.Lock)
    #: Called when a signal arrives, so that a blocked read or write can check for it.
    wakers: list[Callable[[], None]] = field(default_factory=list)
    #: Called when it has ended, after which waiting threads check ``done``.
    end_wakers: list[Callable[[], None]] = field(default_factory=list)

    @property
    def state(self) -> str:
        """The kernel's letter of its state: running or sleeping."""
        return "R" if self.computes else "S"

    @property
    def name(self) -> str:
        """The name that ps shows: the program's file name, or an app's package."""
        return self.argv[0].rsplit("/", 1)[-1] if self.argv else ""

    def treat(self, signal: int, *, caught: bool = False, ignored: bool = False) -> None:
        """Set whether a signal is caught or ignored; if neither, it ends the process."""
        with self._deciding:
            for signals, among in ((self.caught, caught), (self.ignored, ignored)):
                (signals.add if among else signals.discard)(signal)

    def deliver(self, signal: int) -> None:
        """Let a signal arrive: ignored, caught, or the end of the process."""
        if signal in _HARMLESS:
            return
        if signal != 9:
            with self._deciding:
                is_ignored, is_caught = signal in self.ignored, signal in self.caught
            if is_ignored:
                return
            if is_caught:
                self.pending.append(signal)
                self._wake()
                return
        if self.signal == 0:
            self.signal = signal
        self.killed.set()
        self._wake()

    def _wake(self) -> None:
        for waker in list(self.wakers):
            waker()

    def finish(self, status: int) -> None:
        """Take note of its end."""
        self.status = status
        self.done.set()
        for waker in list(self.end_wakers):
            waker()


@contextlib.contextmanager
def listed(wakers: list[Callable[[], None]], waker: Callable[[], None]) -> Iterator[None]:
    """Have a process call ``waker`` meanwhile."""
    wakers.append(waker)
    try:
        yield
    finally:
        wakers.remove(waker)


_HERE: Final = threading.local()


def current_process() -> Process | None:
    """Return the process that this thread acts for."""
    process: Process | None = getattr(_HERE, "process", None)
    return process


@contextlib.contextmanager
def acting_for(process: Process | None) -> Iterator[None]:
    """Act for a process: its end interrupts waits, and /proc/self is its."""
    before = current_process()
    _HERE.process = process
    try:
        yield
    finally:
        _HERE.process = before


@contextlib.contextmanager
def as_user(uid: int) -> Iterator[None]:
    """Access files as this user meanwhile."""
    before = getattr(_HERE, "uid", None)
    _HERE.uid = uid
    try:
        yield
    finally:
        _HERE.uid = before


def current_uid() -> int:
    """Return the user that this thread acts for: that of its process, or adbd's."""
    uid: int | None = getattr(_HERE, "uid", None)
    process = current_process()
    return uid if uid is not None else SHELL_UID if process is None else process.uid


ADBD_PID: Final = 741
ZYGOTE_PID: Final = 512
SYSTEM_SERVER_PID: Final = 1003


class ProcessTable:
    """All processes of one phone. Methods may be called from any thread."""

    def __init__(self, time: ScaledTime, cpu_count: int) -> None:
        self._time = time
        self._lock = threading.Lock()
        #: The pid of the newest process, which are the processes since boot.
        self.started = 4210
        self._processes: dict[int, Process] = {}
        self.all_cpus = (1 << cpu_count) - 1
        self._residents = {
            pid: Process(
                pid=pid, pgid=pid, ppid=ppid, argv=(name,), uid=uid, affinity=self.all_cpus
            )
            for pid, (name, uid, ppid) in DEFAULTS["residents"].items()
        }

    def spawn(
        self,
        argv: Sequence[str],
        *,
        uid: int,
        parent: Process | None = None,
        ppid: int = ADBD_PID,
        group: Group = "shell",
        is_shell: bool = False,
    ) -> Process:
        """Make a new process; it inherits affinity, niceness and ignored signals from ``parent``."""
        with self._lock:
            self.started += 1
            pid = self.started
            process = Process(
                pid=pid,
                ppid=parent.pid if parent else ppid,
                pgid=parent.pgid if parent else pid,
                argv=tuple(argv),
                uid=uid,
                started_s=self._time.uptime_s(),
                affinity=parent.affinity if parent else self.all_cpus,
                nice=parent.nice if parent else 0,
                ignored=set(parent.ignored) if parent else set(),
                group=group,
                is_shell=is_shell,
            )
            self._processes[pid] = process
        return process

    def end(self, process: Process, status: int) -> None:
        """Take a process out of the table; its children become init's."""
        with self._lock:
            if self._processes.pop(process.pid, None) is None:
                return
            for other in self._processes.values():
                if other.ppid == process.pid:
                    other.ppid = 1
            parent = self._processes.get(process.ppid)
            if parent is not None:
                parent.ended_children += [process.pid, *process.ended_children]
        process.finish(status)

    def run(self, process: Process, body: Callable[[], int]) -> int:
        """Run something as a process, which ends with it; return its status."""
        status = 1
        try:
            status = body()
        finally:
            self.end(process, status)
        return status

    def kill(self, process: Process, signal: int) -> None:
        """Send a signal. A shell that dies of it ends at once; its foreground command continues."""
        if signal == 0:
            return
        process.deliver(signal)
        if process.is_shell and process.killed.is_set():
            self.end(process, 128 + process.signal)

    def kill_all(self) -> list[Process]:
        """For a reboot: end all processes at once; return those that were running."""
        with self._lock:
            running = list(self._processes.values())
        for process in running:
            process.ignored.clear()
            self.kill(process, 9)
        return running

    def live(self) -> list[Process]:
        """Return the processes that were started since boot, oldest first."""
        with self._lock:
            return list(self._processes.values())

    def rows(self) -> Iterator[Process]:
        """Return everything that ps shows, the phone's own services included."""
        yield from self._residents.values()
        yield from self.live()

    def find(self, pid: int) -> Process | None:
        """Return a process or one of the phone's own services by its pid."""
        return self._processes.get(pid) or self._residents.get(pid)

    def named(self, pid: str) -> Process | None:
        """Return the process of a pid in digits, as :meth:`find`; None for any other text."""
        return self.find(int(pid)) if pid.isdigit() else None
