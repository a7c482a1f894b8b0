"""An invocation's ending, the kind of figure that it printed, and its quality, grade and findings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias

from orchestrator.analysis.findings import finding
from orchestrator.analysis.samples import derive_conditions, parse_samples
from orchestrator.delegates import DELEGATES
from orchestrator.records import frozen
from orchestrator.records.case import FIGURE_PASS, IMPORTED_TOOLS, Case
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState, Moment
from orchestrator.records.plan import Screen
from orchestrator.records.run import (
    SETUP_CODES,
    DelegateTruth,
    FigureKind,
    Outcome,
    RunConditions,
    RunRecord,
    RunSamples,
    ToolReport,
)
from orchestrator.records.verdict import Finding, Grade, Quality, QualityVerdict, Severity

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


#: Yields the findings of one pass alone, for a report of a case on a device.
FindingsOf: TypeAlias = Callable[[ToolReport, Case, DeviceFacts], Iterable[Finding]]


@frozen
class Observed:
    """One invocation as observed: its case, its device, and the device's state meanwhile."""

    case: Case
    facts: DeviceFacts
    #: The device's before and after.
    before: DeviceState | None = None
    after: DeviceState | None = None
    #: What the sampler wrote; empty where none ran.
    samples: bytes = b""
    #: The screen state that the plan asks for.
    screen: Screen = Screen.ON
    run_samples: RunSamples = field(init=False)
    conditions: RunConditions = field(init=False)

    def __post_init__(self) -> None:
        run_samples = parse_samples(self.samples)
        conditions = derive_conditions(self.before, self.after, run_samples)
        object.__setattr__(self, "run_samples", run_samples)
        object.__setattr__(self, "conditions", conditions)

    @property
    def is_held(self) -> bool:
        """Whether every cluster was seen at one and the same clock, its limit, before, during and
        after the run.

        Pinned clocks and a fixed performance mode show so: else an idle phone's clocks are far below.
        """
        before, after = self.before, self.after
        if before is None or after is None or not before.clock_khz or not before.clock_limit_khz:
            return False
        limits = before.clock_limit_khz
        moments: tuple[Moment, ...] = (before, *self.run_samples.samples, after)
        return all(
            dict(moment.clock_limit_khz) == dict(limits) and _are_at(moment.clock_khz, limits)
            for moment in moments
        )


def judge(
    report: ToolReport | None, ending: Ending, observed: Observed, of_pass: FindingsOf
) -> QualityVerdict:
    """Return the quality, the grade and the findings of one invocation; ``of_pass`` yields the
    findings of its pass alone.
    """
    case, facts, run_samples = observed.case, observed.facts, observed.run_samples
    findings = list(_device_findings(facts))
    if case.tool in IMPORTED_TOOLS:
        findings.append(finding("imported"))
    has_ended = ending.outcome is Outcome.COMPLETED
    if not has_ended or report is None:
        findings.append(finding("not-completed", f"{ending.outcome}: {ending.reason}"))
    else:
        findings += (*_report_findings(report, case, facts), *of_pass(report, case, facts))
    if has_ended and _lacks_samples(observed):
        evidence = f"{len(run_samples.samples)} of at least 2 samples"
        trouble = (
            observed.samples.decode("utf-8", "replace").strip().splitlines()[-1:]
            if not run_samples.samples
            else []
        )
        findings.append(finding("unwatched", evidence=": ".join([evidence, *trouble])[:300]))
    is_median = (
        report is not None
        and report.inference is not None
        and report.inference.median_us is not None
    )
    findings += _state_findings(observed, is_median=is_median)
    codes = frozenset(each.code for each in findings)
    grade = grade_of(observed, codes) if has_ended else None
    return QualityVerdict(quality=_quality(findings), findings=tuple(findings), grade=grade)


def _lacks_samples(observed: Observed) -> bool:
    """Whether a run should have at least 2 samples and doesn't: one of a program of ours on a phone."""
    case = observed.case
    is_ours = observed.facts.kind is DeviceKind.ANDROID and not (
        case.tool.is_app or case.tool.is_session or case.tool in IMPORTED_TOOLS
    )
    is_measured = observed.before is not None and observed.after is not None
    return is_ours and is_measured and len(observed.run_samples.samples) < 2


