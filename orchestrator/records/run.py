"""One invocation's raw output, the state of its device, the readings of both, and the stored
record.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime, timedelta
from typing import Final

from orchestrator.records import frozen
from orchestrator.records.case import FIGURE_PASS, CampaignId, Case, Pass, RunId, RunKey
from orchestrator.records.device import DeviceState, Moment
from orchestrator.records.verdict import Quality, QualityVerdict, Severity
from orchestrator.units import counted

#: The file that an iPhone's app writes when a run has ended, with its exit code.
DONE_FILE: Final = "benchmark.done"
#: Attachment: the names of the reports that an iPhone's system wrote while an app's run ended
#: early.
CRASHES_FILE: Final = "crashes"
#: The trace of a traced run.
PERFETTO_FILE: Final = "trace.pftrace"

#: The code of a run that was left out because the time budget was spent.
OUT_OF_TIME: Final = "out-of-time"
#: The code of a run that was left out because its case had failed in a way that would repeat.
FAILED_BEFORE: Final = "failed-before"
#: The code of a run that was left out because the rest of its campaign was abandoned.
ABANDONED: Final = "abandoned"
#: The code of a run that was left out because its delegate uses no threads: another number of them
#: has its figure.
THREADS_UNUSED: Final = "threads-unused"
#: The code of a run whose inferences took less than the digits that its program prints.
TOO_FAST: Final = "too-fast"
#: Codes of runs that were never started for a reason outside the case.
NOT_BEGUN: Final = frozenset({OUT_OF_TIME, ABANDONED, THREADS_UNUSED})


class Outcome(enum.StrEnum):
    """The outcome of an invocation."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    ABORTED = "aborted"
    SKIPPED = "skipped"
    UNFIT = "unfit"

    @property
    def has_ended(self) -> bool:
        """Whether the process came to an end of its own: neither device nor user kept it from that."""
        return self in {Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT}

    @property
    def is_begun(self) -> bool:
        """Whether a process was started: skipped and unfit runs have none."""
        return self not in {Outcome.SKIPPED, Outcome.UNFIT}


def has_result(outcome: Outcome, reason_code: str, quality: Quality) -> bool | None:
    """Return whether a run gave a result that isn't rejected; None for a run that owes none.

    A run that was left out with a reason and one that waits for its device owe none, an abandoned
    one does.
    """
    if not outcome.is_begun and reason_code != ABANDONED:
        return None
    return outcome is Outcome.COMPLETED and quality is not Quality.REJECTED


class DelegateTruth(enum.StrEnum):
    """Where the operators really ran, against what was asked for."""

    FULL = "full"
    PARTIAL = "partial"
    #: The delegate was applied and took no node: the numbers are the CPU's.
    NONE = "none"
    #: The delegate could not be made or loaded and the program went on without it: the numbers are
    #: the CPU's.
    FELL_BACK = "fell-back"
    WRONG_BACKEND = "wrong-backend"
    FLAG_IGNORED = "flag-ignored"
    FAILED = "failed"
    UNKNOWN = "unknown"


#: Beginnings of the codes that say why a delegate's libraries couldn't be used; the run went on
#: without them.
SETUP_CODES: Final = ("hexagon-", "npu-")


class FigureKind(enum.StrEnum):
    """The statistic of an invocation's inferences that is its latency.

    The two differ by as much as the inferences are skewed.
    """

    MEDIAN = "median"
    #: Of a program that prints no medians.
    MEAN = "mean"


@frozen
class LatencySummary:
    """One ``count=`` line: a series of inferences, in microseconds. None is "not printed"."""

    #: None where a program prints a mean without the number of inferences.
    count: int | None
    first_us: float | None = None
    current_us: float | None = None
    min_us: float | None = None
    max_us: float | None = None
    mean_us: float | None = None
    std_us: float | None = None
    p5_us: float | None = None
    median_us: float | None = None
    p95_us: float | None = None


#: A summary's figures as LiteRT's files and its leaderboard call them -> the fields that they are.
SUMMARY_FIELDS: Final[Mapping[str, str]] = {
    "avg": "mean_us",
    "median": "median_us",
    "p5": "p5_us",
    "p95": "p95_us",
    "min": "min_us",
    "max": "max_us",
    "stddev": "std_us",
}


