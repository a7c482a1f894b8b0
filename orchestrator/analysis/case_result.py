"""The result of one case's runs: a figure that belongs to the case, or the reason why there is
none.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Final, TypeVar

from orchestrator.analysis.findings import finding, finding_step
from orchestrator.analysis.intervals import (
    NO_AUTOCORRELATION,
    Autocorrelation,
    trimmed_mean,
)
from orchestrator.analysis.quality import (
    NOT_WHAT_WAS_ASKED,
    figure_us,
    of_one_kind,
    resolution_us,
    truth_of,
    worst_quality,
)
from orchestrator.analysis.samples import BUSY_CLOCK, mean_clock_share
from orchestrator.analysis.summary import Round, Summary, logs_of, summarize
from orchestrator.delegates import DELEGATES, is_on_gpu, is_on_opengl, place_of
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign, Terms
from orchestrator.records.case import FIGURE_PASS, Build, CampaignId, Case, RunId, grouped
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import StoppingRule
from orchestrator.records.run import (
    ABANDONED,
    OPENGL,
    DelegateEvidence,
    DelegateTruth,
    FigureKind,
    Outcome,
    RunRecord,
)
from orchestrator.records.verdict import (
    ChangeRule,
    Finding,
    Grade,
    Outputs,
    ParityVerdict,
    Quality,
    Severity,
    outputs_of,
)
from orchestrator.units import format_percent

Key = TypeVar("Key", bound=Hashable)


class CaseStatus(enum.StrEnum):
    """The status of a case's result."""

    #: The figure is that of the delegate that was asked for.
    MEASURED = "measured"
    #: There is a figure; nothing shows where the operators ran.
    UNCONFIRMED = "unconfirmed"
    #: There is a figure, and it is that of something else than the delegate that was asked for.
    FELL_BACK = "fell-back"
    #: There is a figure, and it can't be used.
    REJECTED = "rejected"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    ABORTED = "aborted"
    UNFIT = "unfit"
    SKIPPED = "skipped"
    #: Planned, and no invocation is stored.
    NOT_RUN = "not-run"
    #: Only other passes were asked for: there is no latency to show, and none is missing.
    UNTIMED = "untimed"


#: A case that isn't measured, or whose turn didn't come.
NOT_MEASURED: Final = frozenset({CaseStatus.UNTIMED, CaseStatus.NOT_RUN, CaseStatus.SKIPPED})
#: What there is to show is a figure of the delegate that was asked for.
OWN_FIGURE: Final = frozenset({CaseStatus.MEASURED, CaseStatus.UNCONFIRMED})
#: An invocation whose mean clock is below this share of its siblings' median one ran at lower
#: clocks.
CLOCKS_LOW_MAX: Final = 0.92
#: Fewer siblings have no median that says which of them is the odd one.
SIBLINGS_MIN: Final = 4
#: At least this share of the lost clock must show in the latency.
SHOWN_SHARE: Final = 0.5
#: Invocations at lower clocks are left out up to this share.
LEFT_OUT_MAX: Final = 0.25
#: The first invocation is left out if it is slower than the trimmed mean of the others by at least
#: this log ratio and this many of their deviations.
SLOW_START_MIN: Final = 0.03
SLOW_START_STDS: Final = 5.0
#: The operators, or as many of them as the delegate takes, ran where they were meant to.
OWN_TRUTHS = frozenset({DelegateTruth.FULL, DelegateTruth.PARTIAL})
#: What a case with figures is, by the first of these that any of its invocations shows.
_STATUSES_OF_FIGURES: Final = (
    CaseStatus.MEASURED,
    CaseStatus.UNCONFIRMED,
    CaseStatus.FELL_BACK,
    CaseStatus.REJECTED,
)
_STATUS_OF_OUTCOME = {
    Outcome.COMPLETED: CaseStatus.FAILED,
    Outcome.FAILED: CaseStatus.FAILED,
    Outcome.TIMED_OUT: CaseStatus.TIMED_OUT,
    Outcome.ABORTED: CaseStatus.ABORTED,
    Outcome.SKIPPED: CaseStatus.SKIPPED,
    Outcome.UNFIT: CaseStatus.UNFIT,
}


#: As findings are listed.
SEVERITIES: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)


