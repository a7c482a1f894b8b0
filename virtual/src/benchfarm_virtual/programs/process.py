"""A fake binary as a process on the phone: its moments, its sleep and its death, the files and
libraries that it opens, where its words go, and how fast it does the same step again and again.
"""

from __future__ import annotations

import contextlib
import errno
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.contract import LogPriority, PhoneFileError, encoded
from benchfarm_virtual.latency import Noise, Speed, cpu_speed, gpu_speed, place_threads
from benchfarm_virtual.open_files import OpenFile
from benchfarm_virtual.samples import FakeNote, fake_note

#: In a fake binary's version, for tests and demonstrations: its inferences take this much longer or
#: shorter.
_TIME_MARK: Final = re.compile(r"(?:^|\s)time([+-]\d{1,3}(?:\.\d{1,4})?)%(?:\s|$)", re.ASCII)
#: No version makes a program faster than this.
_LEAST_TIME: Final = 0.05


class BenchmarkFailedError(Exception):
    """The run ended with an error that has been reported."""


def time_factor_of(version: str) -> float:
    """Return the factor of a fake version's inference times: 1.03 for ``2.1 time+3%``, 1.0 without a
    mark.
    """
    match = _TIME_MARK.search(version)
    return max(_LEAST_TIME, 1.0 + float(match[1]) / 100.0) if match else 1.0


def announce(call: Invocation, name: str) -> None:
    """Tell the phone that a program has come to a named moment."""
    call.system.moment(name, call)
    call.check_alive()


def read_content(call: Invocation, path: str) -> bytes:
    """Return a file's bytes; raise PhoneFileError (ENODEV for a folder, which can't be mapped into
    memory).
    """
    place = call.path(path)
    if stat.S_ISDIR(call.files.stat(place).mode):
        raise PhoneFileError(errno.ENODEV)
    return call.files.open_read(place).read()


def file_size(call: Invocation, path: str) -> int | None:
    """Return a file's size, None when it isn't there."""
    file_stat = call.files.find(call.path(path))
    return None if file_stat is None else file_stat.size_bytes


def write_content(call: Invocation, path: str, content: bytes) -> bool:
    """Write a file; return False when that isn't possible."""
    try:
        call.files.open_write(call.path(path)).write(content)
    except PhoneFileError:
        return False
    return True


#: Folders of installed apps; an app's own libraries aren't searched there, its APK counts as whole.
APP_FOLDERS = "/data/app/"


def linked_folders(call: Invocation) -> list[str]:
    """Return the folders that the linker searches before the system's."""
    return [folder for folder in call.env.get("LD_LIBRARY_PATH", "").split(":") if folder]


def find_library(call: Invocation, name: str, folders: Iterable[str]) -> FakeNote | None:
    """Return the note of a fake library, None when no folder has one of this name."""
    for folder in folders:
        try:
            note = fake_note(read_content(call, f"{folder}/{name}"))
        except PhoneFileError:
            continue
        if note is not None:
            return note
    return None


LOG_TAG: Final = "tflite"
RuntimeSeverity = Literal["VERBOSE", "INFO", "WARNING", "ERROR"]


_PRIORITIES: Final[Mapping[str, LogPriority]] = {"WARN": "W", "WARNING": "W", "ERROR": "E"}


class Transcript:
    """The messages of a benchmark program. A message may have several lines; only the first has a
    prefix.
    """

    def __init__(self, call: Invocation, *, to_log: bool = False) -> None:
        """A native program's INFO and WARN of the tool go to stdout, everything else to stderr.

        ``to_log``: an app's messages go to the log under the tag tflite, without prefixes.
        """
        self._call = call
        self._to_log = to_log

    def info(self, message: str) -> None:
        """Say something (the tool itself)."""
        self._write("INFO", message, self._call.stdout)

    def warn(self, message: str) -> None:
        """Warn (the tool itself)."""
        self._write("WARN", message, self._call.stdout)

    def error(self, message: str) -> None:
        """Report an error (the tool itself)."""
        self._write("ERROR", message, self._call.stderr)

    def runtime(self, severity: RuntimeSeverity, message: str) -> None:
        """Say something (the runtime below the tool)."""
        self._write(severity, message, self._call.stderr)

    def _write(self, severity: str, message: str, stream: OpenFile) -> None:
        call = self._call
        if self._to_log:
            call.log(LOG_TAG, message, _PRIORITIES.get(severity, "I"))
            return
        # As with C++ streams, output to a full device is lost without an error.
        with contextlib.suppress(PhoneFileError):
            stream.write(encoded(f"{severity}: {message}\n"))


def number(value: float) -> str:
    """Return a number as C++ streams print a double: six significant digits."""
    return f"{value:g}"


#: Phone time of one sleep; clocks are read in between.
_SLEEP_S: Final = 0.32
#: Shorter steps, of which more fit into a sleep, take the mean of this number, which costs the host
#: less.
_MOST_DRAWN: Final = 64


def thread_cores(call: Invocation, count: int, noise: Noise) -> tuple[int, ...]:
    """Return the cores where a process's busy threads run."""
    process = call.process
    return place_threads(
        call.system.hardware.profile,
        threads=count,
        affinity=process.affinity,
        group=process.group,
        stray_draw=noise.stray_draw,
    )


class Pace:
    """The steps of one process on its cores, or on the GPU."""

    def __init__(
        self, call: Invocation, version: str, *, threads: int, on_gpu: bool = False
    ) -> None:
        """``on_gpu``: only where the phone has a GPU."""
        self.noise = Noise(call.system.hardware.next_process_seed())
        self._call = call
        self._hardware = call.system.hardware
        self._profile = self._hardware.profile
        self._time_factor = time_factor_of(version)
        self._gpu = self._profile.gpu if on_gpu else None
        self._threads = thread_cores(call, threads, self.noise)

    def times_us(
        self, count: int, step_us: Callable[[Speed], float], *, cpu_share: float = 1.0
    ) -> list[float]:
        """Do a step ``count`` times; return each time.

        ``step_us`` returns a step's time at a speed; ``cpu_share`` is the cores' share meanwhile.
        """
        hardware = self._hardware
        work = hardware.begin_work(
            () if self._gpu else self._threads,
            gpu_share=1.0 if self._gpu else 0.0,
            pid=self._call.process.pid,
            cpu_share=cpu_share,
        )
        times: list[float] = []
        try:
            while len(times) < count:
                each_us = step_us(self._speed()) * self._time_factor
                some = max(1, min(count - len(times), int(_SLEEP_S * 1e6 / each_us)))
                drawn = self.noise.samples_us(each_us, min(some, _MOST_DRAWN))
                spent = drawn.tolist() if some == len(drawn) else [float(drawn.mean())] * some
                self._call.sleep(sum(spent) / 1e6)
                times += spent
        finally:
            hardware.end_work(work)
        return times

    def _speed(self) -> Speed:
        hardware = self._hardware
        if self._gpu is not None:
            return gpu_speed(self._gpu, hardware.gpu_share(), fp16=True, backend="cl")
        return cpu_speed(self._profile, self._threads, hardware.core_shares(), xnnpack=True)
