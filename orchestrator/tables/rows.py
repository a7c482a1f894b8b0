"""What a report shows of one case, device, model and invocation.

Text here is as phones and users wrote it.

Nothing in here is escaped: each rendering (HTML, text, CSV, JSON, Markdown) makes it harmless in
its own way.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, NamedTuple

from orchestrator.analysis.case_result import CaseResult, CaseStatus
from orchestrator.analysis.effect import Ratio
from orchestrator.analysis.findings import finding_step
from orchestrator.analysis.summary import LEVEL, Summary
from orchestrator.delegates import DELEGATES, place_of
from orchestrator.frozen import frozen
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import FIGURE_PASS, Case, Pass, SkippedCase
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import (
    THREADS_UNUSED,
    DelegateEvidence,
    FigureKind,
    Outcome,
    RunRecord,
)
from orchestrator.records.verdict import Finding, Outputs, ParityVerdict, Severity, outputs_of
from orchestrator.tables.devices import origin_of
from orchestrator.tables.labels import (
    PARITY_WORDS,
    STATUS_WORDS,
    fallback_words,
    moment_text,
    next_step,
    truth_words,
)
from orchestrator.tables.operators import Profile
from orchestrator.tables.runs import LogExcerpt
from orchestrator.tables.table import NOTHING
from orchestrator.units import counted, few, format_percent, tokens_per_s

_MOST_OPERATORS: Final = 6
#: As findings are listed.
SEVERITIES: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)


class BestMark(enum.StrEnum):
    """Where a judged figure stands among the configurations of its model on its device."""

    #: Not the fastest, or not judged.
    NONE = ""
    BEST = "clear"
    #: The 95 % interval doesn't tell it from the fastest.
    TIED = "tied"
    #: Nothing else has a clean figure.
    ALONE = "only one"
    #: The fastest of figures of one process each, which have no intervals.
    UNTESTED = "not tested"


def title_of(campaign: Campaign) -> str:
    """Return a campaign's name with the moment of its start, which tells two nights of one plan
    apart.
    """
    origin = origin_of(campaign)
    title = f"{campaign.name or campaign.campaign_id}, {moment_text(campaign.created_at)}"
    return f"{title}, {origin}" if origin else title


@frozen
class DeviceRow:
    """A device under a label that no other device of the report has."""

    serial: str
    label: str
    is_virtual: bool
    #: None for a device that is named by a run and isn't in the store's list.
    facts: DeviceFacts | None

    @property
    def title(self) -> str:
        """The label, with the word that a virtual phone must wear wherever its name stands without
        a badge.
        """
        return f"{self.label} (virtual)" if self.is_virtual else self.label

    @property
    def names(self) -> tuple[str, ...]:
        """What a person may call it."""
        return self.facts.names if self.facts else (self.serial, self.label)


@frozen
class ModelRow:
    """A model under a label that no other model of the report has."""

    sha256: str
    #: What is measured of it (Case.subject): only figures of one subject are set against each
    #: other.
    subject: str
    label: str
    #: None where nobody stored the model, or only what somebody else measured of it.
    size_bytes: int | None
    #: In percent, as somebody else measured it on the model's own test data; None where nobody
    #: said.
    accuracy: float | None = None


@frozen
class SkipRow:
    """A combination that a plan names and that wasn't run, with the reason."""

    device: DeviceRow
    skipped: SkippedCase

    @property
    def configuration(self) -> str:
        """The combination without device and model, as :attr:`Case.configuration` puts it."""
        return f"{self.skipped.delegate.value}, {counted(self.skipped.threads, 'thread')}, {self.skipped.tool.value}"


@frozen
class FindingRow:
    """One thing that was noticed, over the invocations of a case in which it was."""

    finding: Finding
    #: In how many invocations; 0 when it is about the case as a whole.
    count: int
    #: Whether it is about an invocation that the case's figure comes from, or about the figure as a
    #: whole.
    is_of_figure: bool

    @property
    def next_step(self) -> str:
        """What to do about it; empty when nothing is known."""
        return finding_step(self.finding.code)


#: What became of a process that gave no result, in words.
_LOST_WORDS: Final = {
    Outcome.COMPLETED: "rejected",
    Outcome.TIMED_OUT: "timed out",
    Outcome.ABORTED: "interrupted",
}


@frozen
class InvocationRow:
    """One process that was started. Its run has no attachments; its texts are as a report may show
    them.
    """

    run: RunRecord
    #: Whether the case's figure comes from this invocation among others.
    is_used: bool
    #: What of its inferences ``latency_us`` is.
    figure: FigureKind
    latency_us: float | None
    #: Where its campaign was imported from; empty for this lab's own.
    origin: str
    #: Of the one invocation of a case whose log tells most, and the moments while it ran, as JSON.
    log: LogExcerpt | None
    samples: str

    @property
    def number(self) -> int:
        """Counts from 1 within (case, pass)."""
        return self.run.invocation + 1

    @property
    def why_lost(self) -> str:
        """The code of why it gave no result; empty where it gave one, or wasn't begun."""
        if not (self.run.is_begun and self.run.is_without_result):
            return ""
        errors = (
            item.code for item in self.run.verdict.findings if item.severity is Severity.ERROR
        )
        return self.run.reason_code or next(errors, "rejected")


