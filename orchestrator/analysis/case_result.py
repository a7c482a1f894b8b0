"""The result of one case's invocations: a figure that belongs to the case, or the reason why
there is none.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from orchestrator.analysis.findings import finding
from orchestrator.analysis.intervals import (
    NO_AUTOCORRELATION,
    Autocorrelation,
    trimmed_mean,
)
from orchestrator.analysis.outcome import (
    NOT_WHAT_WAS_ASKED,
    figure_us,
    of_one_kind,
    resolution_us,
    truth_of,
    worst_quality,
)
from orchestrator.analysis.samples import BUSY_CLOCK, mean_clock_share
from orchestrator.analysis.summary import Round, Summary, logs_of, summarize
from orchestrator.delegates import is_on_gpu, is_on_opengl
from orchestrator.frozen import frozen
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import FIGURE_PASS, RunId, grouped
from orchestrator.records.plan import StoppingRule
from orchestrator.records.run import (
    ABANDONED,
    OPENGL,
    DelegateTruth,
    FigureKind,
    Outcome,
    RunRecord,
)
from orchestrator.records.verdict import (
    OUTPUT_FINDINGS,
    Finding,
    Grade,
    OutputCheck,
    ParityVerdict,
    Quality,
    Severity,
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


@frozen
class CaseResult:
    """One case over its invocations."""

    status: CaseStatus
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


def with_outputs(
    result: CaseResult, runs: Iterable[RunRecord], check: OutputCheck | None
) -> CaseResult:
    """Return the result of a case's latency with the check of its outputs: ``check`` is used where
    none of the runs compared them.

    A figure of a configuration whose outputs are wrong is rejected, however good it is; outputs
    that drift make it suspect.
    """
    own_check = next(iter(newest_checks(runs).values()), None)
    output_check = own_check or check
    if output_check is None:
        return result
    verdict, reason = output_check.verdict, output_check.reason
    result = replace(result, parity=verdict, parity_reason=reason, parity_error=output_check.error)
    if result.summary is None or result.status is CaseStatus.FELL_BACK:
        return result
    if own_check is None:
        # Its own comparison has the finding already.
        codes = (
            code for code, finding_verdict in OUTPUT_FINDINGS.items() if finding_verdict is verdict
        )
        output_findings = (finding(code, evidence=reason) for code in codes)
        result = replace(result, findings=(*result.findings, *output_findings))
    if verdict is ParityVerdict.WRONG:
        return replace(
            result,
            status=CaseStatus.REJECTED,
            quality=Quality.REJECTED,
            reason_code="wrong-outputs",
            reason=f"Its outputs are wrong, so its speed counts for nothing: {reason}.",
        )
    if verdict is ParityVerdict.DRIFT and result.quality is Quality.TRUSTED:
        return replace(
            result, quality=Quality.SUSPECT, notes=(*result.notes, f"The outputs drift: {reason}.")
        )
    return result


def check_of(run: RunRecord) -> OutputCheck | None:
    """Return a run's check of the outputs, None where it didn't compare them."""
    extra = run.report.extra if run.report is not None else {}
    if not extra.get("parity"):
        return None
    return OutputCheck(
        verdict=ParityVerdict(str(extra["parity"])),
        reason=str(extra.get("parity_reason", "")),
        error=run.extra_figure("parity_error"),
        run_id=run.run_id,
        at=run.started_at,
    )


def newest_checks(
    runs: Iterable[RunRecord], campaigns: Iterable[Campaign] = ()
) -> dict[str, OutputCheck]:
    """Return the newest comparison of each case's outputs, whatever its number of threads, by
    `Case.outputs_key`: of some runs, and those stored with their campaigns.
    """
    checks = [item for campaign in campaigns for item in campaign.terms.output_checks.items()]
    checks += [
        (run.case.outputs_key, check) for run in runs if (check := check_of(run)) is not None
    ]
    return dict(sorted(checks, key=lambda item: item[1].at))


def judge_latency(
    runs: Sequence[RunRecord], *, others: Autocorrelation = NO_AUTOCORRELATION
) -> CaseResult:
    """Return the result of one case's stored invocations, whatever its outputs are.

    A figure is made only from invocations that agree on what it is a figure of. Rejected
    invocations never count. The quality is that of the worst invocation used; it is lowered to
    SUSPECT when invocations disagree about the delegate, or when fewer than half of those that
    ended could be used.

    ``others`` is the autocorrelation of the device without this case.
    """
    timing = [run for run in runs if run.run_pass is FIGURE_PASS]
    if not timing:
        return CaseResult(status=CaseStatus.NOT_RUN)
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
                status, sorted(used, key=lambda run: run.started_at), figures, ended, others
            )
    # The reason is that of an invocation that ended, else of one that was left out, else of one
    # that was abandoned.
    candidates = ended or [run for run in timing if run.reason_code != ABANDONED] or timing
    last = candidates[-1]
    has_no_figure = last.outcome is Outcome.COMPLETED
    return CaseResult(
        status=_STATUS_OF_OUTCOME[last.outcome],
        truth=truth_of(last) if last.report is not None else None,
        ended=len(ended),
        reason_code="no-figure" if has_no_figure else last.reason_code,
        reason="The program ended well and printed no latency." if has_no_figure else last.reason,
    )


def _with_figure(
    status: CaseStatus,
    used: Sequence[RunRecord],
    figures: Sequence[RunRecord],
    ended: Sequence[RunRecord],
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
    if 2 * len(used) < len(ended):
        notes.append(f"Only {len(used)} of {len(ended)} invocations could be used.")
    quality = worst_quality(used)
    if notes and quality is Quality.TRUSTED:
        quality = Quality.SUSPECT
    means = [figure_us(run, FigureKind.MEAN) for run in used]
    summary = summarize(
        [latency_us for _, latency_us in latencies],
        others=others,
        # The finest print that was seen: one figure in ten ends in a zero that may not be printed.
        resolution_us=min(map(resolution_us, used)),
        rounds=[Round(run.campaign_id, run.invocation, run.started_at.timestamp()) for run in used],
    )
    findings = (*clock_findings, *start_findings, *_mixed_grades(used), *_two_states(summary))
    notes += [finding.message for finding in findings]
    if quality is Quality.TRUSTED and any(
        finding.severity is Severity.WARNING for finding in findings
    ):
        quality = Quality.SUSPECT
    grades = [run.verdict.grade for run in used]
    if kind is FigureKind.MEAN:
        printed = sum(figure_us(run, FigureKind.MEDIAN) is not None for run in used)
        notes.append(
            f"{'Some' if printed else 'The'} invocations printed no medians: the figure is made of means."
        )
    reason_code, reason = _objection(status, used[-1])
    return CaseResult(
        status=status,
        reason_code=reason_code,
        reason=reason,
        truth=_shared_truth([truth_of(run) for run in used]),
        quality=quality,
        is_on_opengl=any(
            run.report is not None and is_on_opengl(run.report.delegate) for run in used
        ),
        summary=summary,
        figure=kind,
        means_us=() if None in means else tuple(mean for mean in means if mean is not None),
        used=tuple(run.run_id for run in used),
        ended=len(ended),
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