@frozen
class FindingCount:
    """One finding, with the number of a case's invocations that have it."""

    finding: Finding
    #: In how many invocations; 0 when it is about the case as a whole.
    count: int
    #: Whether it is about the case's figure, or an invocation that the figure comes from.
    is_of_figure: bool

    @property
    def next_step(self) -> str:
        """The next step; empty when none is known."""
        return finding_step(self.finding.code)


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One case with its runs, and what they are worth."""

    case: Case
    #: Of every pass, in the order of storing; none for a case that was only planned.
    runs: tuple[RunRecord, ...] = ()
    #: Those with a run of it; the only one where it has none.
    campaigns: tuple[Campaign, ...] = ()
    #: None where the store doesn't have it.
    facts: DeviceFacts | None = None
    program: Build | None = None
    status: CaseStatus
    #: Whether the latency is the requested delegate's and wasn't rejected, whatever the outputs are:
    #: by it more rounds are made.
    is_own_latency: bool = False
    #: Of the invocations that the figure comes from; None when nothing says where the operators
    #: ran.
    truth: DelegateTruth | None = None
    quality: Quality | None = None
    #: Over the invocations in ``used``. For FELL_BACK and REJECTED it is shown as evidence, never
    #: as a result.
    summary: Summary | None = None
    #: The figure is of a GPU that was driven through OpenGL.
    is_on_opengl: bool = False
    #: Half of a 95 % interval as a share of the figure that is narrow enough: the plan's, or the
    #: usual one.
    precision_goal: float = StoppingRule().half_width
    used: tuple[RunId, ...] = ()
    #: What the summary is made of: the invocations' medians, or their means where a program prints
    #: no medians.
    figure: FigureKind = FigureKind.MEDIAN
    #: The means of the invocations in ``used``; empty where one printed none.
    means_us: tuple[float, ...] = ()
    #: Timing invocations that came to an end of their own (neither skipped, nor unfit, nor
    #: interrupted by the user).
    ended: int = 0
    #: Why there is no figure, or why it isn't a result.
    reason_code: str = ""
    reason: str = ""
    #: What takes from the figure at this level, as sentences.
    notes: tuple[str, ...] = ()
    #: The worst grade of the invocations used; None when one of them has none.
    grade: Grade | None = None
    #: What only the invocations together show: ``clocks-low``, ``mixed-grades``, ``two-states``.
    findings: tuple[Finding, ...] = ()
    #: Of the newest comparison of the outputs with the reference; None when there was none.
    parity: ParityVerdict | None = None
    #: Its figures as a sentence.
    parity_reason: str = ""
    #: Its largest difference, as a share of the largest magnitude or in steps.
    parity_error: float | None = None

    def named(self, configuration: str) -> str:
        """Return a configuration's name, marked where its GPU ran on OpenGL without a flag for that."""
        if not self.is_on_opengl or "gpu_backend=" in configuration:
            return configuration
        name, comma, rest = configuration.partition(",")
        if not is_on_gpu(name):
            return configuration
        return f"{name} ({OPENGL}){comma}{rest}"

    @property
    def own_summary(self) -> Summary | None:
        """The figure, where it is the requested delegate's and wasn't rejected.

        None for any other.
        """
        return self.summary if self.status in OWN_FIGURE else None

    @property
    def median_us(self) -> float | None:
        """The own figure's median in microseconds."""
        return None if self.own_summary is None else self.own_summary.median_us

    @property
    def not_a_result_us(self) -> float | None:
        """The median of runs that weren't the requested measurement: shown as evidence alone."""
        is_other = self.own_summary is None
        return self.summary.median_us if self.summary is not None and is_other else None

    @property
    def precision(self) -> float | None:
        """Half the 95 % interval of the own figure as a share of it.

        None without one, as from a single process.
        """
        return None if self.own_summary is None else self.own_summary.spread

    @property
    def is_precise(self) -> bool:
        """Whether the own figure is precise enough for the goal; a clean figure may not be."""
        return self.precision is not None and self.precision <= self.precision_goal

    @property
    def lacking(self) -> str:
        """Why the own figure isn't precise: ``not precise``, ``one process``; empty if it is."""
        if self.own_summary is None:
            return ""
        if self.precision is None:
            return "one process"
        return "" if self.is_precise else "not precise"

    def by_means(self) -> CaseResult | None:
        """Return the same result made of means, to stand against one that has no medians.

        None without means.
        """
        if self.figure is FigureKind.MEAN or self.summary is None:
            return self
        if not self.means_us:
            return None
        summary = summarize(
            self.means_us,
            others=self.summary.others,
            resolution_us=self.summary.resolution_us,
            rounds=self.summary.rounds,
        )
        return replace(self, figure=FigureKind.MEAN, summary=summary)

    @property
    def is_judged(self) -> bool:
        """Whether the figure may be compared: clean, and shown to be the requested delegate's."""
        return (
            self.status is CaseStatus.MEASURED
            and self.quality is Quality.TRUSTED
            and self.truth in OWN_TRUTHS
            and self.summary is not None
        )

    @property
    def campaign(self) -> Campaign | None:
        """The newest campaign with a run of it, which its figure is of; None when unknown."""
        return max(self.campaigns, key=attrgetter("created_at"), default=None)

    @property
    def campaign_id(self) -> CampaignId:
        """That campaign's id; only for a case with runs or a campaign."""
        return self.campaign.campaign_id if self.campaign else self.runs[-1].campaign_id

    @property
    def terms(self) -> Terms:
        """Its campaign's terms."""
        return self.campaign.terms if self.campaign is not None else Terms()

    @property
    def device_title(self) -> str:
        """Its device's title, or its serial number."""
        return str(self.case.serial) if self.facts is None else self.facts.title

    @property
    def build(self) -> str:
        """Its program's name, where that is known, with the first digits of its contents."""
        names = [self.program.name] if self.program is not None else []
        return " ".join([*names, self.case.build_sha256[:8]])

    @cached_property
    def is_virtual(self) -> bool:
        """Whether an invocation's device is virtual, or the program is a fake binary."""
        is_fake = self.program is not None and self.program.is_virtual
        return is_fake or any(run.is_virtual for run in self.runs)

    @property
    def system(self) -> str:
        """The operating system's fingerprint when the campaign began; empty when it wasn't kept."""
        return self.terms.fingerprints.get(self.case.serial, "")

    @property
    def origin(self) -> str:
        """Where its campaigns were imported from, in words; empty for this store's own."""
        origins = (campaign.terms.origin for campaign in self.campaigns)
        return "; ".join(dict.fromkeys(origin.text for origin in origins if origin is not None))

    @property
    def change_rule(self) -> ChangeRule | None:
        """When a change was claimed by pairs that ended as soon as their verdict was known; None for
        a case of another campaign.
        """
        return self.terms.pairing.change_rule if self.terms.pairing is not None else None

    @cached_property
    def timing(self) -> tuple[RunRecord, ...]:
        """The runs of its latency."""
        return tuple(run for run in self.runs if run.run_pass is FIGURE_PASS)

    @cached_property
    def used_runs(self) -> dict[int, RunRecord]:
        """Invocation number -> run, of those that the figure comes from."""
        chosen = set(self.used)
        return {run.invocation: run for run in self.timing if run.run_id in chosen}

    def figure_kind(self, run: RunRecord) -> FigureKind:
        """Return the kind of a run's latency: the figure's for a run used, else that of what it
        printed, a mean where there is no usable median.
        """
        if run.run_id in self.used:
            return self.figure
        has_median = figure_us(run, FigureKind.MEDIAN) is not None
        return FigureKind.MEDIAN if has_median else FigureKind.MEAN

    @property
    def has_completed(self) -> bool:
        """Whether a run of its newest campaign, or of the newest that timed it, completed: its
        outputs can be checked.
        """
        newest = {run.campaign_id for run in (*self.runs[-1:], *self.timing[-1:])}
        return any(
            run.outcome is Outcome.COMPLETED for run in self.runs if run.campaign_id in newest
        )

    @cached_property
    def outputs(self) -> Outputs | None:
        """The state of the outputs of its figure; None where no run completed."""
        if not self.has_completed:
            return None
        reports = [run.report for run in self.runs if run.report is not None]
        # A text of another lab may say that its CPU ran XNNPACK's kernels.
        is_builtin = DELEGATES[self.case.delegate].is_builtin and all(
            report.delegate.actual in ("", self.case.delegate.value) for report in reports
        )
        return outputs_of(self.parity, is_builtin=is_builtin)

    @cached_property
    def finding_counts(self) -> tuple[FindingCount, ...]:
        """Each finding once, worst first."""
        groups = grouped(
            ((kind, run) for run in self.runs for kind in _kinds(run.verdict.findings).items()),
            lambda item: item[0][0],
        )
        counts = [
            FindingCount(
                finding=members[0][0][1],
                count=len(members),
                is_of_figure=any(run.run_id in self.used for _, run in members),
            )
            for members in groups.values()
        ]
        counts += [
            FindingCount(finding=item, count=0, is_of_figure=True)
            for kind, item in _kinds(self.findings).items()
            if kind not in groups
        ]
        counts.sort(
            key=lambda item: (
                SEVERITIES.index(item.finding.severity),
                -item.count,
                item.finding.code,
            )
        )
        return tuple(counts)

    @property
    def codes(self) -> frozenset[str]:
        """Codes of the warnings of the runs that the figure comes from, and of the figure itself."""
        return frozenset(
            item.finding.code
            for item in self.finding_counts
            if item.is_of_figure and item.finding.severity is Severity.WARNING
        )

    @cached_property
    def evidence(self) -> DelegateEvidence | None:
        """Where the operators ran, of the most informative invocation; None when no output was
        read.
        """
        read = [run for run in self.timing if run.report is not None]
        used = [run for run in read if run.run_id in self.used] or read
        evidence = [run.report.delegate for run in used if run.report is not None]
        return next((item for item in evidence if item.truth is self.truth), None) or (
            evidence[-1] if evidence else None
        )

    @cached_property
    def actual(self) -> str:
        """Where the operators of the runs used ran."""
        return actual_of(self.used_runs.values())


