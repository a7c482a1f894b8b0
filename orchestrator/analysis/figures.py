"""What invocations printed as their latencies, so that only figures of one kind stand against each other. Pure.

A program that prints percentiles gives an invocation's median, an older one its mean. The mean of a few slow inferences
among many lies some per cent above the median: a difference of kind looks like a difference of speed.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.analysis.outcome import NOT_WHAT_WAS_ASKED
from orchestrator.analysis.summary import own_error
from orchestrator.records.run import DelegateTruth, FigureKind, Outcome, RunRecord
from orchestrator.records.workload import Pass


def truth_of(run: RunRecord) -> DelegateTruth:
    """Return where an invocation's operators ran, as judged from its output."""
    return DelegateTruth.UNKNOWN if run.report is None else run.report.delegate.truth


def figure_us(run: RunRecord, kind: FigureKind | None = None) -> float | None:
    """Return the latency that a timing invocation printed, whatever it is a figure of; None when it printed none.

    Beside :attr:`RunRecord.latency_us` this reads invocations that are kept as failed only because the delegate
    isn't the one that was asked for: their program ended well and their figure is evidence.

    Args:
        run: the invocation.
        kind: what is asked for; the invocation's own kind when None.
    """
    report = run.report
    if run.run_pass is not Pass.TIMING or report is None or report.outcome != "ok":
        return None
    is_foreign = run.outcome is Outcome.FAILED and truth_of(run) in NOT_WHAT_WAS_ASKED
    return report.latency_us(kind) if run.outcome is Outcome.COMPLETED or is_foreign else None


def figure_error(run: RunRecord, kind: FigureKind) -> float | None:
    """Return how unsure the process itself is of its figure, as a share; None where it printed too little."""
    inference = None if run.report is None else run.report.inference
    return None if inference is None else own_error(inference, of_mean=kind is FigureKind.MEAN)


def of_one_kind(runs: Sequence[RunRecord]) -> tuple[FigureKind, list[RunRecord]]:
    """Return the kind of figure that invocations share, and those of them that have it.

    That is the median where all printed one, else the mean; the median again only where more have that than a mean.
    """
    medians, means = (
        [run for run in runs if figure_us(run, kind) is not None] for kind in (FigureKind.MEDIAN, FigureKind.MEAN)
    )
    if len(medians) == len(runs) or len(medians) > len(means):
        return FigureKind.MEDIAN, medians
    return FigureKind.MEAN, means
