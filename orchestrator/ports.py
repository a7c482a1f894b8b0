"""The interfaces of benchfarm as Protocols, where there are several implementations or where the
engine would otherwise import an adapter: devices (phones and this computer), benchmark programs,
references, and observers of a run.
"""

from __future__ import annotations

import enum
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import Protocol, runtime_checkable

from orchestrator.errors import UsageError
from orchestrator.records import frozen
from orchestrator.records.case import Build, Case, Model, Pass, RunId, Serial, ToolName
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.run import Attachment, RawOutput, ToolReport
from orchestrator.records.verdict import ParityInput, PlacedInput


@frozen
class ShellResult:
    """The two output streams and the exit code of a command on a device."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text; bytes that aren't UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")


@frozen
class DetachedCommand:
    """A command line for a process of its own, which outlives the connection to the device."""

    line: str
    run_id: RunId
    timeout_s: float
    #: How long after its start a lost device is waited for, at most.
    away_s: float = math.inf
    #: Names of files that it writes to its folder, without white space.
    files: tuple[str, ...] = ()
    #: Ends it when it is set.
    cancelled: threading.Event = field(default_factory=threading.Event)


@frozen
class ProcessResult:
    """The end of a detached process, and its complete streams, collected after the end."""

    #: None when it was killed at its deadline.
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool
    duration_s: float
    #: The requested files that it wrote, by name.
    files: Mapping[str, bytes] = field(default_factory=dict)


@frozen
class HostFile:
    """A file of this computer to place on a device."""

    source: Path
    #: The folder of its kind: ``models``, ``programs`` ...
    kind: str
    sha256: str
    #: Its name there.
    name: str
    executable: bool = False
    #: Names the folder of files that must be together; its own sha256 when empty.
    set_sha256: str = ""

    def size(self) -> int:
        """Return its size in bytes; raises UsageError when it can't be read."""
        try:
            return self.source.stat().st_size
        except OSError as error:
            raise UsageError(f"{self.source} can't be read: {error.strerror}") from error


@frozen
class PlacedFile:
    """A file on a device, stored under its content's hash."""

    path: str
    sha256: str
    #: 0 when it was there already.
    pushed_bytes: int


@frozen
class SettingChange:
    """One change of a device's settings, and the shell command that restores the old value.

    Where ``read`` prints ``was``, it is restored already. With ``port`` the change was made on this
    computer instead: a hub's port (``1-4 2`` is port 2 of hub 1-4) is without power.
    """

    what: str
    undo: str = ""
    read: str = ""
    was: str = ""
    port: str = ""


@frozen
class PackageInfo:
    """An installed package, as the package manager reports it."""

    package: str
    version_name: str
    #: Its APK's path on the device.
    path: str
    #: sha256 of that APK file, as the device computes it; empty when it can't.
    sha256: str


