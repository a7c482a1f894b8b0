"""Every seam of benchfarm, as a Protocol: where several bodies ship, or the engine would else
import an adapter.

What can be done with a device (a phone or this computer), how benchmark programs are
called and read; references, and observers of a run.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import Protocol, runtime_checkable

from orchestrator.errors import UsageError
from orchestrator.frozen import frozen
from orchestrator.records.case import Build, Case, Model, Pass, RunId, Serial, ToolName
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.run import Attachment, RawOutput, ToolReport
from orchestrator.records.verdict import ParityInput, PlacedInput


@frozen
class ShellResult:
    """What a command on a device printed, its two streams apart, and its exit code."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text; bytes that aren't UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")


@frozen
class ProcessResult:
    """How a detached process ended; its streams were collected whole after it had ended."""

    #: None when it was killed on its deadline.
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool
    duration_s: float
    #: Those of the files asked for that it wrote, by name.
    files: Mapping[str, bytes] = field(default_factory=dict)


@frozen
class HostFile:
    """A file of this computer that is to lie on a device."""

    source: Path
    #: The folder of its kind: ``models``, ``programs`` ...
    kind: str
    sha256: str
    #: What it is called there.
    name: str
    executable: bool = False
    #: Names the folder that files share which must lie in one; its own sha256 when empty.
    set_sha256: str = ""

    def size(self) -> int:
        """Return its bytes; raises UsageError when it can't be read."""
        try:
            return self.source.stat().st_size
        except OSError as error:
            raise UsageError(f"{self.source} can't be read: {error.strerror}") from error


@frozen
class PlacedFile:
    """A file that lies on a device under its content's hash."""

    path: str
    sha256: str
    #: 0 when it was there already.
    pushed_bytes: int


@frozen
class Change:
    """One change: what it is, and the shell command that restores what was before.

    Where ``read`` prints ``was``, nothing is left to be undone. With ``port`` it was made on this
    computer instead: a hub's port (``1-4 2`` is port 2 of hub 1-4) is without power.
    """

    what: str
    undo: str = ""
    read: str = ""
    was: str = ""
    port: str = ""


@frozen
class PackageInfo:
    """An installed package, as the package manager tells."""

    package: str
    version_code: int | None
    version_name: str
    #: Where its APK lies on the device.
    path: str
    #: sha256 of that APK file, as the device computes it; empty when it can't.
    sha256: str


@frozen
class Seen:
    """A device as an adb server or another source lists it, and whether benchfarm can use it."""

    #: How the server names it: USB serial or host:port.
    address: str
    #: ``ro.serialno``; empty when the phone couldn't be asked.
    serial: str = ""
    state: str
    transport_id: int | None = None
    #: The path of its USB port, ``1-2.3``; empty where the server tells none.
    usb: str = ""
    product: str = ""
    model: str = ""
    codename: str = ""
    usable: bool = False
    #: Why it can't be used; for a usable one what to know (empty: nothing).
    reason: str = ""
    #: What to do about it.
    advice: str = ""
    boot_id: str = ""
    #: The server takes the phone for sound and it doesn't answer.
    hangs: bool = False
    #: What its source says of it beside that.
    properties: Mapping[str, str] = field(default_factory=dict)


class CheckResult(enum.StrEnum):
    """What came of one check."""

    WORKS = "works"
    ANOTHER_WAY = "works another way"
    MISSING = "missing"
    FAILS = "fails"


@frozen
class PhoneCheck:
    """One check of a phone."""

    name: str
    result: CheckResult
    #: What was seen.
    seen: str = ""
    #: What the phone loses by it; empty when nothing.
    cost: str = ""
    took_s: float = 0.0


class Device(Protocol):
    """A phone or a computer that can be given files and commands. One operation, one deadline."""

    @property
    def serial(self) -> Serial:
        """How the device is known: ``ro.serialno`` of a phone, ``host`` for this computer."""

    @property
    def kind(self) -> DeviceKind:
        """Phone or computer."""

    @property
    def work_folder(self) -> str:
        """A folder on the device that is ours."""

    def facts(self) -> DeviceFacts:
        """Probe what the device is (cached for one boot); raises DeviceError kinds."""

    def state(self) -> DeviceState:
        """Probe what the device is like now, in one round trip."""

    def wait_until_ready(self, *, timeout_s: float) -> None:
        """Wait until the device answers and has booted, reconnecting if need be.

        Raises DeviceError kinds.
        """

    def shell(self, command: str, *, timeout_s: float = 30.0) -> ShellResult:
        """Run a command line in the device's shell.

        Raises:
            LinkLostError: the link ended before the exit code came; nothing is known about the
                command.
            DeviceTimeoutError: ``timeout_s`` (for the whole call) passed.
        """

    def run_detached(
        self,
        command: str,
        *,
        run_id: RunId,
        timeout_s: float,
        files: Sequence[str] = (),
        cancelled: threading.Event | None = None,
    ) -> ProcessResult:
        """Run a command line that outlives the link, wait for its end, and collect its output.

        With it come those of ``files`` (names in its folder, without white space) that it wrote.
        While it runs the device is asked nothing: one sleeping process waits for its end.

        It runs in a folder of its own, ``<work_folder>/runs/<run_id>``, which is the current folder
        and is removed by :meth:`discard_run`. On the deadline or when cancelled its whole process
        group is killed.
        """

    def run_folder(self, run_id: RunId) -> str:
        """Return the folder of a run on the device; it is made by :meth:`run_detached`."""

    def discard_run(self, run_id: RunId) -> None:
        """Have a run's folder removed: at the latest by the next `state`, `kill_strays` or `close`."""

    def kill_strays(self) -> Sequence[str]:
        """Kill what runs of ours left behind (also of crashed processes of ours); return what was
        killed.
        """

    def place(self, file: HostFile) -> PlacedFile:
        """Make sure that a file lies on the device under ``<work_folder>/<kind>/<sha256
        prefix>/<name>``, verified.

        Files that must lie in one folder are placed with the same ``set_sha256``, which then names
        the folder.
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
        """Make sure that this very APK is installed; return the bytes sent (0 when it was).

        Raises InstallError, and InterruptedByUserError when cancelled while the phone is asked.
        """

    def package(self, package: str) -> PackageInfo | None:
        """Return what is installed under this name."""

    def follow_log(
        self, *, buffers: Sequence[str] = ("main", "crash")
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Follow the system log from now on as ``threadtime`` lines without their line end.

        The iterator yields ``b""`` when nothing came for a moment, so that the caller can look at
        its deadline; it raises LinkLostError when the link ends.
        """

    def close(self) -> None:
        """Let go of the link; the device itself is left as it is."""