def _quality(findings: list[Finding]) -> Quality:
    severities = {each.severity for each in findings}
    if Severity.ERROR in severities:
        return Quality.REJECTED
    return Quality.SUSPECT if Severity.WARNING in severities else Quality.TRUSTED


def _device_findings(facts: DeviceFacts) -> Iterator[Finding]:
    if facts.is_virtual:
        yield finding("virtual-device")
    elif facts.is_emulator:
        yield finding("emulator", evidence=facts.fingerprint)


def _report_findings(report: ToolReport, case: Case, facts: DeviceFacts) -> Iterator[Finding]:
    truth, delegate = report.delegate.truth, report.delegate
    if truth is DelegateTruth.PARTIAL:
        nodes = f"{delegate.share_text or 'not all'} operators"
        message = f"{nodes} ran on {delegate.requested}{delegate.partitions_text}"
        yield finding("delegate-partial", message, *delegate.lines[:1])
    elif truth is DelegateTruth.UNKNOWN and not DELEGATES[case.delegate].is_builtin:
        if delegate.actual == case.delegate.value:
            message = f"{case.delegate} was used; how many of the operators it ran isn't reported"
            yield finding("delegate-unknown", message, *delegate.lines[:1], severity=Severity.INFO)
        else:
            yield finding("delegate-unknown")
    if report.unconsumed_flags:
        yield finding("flags-ignored", evidence=" ".join(report.unconsumed_flags))
    for disagreement in report.disagreements:
        yield finding("sources-disagree", evidence=disagreement)
    if "log_cut" in report.extra:
        yield finding("log-cut")
    if "files_refused" in report.extra:
        yield finding("files-refused", evidence=str(report.extra["files_refused"]))
    if "output_cut" in report.extra:
        yield finding("output-cut", evidence=str(report.extra["output_cut"]))
    if "sampled_on_cpu" in report.extra:
        yield finding("sampled-on-cpu")
    big = len(facts.big_cores)
    if case.delegate.is_cpu and big and case.threads > big:
        yield finding("more-threads-than-big-cores", f"{case.threads} threads, {big} big cores")


#: A clock limit that fell below this share of what it was before the run is throttling.
CLOCK_LIMIT_MIN: Final = 0.98
#: A cluster above this share of its highest clock was kept busy by the run.
WORKING_SHARE: Final = 0.6
#: The mean clock of a busy stretch against that of an earlier one, below which the cluster was
#: slowed down.
FALL_MAX: Final = 0.93
#: Cores that other work may keep busy: on a computer right before a run, on a phone during it. An
#: idle phone with its screen on uses 0.1 to 0.3 of a core itself.
FOREIGN_CORES_MAX: Final = 0.3
FOREIGN_CORES_MAX_PHONE: Final = 0.5
#: The kernel gives the time of boot in whole seconds, so that it may differ by one second.
CLOCK_JUMP_S: Final = 3.0
#: PowerManager's thermal status "light".
_LIGHT: Final = 1


def _state_findings(observed: Observed, *, is_median: bool) -> Iterator[Finding]:
    """Yield the findings of the states and samples; unknown values give none.

    ``is_median``: the run's figure is a median, which one inference that is measured wrongly
    doesn't move.
    """
    before, after = observed.before, observed.after
    if before is not None and after is not None:
        if before.boot_id and after.boot_id and before.boot_id != after.boot_id:
            evidence = f"boot id {before.boot_id}, then {after.boot_id}"
            yield finding("rebooted", "the phone rebooted during the run", evidence)
            return
        yield from _heat_findings(before, after, observed.run_samples)
    jump_s = observed.conditions.clock_jump_s
    if jump_s is not None and abs(jump_s) >= CLOCK_JUMP_S:
        message = f"the phone's clock was moved by {jump_s:+.0f} s during the run; programs measure with it"
        yield finding(
            "clock-jumped", message, severity=Severity.WARNING if is_median else Severity.ERROR
        )
    yield from _clock_findings(observed)
    yield from _load_findings(before, observed.conditions, observed.facts.kind)
    if before is not None and after is not None:
        yield from _screen_findings(before, after, observed.case, observed.screen)
        yield from _battery_findings(before, after)


