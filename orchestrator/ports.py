"""Every seam of benchfarm, as a Protocol. Each has at least two bodies that ship."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

from orchestrator.records.activity import Activity
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.flag import FlagFault
from orchestrator.records.history import Annotation, Confirmation, DeviceSighting, Points, RunMark
from orchestrator.records.identity import CampaignId, CaseKey, RunId, Serial, SeriesKey
from orchestrator.records.night import RecentRun
from orchestrator.records.parity import ParityBasis, PlacedInput
from orchestrator.records.plan import FitLimits, Quiet
from orchestrator.records.retention import Pruned
from orchestrator.records.run import Attachment, Outcome, RawOutput, RunRecord, ToolReport
from orchestrator.records.verdict import QualityVerdict
from orchestrator.records.workload import Build, Case, Model, Pass, SkippedCase, ToolName


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellResult:
    """What a command on a device printed, its two streams apart, and its exit code."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text; bytes that aren't UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFile:
    """A file that lies on a device under its content's hash."""

    path: str
    sha256: str
    #: 0 when it was there already.
    pushed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageInfo:
    """An installed package, as the package manager tells."""

    package: str
    version_code: int | None
    version_name: str
    #: Where its APK lies on the device.
    path: str
    #: sha256 of that APK file, as the device computes it; empty when it can't.
    sha256: str


class Device(Protocol):
    """A phone or a computer that can be given files and commands. One operation, one deadline."""

    @property
    def serial(self) -> Serial:
        """How the device is known: ``ro.serialno`` of a phone, ``host`` for this computer."""
        ...

    @property
    def kind(self) -> DeviceKind:
        """Phone or computer."""
        ...

    @property
    def work_folder(self) -> str:
        """A folder on the device that is ours."""
        ...

    def facts(self) -> DeviceFacts:
        """Probe what the device is (cached for one boot); raises DeviceError kinds."""
        ...

    def state(self) -> DeviceState:
        """Probe what the device is like now, in one round trip."""
        ...

    def wait_until_ready(self, *, timeout_s: float) -> None:
        """Wait until the device answers and has booted, reconnecting if need be; raises DeviceError kinds."""
        ...

    def shell(self, command: str, *, timeout_s: float = 30.0, stdin: bytes = b"") -> ShellResult:
        """Run a command line in the device's shell.

        Raises:
            LinkLostError: the link ended before the exit code came; nothing is known about the command.
            DeviceTimeoutError: ``timeout_s`` (for the whole call) passed.
        """
        ...

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

        With it come those of ``files`` (names in its folder, without white space) that it wrote. While it runs the
        device is asked nothing: one sleeping process waits for its end.

        It runs in a folder of its own, ``<work_folder>/runs/<run_id>``, which is the current folder and is
        removed by :meth:`discard_run`. On the deadline or when cancelled its whole process group is killed.
        """
        ...

    def run_folder(self, run_id: RunId) -> str:
        """Return the folder of a run on the device; it is made by :meth:`run_detached`."""
        ...

    def discard_run(self, run_id: RunId) -> None:
        """Remove a run's folder if the device can be reached; kill_strays removes what is left."""
        ...

    def kill_strays(self) -> Sequence[str]:
        """Kill what runs of ours left behind (also of crashed processes of ours); return what was killed."""
        ...

    def place(
        self, source: Path, *, kind: str, sha256: str, name: str, executable: bool = False, set_sha256: str = ""
    ) -> PlacedFile:
        """Make sure that a file lies on the device under ``<work_folder>/<kind>/<sha256 prefix>/<name>``, verified.

        Files that must lie in one folder are placed with the same ``set_sha256``, which then names the folder.
        """
        ...

    def read_file(self, path: str, *, package: str = "", limit_bytes: int = 64 << 20) -> bytes | None:
        """Return a file's bytes, None when there is none; ``package`` reads it as that (debuggable) app."""
        ...

    def install(self, apk: Path, *, sha256: str, package: str) -> int:
        """Make sure that this very APK is installed; return the bytes sent (0 when it was); raises InstallError."""
        ...

    def package(self, package: str) -> PackageInfo | None:
        """Return what is installed under this name."""
        ...

    def follow_log(self, *, buffers: Sequence[str] = ("main", "crash")) -> AbstractContextManager[Iterator[bytes]]:
        """Follow the system log from now on as ``threadtime`` lines without their line end.

        The iterator yields ``b""`` when nothing came for a moment, so that the caller can look at its deadline;
        it raises LinkLostError when the link ends.
        """
        ...

    @property
    def hub(self) -> str:
        """What it shares its way to this computer with, by a name; empty when that is nothing or isn't known."""
        ...

    def measuring(self, *, cancelled: threading.Event | None = None) -> AbstractContextManager[None]:
        """Keep files for other devices off what this one shares with them, while the context lasts.

        Waits while some are on their way; raises InterruptedByUserError when cancelled meanwhile. Nothing may be placed
        on the device itself meanwhile: that would wait for the end of the context.
        """
        ...

    def close(self) -> None:
        """Let go of the link; the device itself is left as it is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
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
    #: The invocation's number within its pass; in the pass ``cold`` it means a stage (records/start.py).
    number: int = 0
    #: Where the case's caches lie between the stages of the pass ``cold``.
    cache_folder: str = ""
    #: The model's inputs on the device, in the model's order; of the pass ``parity`` only.
    inputs: tuple[PlacedInput, ...] = ()


class ParityReference(Protocol):
    """Computes what a model's outputs are to be."""

    def basis(self, model: Model, given: str = "") -> ParityBasis:
        """Return inputs and the reference's outputs for them.

        ``given`` is a folder with inputs as ``<model>.<number>.bin``, raw; where it has none for the model, or is
        empty, they are made from a seed. Raises ModelError for a model that the reference can't compute.
        """
        ...