@frozen
class DelegateShare:
    """The share of one subgraph that a delegate took, from one line or proto; None is "not printed"."""

    delegate: str
    delegated_nodes: int
    total_nodes: int | None = None
    partitions: int | None = None
    subgraph: int | None = None


#: The GPU's backend where a phone has no OpenCL, as people write it.
OPENGL: Final = "OpenGL"


@frozen
class DelegateEvidence:
    """The evidence of where the operators ran."""

    #: The delegate that the flags or the program named: "gpu", "nnapi", "cpu" ..., empty when unknown.
    requested: str = ""
    #: Where they ran: "gpu", "xnnpack", "cpu" ..., empty when unknown.
    actual: str = ""
    truth: DelegateTruth = DelegateTruth.UNKNOWN
    delegated_nodes: int | None = None
    total_nodes: int | None = None
    partitions: int | None = None
    backend: str = ""
    accelerator: str = ""
    #: The lines that say so, as printed.
    lines: tuple[str, ...] = ()
    #: Operators left to the CPU, with the program's reason: ("TOPK_V2", "Operation is not
    #: supported.").
    cpu_operators: tuple[tuple[str, str], ...] = ()
    #: Delegate kernels that were made ("w/ 14 delegate kernels").
    kernels: int | None = None
    #: Every share that was printed, also of delegates beside the one asked for (XNNPACK taking what
    #: the GPU left).
    shares: tuple[DelegateShare, ...] = ()
    #: Where several delegates were asked for: what became of each.
    each: Mapping[str, DelegateTruth] = field(default_factory=dict)

    @property
    def share_text(self) -> str:
        """How many operators the delegate took: ``28 of 31``; empty when unknown."""
        if self.delegated_nodes is None or not self.total_nodes:
            return ""
        return f"{self.delegated_nodes} of {self.total_nodes}"

    @property
    def partitions_text(self) -> str:
        """In how many partitions those are: `` in 2 partitions``; empty when unknown."""
        return f" in {counted(self.partitions, 'partition')}" if self.partitions else ""


@frozen
class OperatorTime:
    """One row of an operator profile; times in microseconds per run."""

    node_type: str
    name: str
    first_us: float | None
    mean_us: float
    times_called: float
    memory_kb: float | None = None
    #: "init" or "run", and the subgraph's or delegate's block that the row stands in.
    phase: str = "run"
    block: str = ""
    run_order: int | None = None
    #: "us"; "cycles" for the rows of a Hexagon profile, whose figures are the DSP's clock cycles
    #: and no times.
    unit: str = "us"
    #: The layer of the model that a delegate's kernel is of, by the model's own name; empty where
    #: that isn't known.
    layer: str = ""


@frozen
class OperatorTypeTime:
    """One row of a profile's summary by node type; times in microseconds per run."""

    node_type: str
    nodes: int
    mean_us: float
    times_called: float
    memory_kb: float | None = None
    phase: str = "run"
    block: str = ""
    #: "us"; "cycles" for the rows of a Hexagon profile, whose figures are the DSP's clock cycles
    #: and no times.
    unit: str = "us"


@frozen
class ProfileBlock:
    """The totals of one block of an operator profile: a subgraph or a delegate, while initialising
    or running.
    """

    phase: str = "run"
    block: str = ""
    nodes_executed: int | None = None
    timings: LatencySummary | None = None
    #: Tables of programs before 2021 say when each operator started.
    has_start_column: bool = False