def _heat_findings(
    before: DeviceState, after: DeviceState, run_samples: RunSamples
) -> Iterator[Finding]:
    status = max(before.thermal_status or 0, after.thermal_status or 0)
    # Light is Android's word for a warm skin. Where limits and cooling devices were read, they say
    # whether clocks were taken.
    is_shown_by_clocks = status == _LIGHT and bool(before.clock_limit_khz) and bool(after.cooling)
    if status > 0 and not is_shown_by_clocks:
        yield finding("throttled", f"thermal status {status}", _heat_text(after))
    cooling = {
        name: max(steps, before.cooling.get(name, 0)) for name, steps in after.cooling.items()
    }
    if at_work := [f"{name} by {steps}" for name, steps in cooling.items() if steps > 0]:
        yield finding("throttled", "clocks were held down because of heat", ", ".join(at_work))
    moments: tuple[Moment, ...] = (*run_samples.samples, after)
    lowest = {
        cpu: min(limits)
        for cpu in before.clock_limit_khz
        if (limits := [m.clock_limit_khz[cpu] for m in moments if cpu in m.clock_limit_khz])
    }
    for cpu, limit in lowest.items():
        earlier = before.clock_limit_khz[cpu]
        if limit < CLOCK_LIMIT_MIN * earlier:
            evidence = f"cpu{cpu}: {earlier // 1000} MHz, then {limit // 1000} MHz"
            yield finding("throttled", "a clock limit fell during the run", evidence)
    gpu = [m.gpu_limit_khz for m in moments if m.gpu_limit_khz]
    if gpu and before.gpu_limit_khz and min(gpu) < CLOCK_LIMIT_MIN * before.gpu_limit_khz:
        evidence = f"GPU: {before.gpu_limit_khz // 1000} MHz, then {min(gpu) // 1000} MHz"
        yield finding("throttled", "the GPU's clock limit fell during the run", evidence)


def _clock_findings(observed: Observed) -> Iterator[Finding]:
    conditions = observed.conditions
    capped = [
        f"cpu{cluster.cpu} at {cluster.limit_high:.0%}"
        for cluster in conditions.clusters
        if cluster.limit_high is not None and cluster.limit_high < CLOCK_LIMIT_MIN
    ]
    if capped and not observed.is_held:
        message = "clocks were limited all along, and nothing says whether by heat"
        yield finding("clocks-capped", message, ", ".join(capped))
    if not observed.case.delegate.is_cpu:
        return
    working = [
        cluster
        for cluster in conditions.clusters
        if (cluster.busiest_share or 0.0) >= WORKING_SHARE
    ]
    # The scheduler may move threads between clusters; from the fastest it doesn't while there is
    # work for it.
    fastest = max(
        working,
        key=lambda cluster: (cluster.effective_mhz or 0.0) / (cluster.share or 1.0),
        default=None,
    )
    if fastest is not None and fastest.fall is not None and fastest.fall < FALL_MAX:
        evidence = f"cpu{fastest.cpu}: to {fastest.fall:.0%} of the clock that it had before"
        yield finding("throttled", "busy cores were clocked lower as the run went on", evidence)


def _load_findings(
    before: DeviceState | None, conditions: RunConditions, kind: DeviceKind
) -> Iterator[Finding]:
    if (
        before is not None
        and before.busy_cores is not None
        and before.busy_cores > FOREIGN_CORES_MAX
    ):
        message = f"{before.busy_cores:.2f} cores were busy before the run"
        yield finding("foreign-load", message)
    elif kind is DeviceKind.ANDROID and (conditions.foreign_cores or 0.0) > FOREIGN_CORES_MAX_PHONE:
        message = (
            f"other work kept at least {conditions.foreign_cores:.2f} cores busy during the run"
        )
        evidence = (
            ""
            if conditions.own_cores is None
            else f"the run itself used {conditions.own_cores:.2f} cores"
        )
        yield finding("foreign-load", message, evidence)


def _screen_findings(
    before: DeviceState, after: DeviceState, case: Case, screen: Screen
) -> Iterator[Finding]:
    if after.screen_on is False and screen is Screen.ON:
        yield finding("screen-off", "the screen was off at the run's end; phones slow down then")
    # The benchmark's app takes the screen itself.
    has_changed = before.foreground and after.foreground and before.foreground != after.foreground
    if has_changed and not case.tool.is_app:
        evidence = f"{before.foreground}, then {after.foreground}"
        yield finding(
            "foreground-changed", "another app came to the screen during the run", evidence
        )