def _kinds(findings: Sequence[Finding]) -> dict[tuple[str, Severity], Finding]:
    """Return the first finding of each kind: a kind counts once per invocation."""
    return {(item.code, item.severity): item for item in reversed(findings)}


def actual_of(runs: Iterable[RunRecord]) -> str:
    """Return where the operators of some runs ran: ``gpu, partial``; empty when nothing shows it."""
    reports = [run.report for run in runs if run.report is not None]
    places = sorted({place_of(report.delegate) for report in reports if report.delegate.actual})
    truths = sorted({report.delegate.truth.value for report in reports})
    return ", ".join([*places, *truths]) if places else ""


def comparable(results: Mapping[Key, CaseResult]) -> dict[Key, CaseResult]:
    """Return results whose figures are of one kind: by their means where one of them has no
    medians.

    Those that have no figure of that kind are left out.
    """
    if all(result.figure is FigureKind.MEDIAN for result in results.values()):
        return dict(results)
    return {
        key: means for key, result in results.items() if (means := result.by_means()) is not None
    }


def judge_latency(
    runs: Sequence[RunRecord], *, others: Autocorrelation = NO_AUTOCORRELATION
) -> CaseResult:
    """Return the result of one case's stored runs, of which there is one or more, whatever its
    outputs are.

    A figure is made only from invocations that agree on what it is a figure of. Rejected
    invocations never count. The quality is that of the worst invocation used; it is lowered to
    SUSPECT when invocations disagree about the delegate, or when fewer than half of those that
    ended could be used.

    ``others`` is the autocorrelation of the device without this case.
    """
    unjudged = CaseResult(case=runs[0].case, runs=tuple(runs), status=CaseStatus.NOT_RUN)
    if not unjudged.timing:
        return unjudged
    timing = unjudged.timing
    ended = [run for run in timing if run.outcome.has_ended]
    figures = [run for run in ended if figure_us(run) is not None]
    by_status: dict[CaseStatus, list[RunRecord]] = {status: [] for status in _STATUSES_OF_FIGURES}
    for run in figures:
        truth, status = truth_of(run), CaseStatus.UNCONFIRMED
        if truth in NOT_WHAT_WAS_ASKED:
            status = CaseStatus.FELL_BACK
        elif run.verdict.quality is Quality.REJECTED:
            status = CaseStatus.REJECTED
        elif truth in OWN_TRUTHS:
            status = CaseStatus.MEASURED
        by_status[status].append(run)
    for status, used in by_status.items():
        if used:
            return _with_figure(
                replace(unjudged, status=status, ended=len(ended)),
                sorted(used, key=lambda run: run.started_at),
                figures,
                others,
            )
    # The reason is that of an invocation that ended, else of one that was left out, else of one
    # that was abandoned.
    candidates = ended or [run for run in timing if run.reason_code != ABANDONED] or timing
    last = candidates[-1]
    has_no_figure = last.outcome is Outcome.COMPLETED
    return replace(
        unjudged,
        status=_STATUS_OF_OUTCOME[last.outcome],
        truth=truth_of(last) if last.report is not None else None,
        ended=len(ended),
        reason_code="no-figure" if has_no_figure else last.reason_code,
        reason="The program ended well and printed no latency." if has_no_figure else last.reason,
    )