@frozen
class ToolReport:
    """The reading of one run's output; None and "" are unknown. Never filled in by guessing."""

    #: "ok", "failed", "crashed", "truncated".
    outcome: str
    failure_code: str = ""
    failure_reason: str = ""
    init_us: float | None = None
    first_inference_us: float | None = None
    warmup_mean_us: float | None = None
    inference_mean_us: float | None = None
    warmup: LatencySummary | None = None
    inference: LatencySummary | None = None
    init_memory_mib: float | None = None
    overall_memory_mib: float | None = None
    peak_memory_mib: float | None = None
    model_size_mb: float | None = None
    delegate: DelegateEvidence = field(default_factory=DelegateEvidence)
    #: Parameters as the program echoed them: "Num threads" -> "4".
    echoed: Mapping[str, str] = field(default_factory=dict)
    unconsumed_flags: tuple[str, ...] = ()
    operators: tuple[OperatorTime, ...] = ()
    operator_types: tuple[OperatorTypeTime, ...] = ()
    profile_blocks: tuple[ProfileBlock, ...] = ()
    #: Label of a row, for programs that print several results ("gpu-fp16").
    label: str = ""
    #: Disagreements between sources (log against proto), as sentences.
    disagreements: tuple[str, ...] = ()
    #: Further figures of a program that have no field above, by name with unit suffix.
    extra: Mapping[str, float | str] = field(default_factory=dict)

    def latency_us(self, kind: FigureKind | None = None) -> float | None:
        """Return the latency of this kind, else the median or, without one, the mean; None where it
        can't be one.

        A median that can't be a latency isn't replaced by a mean: the print is damaged.
        """
        printed = (
            self.inference if self.inference is not None and self.inference.count != 0 else None
        )
        if kind is not FigureKind.MEAN and printed is not None and printed.median_us is not None:
            return printed.median_us if _is_latency(printed.median_us) else None
        if kind is FigureKind.MEDIAN:
            return None
        if _is_latency(self.inference_mean_us):
            return self.inference_mean_us
        return printed.mean_us if printed is not None and _is_latency(printed.mean_us) else None


#: What is printed beyond these, in microseconds, is damaged: a picosecond, and the largest figure
#: that a store keeps.
_LATENCIES_US: Final = (1e-6, 2.0**63)


def _is_latency(value_us: float | None) -> bool:
    return value_us is not None and _LATENCIES_US[0] <= value_us < _LATENCIES_US[1]


@frozen
class Attachment:
    """Something a run printed or wrote, byte for byte: ``stdout``, ``stderr``, ``logcat``,
    ``result.pb`` ...
    """

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        """The content's hash, by which it is stored once."""
        return hashlib.sha256(self.data).hexdigest()


@frozen
class RawOutput:
    """The raw output of one invocation."""

    command: str
    #: None when the program has no exit code (an app) or it isn't known (killed by us, link lost).
    exit_code: int | None
    timed_out: bool
    started_at: datetime
    duration_s: float
    attachments: tuple[Attachment, ...]

    def data(self, name: str) -> bytes:
        """Return an attachment's bytes, empty when there is none of this name."""
        return next((item.data for item in self.attachments if item.name == name), b"")

    def with_data(self, name: str, data: bytes) -> RawOutput:
        """Return it with an attachment added; one of the same name is replaced."""
        remaining = (item for item in self.attachments if item.name != name)
        return replace(self, attachments=(*remaining, Attachment(name=name, data=data)))


@frozen
class RunRecord:
    """One invocation, as it is stored."""

    run_id: RunId
    campaign_id: CampaignId
    case: Case
    run_pass: Pass
    #: Counts from 0 within (case, pass).
    invocation: int
    outcome: Outcome
    #: Documented code for an outcome other than COMPLETED, for example ``link-lost``; empty
    #: otherwise.
    reason_code: str
    reason: str
    is_virtual: bool
    started_at: datetime
    duration_s: float
    command: str
    exit_code: int | None
    attachments: tuple[Attachment, ...]
    report: ToolReport | None
    verdict: QualityVerdict
    state_before: DeviceState | None = None
    state_after: DeviceState | None = None

    @property
    def key(self) -> RunKey:
        """Its key in its campaign."""
        return self.case.case_key, self.run_pass, self.invocation

    @property
    def is_begun(self) -> bool:
        """Whether a process was started."""
        return self.outcome.is_begun

    @property
    def is_final(self) -> bool:
        """Whether its invocation is done: one of an unfit device stays open."""
        return self.outcome is not Outcome.UNFIT

    @property
    def is_without_result(self) -> bool:
        """Whether it should have a result and has none or a rejected one."""
        return has_result(self.outcome, self.reason_code, self.verdict.quality) is False

    @property
    def lost_code(self) -> str:
        """The code of why it gave no result; empty where it gave one or wasn't started."""
        if not (self.is_begun and self.is_without_result):
            return ""
        errors = (item.code for item in self.verdict.findings if item.severity is Severity.ERROR)
        return self.reason_code or next(errors, "rejected")

    @property
    def ended_at(self) -> datetime:
        """When it ended, by its duration."""
        return self.started_at + timedelta(seconds=self.duration_s)

    @property
    def measured_us(self) -> float | None:
        """The latency that a completed invocation of any pass printed: its median, else its mean."""
        if self.outcome is not Outcome.COMPLETED or self.report is None:
            return None
        return self.report.latency_us()

    @property
    def latency_us(self) -> float | None:
        """The latency that a timing invocation measured; None for another pass."""
        return self.measured_us if self.run_pass is FIGURE_PASS else None

    def extra_figure(self, name: str) -> float | None:
        """Return a figure of its report's ``extra``, None where it has none."""
        figure = self.report.extra.get(name) if self.report is not None else None
        return figure if isinstance(figure, float) else None