class Lost(NamedTuple):
    """Processes of one case that gave no result for one reason."""

    #: ``1 of 4 processes failed: gpu-init-failed``.
    said: str
    code: str


@frozen
class ResultRow:
    """One case: what was asked for, what came of it, and everything that shows it."""

    case: Case
    model: ModelRow
    device: DeviceRow
    #: A label for delegate, threads, tool and flags that no other case of this model on this device
    #: has.
    configuration: str
    #: The device is virtual, an invocation says that it ran on a virtual one, or the program is a
    #: fake binary.
    is_virtual: bool
    result: CaseResult
    best: BestMark = BestMark.NONE
    #: Over the baseline configuration; None when either side isn't judged.
    speed_up: Ratio | None = None
    #: The configuration that the speed-up is over: the fastest on the CPU of the same device,
    #: program and settings.
    baseline: str = ""
    #: What stands against the other figures of this model on this device: means where one of them
    #: has no medians. None for what isn't judged.
    compared: Summary | None = None
    #: How sure the intervals are by which these are told apart.
    level: float = LEVEL
    #: Medians over the invocations that have them.
    init_us: float | None
    first_us: float | None
    warmup_us: float | None
    init_memory_mib: float | None
    overall_memory_mib: float | None
    peak_memory_mib: float | None
    #: Of the invocation that says most; None when no output was read.
    delegate: DelegateEvidence | None
    invocations: Sequence[InvocationRow]
    #: What passes show of it beside its latency, by the name of their table.
    of_passes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    #: By campaign, where the plan has the pass ``profile``.
    profiles: tuple[Profile, ...] = ()
    findings: tuple[FindingRow, ...]
    #: Passes with a suspect run.
    suspect: frozenset[Pass] = frozenset()
    #: Why it got as many invocations as it has, for each campaign with a stopping rule: (code,
    #: sentence).
    stopped: tuple[tuple[str, str], ...]
    #: The one that its figure is of: the newest with a run of it; None when nothing says which.
    campaign: Campaign | None = None
    #: Where its invocations were imported from, as their campaigns say it; empty for this lab's
    #: own.
    origin: str

    @property
    def key(self) -> str:
        """The case's key, which is unique in a report."""
        return self.case.case_key

    @property
    def place(self) -> tuple[str, str]:
        """Model and device: what a chart, a line of a matrix or a bar's scale is of."""
        return self.model.subject, self.device.serial

    @property
    def where(self) -> str:
        """Model and device in words."""
        return f"{self.model.label} on {self.device.title}"

    @property
    def who(self) -> str:
        """Model, device and configuration in one line."""
        return f"{self.where}, {self.configuration}"

    @property
    def own(self) -> Summary | None:
        """The figure, where it is the requested delegate's and wasn't rejected.

        None for any other.
        """
        return self.result.own_summary

    @property
    def median_us(self) -> float | None:
        """The own figure's median in microseconds."""
        return self.result.median_us

    @property
    def has_mean(self) -> bool:
        """Whether the figure is made of means, where others' are of medians; tokens per second
        always are.
        """
        return (
            not self.case.is_per_token
            and self.own is not None
            and self.result.figure is FigureKind.MEAN
        )

    @property
    def speeds(self) -> tuple[float | None, float | None, float | None]:
        """A language model's tokens per second with the ends of their interval.

        None for every other case.
        """
        own = self.own if self.case.is_per_token else None
        low, high = (
            (own.interval.high, own.interval.low)
            if own is not None and own.interval
            else (None, None)
        )
        return (
            tokens_per_s(own.median_us if own is not None else None),
            tokens_per_s(low),
            tokens_per_s(high),
        )

    @property
    def has_memory(self) -> bool:
        """Whether it is known how much memory the case took."""
        return any(
            part is not None
            for part in (self.init_memory_mib, self.overall_memory_mib, self.peak_memory_mib)
        )

    @property
    def command(self) -> str:
        """The command of the first invocation that came as far as one."""
        return next((item.run.command for item in self.invocations if item.run.command), "")

    @property
    def next_step(self) -> str:
        """What to do about a case without a figure of its own; empty when there is nothing to do."""
        return next_step(self.result)

    @property
    def lost(self) -> list[Lost]:
        """Which of its processes gave no result, by pass and reason; none of a case that says
        itself why it has no figure.
        """
        if self.own is None and self.result.status is not CaseStatus.UNTIMED:
            return []
        begun = [item for item in self.invocations if item.run.is_begun]
        of_pass = Counter(item.run.run_pass for item in begun)
        lost = Counter(
            (item.run.run_pass, item.run.outcome, code) for item in begun if (code := item.why_lost)
        )
        return [
            Lost(
                said=f"{count} of {of_pass[name]} processes"
                f"{'' if name is FIGURE_PASS else f' of the pass {name}'}"
                f" {_LOST_WORDS.get(outcome, outcome.value)}: {code}",
                code=code,
            )
            for (name, outcome, code), count in lost.items()
        ]

    @property
    def is_unused_thread_count(self) -> bool:
        """Whether it wasn't measured because its delegate uses no threads: another case has its
        figure.
        """
        return (
            self.result.status is CaseStatus.SKIPPED and self.result.reason_code == THREADS_UNUSED
        )

    @property
    def ran_on(self) -> str:
        """Where the operators ran, by what the program said: ``gpu``; empty when nothing was read."""
        return place_of(self.delegate) if self.delegate is not None else ""

    @property
    def left_to_cpu(self) -> str:
        """The operators that a delegate left to the CPU, with the program's reasons; empty where
        none were listed.
        """
        operators = self.delegate.cpu_operators if self.delegate is not None else ()
        named = [
            f"{name} ({reason})" if reason else name for name, reason in dict.fromkeys(operators)
        ]
        return "; ".join(few(named, _MOST_OPERATORS))

    @property
    def outputs(self) -> Outputs | None:
        """What is known of the outputs that its figure belongs to; None where nothing ran to its end."""
        if not any(item.run.outcome is Outcome.COMPLETED for item in self.invocations):
            return None
        is_builtin = DELEGATES[self.case.delegate].is_builtin
        return outputs_of(self.result.parity, is_builtin=is_builtin)

    @property
    def outputs_text(self) -> str:
        """The same in words, with how much they differ: ``differ (0.83)``."""
        if self.outputs is None:
            return NOTHING
        error = self.result.parity_error
        is_known = self.outputs is Outputs.DIFFER and error is not None
        return f"{self.outputs} ({error:.2g})" if is_known else self.outputs.value

    @property
    def may_be_wrong(self) -> bool:
        """Whether its outputs are to be compared: not the reference's own kernels, no tokens."""
        return self.outputs is not Outputs.REFERENCE and not self.case.is_per_token

    @property
    def has_checked_outputs(self) -> bool:
        """Whether there is something to say of its outputs: that they differ, or whether those of
        its figure were compared.
        """
        return self.may_be_wrong and (self.own is not None or self.outputs is Outputs.DIFFER)

    @property
    def is_proven_best(self) -> bool:
        """Whether it wins, and its outputs are those of its model."""
        is_right = self.outputs is Outputs.CHECKED or not self.may_be_wrong
        return self.best in {BestMark.BEST, BestMark.ALONE} and is_right

    @property
    def spread_text(self) -> str:
        """Half the interval in percent of the median: ``±1.9 %``; ``---`` for a single invocation."""
        spread = self.result.summary.spread if self.result.summary is not None else None
        return NOTHING if spread is None else f"±{format_percent(spread)}"

    @property
    def quality_word(self) -> str:
        """What the figure is worth, or why there is none: ``clean``, ``timed out``."""
        return (
            self.result.quality.word
            if self.result.quality is not None
            else STATUS_WORDS[self.result.status]
        )

    @property
    def quality_text(self) -> str:
        """The quality word with what the figure lacks: ``clean, one process``."""
        lacking = self.result.lacking
        return f"{self.quality_word}, {lacking}" if lacking else self.quality_word

    @property
    def delegate_text(self) -> str:
        """Where the operators ran, in words; ``---`` when nothing ran."""
        if self.result.status is CaseStatus.FELL_BACK:
            return fallback_words(self.delegate, self.result.truth)
        return (
            NOTHING if self.result.truth is None else truth_words(self.delegate, self.result.truth)
        )

    @property
    def why_not_clean(self) -> str:
        """Why the figure isn't clean, or why there is none: ``suspect (few-inferences)``, ``failed
        (crashed)``, ``fell back to CPU``, ``not confirmed``.
        """
        status = self.result.status
        if status is CaseStatus.FELL_BACK:
            return self.delegate_text
        if status is CaseStatus.UNCONFIRMED:
            return STATUS_WORDS[status]
        is_judged = status in {CaseStatus.MEASURED, CaseStatus.REJECTED}
        code = self.worst_code if is_judged else self.result.reason_code
        is_told = not code or code == status.value
        return self.quality_word if is_told else f"{self.quality_word} ({code})"

    @property
    def worst_code(self) -> str:
        """Why the figure isn't clean: the code that weighs most of its own invocations, or what
        else there is.

        What was noticed about another pass, or about an invocation that doesn't count, says nothing
        about the figure.
        """
        result = self.result
        weighing = [
            item.finding.code
            for item in self.findings
            if item.finding.severity is not Severity.INFO and item.is_of_figure
        ]
        if result.parity is ParityVerdict.WRONG or (
            result.parity is ParityVerdict.DRIFT and not weighing
        ):
            return PARITY_WORDS[result.parity]
        if weighing:
            return weighing[0]
        if 2 * len(result.used) < result.ended:
            return f"{len(result.used)} of {result.ended} invocations usable"
        return "invocations disagree"
