"""The rows of a report: cases, devices, models and invocations.

Texts are as phones and users wrote them. Nothing is escaped: each rendering (HTML, text, CSV, JSON,
Markdown) makes them harmless in its own way.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from orchestrator.analysis.case_result import CaseResult, CaseStatus
from orchestrator.analysis.effect import Ratio
from orchestrator.analysis.summary import LEVEL, Summary
from orchestrator.delegates import place_of
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import FIGURE_PASS, Pass, RunId, SkippedCase
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import (
    THREADS_UNUSED,
    FigureKind,
    Outcome,
)
from orchestrator.records.verdict import Outputs, ParityVerdict, Quality, Severity
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
from orchestrator.units import counted, first_few, format_percent, tokens_per_s

_MOST_OPERATORS: Final = 6


class BestMark(enum.StrEnum):
    """The rank of a judged figure among the configurations of its model on its device."""

    #: Not the fastest, or not judged.
    NONE = ""
    BEST = "clear"
    #: Not clearly slower than the fastest (95 % interval).
    TIED = "tied"
    #: Nothing else has a clean figure.
    ALONE = "only one"
    #: The fastest of figures of one process each, which have no intervals.
    UNTESTED = "not tested"


def title_of(campaign: Campaign) -> str:
    """Return a campaign's name and start time, which tells two nightly runs of one plan apart."""
    origin = origin_of(campaign)
    title = f"{campaign.name or campaign.campaign_id}, {moment_text(campaign.created_at)}"
    return f"{title}, {origin}" if origin else title