def _with_figure(
    result: CaseResult,
    used: Sequence[RunRecord],
    figures: Sequence[RunRecord],
    others: Autocorrelation,
) -> CaseResult:
    notes = []
    kind, measured = of_one_kind(used)
    at_clocks, clock_findings = _without_low_clocks(measured)
    latencies, start_findings = _without_slow_start(at_clocks)
    used = [run for run, _ in latencies]
    truths = {truth_of(run) for run in figures}
    if len(truths) > 1:
        places = ", ".join(sorted(truth.value for truth in truths))
        notes.append(f"The invocations disagree about where the operators ran: {places}.")
    if 2 * len(used) < result.ended:
        notes.append(f"Only {len(used)} of {result.ended} invocations could be used.")
    is_doubted = bool(notes)
    means = [figure_us(run, FigureKind.MEAN) for run in used]
    summary = summarize(
        [latency_us for _, latency_us in latencies],
        others=others,
        # The finest print that was seen: one figure in ten ends in a zero that may not be printed.
        resolution_us=min(map(resolution_us, used)),
        rounds=[Round(run.campaign_id, run.invocation, run.started_at.timestamp()) for run in used],
    )
    findings = (*clock_findings, *start_findings, *_mixed_grades(used), *_two_states(summary))
    is_doubted |= any(finding.severity is Severity.WARNING for finding in findings)
    notes += [finding.message for finding in findings]
    quality = worst_quality(used)
    grades = [run.verdict.grade for run in used]
    if kind is FigureKind.MEAN:
        printed = sum(figure_us(run, FigureKind.MEDIAN) is not None for run in used)
        notes.append(
            f"{'Some' if printed else 'The'} invocations printed no medians: the figure is made of means."
        )
    reason_code, reason = _objection(result.status, used[-1])
    return replace(
        result,
        is_own_latency=result.status in OWN_FIGURE,
        reason_code=reason_code,
        reason=reason,
        truth=_shared_truth([truth_of(run) for run in used]),
        quality=quality.doubted if is_doubted else quality,
        is_on_opengl=any(
            run.report is not None and is_on_opengl(run.report.delegate) for run in used
        ),
        summary=summary,
        figure=kind,
        means_us=() if None in means else tuple(mean for mean in means if mean is not None),
        used=tuple(run.run_id for run in used),
        notes=tuple(notes),
        grade=max((grade for grade in grades if grade is not None), default=None)
        if all(grades)
        else None,
        findings=findings,
    )