class Tool(Protocol):
    """A benchmark program: how it is called and how its output is read."""

    @property
    def name(self) -> ToolName:
        """Which program."""
        ...

    def run(self, device: Device, request: InvocationRequest, *, cancelled: threading.Event | None = None) -> RawOutput:
        """Run one invocation and return all that it left behind, whatever its end; raises DeviceError kinds."""
        ...

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the output; pure, total: an unreadable output is a report that says so."""
        ...


class FlagBook(Protocol):
    """What is known of the flags of benchmark programs: their own ``--help``, kept by content, and the tables."""

    def names(self, build: Build) -> frozenset[str]:
        """Return the flags that a program says it has; empty when it was never asked."""
        ...

    def help_command(self, build: Build, program_path: str) -> str:
        """Return the device's command line that makes a program print its flags; "" for one that can't."""
        ...

    def learn(self, build: Build, printed: bytes) -> bool:
        """Keep what a program printed when asked for its flags; False (and nothing kept) when it lists none."""
        ...

    def faults(self, build: Build, case: Case, run_pass: Pass) -> Sequence[FlagFault]:
        """Return everything that is wrong with the flags of one pass over a case, with this program."""
        ...


@runtime_checkable
class SessionTool(Tool, Protocol):
    """A program that measures several cases in one process; ``parse`` reads the run of the case that it is given."""

    def session(self, case: Case, run_pass: Pass) -> str:
        """Return what the cases have in common that one process measures; empty for a case that is run alone."""
        ...

    def found_cases(self, raw: RawOutput, case: Case) -> Sequence[Case]:
        """Return cases that the process measured and nobody could plan: an option for each accelerator it found."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """Whether a device is fit for a run now; ``reason`` says what it isn't, empty when it is."""

    reason: str = ""
    #: The first reason's documented code (``battery-low``, ``battery-hot``, ``thermal-status``, ``zone-hot``,
    #: ``cancelled``), empty when it is fit.
    code: str = ""
    #: Seconds waited for it.
    waited_s: float = 0.0
    #: The state that it was judged by.
    state: DeviceState | None = None