@frozen
class ListedPhone:
    """A device as an adb server or another source lists it, and whether benchfarm can use it."""

    #: Its name at the server: USB serial or host:port.
    address: str
    #: ``ro.serialno``; empty when the phone couldn't be read.
    serial: str = ""
    state: str
    transport_id: int | None = None
    #: The path of its USB port, ``1-2.3``; empty where the server reports none.
    usb: str = ""
    product: str = ""
    model: str = ""
    codename: str = ""
    usable: bool = False
    #: Why it can't be used; for a usable one a note, or empty.
    reason: str = ""
    #: The user's next step.
    advice: str = ""
    boot_id: str = ""
    #: Whether the phone doesn't answer although the server lists it as working.
    hangs: bool = False
    #: Further properties from its source.
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its serial number, else its name at the server, which over USB is the same."""
        return self.serial or self.address


class CheckResult(enum.StrEnum):
    """The result of one check."""

    WORKS = "works"
    ANOTHER_WAY = "works another way"
    MISSING = "missing"
    FAILS = "fails"


@frozen
class PhoneCheck:
    """One check of a phone."""

    name: str
    result: CheckResult
    #: The observation.
    seen: str = ""
    #: The feature that the phone loses; empty for none.
    cost: str = ""
    took_s: float = 0.0


class Device(Protocol):
    """A phone or a computer that takes files and commands. Each operation has one deadline."""

    @property
    def serial(self) -> Serial:
        """The device's identity: ``ro.serialno`` of a phone, ``host`` for this computer."""

    @property
    def kind(self) -> DeviceKind:
        """Phone or computer."""

    @property
    def work_folder(self) -> str:
        """A folder on the device that is ours."""

    def facts(self) -> DeviceFacts:
        """Return the device's facts (cached for one boot); raises DeviceError kinds."""

    def state(self) -> DeviceState:
        """Return the device's present state, in one round trip."""

    def wait_until_ready(self, *, timeout_s: float) -> None:
        """Wait until the device answers and has booted, reconnecting if need be.

        Raises DeviceError kinds.
        """

    def shell(self, command: str, *, timeout_s: float = 30.0) -> ShellResult:
        """Run a command line in the device's shell.

        Raises:
            LinkLostError: the connection was lost before the exit code; the command's effect is
                unknown.
            DeviceTimeoutError: ``timeout_s`` (for the whole call) passed.
        """

    def run_detached(self, command: DetachedCommand) -> ProcessResult:
        """Run a command line that outlives the connection, wait for its end, and return its output.

        The result includes those of its files that it wrote. Nothing is read from the device
        meanwhile: one sleeping process waits for the end.

        It runs in a folder of its own, ``<work_folder>/runs/<run_id>``, which is the current folder
        and is removed by :meth:`discard_run`. On the deadline or when cancelled its whole process
        group is killed. A device whose connection is lost meanwhile is awaited until a little after
        the deadline, at most until a little after ``away_s``.
        """

    def run_folder(self, run_id: RunId) -> str:
        """Return the folder of a run on the device; it is made by :meth:`run_detached`."""

    def discard_run(self, run_id: RunId) -> None:
        """Remove a run's folder, at the latest in the next `state`, `kill_leftover_runs` or `close`."""

    def kill_leftover_runs(self) -> Sequence[str]:
        """Kill processes that our runs left behind (also after a crash of ours); return them in
        words.
        """

    def place(self, file: HostFile) -> PlacedFile:
        """Ensure that a file is on the device as ``<work_folder>/<kind>/<sha256 prefix>/<name>``,
        verified.

        Files that must be in one folder have the same ``set_sha256``, which then names the folder.
        """

    def read_file(
        self, path: str, *, package: str = "", limit_bytes: int = 64 << 20
    ) -> bytes | None:
        """Return a file's bytes, None when there is none; ``package`` reads it as that (debuggable)
        app.
        """

    def install(
        self, apk: Path, *, sha256: str, package: str, cancelled: threading.Event | None = None
    ) -> int:
        """Ensure that exactly this APK is installed; return the bytes sent (0 when it was already).

        Raises InstallError, and InterruptedByUserError when cancelled meanwhile.
        """

    def package(self, package: str) -> PackageInfo | None:
        """Return the installed package of this name, None if there is none."""

    def follow_log(
        self, *, buffers: Sequence[str] = ("main", "crash")
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Follow the system log from now on as ``threadtime`` lines without their line end.

        The iterator yields ``b""`` when there was no line for a moment, so that the caller can check
        its deadline; it raises LinkLostError when the connection is lost.
        """

    def close(self) -> None:
        """Close the connection; the device itself isn't changed."""


@runtime_checkable
class CheckedDevice(Device, Protocol):
    """A device of a source that can check the features that benchfarm relies on."""

    def checks(self) -> Iterator[PhoneCheck]:
        """Yield the result of each check; nothing is measured and no setting stays changed.

        The device must be leased. After a failed check the next one follows.
        """


@frozen
class Fitness:
    """Whether a device is fit for a run now; ``reason`` says why not, empty when it is."""

    reason: str = ""
    #: The first reason's documented code (``battery-low``, ``battery-hot``, ``thermal-status``,
    #: ``zone-hot``, ``cancelled``), empty when it is fit.
    code: str = ""
    #: Seconds waited for it.
    waited_s: float = 0.0
    #: The state that it was judged by.
    state: DeviceState | None = None


def _unchanged(command: str) -> str:
    return command


@frozen
class InvocationRequest:
    """A case placed on a device, ready for one run: all that a program needs to know."""

    case: Case
    run_id: RunId
    run_pass: Pass
    facts: DeviceFacts
    build: Build
    model_path: str
    #: Path of the program on the device; empty for an app.
    program_path: str
    timeout_s: float
    #: How long after its start a lost device is waited for, at most.
    away_s: float = math.inf
    #: Name -> path on the device of each of the case's files.
    file_paths: Mapping[str, str] = field(default_factory=dict)
    #: The flags that this build lists itself; empty when its list wasn't read.
    known_flags: frozenset[str] = frozenset()
    #: The meaning of the invocation's number in its pass: a stage of caches, a load; empty for none.
    variant: str = ""
    #: Where the case's caches may lie between its invocations of a pass.
    cache_folder: str = ""
    #: The model's inputs on the device, in the model's order, where its outputs are compared.
    inputs: tuple[PlacedInput, ...] = ()
    #: Returns the command line that encloses a program's own, as the pass requires it.
    enclosed: Callable[[str], str] = _unchanged
    #: Files that this command line writes beside the program's.
    enclosing_files: tuple[str, ...] = ()
    #: The model's file on this host.
    model_file: Path | None = None
    #: Ends the run when it is set.
    cancelled: threading.Event = field(default_factory=threading.Event)


def unplaced(
    case: Case, run_pass: Pass, build: Build, known_flags: frozenset[str] = frozenset()
) -> InvocationRequest:
    """Return the request of a case that no device has, to check its flags: with any paths, and a
    variant that stands for all.
    """
    return InvocationRequest(
        case=case,
        run_id=RunId(""),
        run_pass=run_pass,
        facts=DeviceFacts(serial=case.serial, kind=DeviceKind.ANDROID, is_virtual=False),
        build=build,
        model_path="model.tflite",
        program_path="",
        timeout_s=0.0,
        known_flags=known_flags,
        cache_folder="/caches",
    )


class Tool(Protocol):
    """A benchmark program: how it is called and how its output is read."""

    @property
    def name(self) -> ToolName:
        """The program."""

    def run(
        self,
        device: Device,
        request: InvocationRequest,
    ) -> RawOutput:
        """Run one invocation and return its output, however it ends.

        Raises DeviceError kinds.
        """

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Return the report of an output; pure, and total: also of an unreadable output."""


@frozen
class TokenPhase:
    """One phase of a process that generates tokens."""

    seconds: float
    #: 0 for the time between phases.
    tokens: int
    #: Whether it is the phase that the case measures.
    is_own: bool


@runtime_checkable
class SessionTool(Tool, Protocol):
    """A program that measures several cases in one process; ``parse`` reads the run of the case
    that it is given.
    """

    def session(self, case: Case) -> str:
        """Return a key that is equal for the cases that one process measures, in the passes that may
        share a process.
        """


def session_of(tools: Mapping[ToolName, Tool], case: Case) -> str:
    """Return the key of the cases that one process measures; empty for a case that runs alone."""
    tool = tools[case.tool]
    return tool.session(case) if isinstance(tool, SessionTool) else ""


@runtime_checkable
class PhasedTool(Tool, Protocol):
    """A program whose process alternates between phases, one of which is a case's: prefill and
    decode.
    """

    def for_energy(self, case: Case, repetitions: int) -> Case:
        """Return a case as an energy block runs it, with this number of repetitions; only with its own
        phases where that is possible.
        """

    def token_phases(self, raw: RawOutput, case: Case) -> Sequence[TokenPhase]:
        """Return the phases of a process in order; none where the output doesn't show them."""


@frozen
class ParityBasis:
    """The reference for the outputs of one model for one set of inputs."""

    inputs: tuple[ParityInput, ...]
    #: Reference outputs, tensor descriptions and outputs for other inputs, as they are kept with
    #: each run.
    attachments: tuple[Attachment, ...]


class ParityReference(Protocol):
    """Computes a model's expected outputs."""

    def reason_against(self, model: Model) -> str:
        """Return why a model can't have a reference here, empty where no reason is known."""

    def basis(self, model: Model, input_folder: str = "") -> ParityBasis:
        """Return inputs and the reference's outputs for them.

        ``input_folder`` has inputs as ``<model>.<number>.bin``, raw; without it, or without files
        for the model, they are made from a seed. Raises ModelError for a model that the reference
        can't compute.
        """


class Observer(Protocol):
    """Receives the engine's events as they occur; must return quickly and never raise."""

    def on_event(self, event: object) -> None:
        """Take one of the records of engine/events.py."""