@frozen
class LowClock:
    """An invocation that ran at lower clocks than the others, and was slower because of it."""

    run: RunRecord
    #: Of the highest clock: its own, and the median of its siblings.
    share: float
    median_share: float


def clocks_low(runs: Sequence[RunRecord]) -> tuple[LowClock, ...]:
    """Return each invocation that ran at lower clocks than the others of its campaign and took
    longer for it.

    The clocks are those at which the cores worked, as the sampler read them. Without samples
    (apps, short runs) they are the means between the states before and after, which hold the
    phone's idle time as well. So the latency must have lost at least half of what the clock did.
    Only the CPU's own work is judged so: a phone lowers the CPU's clocks as it likes while an
    accelerator works.
    """
    measured = (run for run in runs if run.case.delegate.is_cpu)
    low_clocks: list[LowClock] = []
    for siblings in grouped(measured, lambda run: run.campaign_id).values():
        if len(siblings) < SIBLINGS_MIN:
            continue
        _, figures = of_one_kind(siblings)
        # All by the same measure: the clocks while the cores worked, or else mean clocks.
        rows = [(*pair, pair[0].extra_figure(BUSY_CLOCK) or 0.0) for pair in figures]
        if not all(share > 0 for _, _, share in rows):
            rows = [(*pair, share) for pair in figures if (share := mean_clock_share(pair[0])) > 0]
        if len(rows) < SIBLINGS_MIN:
            continue
        median_share = statistics.median(share for _, _, share in rows)
        median_us = statistics.median(latency_us for _, latency_us, _ in rows)
        for run, latency_us, share in rows:
            slowed = 1 + SHOWN_SHARE * (median_share / share - 1)
            if share < CLOCKS_LOW_MAX * median_share and latency_us >= slowed * median_us:
                low_clocks.append(LowClock(run=run, share=share, median_share=median_share))
    return tuple(low_clocks)


