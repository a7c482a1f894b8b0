"""A phone without its adb: files, log, hardware and programs, for running the fake binaries
directly."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchfarm_virtual.contract import ProcessContext, Program, ProgramDiedError
from benchfarm_virtual.faults import FaultTable, parse_fault
from benchfarm_virtual.files import PhoneTree, Storage
from benchfarm_virtual.hardware import VirtualHardware
from benchfarm_virtual.logs import PhoneLogs
from benchfarm_virtual.phone import ProgramMoments
from benchfarm_virtual.profiles import load_profile
from benchfarm_virtual.samples import BENCHMARK_PACKAGE, benchmark_apk, benchmark_elf, library_elf
from benchfarm_virtual.shelf import build_shelf
from benchfarm_virtual.system import ScaledTime

FOLDER = "/data/local/tmp"


class Collected:
    """Writes of two streams, in order."""

    def __init__(self, into: list[tuple[str, bytes]], name: str) -> None:
        self._into = into
        self._name = name

    def write(self, data: bytes) -> None:
        self._into.append((self._name, bytes(data)))


class NoInput:
    def read(self, limit: int = -1) -> bytes:
        return b""


@dataclass(frozen=True)
class Run:
    """What a program said, and how it ended (128 + signal when it died)."""

    exit_code: int
    writes: list[tuple[str, bytes]]

    def _joined(self, *names: str) -> str:
        return b"".join(data for name, data in self.writes if name in names).decode()

    @property
    def text(self) -> str:
        return self._joined("stdout", "stderr")

    @property
    def stdout(self) -> str:
        return self._joined("stdout")

    @property
    def stderr(self) -> str:
        return self._joined("stderr")


class HandTime:
    """Phone time that moves only when it is told to, or slept through."""

    factor = 1.0

    def __init__(self) -> None:
        self.now_s = 0.0

    def uptime_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return 1_700_000_000 + self.now_s

    def sleep(self, phone_seconds: float, cancelled: threading.Event | None = None) -> bool:
        if cancelled is not None and cancelled.is_set():
            return True
        self.now_s += max(0.0, phone_seconds)
        return False


class BenchPhone:
    """One phone; its heat and clocks depend on what it does, not on how fast this computer is."""

    def __init__(
        self, profile: str = "pixel-3", *, seed: int = 1, time: ScaledTime | None = None
    ) -> None:  # fmt: skip
        self.profile = load_profile(profile)
        self.time = time or HandTime()
        self.hardware = VirtualHardware(self.profile, self.time, seed)
        self.faults = FaultTable()
        self.shelf = build_shelf(self.profile, self.hardware, self.faults)
        self.shelf.inspect_apk([benchmark_apk()])
        self.files = PhoneTree(
            storage=Storage(total_bytes=1 << 34, shipped_bytes=0), denied=lambda _path, _kind: 0,
            passing=lambda _path, count: count,
        )  # fmt: skip
        self.files.lay(FOLDER)
        self.logs = PhoneLogs(self.time)

    def put(self, name: str, content: bytes) -> str:
        """Write a file into the folder that programs start in; return its phone path."""
        path = f"{FOLDER}/{name}"
        self.files.open_write(path).write(content)
        return path

    def put_libraries(self, names: Sequence[str], *, version: str = "virtual") -> None:
        """Put fake libraries beside the programs."""
        for name in names:
            self.put(name, library_elf(name, version=version))

    def get(self, name: str) -> bytes:
        """Return a file's content."""
        return self.files.open_read(f"{FOLDER}/{name}").read(-1)

    def fault(self, kind: str, *settings: str) -> None:
        """Ask for a fault."""
        self.faults.add(parse_fault(kind, settings))

    def program(self, name: str) -> Program:
        """Return the fake binary for a program."""
        elf = benchmark_elf(name, self.profile.abis[0])
        program = self.shelf.native(name, elf)
        assert program is not None
        return program

    def run(
        self, *arguments: str, program: str = "benchmark_model", affinity: int | None = None, group: str = "shell",
        extras: Mapping[str, str] | None = None, killed: threading.Event | None = None,
    ) -> Run:  # fmt: skip
        """Run a native program, or with ``extras`` the app's activity."""
        writes: list[tuple[str, bytes]] = []
        fake = self.program(program)
        if extras is not None:
            found = self.shelf.activity(BENCHMARK_PACKAGE, extras)
            assert found is not None
            fake = found
        argv: Sequence[str] = [program, *arguments]
        context = ProcessContext(
            pid=4711, argv=argv, env={"LD_LIBRARY_PATH": FOLDER}, cwd=FOLDER, uid=2000, stdin=NoInput(),
            stdout=Collected(writes, "stdout"), stderr=Collected(writes, "stderr"), files=self.files, logs=self.logs,
            time=self.time, hardware=self.hardware, props=self.profile.system_props("VIRTUAL1"),
            affinity=affinity if affinity is not None else (1 << self.profile.cpu_count) - 1,
            group=group, moment=ProgramMoments(self.faults),
        )  # fmt: skip
        if killed is not None:
            context.killed = killed
        try:
            code = fake.run(context)
        except ProgramDiedError as died:
            code = 128 + died.signal
        return Run(code, writes)
