"""What a process's printed summary says of how its inferences differ. Pure.

Nothing but the summary is known: count, first, last, min, max, mean, deviation and three percentiles. Each finding is
one that the summary proves or makes very unlikely otherwise; where it doesn't, the spread alone is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from orchestrator.records.run import LatencySummary
from orchestrator.records.verdict import Finding, Severity
from orchestrator.units import format_latency, format_percent

#: Fewer inferences than this say little about the process's own spread.
RUNS_MIN: Final = 10
#: (p95 - p5) / median of a steady run stays below this.
SPREAD_MAX: Final = 0.5
#: From this spread on, a trend or two modes matter.
SPREAD_TOLD: Final = 0.1
#: A last repetition of a process this much slower than the first shows heat; repetitions that differ so much, anything.
REPETITIONS_FALL_MAX: Final = 0.1
REPETITIONS_SPREAD_MAX: Final = 0.25
#: The shape of a distribution needs as many inferences.
_SHAPE_COUNT: Final = 20
#: A mean this much above the median comes from a few inferences that took very long.
_OUTLIER_SHARE: Final = 0.1


def steadiness_findings(inference: LatencySummary) -> Iterator[Finding]:
    """Yield what speaks against a series of inferences."""
    if inference.count < RUNS_MIN:
        message = f"{inference.count} inferences, at least {RUNS_MIN} are needed"
        yield Finding(code="few-runs", severity=Severity.WARNING, message=message)
    median, p5, p95 = inference.median_us, inference.p5_us, inference.p95_us
    if not median or p5 is None or p95 is None:
        return
    spread = (p95 - p5) / median
    percentiles = f"p5 {format_latency(p5)}, p95 {format_latency(p95)}"
    if spread > SPREAD_MAX:
        message = f"90 % of the inferences spread over {format_percent(spread, 0)} of the median"
        yield Finding(code="unsteady", severity=Severity.WARNING, message=message, evidence=percentiles)
    if inference.count < _SHAPE_COUNT:
        return
    if spread > SPREAD_TOLD and (trend := _trend(inference, p5, p95)):
        evidence = f"first {format_latency(inference.first_us or 0)}, last {format_latency(inference.current_us or 0)}"
        yield Finding(code="unsteady-trend", severity=Severity.WARNING, message=trend, evidence=evidence)
    elif spread > SPREAD_TOLD and _has_two_modes(inference):
        message = "the inferences fall into two groups: a clock or a core changed between them"
        yield Finding(code="unsteady-two-modes", severity=Severity.WARNING, message=message, evidence=percentiles)
    mean = inference.mean_us
    if spread <= SPREAD_MAX and mean is not None and mean > (1 + _OUTLIER_SHARE) * median:
        message = (
            f"a few inferences took so long that the mean is {format_percent(mean / median - 1, 0)} over the median"
        )
        evidence = f"longest {format_latency(inference.max_us)}" if inference.max_us is not None else ""
        yield Finding(code="outliers", severity=Severity.INFO, message=message, evidence=evidence)


def repetition_findings(each_us: Sequence[float]) -> Iterator[Finding]:
    """Yield what speaks against a process's repetitions, of which each has a time of its own, in their order.

    They are one trajectory: the phone heats up while they run.
    """
    if len(each_us) < 2 or min(each_us) <= 0:
        return
    first, last = each_us[0], each_us[-1]
    told = f"{len(each_us)} repetitions: " + ", ".join(format_latency(each) for each in each_us[:20])
    if last > (1 + REPETITIONS_FALL_MAX) * first:
        message = f"the last repetition is {format_percent(last / first - 1, 0)} slower than the first"
        yield Finding(code="unsteady-trend", severity=Severity.WARNING, message=message, evidence=told)
    elif max(each_us) > (1 + REPETITIONS_SPREAD_MAX) * min(each_us):
        longer = format_percent(max(each_us) / min(each_us) - 1, 0)
        message = f"the slowest repetition takes {longer} longer than the fastest"
        yield Finding(code="unsteady", severity=Severity.WARNING, message=message, evidence=told)


def _trend(inference: LatencySummary, p5: float, p95: float) -> str:
    """Say which way it went when the first is among the extremes of one side and the last of the other.

    In an order without a trend that happens once in 200 runs (0.05 x 0.05, either way).
    """
    first, last = inference.first_us, inference.current_us
    if first is None or last is None:
        return ""
    if first <= p5 and last >= p95:
        return "the inferences became slower while the process ran"
    if first >= p95 and last <= p5:
        return "the inferences became faster while the process ran"
    return ""


def _has_two_modes(inference: LatencySummary) -> bool:
    """Whether the deviation is larger than any distribution with one peak between this minimum and maximum can have.

    The variance of a unimodal distribution on [a, b] is at most (b - a)**2 / 9 (H. I. Jacobson, "The maximum variance
    of restricted unimodal distributions", Annals of Mathematical Statistics 40, 1969).
    """
    low, high, std = inference.min_us, inference.max_us, inference.std_us
    return low is not None and high is not None and std is not None and high > low and std > (high - low) / 3
