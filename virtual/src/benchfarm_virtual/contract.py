"""What the parts of a virtual phone hand each other: transport above, userland in the middle,
programs below.

All calls may come from many threads at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

#: As whom adbd runs what comes over adb, and as whom the system's own services run.
SHELL_UID: Final = 2000
SYSTEM_UID: Final = 1000
#: A phone's number of the signal that nothing survives, whatever this computer's is.
SIGKILL: Final = 9


def encoded(text: str) -> bytes:
    """Return text as the bytes that it came from (names and arguments may hold any bytes)."""
    return text.encode("utf-8", "surrogateescape")


def decoded(data: bytes | bytearray) -> str:
    """Return bytes as text, from which the same bytes can be had back."""
    return data.decode("utf-8", "surrogateescape")


class StreamClosedError(Exception):
    """The other end of a stream is gone; the command that writes to it should end."""


class Hangup:
    """Whether a session's client has disconnected, and the actions on that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gone = False
        self._calls: list[Callable[[], None]] = []

    def set(self) -> None:
        """Say that it has gone."""
        with self._lock:
            self._gone, calls, self._calls = True, self._calls, []
        for call in calls:
            call()

    def then(self, call: Callable[[], None]) -> None:
        """Have a function called once, when the client goes, or now when it has gone."""
        with self._lock:
            if not self._gone:
                self._calls.append(call)
                return
        call()


@dataclass(slots=True, kw_only=True)
class ShellSession:
    """One service opened over adb (shell, exec, cmd): its streams, and its client's hangup."""

    #: Blocks until at least one byte is there; ``b""`` is the end.
    stdin: Callable[[int], bytes]
    #: Block while the other side takes no more; raise StreamClosedError when it has closed.
    stdout: Callable[[bytes], None]
    stderr: Callable[[bytes], None]
    #: Set when the stream or the connection is closed; like SIGHUP, it reaches only the shell's own
    #: process: background processes continue.
    hangup: Hangup = field(default_factory=Hangup)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """The fields of lstat: mode with type bits, size in bytes, times in Unix seconds."""

    mode: int
    size_bytes: int
    mtime_s: int
    uid: int = SHELL_UID


class PhoneFileError(Exception):
    """A file operation failed as on a phone, with ``errno`` and the words that bionic has for it."""

    def __init__(self, errno: int) -> None:
        super().__init__(os.strerror(errno))
        self.errno = errno


LogPriority = Literal["V", "D", "I", "W", "E", "F"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    """The battery as dumpsys shows it."""

    level_percent: int
    heat_c: float
    voltage_mv: int
    charge_counter_uah: int
    #: Whether a USB port charges it.
    plugged: bool


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One message of a thread in the kernel's trace: ``B|tgid|name`` or ``E|tgid``."""

    at_ns: int
    cpu: int
    pid: int
    text: str


class ProgramDiedError(Exception):
    """The program ended by a signal (11 SIGSEGV, 9 killed by low memory ...)."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"signal {signal}")
        self.signal = signal


@dataclass(frozen=True, slots=True, kw_only=True)
class AppInfo:
    """The note of a fake APK."""

    package: str = "org.tensorflow.lite.benchmark"
    #: Its activity as the manifest has it: a dot at its beginning stands for the package.
    activity: str = ".BenchmarkModelActivity"
    version_code: int = 1
    version_name: str = "1.0"
    abis: Sequence[str] = ("arm64-v8a",)
    min_sdk: int = 23
    debuggable: bool = True
    #: Whether it holds the build with TensorFlow's operators.
    flex: bool = False
