"""A userland over real parts of its own: no adb, no benchmark programs, hardware at a standstill."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.contract import AppInfo, ProgramDiedError, ShellSession, StreamClosedError
from benchfarm_virtual.faults import FaultTable
from benchfarm_virtual.hardware import VirtualHardware
from benchfarm_virtual.profiles import load_profile
from benchfarm_virtual.samples import benchmark_apk
from benchfarm_virtual.shelf import Program
from benchfarm_virtual.system import ScaledTime
from benchfarm_virtual.userland import PhoneSystem, run_command
from virtual.tests.unit.bench_phone import HandTime

PROPS = {
    "ro.serialno": "VP0001", "ro.product.model": "Pixel 3", "ro.build.version.sdk": "30", "sys.boot_completed": "1",
    "ro.product.cpu.abilist": "arm64-v8a,armeabi-v7a,armeabi", "ro.product.cpu.abilist64": "arm64-v8a",
    "ro.build.fingerprint": "google/blueline/blueline:11/RQ3A/1:user/release-keys",
}  # fmt: skip
ARM64_ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\xb7\x00" + bytes(200)
X86_ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00" + bytes(200)


def _probe(call: Invocation) -> int:
    call.process.killed.wait()
    raise ProgramDiedError(call.process.signal)


@dataclass(slots=True)
class Shelf:
    """Programs called probe, and apps that do what a test says."""

    started: list[Mapping[str, str]] = field(default_factory=list)
    activity_body: Callable[[Invocation], int] = lambda call: 0

    def native(self, name: str, head: bytes, abis: Sequence[str]) -> Program | None:
        return _probe if name.startswith("probe") and head.startswith(b"\x7fELF") else None

    def activity(self, app: AppInfo, extras: Mapping[str, str]) -> Program:
        self.started.append(extras)
        return self.activity_body


def make_apk(
    package: str = "org.example.bench", *, version_code: int = 1, abis: Sequence[str] = ("arm64-v8a",),
    min_sdk: int = 23, debuggable: bool = True,
) -> bytes:  # fmt: skip
    return benchmark_apk(
        package=package, activity=".MainActivity", version_code=version_code, abis=abis, min_sdk=min_sdk,
        debuggable=debuggable,
    )  # fmt: skip


class Collected:
    """A client's end of a stream."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.closed = False

    def write(self, data: bytes) -> None:
        if self.closed:
            raise StreamClosedError
        self.data += data

    def close(self) -> None:
        self.closed = True


@dataclass(slots=True)
class Call:
    """A command that runs in a thread of its own."""

    session: ShellSession
    out: Collected
    err: Collected
    thread: threading.Thread
    status: list[int]

    def hang_up(self) -> None:
        self.out.close()
        self.session.hangup.set()

    def join(self, timeout_s: float = 60.0) -> int:
        self.thread.join(timeout_s)
        assert not self.thread.is_alive(), "the command hasn't ended"
        return self.status[0]


class TestPhone:
    """A phone's userland with short ways to use it."""

    __test__ = False

    def __init__(
        self,
        *,
        props: Mapping[str, str] | None = None,
        rooted: bool = False,
    ) -> None:
        self.hardware = VirtualHardware(load_profile("pixel-3"), HandTime(), seed=1)
        self.shelf = Shelf()
        self.faults = FaultTable()
        self.time = ScaledTime(1.0)
        self.userland = PhoneSystem(
            props={**PROPS, **(props or {})}, time=self.time, hardware=self.hardware, shelf=self.shelf,
            faults=self.faults, rooted=rooted,
        )  # fmt: skip

    def call(self, command: str) -> Call:
        out, err, status = Collected(), Collected(), []
        session = ShellSession(stdin=io.BytesIO().read, stdout=out.write, stderr=err.write)
        thread = threading.Thread(
            target=lambda: status.append(run_command(self.userland, command, session)), daemon=True
        )
        thread.start()
        return Call(session, out, err, thread, status)

    def run(self, command: str, stdin: bytes = b"") -> tuple[int, str, str]:
        out, err = Collected(), Collected()
        status = run_command(
            self.userland,
            command,
            ShellSession(stdin=io.BytesIO(stdin).read, stdout=out.write, stderr=err.write),
        )
        return (
            status,
            out.data.decode("utf-8", "surrogateescape"),
            err.data.decode("utf-8", "surrogateescape"),
        )

    def out(self, command: str, stdin: bytes = b"") -> str:
        return self.run(command, stdin)[1]

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.userland.files.open_write(path, mode=mode).write(data)