def _battery_findings(before: DeviceState, after: DeviceState) -> Iterator[Finding]:
    percent_before, percent = before.battery_percent, after.battery_percent
    if percent is not None and percent < 15:
        yield finding("battery-low", f"{percent} % left")
    if before.plugged and after.plugged and before.plugged != after.plugged:
        evidence = f"{before.plugged}, then {after.plugged}"
        yield finding(
            "charging-changed", "the charger was connected or disconnected during the run", evidence
        )
    elif (
        percent_before
        and percent is not None
        and percent < percent_before
        and after.plugged not in {"", "none"}
    ):
        evidence = f"{percent_before} %, then {percent} %"
        yield finding(
            "battery-draining", "the battery was emptied though the phone was plugged in", evidence
        )


def _heat_text(state: DeviceState) -> str:
    hottest = sorted(state.heat_c.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{name} {heat:.1f} C" for name, heat in hottest)


#: A clock within this share of its limit is at it.
_AT_LIMIT: Final = 0.99
#: The mean clock of the fastest cluster that counts as "at its maximum throughout".
_AT_MAXIMUM: Final = 0.99
#: Other work and the load before that still count as quiet.
_QUIET_CORES: Final = 0.5
_QUIET_LOAD_PER_CORE: Final = 1.0
#: Findings that lower the grade to D.
_GRADE_D_CODES: Final = frozenset(
    {"throttled", "clocks-capped", "foreign-load", "screen-off", "battery-low", "clock-jumped"}
)


def grade_of(observed: Observed, codes: frozenset[str]) -> Grade:
    """Return the grade: the first that fits from the worst; unknown values never give a better one.

    ``codes`` are the invocation's findings.
    """
    facts, before, after, conditions = (
        observed.facts,
        observed.before,
        observed.after,
        observed.conditions,
    )
    if before is None or after is None or facts.is_emulator or not _has_readings(before):
        return Grade.E
    if codes & _GRADE_D_CODES:
        return Grade.D
    if _is_pinned(before) and _is_pinned(after) and observed.is_held:
        return Grade.A
    if not before.clock_limit_khz or not after.clock_limit_khz:
        return Grade.D
    at_maximum = conditions.is_sampled and (_fastest_share(facts, conditions) or 0.0) >= _AT_MAXIMUM
    if at_maximum or observed.is_held:
        return Grade.B
    is_awake = before.screen_on is True and after.screen_on is True
    is_cool = before.thermal_status == 0 and after.thermal_status == 0
    return Grade.C if is_awake and is_cool and _is_quiet(facts, before, conditions) else Grade.D


def _fastest_share(facts: DeviceFacts, conditions: RunConditions) -> float | None:
    """Return the mean clock's share of the highest for the cluster with the highest clock."""
    fastest = max(facts.clusters, key=lambda cluster: cluster.max_khz or 0, default=None)
    shares = {item.cpu: item.share for item in conditions.clusters}
    return shares.get(min(fastest.cpus)) if fastest is not None and fastest.cpus else None


def _are_at(clocks: Mapping[int, int], limits: Mapping[int, int]) -> bool:
    return all(clocks.get(cpu, 0) >= _AT_LIMIT * limit for cpu, limit in limits.items())


def _is_pinned(state: DeviceState) -> bool:
    """Whether no cluster has a choice: its lowest clock is its highest, or its governor keeps the
    highest.
    """
    return bool(state.clock_limit_khz) and all(
        state.clock_floor_khz.get(cpu) == limit or state.governors.get(cpu) == "performance"
        for cpu, limit in state.clock_limit_khz.items()
    )


def _has_readings(state: DeviceState) -> bool:
    return (
        bool(state.clock_limit_khz or state.heat_c)
        or state.thermal_status is not None
        or state.load_1min is not None
    )


def _is_quiet(facts: DeviceFacts, before: DeviceState, conditions: RunConditions) -> bool:
    if conditions.foreign_cores is not None:
        return conditions.foreign_cores <= _QUIET_CORES
    cores = sum(len(cluster.cpus) for cluster in facts.clusters)
    return (
        before.load_1min is not None
        and cores > 0
        and before.load_1min <= _QUIET_LOAD_PER_CORE * cores
    )
