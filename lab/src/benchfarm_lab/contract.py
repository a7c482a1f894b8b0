"""The seams inside the virtual phone: transport above, userland in the middle, hardware and programs below.

``server`` and ``wire`` know only :class:`Userland` and :class:`PhoneFiles`; ``userland`` knows :class:`Hardware` and
:class:`ProgramShelf`; ``programs`` know :class:`ProcessContext` and :class:`Hardware`. All calls below may come from
many threads at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

#: As whom adbd runs what comes over adb, and as whom the system's own services run.
SHELL_UID: Final = 2000
SYSTEM_UID: Final = 1000
#: A phone's number of the signal that nothing survives, whatever this computer's is.
SIGKILL: Final = 9


class StreamClosedError(Exception):
    """The other end of a stream is gone; the command that writes to it should end."""


class PhoneTime(Protocol):
    """Time as the phone sees it: real, or sped up by a factor; its wall clock can be made to jump."""

    @property
    def factor(self) -> float:
        """How many phone seconds pass in one real second."""
        ...

    def uptime_s(self) -> float:
        """Phone seconds since boot (monotonic)."""
        ...

    def wall_s(self) -> float:
        """The phone's wall clock as a Unix time."""
        ...

    def sleep(self, phone_seconds: float, cancelled: threading.Event | None = None) -> bool:
        """Sleep for a span of phone time; return True when cancelled."""
        ...


class ByteSource(Protocol):
    """Where bytes come from."""

    def read(self, limit: int = -1) -> bytes:
        """Block until at least one byte is there; ``b""`` is the end. A negative limit reads to the end."""
        ...


class ByteSink(Protocol):
    """Where bytes go; a write blocks while the other side doesn't take more (flow control)."""

    def write(self, data: bytes) -> None:
        """Write all of ``data``; raise StreamClosedError when nobody reads any more."""
        ...


@dataclass(slots=True, kw_only=True)
class ShellSession:
    """One service opened over adb (shell, exec, cmd): its streams, and whether the client has gone."""

    stdin: ByteSource
    stdout: ByteSink
    stderr: ByteSink
    #: Set when the stream or the connection is closed; like SIGHUP, it reaches only the shell's own process:
    #: what was started in the background goes on.
    hangup: threading.Event = field(default_factory=threading.Event)
    pty: bool = False


class Userland(Protocol):
    """What happens when a command comes over adb."""

    def run(self, command: str, session: ShellSession) -> int:
        """Interpret one command line (never starting a process of the host's) and return its exit code, 0-255."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """What lstat tells: mode with type bits, size in bytes, times in Unix seconds."""

    mode: int
    size_bytes: int
    mtime_s: int
    uid: int = SHELL_UID
    gid: int = SHELL_UID
    inode: int = 1
    nlink: int = 1


#: What a process of the phone may keep in memory of one thing: its variables, a line, the output of a substitution.
MEMORY_BYTES: Final = 16 << 20


class PhoneFileError(Exception):
    """A file operation failed as on a phone; ``errno`` is the number, the text what the phone would print."""

    def __init__(self, errno: int, message: str) -> None:
        super().__init__(message)
        self.errno = errno


class FileWriter(Protocol):
    """A file being written; it appears as it grows, as on a phone."""

    def write(self, data: bytes) -> None:
        """Append; raise PhoneFileError with ENOSPC when the phone is full."""
        ...

    def close(self) -> None:
        """Finish."""
        ...


class PhoneFiles(Protocol):
    """The phone's file tree: real files in the phone's own folder, and computed ones (/proc, /sys).

    Paths are phone paths; no path, link or name leads out of the phone's folder on the host.
    """

    def stat(self, path: str, *, follow: bool = True, uid: int = SHELL_UID) -> FileStat:
        """Return what the path is; raise PhoneFileError (ENOENT, EACCES ...)."""
        ...

    def list(self, path: str, *, uid: int = SHELL_UID) -> Sequence[str]:
        """Return the names in a folder, sorted."""
        ...

    def open_read(self, path: str, *, uid: int = SHELL_UID) -> ByteSource:
        """Open a file to read."""
        ...

    def open_write(self, path: str, *, mode: int = 0o644, append: bool = False, uid: int = SHELL_UID) -> FileWriter:
        """Create or truncate a file; folders above it must exist."""
        ...

    def make_folders(self, path: str, *, uid: int = SHELL_UID) -> None:
        """Create a folder and those above it."""
        ...

    def remove(self, path: str, *, uid: int = SHELL_UID) -> None:
        """Remove a file or an empty folder."""
        ...

    def rename(self, source: str, target: str, *, uid: int = SHELL_UID) -> None:
        """Rename, replacing the target."""
        ...

    def set_times(self, path: str, mtime_s: int) -> None:
        """Set the modification time."""
        ...

    def set_mode(self, path: str, mode: int) -> None:
        """Set the permission bits."""
        ...


LogPriority = Literal["V", "D", "I", "W", "E", "F"]


class LogSink(Protocol):
    """The phone's log buffers."""

    def log(
        self,
        priority: LogPriority,
        tag: str,
        message: str | bytes,
        *,
        pid: int,
        tid: int | None = None,
        uid: int = SHELL_UID,
        buffer: str = "main",
    ) -> None:
        """Append one message; the writer cuts it as liblog does, readers split it into lines."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCluster:
    """A cluster of equal cores, with its clocks as they are now."""

    name: str
    cpus: tuple[int, ...]
    min_khz: int
    max_khz: int
    current_khz: int
    limit_khz: int
    available_khz: tuple[int, ...]
    #: ``time_in_state``: frequency -> time in 10 ms ticks.
    ticks: Mapping[int, int]
    governor: str
    #: Clock steps that heat takes now, whatever a user has set.
    cooling_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalZone:
    """One thermal zone as sysfs shows it."""

    name: str
    heat_c: float
    #: Where throttling steps begin; None for zones that are only read.
    trip_c: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    """The battery as dumpsys shows it."""

    level_percent: int
    heat_c: float
    voltage_mv: int
    current_ua: int
    charge_counter_uah: int
    plugged: Literal["none", "ac", "usb"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuActivity:
    """What a GPU's driver counts: the highest clock it may have now, its load, and milliseconds at each clock."""

    limit_khz: int
    busy_share: float
    ticks_ms: Mapping[int, int]


