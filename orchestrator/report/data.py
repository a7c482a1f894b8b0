"""The figures of a report, derived from stored records and not yet laid out. Text here is as phones and users wrote it.

Nothing in here is escaped: each rendering (HTML, text, CSV, JSON, Markdown) makes it harmless in its own way.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from orchestrator.analysis.case_result import CaseResult
from orchestrator.analysis.compare import Ratio
from orchestrator.analysis.summary import Summary
from orchestrator.analysis.sustained import SustainedCurve
from orchestrator.records.device import DeviceFacts, DeviceState
from orchestrator.records.evaluation import Evaluation
from orchestrator.records.run import DelegateEvidence, DelegateTruth, FigureKind, Outcome
from orchestrator.records.start import StartStage
from orchestrator.records.verdict import Grade, Quality, Severity
from orchestrator.records.workload import Build, Case, DelegateName, Pass, ToolName
from orchestrator.report.energy import EnergyRow, LoadRow
from orchestrator.report.operators import Profile, ProfileDiff


class BestMark(enum.StrEnum):
    """Where a judged figure stands among the configurations of its model on its device."""

    #: Not the fastest, not judged, or alone: nothing to be best of.
    NONE = ""
    BEST = "best"
    #: Can't be told from the fastest.
    TIED = "tied-best"


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignRow:
    """One execution of a plan."""

    campaign_id: str
    name: str
    status: str
    created_at: datetime
    finished_at: datetime | None
    host: str
    benchfarm_version: str
    seed: int
    #: "imported from night.zip (sha256 0123456789ab), unsigned"; empty for a campaign of this store's own.
    origin: str = ""

    @property
    def title(self) -> str:
        """The name with the moment of its start, which tells two nights of one plan apart."""
        origin = f", {self.origin}" if self.origin else ""
        return f"{self.name or self.campaign_id}, {self.created_at:%Y-%m-%d %H:%M}{origin}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """A device under a label that no other device of the report has."""

    serial: str
    label: str
    is_virtual: bool
    #: None for a device that is named by a run and isn't in the store's list.
    facts: DeviceFacts | None

    @property
    def title(self) -> str:
        """The label, with the word that a virtual phone must wear wherever its name stands without a badge."""
        return f"{self.label} (virtual)" if self.is_virtual else self.label


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A model under a label that no other model of the report has."""

    sha256: str
    #: What is measured of it (Case.subject): only figures of one subject are set against each other.
    subject: str
    label: str
    #: None for a model that is named by a run and isn't in the store's list.
    size_bytes: int | None
    #: In percent, as somebody else measured it on the model's own test data; None where nobody said.
    accuracy: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExcerpt:
    """What one invocation printed, as text, cut to a length."""

    text: str
    total_bytes: int
    #: Bytes left out of the middle; 0 when all is there.
    left_out_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """One thing that was noticed, over the invocations of a case in which it was."""

    code: str
    severity: Severity
    message: str
    evidence: str
    #: In how many invocations; 0 when it is about the case as a whole.
    count: int
    next_step: str
    #: Whether it is about an invocation that the case's figure comes from, or about the figure as a whole.
    is_of_figure: bool