class Conditioner(Protocol):
    """Brings a device into a state in which a number means something, and puts back what it changed."""

    def prepare(
        self,
        device: Device,
        limits: FitLimits,
        *,
        quiet: Quiet | None = None,
        recent: DeviceState | None = None,
        on_wait: Callable[[str], None] | None = None,
        on_note: Callable[[str], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> Fitness:
        """Identify, clean, quieten and wait until fit; each change is journalled before it is made.

        Called before every run. ``quiet`` is applied once for each boot; None means its defaults. From
        then on others are kept from the device until it is restored, or this process wasn't heard of for a minute.
        ``recent`` is the device's state if it was read just now; the device isn't asked again then. ``on_wait`` is told
        the reason and the estimate when a wait begins; ``on_note`` what couldn't be had, and what was found.

        Raises DeviceBusyError naming the holder (another computer, home or program uses the device),
        DeviceChangedError (another device answers), DeviceStorageError, other DeviceError kinds, HostStorageError.
        """
        ...

    def unrestored(self) -> Sequence[Serial]:
        """Return the devices on which a change is still to be undone."""
        ...

    def restore(self, device: Device, *, on_note: Callable[[str], None] | None = None) -> Sequence[str]:
        """Undo every journalled change, also one of a crashed process or another computer; return what was put back.

        ``on_note`` is told each difference from the first snapshot that is left then.
        """
        ...


class Rescuer(Protocol):
    """Gets a device back that stopped answering."""

    def rescue(
        self,
        device: Device,
        *,
        keep_waiting: Callable[[], bool],
        may_reboot: bool,
        on_note: Callable[[str], None],
        cancelled: threading.Event,
    ) -> bool:
        """Climb the ladder, then wait as long as ``keep_waiting`` says; whether the device answers again.

        ``on_note`` hears of each rung that is tried. A device is booted anew only with ``may_reboot``.
        """
        ...


class Quarantine(Protocol):
    """Devices that are kept out until somebody has looked at them."""

    def reason(self, serial: Serial) -> str:
        """Return why a device is kept out, empty when it isn't."""
        ...

    def put(self, serial: Serial, reason: str) -> None:
        """Keep a device out; the first reason stays. Raises HostStorageError."""
        ...

    def release(self, serial: Serial) -> str:
        """Let a device in again; return why it was kept out, empty when it wasn't."""
        ...


class Executor(Protocol):
    """Does the devices' jobs."""

    def run(
        self,
        jobs: Sequence[tuple[str, Callable[[], None]]],
        *,
        more: Callable[[], Sequence[tuple[str, Callable[[], None]]]] | None = None,
    ) -> None:
        """Do all jobs, each with its name, and return when all have ended; raises the first error of any.

        ``more`` is asked for further jobs again and again as long as any job runs, and must return at once.
        """
        ...


class Lease(Protocol):
    """The exclusive right to use one device."""

    def acquire(self, serial: Serial, *, wait_s: float = 0.0) -> AbstractContextManager[None]:
        """Hold the device while the context lasts; raises DeviceBusyError naming the holder."""
        ...


class Store(Protocol):
    """Where everything is kept. Every method is atomic; what returned is durable."""

    def begin_campaign(
        self, campaign: Campaign, *, devices: Iterable[DeviceFacts], models: Iterable[Model], builds: Iterable[Build]
    ) -> None:
        """Store a campaign with its invocations and skips, and what it refers to."""
        ...

    def amend_campaign(
        self, campaign: Campaign, *, devices: Iterable[DeviceFacts], models: Iterable[Model], builds: Iterable[Build]
    ) -> None:
        """Replace the terms, the invocations and the skips of a stored campaign: a device joined, or work moved.

        What the campaign has measured stays, also of invocations that aren't planned any more.
        """
        ...

    def set_status(self, campaign_id: CampaignId, status: CampaignStatus, finished_at: datetime | None) -> None:
        """Record how far a campaign is."""
        ...

    def append_run(self, run: RunRecord) -> bool:
        """Keep a run; False (and nothing changed) when this (campaign, case, pass, invocation) is there already.

        A stored run whose outcome is UNFIT waits for another try: it isn't done, and whatever comes later replaces it.
        """
        ...

    def replace_reading(
        self,
        run_id: RunId,
        *,
        report: ToolReport,
        outcome: Outcome,
        reason_code: str,
        reason: str,
        verdict: QualityVerdict,
    ) -> None:
        """Replace what was read from a run's raw output and what follows from it; the raw output never changes."""
        ...

    def campaign(self, campaign_id: CampaignId) -> Campaign | None:
        """Return a campaign, None when there is none."""
        ...

    def campaigns(self, *, only_open: bool = False, limit: int | None = None) -> Sequence[Campaign]:
        """Return the newest campaigns, newest first, without their invocations and skips.

        ``only_open``: those that aren't finished. All when ``limit`` is None.
        """
        ...

    def campaign_count(self) -> int:
        """Return how many campaigns there are."""
        ...

    def runs(
        self,
        *,
        campaign_ids: Sequence[CampaignId] = (),
        case_keys: Sequence[CaseKey] = (),
        series_keys: Sequence[SeriesKey] = (),
        serials: Sequence[Serial] = (),
        with_attachments: bool = False,
    ) -> Iterator[RunRecord]:
        """Yield runs in the order in which they were stored that fit every filter given; all when none is."""
        ...

    def earlier_runs(self, case_key: CaseKey, before: CampaignId, *, limit: int) -> Sequence[RunRecord]:
        """Return the last runs of a case that were stored before a campaign's first of it, in their order.

        No more than ``limit``, without their attachments; of a campaign that has none of it yet, the last of all.
        """
        ...

    def attachments(self, run_id: RunId) -> tuple[Attachment, ...]:
        """Return everything that a run left behind, byte for byte; empty for an unknown run."""
        ...

    def attachments_of(self, run_ids: Sequence[RunId]) -> Iterator[tuple[RunId, tuple[Attachment, ...]]]:
        """Yield what each of some runs left behind, in no order; unknown runs are left out."""
        ...

    def done(self, campaign_id: CampaignId) -> set[tuple[CaseKey, Pass, int]]:
        """Return which invocations of a campaign are stored; those that were only unfit aren't among them."""
        ...

    def progress(self, *, only_open: bool = False) -> Mapping[CampaignId, tuple[int, int]]:
        """Return how many invocations of each campaign are stored (unfit ones aren't), and how many are planned.

        ``only_open``: of those that aren't finished.
        """
        ...

    def devices(self) -> Mapping[Serial, DeviceFacts]:
        """Return the devices ever seen, as last seen."""
        ...

    def models(self) -> Mapping[str, Model]:
        """Return the models by sha256."""
        ...

    def builds(self) -> Mapping[str, Build]:
        """Return the builds by sha256."""
        ...

    def points(self, *, since: datetime | None = None, series_keys: Sequence[SeriesKey] = ()) -> Points:
        """Return the figures of timing invocations of campaigns begun since then, of some series or of all."""
        ...

    def marks(self, *, since: datetime | None = None, series_keys: Sequence[SeriesKey] = ()) -> Sequence[RunMark]:
        """Return what the figures don't show, oldest campaign first.

        Timing runs without a figure that counts, and the runs that compared outputs of those series in which one didn't
        agree.
        """
        ...

    def series(self, series_keys: Sequence[SeriesKey] = ()) -> Mapping[SeriesKey, Case]:
        """Return the newest case of each series, of some or of all."""
        ...

    def recent_runs(
        self, series_keys: Sequence[SeriesKey], *, limit: int = 64
    ) -> Mapping[SeriesKey, Sequence[RecentRun]]:
        """Return the newest runs of each series that took a device's time, newest first; unknown series are left out.

        Of each no more than ``limit``, in every pass together, unfit and skipped ones aside.
        """
        ...

    def reason_counts(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Mapping[str, int]]:
        """Return how many runs of some campaigns ended with each reason code, those with none aside."""
        ...

    def readings(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, str]:
        """Return of each campaign that has runs a mark that is another one once something else is read from them.

        It follows from how the runs ended, their figures, memory and findings, and means nothing beside that.
        """
        ...

    def skips(self, campaign_ids: Sequence[CampaignId], reason_code: str) -> Mapping[CampaignId, Sequence[SkippedCase]]:
        """Return what some campaigns left out from the beginning for a reason, those that left out nothing aside."""
        ...

    def prune_raw(self, before: datetime, *, policy: str, is_trial: bool = False) -> Pruned:
        """Delete what the runs of ended campaigns begun before then left behind; a trial changes nothing.

        Everything that was read from it stays. In its place stands a note with the policy; imported runs keep theirs.
        """
        ...

    def activity(self, since: datetime) -> Activity:
        """Return what campaigns came to, and the runs of those that were begun since then."""
        ...

    def sightings(self) -> Mapping[Serial, Sequence[DeviceSighting]]:
        """Return what each device was and from when on, oldest first."""
        ...

    def run_ids(self, prefix: str, *, limit: int = 4) -> Sequence[RunId]:
        """Return the ids of runs that begin so, in their order, no more than ``limit``."""
        ...

    def run(self, run_id: RunId) -> RunRecord | None:
        """Return one run without its attachments, None when there is none."""
        ...

    def annotations(self) -> Sequence[Annotation]:
        """Return the changes that somebody expects, oldest night first."""
        ...

    def annotate(self, annotation: Annotation) -> None:
        """Keep that a change is expected."""
        ...

    def delete_annotation(self, annotation_id: str) -> bool:
        """Forget an annotation; False when there is none."""
        ...

    def confirmations(self) -> Sequence[Confirmation]:
        """Return what became of changes that were run again."""
        ...

    def confirm(self, confirmation: Confirmation) -> None:
        """Keep what became of a change, in the place of what was kept of it before."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...


class Observer(Protocol):
    """Hears what the engine does, as it does it; must return quickly and never raise."""

    def on_event(self, event: object) -> None:
        """Take one of the records of engine/events.py."""
        ...