class Hardware(Protocol):
    """The phone's physics: clocks, heat, battery; moves with PhoneTime, from a seed."""

    def clusters(self) -> Sequence[CpuCluster]:
        """Return the clusters, little cores first."""
        ...

    def zones(self) -> Sequence[ThermalZone]:
        """Return the thermal zones."""
        ...

    def thermal_status(self) -> int:
        """Return 0 (none) to 6 (shutdown), as PowerManager counts."""
        ...

    def battery(self) -> Battery:
        """Return the battery's state."""
        ...

    def gpu_khz(self) -> tuple[int, Sequence[int]]:
        """Return the GPU's clock now and all it has."""
        ...

    def gpu_activity(self) -> GpuActivity:
        """Return the GPU's limit, load and residency."""
        ...

    def busy_s(self) -> float:
        """Return the seconds of all cores together that loads have used since boot."""
        ...

    def cpu_s(self, pid: int) -> float:
        """Return the processor time of one process, also after its end."""
        ...

    def set_cluster_limits(
        self, cluster: int, *, min_khz: int | None = None, max_khz: int | None = None, governor: str | None = None
    ) -> None:
        """What a root shell writes into scaling_min_freq, scaling_max_freq, scaling_governor."""
        ...

    def set_fixed_performance(self, *, enabled: bool) -> None:
        """What ``cmd power set-fixed-performance-mode-enabled`` does."""
        ...

    def set_network(self, *, enabled: bool) -> None:
        """What airplane mode and the switches of the radios do."""
        ...

    def set_thermal_control(self, *, enabled: bool) -> None:
        """What stopping the vendor's thermal service does."""
        ...

    def set_gpu_least(self, khz: int) -> None:
        """What a root shell writes into the GPU's min_freq."""
        ...

    def gpu_least_khz(self) -> int:
        """Return what min_freq says."""
        ...

    def force(self, *, heat_c: float | None = None, battery_percent: int | None = None) -> None:
        """For faults: set the temperature or the battery level at once."""
        ...

    def reboot(self) -> None:
        """Clocks and counters begin anew; heat and battery stay."""
        ...


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One message of a thread in the kernel's trace: ``B|tgid|name`` or ``E|tgid``."""

    at_ns: int
    cpu: int
    pid: int
    text: str


class TraceSink(Protocol):
    """The kernel's trace buffer as a program sees it."""

    def now_ns(self) -> int:
        """Return the phone's clock since boot."""
        ...

    def wants(self, command_line: str) -> bool:
        """Whether somebody records this process's slices now (what ATrace_isEnabled says)."""
        ...

    def write(self, pid: int, command_line: str, uid: int, events: Sequence[TraceEvent]) -> None:
        """Write a process's events, which need not be over yet."""
        ...


@dataclass(slots=True, kw_only=True)
class ProcessContext:
    """What a program running on the phone has: its streams, files, identity and place among the cores."""

    pid: int
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    uid: int
    stdin: ByteSource
    stdout: ByteSink
    stderr: ByteSink
    files: PhoneFiles
    logs: LogSink
    time: PhoneTime
    hardware: Hardware
    props: Mapping[str, str]
    #: Bit i is set when the process may run on cpu i (taskset).
    affinity: int
    #: How the scheduler sees it: an app on screen, or a shell command.
    group: Literal["top-app", "shell"]
    #: The signal number once someone has killed the process, else 0; ``killed`` is set then.
    killed: threading.Event = field(default_factory=threading.Event)
    signal: int = 0
    #: For faults: called with a name at each named moment of a program ("init", "warmup", "run", "results").
    moment: MomentHook | None = None
    #: The phone's trace buffer.
    trace: TraceSink | None = None


class MomentHook(Protocol):
    """Called by a program at a named moment; may make it die, print garbage or hang."""

    def __call__(self, name: str, process: ProcessContext) -> None:
        """Do what the fault asks for; raise ProgramDiedError to end the program by a signal."""
        ...


class ProgramDiedError(Exception):
    """The program ended by a signal (11 SIGSEGV, 9 killed by low memory ...)."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"signal {signal}")
        self.signal = signal


class Program(Protocol):
    """A stand-in for a benchmark program."""

    def run(self, process: ProcessContext) -> int:
        """Do what the real program would do, in its exact words; return the exit code."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AppInfo:
    """What an APK says about itself, read from the bytes that were pushed."""

    package: str
    activities: tuple[str, ...]
    version_code: int
    version_name: str
    abis: tuple[str, ...]
    min_sdk: int
    debuggable: bool


class ProgramShelf(Protocol):
    """Which files are benchmark programs, and what stands in for them."""

    def native(self, name: str, head: bytes, size_bytes: int) -> Program | None:
        """Return the stand-in for an executable by its file name and first bytes, or None when it is none."""
        ...

    def inspect_apk(self, source: Iterable[bytes]) -> AppInfo | None:
        """Return what the APK says, or None when the bytes are no APK (INSTALL_PARSE_FAILED_NOT_APK)."""
        ...

    def activity(self, package: str, activity: str, args: Mapping[str, str]) -> Program | None:
        """Return the stand-in for an activity started with string extras ``args``, or None for a missing one."""
        ...