@frozen
class DeviceRow:
    """A device under a label that no other device of the report has."""

    serial: str
    label: str
    is_virtual: bool
    #: None for a device that has runs and isn't in the store's list.
    facts: DeviceFacts | None

    @property
    def title(self) -> str:
        """The label, with the word ``virtual`` for places without a badge."""
        return f"{self.label} (virtual)" if self.is_virtual else self.label

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a person may use for it."""
        return self.facts.names if self.facts else (self.serial, self.label)


@frozen
class ModelRow:
    """A model under a label that no other model of the report has."""

    sha256: str
    #: The measured part of it (Case.subject): only figures of one subject are compared.
    subject: str
    label: str
    #: None where the model isn't stored, or only figures that another lab measured.
    size_bytes: int | None
    #: In percent, as published for the model's own test data; None where unknown.
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


#: The outcome of a process that gave no result, in words.
_FAILURE_WORDS: Final = {
    Outcome.COMPLETED: "rejected",
    Outcome.FAILED: "failed",
    Outcome.TIMED_OUT: "timed out",
    Outcome.ABORTED: "interrupted",
}


class FailedRuns(NamedTuple):
    """Processes of one case that failed for one reason."""

    #: ``1 of 4 processes failed: gpu-init-failed``.
    text: str
    code: str


@dataclass(frozen=True, kw_only=True)
class ResultRow(CaseResult):
    """One case of a report: its result, and what else is shown of it.

    Its runs have no attachments, and no operators, which are in ``profiles``; their texts are ready
    for a report.
    """

    model: ModelRow
    device: DeviceRow
    #: A label for delegate, threads, tool and flags that no other case of this model on this device
    #: has.
    configuration: str
    best: BestMark = BestMark.NONE
    #: Over the baseline configuration; None when either side isn't judged.
    speed_up: Ratio | None = None
    #: The configuration that the speed-up is over: the fastest on the CPU of the same device,
    #: program and settings.
    baseline: str = ""
    #: The figure that is compared with others of this model on this device: a mean where one of
    #: them has no medians. None where it isn't judged.
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
    #: The log of the case's most informative run, and that run's samples as JSON, by its id.
    logs: Mapping[RunId, tuple[LogExcerpt, str]]
    #: The lines of passes beside its latency, by the name of their table.
    pass_lines: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    #: By campaign, where the plan has the pass ``profile``.
    profiles: tuple[Profile, ...] = ()
    #: Why it has this number of invocations, for each campaign with a stopping rule: (code,
    #: sentence).
    stopped: tuple[tuple[str, str], ...]

    @property
    def is_virtual(self) -> bool:
        """Whether the device or that of an invocation is virtual, or the program is a fake binary."""
        return self.device.is_virtual or super().is_virtual

    @property
    def suspect(self) -> Mapping[Pass, str]:
        """The passes with a suspect run -> the code of the first warning of the newest one."""
        return {
            run.run_pass: "".join(run.verdict.codes[:1])
            for run in self.runs
            if run.verdict.quality is Quality.SUSPECT
        }

    @property
    def key(self) -> str:
        """The case's key, which is unique in a report."""
        return self.case.case_key

    @property
    def place(self) -> tuple[str, str]:
        """Model and device: the group of a chart, a line of a matrix or a bar's scale."""
        return self.model.subject, self.device.serial

    @property
    def where(self) -> str:
        """Model and device in words."""
        return f"{self.model.label} on {self.device.title}"

    @property
    def title(self) -> str:
        """Model, device and configuration in one line."""
        return f"{self.where}, {self.configuration}"

    @property
    def has_mean(self) -> bool:
        """Whether the figure is made of means, not medians; False for tokens per second, which
        always are.
        """
        return (
            not self.case.is_per_token
            and self.own_summary is not None
            and self.figure is FigureKind.MEAN
        )

    @property
    def speeds(self) -> tuple[float | None, float | None, float | None]:
        """A language model's tokens per second with the ends of their interval.

        None for every other case.
        """
        summary = self.own_summary
        if summary is None or not self.case.is_per_token:
            return None, None, None
        ends = (summary.interval.high, summary.interval.low) if summary.interval else (None, None)
        median, low, high = map(tokens_per_s, (summary.median_us, *ends))
        return median, low, high

    @property
    def has_memory(self) -> bool:
        """Whether any memory of the case is known."""
        return any(
            part is not None
            for part in (self.init_memory_mib, self.overall_memory_mib, self.peak_memory_mib)
        )

    @property
    def command(self) -> str:
        """The command of the first invocation that has one."""
        return next((run.command for run in self.runs if run.command), "")

    @property
    def next_step(self) -> str:
        """The next step for a case without a figure of its own; empty for none."""
        return next_step(self)

    @property
    def failed_runs(self) -> list[FailedRuns]:
        """Its failed processes by pass and reason; none for a case without a figure, which has a
        reason itself.
        """
        if self.own_summary is None and self.status is not CaseStatus.UNTIMED:
            return []
        started = [run for run in self.runs if run.is_begun]
        of_pass = Counter(run.run_pass for run in started)
        counts = Counter(
            (run.run_pass, run.outcome, code) for run in started if (code := run.lost_code)
        )
        return [
            FailedRuns(
                text=f"{count} of {of_pass[name]} processes"
                f"{'' if name is FIGURE_PASS else f' of the pass {name}'}"
                f" {_FAILURE_WORDS[outcome]}: {code}",
                code=code,
            )
            for (name, outcome, code), count in counts.items()
        ]

    @property
    def is_unused_thread_count(self) -> bool:
        """Whether it wasn't measured because its delegate uses no threads: another case has its
        figure.
        """
        return self.status is CaseStatus.SKIPPED and self.reason_code == THREADS_UNUSED

    @property
    def ran_on(self) -> str:
        """Where the operators ran, as the program printed it: ``gpu``; empty when unknown."""
        return place_of(self.evidence) if self.evidence is not None else ""

    @property
    def cpu_operators(self) -> str:
        """The operators that a delegate left to the CPU, with the program's reasons; empty where
        none were listed.
        """
        operators = self.evidence.cpu_operators if self.evidence is not None else ()
        descriptions = [
            f"{name} ({reason})" if reason else name for name, reason in dict.fromkeys(operators)
        ]
        return "; ".join(first_few(descriptions, _MOST_OPERATORS))

    @property
    def outputs_text(self) -> str:
        """The check of the outputs in words, with their difference: ``differ (0.83)``."""
        if self.outputs is None:
            return NOTHING
        error = self.parity_error
        is_known = self.outputs is Outputs.DIFFER and error is not None
        return f"{self.outputs} ({error:.2g})" if is_known else self.outputs.value

    @property
    def may_be_wrong(self) -> bool:
        """Whether its outputs need a check: neither the reference's own kernels nor tokens."""
        return self.outputs is not Outputs.REFERENCE and not self.case.is_per_token

    @property
    def has_checked_outputs(self) -> bool:
        """Whether a report shows the check of its outputs: they differ, or belong to a figure that
        needs a check.
        """
        return self.may_be_wrong and (
            self.own_summary is not None or self.outputs is Outputs.DIFFER
        )

    @property
    def is_proven_best(self) -> bool:
        """Whether it wins, and its outputs are those of its model."""
        is_right = self.outputs is Outputs.CHECKED or not self.may_be_wrong
        return self.best in {BestMark.BEST, BestMark.ALONE} and is_right

    @property
    def spread_text(self) -> str:
        """Half the interval in percent of the median: ``±1.9 %``; ``---`` for a single invocation."""
        half_width = self.summary.spread if self.summary is not None else None
        return NOTHING if half_width is None else f"±{format_percent(half_width)}"

    @property
    def quality_word(self) -> str:
        """The quality of the figure, or why there is none: ``clean``, ``timed out``."""
        return self.quality.word if self.quality is not None else STATUS_WORDS[self.status]

    @property
    def quality_text(self) -> str:
        """The quality word with the figure's caveat: ``clean, one process``."""
        caveat = self.lacking
        return f"{self.quality_word}, {caveat}" if caveat else self.quality_word

    @property
    def delegate_text(self) -> str:
        """Where the operators ran, in words; ``---`` when nothing ran."""
        if self.status is CaseStatus.FELL_BACK:
            return fallback_words(self.evidence, self.truth)
        return NOTHING if self.truth is None else truth_words(self.evidence, self.truth)

    @property
    def why_not_clean(self) -> str:
        """Why the figure isn't clean, or why there is none: ``suspect (few-inferences)``, ``failed
        (crashed)``, ``fell back to CPU``, ``not confirmed``.
        """
        status = self.status
        if status is CaseStatus.FELL_BACK:
            return self.delegate_text
        if status is CaseStatus.UNCONFIRMED:
            return STATUS_WORDS[status]
        is_judged = status in {CaseStatus.MEASURED, CaseStatus.REJECTED}
        code = self.worst_code if is_judged else self.reason_code
        is_word_enough = not code or code == status.value
        return self.quality_word if is_word_enough else f"{self.quality_word} ({code})"

    @property
    def worst_code(self) -> str:
        """Why the figure isn't clean: the worst code of its invocations, or another reason.

        Findings of other passes, and of invocations that the figure doesn't come from, don't count.
        """
        weighing = [
            item.finding.code
            for item in self.finding_counts
            if item.finding.severity is not Severity.INFO and item.is_of_figure
        ]
        if self.parity is ParityVerdict.WRONG or (
            self.parity is ParityVerdict.DRIFT and not weighing
        ):
            return PARITY_WORDS[self.parity]
        if weighing:
            return weighing[0]
        if 2 * len(self.used) < self.ended:
            return f"{len(self.used)} of {self.ended} invocations usable"
        return "invocations disagree"
