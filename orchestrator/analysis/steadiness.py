"""How steady and how controlled one invocation was: its printed summary, and its grade by rule. Pure.

Nothing but the summary is known: count, first, last, min, max, mean, deviation and three percentiles. Each finding is
one that the summary proves or makes very unlikely otherwise; where it doesn't, the spread alone is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from orchestrator.records.device import DeviceFacts, DeviceState
from orchestrator.records.run import LatencySummary, ToolReport
from orchestrator.records.sample import RunConditions, RunSamples, Sample
from orchestrator.records.verdict import Finding, Grade, Severity
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
#: Signs in a summary of a run that nobody here saw: mean over median, deviation over mean, p95 over median, median over
#: the first inference on a CPU, and the warm-up over the measurement elsewhere.
SUMMARY_SKEW_MAX: Final = 0.05
SUMMARY_SPREAD_MAX: Final = 0.1
SUMMARY_TAIL_MAX: Final = 0.3
SUMMARY_FALL_MAX: Final = 0.1
SUMMARY_RAMP_MAX: Final = 0.2
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


def summary_findings(report: ToolReport, *, is_cpu: bool) -> Iterator[Finding]:
    """Yield what speaks against a run of which somebody else's summary is all that is known.

    Nobody saw the phone's heat and clocks, so that their traces in the figures count: a mean far above the median, a
    wide spread, a CPU that was faster at first, a GPU that was still warming up.
    """
    inference = report.inference
    if inference is None or not inference.median_us or not inference.mean_us:
        return
    median, mean = inference.median_us, inference.mean_us
    signs = (
        ("the mean's distance from the median", mean / median - 1, SUMMARY_SKEW_MAX),
        ("the deviation", (inference.std_us or 0.0) / mean, SUMMARY_SPREAD_MAX),
        ("p95's distance from the median", (inference.p95_us or median) / median - 1, SUMMARY_TAIL_MAX),
    )
    told = [
        f"{name} is {format_percent(share, 0)} (at most {format_percent(most, 0)})"
        for name, share, most in signs
        if share > most
    ]
    if told:
        yield Finding(code="unsteady", severity=Severity.WARNING, message="; ".join(told))
    first, warmup = report.first_inference_us, report.warmup_mean_us
    if is_cpu and first and median > (1 + SUMMARY_FALL_MAX) * first:
        message = f"the median is {format_percent(median / first - 1, 0)} slower than the first inference"
        yield Finding(code="unsteady-trend", severity=Severity.WARNING, message=message)
    if not is_cpu and warmup and warmup > (1 + SUMMARY_RAMP_MAX) * mean:
        message = (
            f"the warm-up was {format_percent(warmup / mean - 1, 0)} slower than the measurement: it still ramped up"
        )
        yield Finding(code="unsteady-trend", severity=Severity.WARNING, message=message)


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


#: A clock within this share of its limit is at it.
_AT_LIMIT: Final = 0.99
#: The mean clock of the fastest cluster that counts as "at its maximum throughout".
_AT_MAXIMUM: Final = 0.99
#: Other work and the load before that still count as quiet.
_QUIET_CORES: Final = 0.5
_QUIET_LOAD_PER_CORE: Final = 1.0
#: What makes a device one whose state was touched.
_TOUCHED: Final = frozenset({"throttled", "clocks-capped", "foreign-load", "screen-off", "battery-low", "clock-jumped"})


def grade_of(
    facts: DeviceFacts,
    before: DeviceState | None,
    after: DeviceState | None,
    *,
    looks: RunSamples,
    conditions: RunConditions,
    codes: frozenset[str],
) -> Grade:
    """Return the grade: the first that fits from the worst, what is unknown never counting for a better one.

    ``codes`` are the invocation's findings.
    """
    if before is None or after is None or facts.is_emulator or not _is_seen(before):
        return Grade.E
    if codes & _TOUCHED:
        return Grade.D
    if _is_pinned(before) and _is_pinned(after) and is_held(before, after, looks):
        return Grade.A
    if not before.clock_limit_khz or not after.clock_limit_khz:
        return Grade.D
    at_maximum = conditions.is_sampled and (_fastest_share(facts, conditions) or 0.0) >= _AT_MAXIMUM
    if at_maximum or is_held(before, after, looks):
        return Grade.B
    is_awake = before.screen_on is True and after.screen_on is True
    is_cool = before.thermal_status == 0 and after.thermal_status == 0
    return Grade.C if is_awake and is_cool and _is_quiet(facts, before, conditions) else Grade.D


def is_held(before: DeviceState | None, after: DeviceState | None, looks: RunSamples) -> bool:
    """Whether every cluster was seen at one and the same clock, its limit, before, during and after the run.

    That is what pinned clocks and a fixed performance mode look like: an idle phone's clocks are else far below.
    """
    if before is None or after is None or not before.clock_khz or not before.clock_limit_khz:
        return False
    limits = before.clock_limit_khz
    moments: tuple[Sample | DeviceState, ...] = (before, *looks.samples, after)
    for moment in moments:
        if dict(moment.clock_limit_khz) != dict(limits) or not _are_at(moment.clock_khz, limits):
            return False
    return True


def _fastest_share(facts: DeviceFacts, conditions: RunConditions) -> float | None:
    """Return the mean clock's share of the highest for the cluster with the highest clock."""
    fastest = max(facts.clusters, key=lambda cluster: cluster.max_khz or 0, default=None)
    shares = {one.cpu: one.share for one in conditions.clusters}
    return shares.get(min(fastest.cpus)) if fastest is not None and fastest.cpus else None


def _are_at(clocks: Mapping[int, int], limits: Mapping[int, int]) -> bool:
    return all(clocks.get(cpu, 0) >= _AT_LIMIT * limit for cpu, limit in limits.items())


def _is_pinned(state: DeviceState) -> bool:
    """Whether no cluster has a choice: its lowest clock is its highest, or its governor keeps the highest."""
    return bool(state.clock_limit_khz) and all(
        state.clock_floor_khz.get(cpu) == limit or state.governors.get(cpu) == "performance"
        for cpu, limit in state.clock_limit_khz.items()
    )


def _is_seen(state: DeviceState) -> bool:
    return (
        bool(state.clock_limit_khz or state.heat_c) or state.thermal_status is not None or state.load_1min is not None
    )


def _is_quiet(facts: DeviceFacts, before: DeviceState, conditions: RunConditions) -> bool:
    if conditions.foreign_cores is not None:
        return conditions.foreign_cores <= _QUIET_CORES
    cores = sum(len(cluster.cpus) for cluster in facts.clusters)
    return before.load_1min is not None and cores > 0 and before.load_1min <= _QUIET_LOAD_PER_CORE * cores