@runtime_checkable
class CheckedDevice(Device, Protocol):
    """A device of a source that can try what benchfarm relies on."""

    def checks(self) -> Iterator[PhoneCheck]:
        """Yield what came of each check; nothing is measured and nothing stays changed.

        The device must be leased. A check that fails says so and the next one is made.
        """


@frozen
class Fitness:
    """Whether a device is fit for a run now; ``reason`` says what it isn't, empty when it is."""

    reason: str = ""
    #: The first reason's documented code (``battery-low``, ``battery-hot``, ``thermal-status``,
    #: ``zone-hot``, ``cancelled``), empty when it is fit.
    code: str = ""
    #: Seconds waited for it.
    waited_s: float = 0.0
    #: The state that it was judged by.
    state: DeviceState | None = None


def _as_it_is(command: str) -> str:
    return command


@frozen
class InvocationRequest:
    """What a tool needs to run one invocation: the device's facts and where its files lie."""

    case: Case
    run_id: RunId
    run_pass: Pass
    facts: DeviceFacts
    build: Build
    model_path: str
    #: Path of the program on the device; empty for an app.
    program_path: str
    timeout_s: float
    #: Name -> path on the device of each of the case's files.
    file_paths: Mapping[str, str] = field(default_factory=dict)
    #: The flags that this very program has, as it says itself; empty when it wasn't asked.
    known_flags: frozenset[str] = frozenset()
    #: What the invocation's number means in its pass: a stage of caches, a load; empty for nothing.
    variant: str = ""
    #: Where the case's caches may lie between its invocations of a pass.
    cache_folder: str = ""
    #: The model's inputs on the device, in the model's order, where its outputs are compared.
    inputs: tuple[PlacedInput, ...] = ()
    #: Returns the command line in which a program's own is run; as the pass wants it.
    enclosed: Callable[[str], str] = _as_it_is
    #: Files that this command line writes beside the program's.
    enclosing_files: tuple[str, ...] = ()
    #: The model's file on this host.
    model_file: Path | None = None


class Tool(Protocol):
    """A benchmark program: how it is called and how its output is read."""

    @property
    def name(self) -> ToolName:
        """Which program."""

    def run(
        self,
        device: Device,
        request: InvocationRequest,
        *,
        cancelled: threading.Event | None = None,
    ) -> RawOutput:
        """Run one invocation and return all that it left behind, whatever its end.

        Raises DeviceError kinds.
        """

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the output; pure, total: an unreadable output is a report that says so."""


@frozen
class Turn:
    """One of the things that a process did."""

    seconds: float
    #: 0 for what it did in between.
    tokens: int
    #: Whether it is what the case measures.
    is_own: bool


@runtime_checkable
class SessionTool(Tool, Protocol):
    """A program that measures several cases in one process; ``parse`` reads the run of the case
    that it is given.
    """

    def session(self, case: Case) -> str:
        """Return what the cases have in common that one process measures, in the passes that may be
        shared.
        """


def session_of(tools: Mapping[ToolName, Tool], case: Case) -> str:
    """Return what a case has in common with others that one process measures; empty when it is run
    alone.
    """
    tool = tools[case.tool]
    return tool.session(case) if isinstance(tool, SessionTool) else ""


@runtime_checkable
class TurnTool(Tool, Protocol):
    """A program whose process does different things in turns, one of which is a case's: prefill and
    decode.
    """

    def for_energy(self, case: Case, repetitions: int) -> Case:
        """Return a case as a block of energy runs it, so often; nothing but its own turns, where
        that can be had.
        """

    def turns(self, raw: RawOutput, case: Case) -> Sequence[Turn]:
        """Return what a process did, in order, up to its end; nothing where it didn't tell."""


@frozen
class ParityBasis:
    """What the outputs of one model for one set of inputs are compared with."""

    inputs: tuple[ParityInput, ...]
    #: Reference outputs, tensor descriptions and outputs for other inputs, as they are kept with
    #: each run.
    attachments: tuple[Attachment, ...]


class ParityReference(Protocol):
    """Computes what a model's outputs are to be."""

    def reason_against(self, model: Model) -> str:
        """Return why a model has no reference here, empty where nothing is known against it."""

    def basis(self, model: Model, input_folder: str = "") -> ParityBasis:
        """Return inputs and the reference's outputs for them.

        ``input_folder`` has inputs as ``<model>.<number>.bin``, raw; without it, or without files
        for the model, they are made from a seed. Raises ModelError for a model that the reference
        can't compute.
        """


class Observer(Protocol):
    """Hears what the engine does, as it does it; must return quickly and never raise."""

    def on_event(self, event: object) -> None:
        """Take one of the records of engine/events.py."""