#: Stands for a run's number in a text; no command has it.
RUN_PLACE: Final = "\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One quantity over time."""

    name: str
    unit: str
    low: float
    high: float
    last: float
    #: How long from the first point to the last.
    duration_s: float
    #: As SVG's ``points`` has them; empty when the quantity never changed.
    points: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationRow:
    """One process that was started."""

    run_id: str
    campaign_id: str
    run_pass: Pass
    #: Counts from 1 within (case, pass).
    number: int
    outcome: Outcome
    reason_code: str
    reason: str
    quality: Quality
    truth: DelegateTruth
    #: Whether the case's figure comes from this invocation among others.
    is_used: bool
    started_at: datetime
    duration_s: float
    exit_code: int | None
    latency_us: float | None
    #: What of its inferences ``latency_us`` is.
    figure: FigureKind
    p5_us: float | None
    p95_us: float | None
    #: Inferences measured.
    inferences: int | None
    init_us: float | None
    first_us: float | None
    #: With ``RUN_PLACE`` where the run's number stands, so that all invocations of a case may have one text.
    command_text: str
    state_before: DeviceState | None
    state_after: DeviceState | None
    log: LogExcerpt | None
    #: Where its campaign was imported from, as :attr:`CampaignRow.origin`; empty for this lab's own.
    origin: str = ""
    #: What the device was seen to be like while it ran; kept of the invocation whose log is shown.
    traces: tuple[Trace, ...] = ()

    @property
    def command(self) -> str:
        """The command as it was given."""
        return self.command_text.replace(RUN_PLACE, self.run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRow:
    """One stage of a case's starts: medians over the processes that started so."""

    stage: StartStage
    #: How many processes.
    count: int
    init_us: float | None
    first_us: float | None
    #: Of the worst of them; rejected ones aren't among them.
    quality: Quality


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedRow:
    """One attempt at a sustained run of a case: invocations directly one after the other."""

    campaign_id: str
    #: Of this case in this campaign, from 1.
    attempt: int
    #: Whether it lasted as long as it was to; a cut one says nothing of what came later.
    is_whole: bool
    #: Seconds since its start, and the latency then in microseconds; of invocations of the delegate itself.
    points: tuple[tuple[float, float], ...]
    curve: SustainedCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """One case: what was asked for, what came of it, and everything that shows it."""

    case: Case
    model: ModelRow
    device: DeviceRow
    #: A label for delegate, threads, tool and flags that no other case of this model on this device has.
    configuration: str
    #: The device is virtual, an invocation says that it ran on a virtual one, or the program is a fake binary.
    is_virtual: bool
    result: CaseResult
    best: BestMark
    #: Over the baseline configuration; None when either side isn't judged.
    speed_up: Ratio | None
    #: The configuration that the speed-up is over: the fastest on the CPU of the same device, program and settings.
    baseline: str
    #: What stands against the other figures of this model on this device: means where one of them has no medians. None
    #: for what isn't judged.
    compared: Summary | None
    #: Medians over the invocations that have them.
    init_us: float | None
    first_us: float | None
    warmup_us: float | None
    init_memory_mib: float | None
    overall_memory_mib: float | None
    peak_memory_mib: float | None
    #: Of the invocation that says most; None when no output was read.
    delegate: DelegateEvidence | None
    invocations: tuple[InvocationRow, ...]
    #: By stage, where the plan has the pass ``cold``.
    starts: tuple[StartRow, ...]
    #: Where the plan has the pass ``energy``.
    energy: EnergyRow | None
    #: By load, where the plan has the pass ``contention``.
    loads: tuple[LoadRow, ...]
    #: By campaign, where the plan has the pass ``profile``.
    profiles: tuple[Profile, ...]
    #: By campaign and attempt, where the plan has the pass ``sustained``.
    sustained: tuple[SustainedRow, ...]
    #: How controlled the device was: the worst of the invocations used; None where no grade is stored.
    grade: Grade | None
    findings: tuple[FindingRow, ...]
    #: What to do about a case without a figure of its own; empty when there is nothing to do.
    next_step: str
    #: Why it got as many invocations as it has, for each campaign with a stopping rule: (code, sentence).
    stopped: tuple[tuple[str, str], ...] = ()
    #: Where its invocations were imported from, as their campaigns say it; empty for this lab's own.
    origin: str = ""
    #: What LiteRT's evaluation programs found with this delegate on this device, the newest of each metric.
    evaluations: tuple[Evaluation, ...] = ()

    @property
    def evaluation(self) -> Evaluation | None:
        """The evaluation that says how right the answers are."""
        return next((each for each in self.evaluations if each.percent is not None), None)

    @property
    def accuracy(self) -> float | None:
        """In percent: as found with this delegate, else what is known of the model."""
        return self.model.accuracy if self.evaluation is None else self.evaluation.percent

    @property
    def key(self) -> str:
        """The case's key, which is unique in a report."""
        return self.case.case_key

    @property
    def command(self) -> str:
        """The command of the first invocation that came as far as one."""
        return next((invocation.command for invocation in self.invocations if invocation.command), "")

    @property
    def has_conditions(self) -> bool:
        """Whether it is known what the device was like around any invocation."""
        return any(invocation.state_before or invocation.state_after for invocation in self.invocations)


class Certainty(enum.StrEnum):
    """How far a winner can be relied on."""

    SURE = "sure"
    #: Another configuration can't be told from it.
    TIED = "tied"
    #: Its order isn't tested, its interval is wide, it is alone, or what might be faster has no clean figure.
    UNSURE = "unsure"
    #: No configuration has a clean figure.
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The fastest clean figure of a model on one device, and what it is compared with."""

    row: ResultRow
    #: Configurations that can't be told from it.
    tied: tuple[ResultRow, ...]
    #: The next fastest one that can; None where there is none.
    second: ResultRow | None
    #: How many times as fast as the second it is.
    lead: Ratio | None
    #: False where a figure has one process, so that the order rests on a margin.
    is_tested: bool
    #: Measured, and without a clean figure of its own.
    without_figure: tuple[ResultRow, ...]

    @property
    def median_us(self) -> float:
        """Its latency."""
        assert self.row.result.summary is not None, "a clean figure has one"
        return self.row.result.summary.median_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """The cases of one model on one device, and which of them is the fastest."""

    rows: tuple[ResultRow, ...]
    #: None where no figure is clean.
    winner: Winner | None

    @property
    def shown(self) -> ResultRow:
        """The winner, or any case where there is none."""
        return self.rows[0] if self.winner is None else self.winner.row

    @property
    def doubted(self) -> tuple[ResultRow, ...]:
        """What would be faster than the winner, and has no clean figure."""
        if self.winner is None:
            return ()
        limit_us = self.winner.median_us
        figures = [(row, row.result.own_summary) for row in self.winner.without_figure]
        return tuple(row for row, own in figures if own is not None and own.median_us < limit_us)

    @property
    def is_alone(self) -> bool:
        """Whether nothing else has a clean figure."""
        return self.winner is not None and len(self.rows) - len(self.winner.without_figure) == 1

    @property
    def certainty(self) -> Certainty:
        """How far the winner can be relied on."""
        if self.winner is None:
            return Certainty.NONE
        if self.doubted or self.is_alone or not self.winner.is_tested or self.winner.row.result.imprecision:
            return Certainty.UNSURE
        return Certainty.TIED if self.winner.tied else Certainty.SURE


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipRow:
    """A combination that a plan names and that wasn't run, with the reason."""

    device: DeviceRow
    model_name: str
    delegate: DelegateName
    threads: int
    tool: ToolName
    reason_code: str
    reason: str

    @property
    def configuration(self) -> str:
        """The combination without device and model, as :attr:`Case.configuration` puts it."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.delegate.value}, {threads}, {self.tool.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """A figure of a public table: somebody else's measurement, never mixed with ours."""

    model: str
    device: str
    #: As in the table's file: ``cpu_4_threads``, ``gpu``, ``nnapi`` ...
    configuration: str
    #: None where the table has no figure.
    latency_us: float | None
    #: The figure with the digits that were published, in milliseconds or, of a language model, in tokens per second;
    #: empty where there is none.
    printed_ms: str = ""
    #: Of a language model: where it was published; ``latency_us`` is of one token then. Empty for the guide's.
    source: str = ""
    #: What to know of it.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """How many of what."""

    cases: int
    #: Of them, those whose latency wasn't asked for.
    untimed: int
    #: Trusted, and shown to be the requested delegate's.
    judged: int
    virtual_cases: int
    invocations: int
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffPair:
    """Two profiled runs of one model on one device, and what explains the change from the first to the second."""

    row: ResultRow
    #: What each of them is, for example the configuration, or the campaign.
    before: str
    after: str
    diff: ProfileDiff


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The report in a few sentences."""

    #: Models, phones and days, for a title.
    subject: str
    #: What was run, where and when.
    scope: str
    #: What came out, model by model.
    answers: tuple[str, ...]
    #: How much of it can be relied on.
    trust: str
    #: What isn't to be trusted, and why, worst first.
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that a report shows."""

    campaigns: tuple[CampaignRow, ...]
    devices: tuple[DeviceRow, ...]
    models: tuple[ModelRow, ...]
    builds: tuple[Build, ...]
    #: By model, device and configuration, in the order in which people read them.
    results: tuple[ResultRow, ...]
    skipped: tuple[SkipRow, ...]
    totals: Totals
    headline: Headline
    #: By model and device, in the order of the results.
    contests: tuple[Contest, ...]
    #: The public reference table, where it is shown beside the results.
    published: tuple[PublishedFigure, ...] = ()
    #: Where profiles were taken: of one case over campaigns, and of a delegate against the CPU.
    diffs: tuple[DiffPair, ...] = ()

    @property
    def has_virtual(self) -> bool:
        """Whether anything in the report comes from a virtual phone."""
        return any(device.is_virtual for device in self.devices) or any(row.is_virtual for row in self.results)

    @property
    def has_real(self) -> bool:
        """Whether anything in the report comes from a real device."""
        return any(not row.is_virtual for row in self.results)
