"""A phone without its adb: files, log, hardware and programs, for running the fake binaries
directly."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.contract import ProgramDiedError
from benchfarm_virtual.faults import FaultTable
from benchfarm_virtual.hardware import VirtualHardware
from benchfarm_virtual.launching import Launch
from benchfarm_virtual.open_files import OpenFile, null_file
from benchfarm_virtual.phone import ProgramMoments
from benchfarm_virtual.profiles import load_profile
from benchfarm_virtual.samples import benchmark_apk, benchmark_elf, library_elf
from benchfarm_virtual.shelf import inspect_apk
from benchfarm_virtual.userland import PhoneSystem

FOLDER = "/data/local/tmp"


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

    def __init__(self, profile: str = "pixel-3", *, seed: int = 1) -> None:
        self.profile = load_profile(profile)
        self.time = HandTime()
        self.hardware = VirtualHardware(self.profile, self.time, seed)
        self.faults = FaultTable()
        #: Of the programs that it runs.
        self.version = "virtual"
        self.system = PhoneSystem(
            props=self.profile.system_props("VIRTUAL1"), time=self.time, hardware=self.hardware,
            faults=self.faults, moment=ProgramMoments(self.faults),
        )  # fmt: skip
        self.files, self.logs = self.system.files, self.system.logs

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

    def run(
        self, *arguments: str, program: str = "benchmark_model", group: str = "shell",
        extras: Mapping[str, str] | None = None,
    ) -> Run:  # fmt: skip
        """Run a native program, or with ``extras`` the app's activity."""
        writes: list[tuple[str, bytes]] = []
        abi = self.profile.abis[0]
        fake = self.system.shelf.native(program, benchmark_elf(program, abi), [abi])
        if extras is not None:
            app = inspect_apk(benchmark_apk())
            fake = self.system.shelf.activity(app, extras)
        process = self.system.processes.spawn([program, *arguments], uid=2000, group=group)
        launch = Launch(
            system=self.system, process=process, argv=process.argv, env={"LD_LIBRARY_PATH": FOLDER}, cwd=FOLDER,
            fds={
                0: null_file(),
                1: OpenFile(put=lambda data: writes.append(("stdout", data))),
                2: OpenFile(put=lambda data: writes.append(("stderr", data))),
            },
        )  # fmt: skip
        try:
            code = fake(Invocation(launch))
        except ProgramDiedError as died:
            code = 128 + (died.signal or 9)
        return Run(code, writes)
