"""The ending of an invocation, and the kind of figure that it printed. Pure.

A program that prints percentiles gives an invocation's median, an older one its mean. The mean of a
few slow inferences among many lies some per cent above the median: a difference of kind looks like
a difference of speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from orchestrator.frozen import frozen
from orchestrator.records.case import FIGURE_PASS
from orchestrator.records.run import (
    SETUP_CODES,
    DelegateTruth,
    FigureKind,
    Outcome,
    RunRecord,
    ToolReport,
)
from orchestrator.records.verdict import Quality

#: The figures of such a run are those of another configuration than the one asked for.
NOT_WHAT_WAS_ASKED: Final = {
    DelegateTruth.NONE: "the delegate took no operator; the figures are the CPU's",
    DelegateTruth.FELL_BACK: "the delegate could not be made and the program went on without it",
    DelegateTruth.FLAG_IGNORED: "the program doesn't know the delegate's flag and went on without it",
    DelegateTruth.WRONG_BACKEND: "the delegate ran on another backend than the one asked for",
    DelegateTruth.FAILED: "the delegate failed",
}

#: What the benchmark programs of TensorFlow Lite round their figures to, in microseconds.
PRINTED_US: Final = 1.0
_QUALITIES: Final = (Quality.TRUSTED, Quality.SUSPECT, Quality.REJECTED)


@frozen
class Ending:
    """An outcome with its documented code and a sentence; both empty when completed."""

    outcome: Outcome
    reason_code: str = ""
    reason: str = ""


def skipped(reason_code: str, reason: str) -> Ending:
    """Return the ending of an invocation that isn't run."""
    return Ending(outcome=Outcome.SKIPPED, reason_code=reason_code, reason=reason)


def ending_of(report: ToolReport, *, exit_code: int | None, timed_out: bool) -> Ending:
    """Return an invocation's ending.

    A run whose delegate fell back is FAILED, so that its figures never stand under the delegate's
    name.
    """
    if timed_out:
        return Ending(
            outcome=Outcome.TIMED_OUT,
            reason_code="timed-out",
            reason=report.failure_reason or "the program was still running when its time was over",
        )
    if report.outcome != "ok" or exit_code not in {0, None}:
        problem = f"ended with {_exit_text(exit_code)} and no result"
        if report.outcome == "ok":
            problem = f"printed a result but ended with {_exit_text(exit_code)}"
        return Ending(
            outcome=Outcome.FAILED,
            reason_code=report.failure_code or "tool-failed",
            reason=report.failure_reason or f"the program {problem}",
        )
    if report.delegate.truth in NOT_WHAT_WAS_ASKED:
        setup_code = report.failure_code if report.failure_code.startswith(SETUP_CODES) else ""
        detail = report.failure_reason if setup_code else next(iter(report.delegate.lines), "")
        evidence = f": {detail}" if detail else ""
        return Ending(
            outcome=Outcome.FAILED,
            reason_code=setup_code or f"delegate-{report.delegate.truth}",
            reason=f"{report.delegate.requested}: {NOT_WHAT_WAS_ASKED[report.delegate.truth]}{evidence}",
        )
    return Ending(outcome=Outcome.COMPLETED)


def _exit_text(exit_code: int | None) -> str:
    if exit_code is None:
        return "no exit code"
    if exit_code > 128:
        return f"signal {exit_code - 128}"
    return f"exit code {exit_code}"


def truth_of(run: RunRecord) -> DelegateTruth:
    """Return where an invocation's operators ran, as judged from its output."""
    return DelegateTruth.UNKNOWN if run.report is None else run.report.delegate.truth


def figure_us(run: RunRecord, kind: FigureKind | None = None) -> float | None:
    """Return the latency that a timing invocation printed, whatever it is a figure of.

    None when it printed none.

    Unlike :attr:`RunRecord.latency_us` this reads invocations that failed only because the delegate
    isn't the requested one: their program ended well and their figure is evidence.

    Args:
        run: the invocation.
        kind: what is asked for; the invocation's own kind when None.
    """
    report = run.report
    if run.run_pass is not FIGURE_PASS or report is None or report.outcome != "ok":
        return None
    if run.outcome is Outcome.COMPLETED or (
        run.outcome is Outcome.FAILED and truth_of(run) in NOT_WHAT_WAS_ASKED
    ):
        return report.latency_us(kind)
    return None


def resolution_us(run: RunRecord) -> float:
    """Return the step that an invocation's figures are rounded to, in microseconds.

    The default is that of TensorFlow Lite's benchmark programs, whole microseconds; 0 for times of
    tokens, which are quotients.
    """
    usual = 0.0 if run.case.is_per_token else PRINTED_US
    resolution = run.extra_figure("resolution_us")
    return usual if resolution is None else resolution


def worst_quality(runs: Iterable[RunRecord]) -> Quality:
    """Return the worst quality among one invocation or more."""
    return max((run.verdict.quality for run in runs), key=_QUALITIES.index)


def of_one_kind(runs: Sequence[RunRecord]) -> tuple[FigureKind, list[tuple[RunRecord, float]]]:
    """Return the kind of figure that invocations share, and the invocations that have it, each with
    its figure; those without any figure don't count.

    The kind is the median where all printed one, else the mean; but the median where more have one
    than have a mean.
    """
    with_figure = [run for run, _ in _figures(runs)]
    medians = _figures(with_figure, FigureKind.MEDIAN)
    if len(medians) == len(with_figure):
        return FigureKind.MEDIAN, medians
    means = _figures(with_figure, FigureKind.MEAN)
    if len(medians) > len(means):
        return FigureKind.MEDIAN, medians
    return FigureKind.MEAN, means


def _figures(
    runs: Sequence[RunRecord], kind: FigureKind | None = None
) -> list[tuple[RunRecord, float]]:
    return [(run, latency_us) for run in runs if (latency_us := figure_us(run, kind)) is not None]