@frozen
class RecentRun:
    """How long a run of a series took."""

    run_pass: Pass
    duration_s: float
    #: How long its device had measured nothing of its campaign before it; None for the first.
    pause_s: float | None = None


#: Files in a run's folder, and the attachments' names: the sampler's, and a BenchmarkResult, a
#: ModelRuntimeDetails and a BenchmarkProfilingData of the program.
SAMPLES_FILE: Final = "samples"
RESULT_FILE: Final = "result.pb"
RUNTIME_INFO_FILE: Final = "runtime_info.pb"
PROFILE_FILE: Final = "op_profile.pb"


@frozen
class Sample(Moment):
    """One sample of the sampler."""

    uptime_s: float
    #: Between reading the processors' time and having read the clusters' time in state.
    took_s: float = 0.0


@frozen
class RunSamples:
    """The samples of one run in their order: the first right before the program, the last right
    after it.
    """

    samples: tuple[Sample, ...] = ()
    #: Processor time of the program and its children; None when it didn't come to its end.
    own_cpu_s: float | None = None

    @property
    def duration_s(self) -> float:
        """Device time from the first sample to the last."""
        return self.samples[-1].uptime_s - self.samples[0].uptime_s if self.samples else 0.0


@frozen
class ClusterConditions:
    """The clocks of one cluster over a run; None is unknown."""

    #: The cluster's first cpu.
    cpu: int
    #: The mean clock by time in state, and its share of the highest clock.
    effective_mhz: float | None = None
    share: float | None = None
    #: The highest limit that was seen, as a share of the highest clock.
    limit_high: float | None = None
    #: Over the busiest stretches between samples: the highest mean clock's share of the highest
    #: clock, and the largest fall from one stretch to a later one (0.9: to 90 %); only with enough
    #: samples.
    busiest_share: float | None = None
    fall: float | None = None


@frozen
class RunConditions:
    """The conditions of a run; derived, never stored. None is unknown."""

    #: Whether it comes from samples during the run; else it spans from the state before to the state
    #: after, which is longer than the run, so that clocks and loads come out lower.
    is_sampled: bool = False
    clusters: tuple[ClusterConditions, ...] = ()
    #: Cores that the program itself kept busy on average, and those that everything else did at
    #: least.
    own_cores: float | None = None
    foreign_cores: float | None = None
    #: How far the wall clock was moved against the monotonic clock.
    clock_jump_s: float | None = None


class StartStage(enum.StrEnum):
    """The state of the cache when a process starts; in the order in which the stages run."""

    #: Nothing of the delegate is cached; this start writes its cache, as an app's very first one
    #: does.
    FIRST_LOAD = "first-load"
    #: A new process that neither reads nor writes a cache.
    PROCESS_COLD = "process-cold"
    #: A new process with the cache that the first load has written.
    CACHE_WARM = "cache-warm"


START_STAGES: Final = tuple(StartStage)


def stage_of(number: int) -> StartStage:
    """Return the stage of an invocation's number: 0, 1, 2 in the first round, 3, 4, 5 in the second."""
    return START_STAGES[number % len(START_STAGES)]