def _without_low_clocks(
    used: Sequence[tuple[RunRecord, float]],
) -> tuple[Sequence[tuple[RunRecord, float]], tuple[Finding, ...]]:
    """Return the invocations to make the figure from, and the finding about those at lower clocks.

    A few such invocations are left out. If there are many, the phone's usual clock is unknown, and
    all stay.
    """
    low = clocks_low([run for run, _ in used]) if len(used) >= SIBLINGS_MIN else ()
    if not low:
        return used, ()
    are_few = len(low) <= LEFT_OUT_MAX * len(used)
    listed = ", ".join(
        f"invocation {item.run.invocation + 1} at {item.share:.0%}, not {item.median_share:.0%}"
        for item in low
    )
    message = f"{len(low)} of {len(used)} invocations ran slower, at lower clocks than the others"
    if not are_few:
        return used, (finding("clocks-low", message, listed),)
    low_ids = {item.run.run_id for item in low}
    left_out = finding("clocks-low", f"{message}: left out", listed, severity=Severity.INFO)
    return [pair for pair in used if pair[0].run_id not in low_ids], (left_out,)


def _without_slow_start(
    used: Sequence[tuple[RunRecord, float]],
) -> tuple[Sequence[tuple[RunRecord, float]], tuple[Finding, ...]]:
    """Return the invocations without the first of their campaign where that one was slow: it warmed
    the device for the others, as the first pair of an A/B comparison does.
    """
    first = [pair for pair in used if pair[0].invocation == 0]
    later = [pair for pair in used if pair[0].invocation > 0]
    if len(first) != 1 or len(later) < SIBLINGS_MIN:
        return used, ()
    mean = trimmed_mean(logs_of([latency_us for _, latency_us in later]))
    slowdown = math.log(first[0][1]) - mean.value
    if slowdown < max(SLOW_START_MIN, SLOW_START_STDS * (mean.std or 0.0)):
        return used, ()
    message = "The first invocation was slower than the others: left out"
    evidence = f"{format_percent(math.expm1(slowdown))} slower than the mean of the others"
    return later, (finding("slow-start", message, evidence),)


def _two_states(summary: Summary) -> tuple[Finding, ...]:
    if summary.states is None:
        return ()
    message = f"The invocations fall into {summary.states.text}: the interval is the median's."
    return (finding("two-states", message),)


def _mixed_grades(runs: Sequence[RunRecord]) -> tuple[Finding, ...]:
    if len({run.verdict.grade for run in runs}) < 2:
        return ()
    counts = Counter(
        "no grade" if run.verdict.grade is None else run.verdict.grade.value for run in runs
    )
    listed = ", ".join(f"{count} of {grade}" for grade, count in sorted(counts.items()))
    message = f"The invocations were made under differently controlled conditions: {listed}."
    return (finding("mixed-grades", message),)


def _objection(status: CaseStatus, run: RunRecord) -> tuple[str, str]:
    """Return the code and sentence why a figure isn't a result; empty when it is one."""
    if status is CaseStatus.FELL_BACK:
        truth = truth_of(run)
        return run.reason_code or f"delegate-{truth}", run.reason or NOT_WHAT_WAS_ASKED[truth]
    if status is CaseStatus.REJECTED:
        errors = [finding for finding in run.verdict.findings if finding.severity is Severity.ERROR]
        return (
            (errors[0].code, errors[0].message)
            if errors
            else ("rejected", "The invocation was rejected.")
        )
    return "", ""


def _shared_truth(truths: Sequence[DelegateTruth]) -> DelegateTruth:
    """Return the one truth, or the lesser one: part of the operators is the most that all
    invocations have shown.
    """
    if DelegateTruth.PARTIAL in truths:
        return DelegateTruth.PARTIAL
    return truths[0]
