"""What one invocation's number is worth, and the findings that say why. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.outcome import Ending
from orchestrator.analysis.parity import parity_findings
from orchestrator.analysis.samples import derive_conditions, parse_samples
from orchestrator.analysis.state_findings import state_findings
from orchestrator.analysis.steadiness import (
    grade_of,
    repetition_findings,
    steadiness_findings,
    summary_findings,
)
from orchestrator.delegates import DELEGATES
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.plan import Screen
from orchestrator.records.run import DelegateTruth, LatencySummary, Outcome, ToolReport
from orchestrator.records.sample import RunSamples
from orchestrator.records.start import StartStage
from orchestrator.records.verdict import Finding, Quality, QualityVerdict, Severity
from orchestrator.records.workload import IMPORTED_TOOLS, SUMMARY_TOOLS, Case, Pass
from orchestrator.units import format_latency, format_percent


def start_findings(report: ToolReport) -> Iterator[Finding]:
    """Yield what speaks against a start's figures; nothing for a report of another pass.

    A GPU delegate says that it used its cache ("from serialized data"); XNNPACK and NNAPI don't, so that for them the
    cache's size before the start is all there is to go by.
    """
    stage = report.extra.get("start_stage")
    line = str(report.extra.get("from_cache", ""))
    size = report.extra.get("cache_bytes_before")
    if stage in {StartStage.FIRST_LOAD, StartStage.PROCESS_COLD}:
        if line or (stage == StartStage.FIRST_LOAD and size):
            evidence = line or f"{size:.0f} bytes were cached before the start"
            yield Finding(
                code="warm-cold-start",
                severity=Severity.ERROR,
                message=f"the start '{stage}' used a cache: it wasn't cold",
                evidence=evidence,
            )
    elif stage == StartStage.CACHE_WARM:
        if not size:
            message = "the first load had left no cache, so that this start wasn't warm"
        elif _reports_cache(report.delegate.actual) and not line:
            message = "there was a cache, and the delegate didn't say that it used it"
        else:
            return
        yield Finding(code="cache-not-used", severity=Severity.WARNING, message=message, evidence=line)


def _reports_cache(actual: str) -> bool:
    """Whether what ran says that it used its cache."""
    return any(own.reports_cache for name, own in DELEGATES.items() if name.value == actual)


#: Rounding that may move a figure by more than this share of its value hides small changes.
ROUNDING_MAX: Final = 0.01
#: Every finding's code, what it means and what to do; docs/reference/findings.md says more of each.
CODES: Final = {
    "virtual-device": "the figures come from benchfarm's virtual phone; they are no measurement",
    "emulator": "the figures come from an Android emulator, not from a phone",
    "not-completed": "the invocation gave no result",
    "delegate-partial": "a part of the operators ran on the CPU",
    "delegate-unknown": "nothing shows where the operators ran",
    "sampled-on-cpu": "the CPU chose the tokens because the GPU's sampler is missing: decoding is up to 3 times slower",
    "flags-ignored": "the program left flags unused",
    "few-runs": "too few inferences",
    "unsteady": "the inferences of this process differ widely",
    "unsteady-trend": "the inferences became slower, or faster, while the process ran",
    "unsteady-two-modes": "the inferences fall into two groups",
    "outliers": "a few inferences took very long; the median hides them, the mean doesn't",
    "coarse-resolution": "the program rounds its figures too coarsely for so short a latency",
    "sources-disagree": "the result line, the statistics and the result file tell different figures",
    "unwatched": "nothing was seen of clocks, heat and load while the program ran: the sampler left too few looks",
    "log-cut": "the log ends before its result line; the figures are the result file's",
    "throttled": "the phone limited its clocks because of heat",
    "clocks-capped": "clocks were limited all along, and nothing says whether by heat",
    "clocks-low": "the clocks were lower than in the case's other invocations",
    "clock-jumped": "the device's wall clock was moved during the run",
    "rebooted": "the phone rebooted during the run",
    "foreign-load": "something else kept the processor busy",
    "more-threads-than-big-cores": "threads shared the big cores or ran on small ones",
    "warm-cold-start": "a start that was to be cold used a cache",
    "start-unknown": "the start may have been warm: the GPU's shaders stay in the iPhone app's folder",
    "cache-not-used": "a start that was to be warm found no cache, or didn't use it",
    "screen-off": "the screen went off during the run",
    "foreground-changed": "another app came to the screen during the run",
    "charging-changed": "the charger came or went during the run",
    "battery-draining": "the battery was emptied though the phone was plugged in",
    "mixed-grades": "the case's invocations were made under differently controlled conditions",
    "two-states": "the case's invocations fall into two groups, as at two clocks",
    "battery-low": "the battery was low; phones limit their clocks then",
    "wrong-outputs": "the outputs aren't the model's",
    "outputs-drift": "the outputs differ more than they should",
    "outputs-unreadable": "there are no outputs to compare",
    "parity-degenerate": "the model's outputs hardly depend on its inputs; they show nothing",
    "imported": "somebody else made the run; nothing is known of the device's heat, load and battery",
    "unusual-for-device": "this model is much slower on this device than its other models lead to expect",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known of a run's surroundings beside the device's state before and after it."""

    #: What the watcher beside the run wrote, empty where none ran.
    samples: bytes = b""
    #: What the plan asks of the screen.
    screen: Screen = Screen.ON


def judge(
    report: ToolReport | None,
    ending: Ending,
    *,
    case: Case,
    run_pass: Pass,
    facts: DeviceFacts,
    before: DeviceState | None,
    after: DeviceState | None,
    around: Surroundings | None = None,
) -> QualityVerdict:
    """Return the quality, the grade and the findings of one invocation."""
    around = around or Surroundings()
    looks = parse_samples(around.samples)
    conditions = derive_conditions(before, after, looks)
    findings = list(_device_findings(facts))
    if case.tool in IMPORTED_TOOLS:
        findings.append(_finding("imported", Severity.INFO))
    if ending.outcome is not Outcome.COMPLETED or report is None:
        findings.append(_finding("not-completed", Severity.ERROR, f"{ending.outcome}: {ending.reason}"))
    else:
        findings += _report_findings(report, case, run_pass, facts)
    if _lacks_looks(looks, ending, case, facts, before, after):
        seen = f"{len(looks.samples)} of at least 2 looks"
        trouble = around.samples.decode("utf-8", "replace").strip().splitlines()[-1:] if not looks.samples else []
        findings.append(_finding("unwatched", Severity.INFO, evidence=": ".join([seen, *trouble])[:300]))
    is_median = report is not None and report.inference is not None and report.inference.median_us is not None
    findings += state_findings(
        before, after, case=case, kind=facts.kind, looks=looks, conditions=conditions, is_median=is_median,
        screen=around.screen,
    )  # fmt: skip
    codes = frozenset(finding.code for finding in findings)
    has_ended = ending.outcome is Outcome.COMPLETED
    grade = grade_of(facts, before, after, looks=looks, conditions=conditions, codes=codes) if has_ended else None
    return QualityVerdict(quality=_quality(findings), findings=tuple(findings), grade=grade)


def _lacks_looks(
    looks: RunSamples,
    ending: Ending,
    case: Case,
    facts: DeviceFacts,
    before: DeviceState | None,
    after: DeviceState | None,
) -> bool:
    """Whether the sampler should have seen a run and didn't: a program of ours that ended well on a phone."""
    is_ours = facts.kind is DeviceKind.ANDROID and not (
        case.tool.is_app or case.tool.is_session or case.tool in IMPORTED_TOOLS
    )
    is_measured = ending.outcome is Outcome.COMPLETED and before is not None and after is not None
    return is_ours and is_measured and len(looks.samples) < 2


def _quality(findings: list[Finding]) -> Quality:
    severities = {finding.severity for finding in findings}
    if Severity.ERROR in severities:
        return Quality.REJECTED
    return Quality.SUSPECT if Severity.WARNING in severities else Quality.TRUSTED


def _finding(code: str, severity: Severity, message: str = "", evidence: str = "") -> Finding:
    return Finding(code=code, severity=severity, message=message or CODES[code], evidence=evidence)


def _device_findings(facts: DeviceFacts) -> Iterator[Finding]:
    if facts.is_virtual:
        yield _finding("virtual-device", Severity.INFO)
    elif facts.is_emulator:
        yield _finding("emulator", Severity.WARNING, evidence=facts.fingerprint)


def _report_findings(report: ToolReport, case: Case, run_pass: Pass, facts: DeviceFacts) -> Iterator[Finding]:
    truth, delegate = report.delegate.truth, report.delegate
    if truth is DelegateTruth.PARTIAL:
        known = delegate.delegated_nodes is not None and delegate.total_nodes is not None
        nodes = f"{delegate.delegated_nodes} of {delegate.total_nodes} operators" if known else "not all operators"
        parts = f" in {delegate.partitions} partitions" if delegate.partitions else ""
        yield _finding(
            "delegate-partial", Severity.INFO, f"{nodes} ran on {delegate.requested}{parts}", _first(delegate.lines)
        )
    elif truth is DelegateTruth.UNKNOWN and not DELEGATES[case.delegate].is_builtin:
        if delegate.actual == case.delegate.value:
            message = f"{case.delegate} was used; how many of the operators it ran isn't told"
            yield _finding("delegate-unknown", Severity.INFO, message, _first(delegate.lines))
        else:
            yield _finding("delegate-unknown", Severity.WARNING, f"nothing shows that {case.delegate} was used")
    if report.unconsumed_flags:
        yield _finding("flags-ignored", Severity.ERROR, evidence=" ".join(report.unconsumed_flags))
    for disagreement in report.disagreements:
        yield _finding("sources-disagree", Severity.WARNING, evidence=disagreement)
    if "log_cut" in report.extra:
        yield _finding("log-cut", Severity.INFO)
    if "sampled_on_cpu" in report.extra:
        yield _finding("sampled-on-cpu", Severity.WARNING)
    if unusual := report.extra.get("unusual"):
        yield _finding("unusual-for-device", Severity.WARNING, evidence=str(unusual))
    big = len(facts.big_cores)
    if case.delegate.is_cpu and big and case.threads > big:
        yield _finding("more-threads-than-big-cores", Severity.INFO, f"{case.threads} threads, {big} big cores")
    if run_pass is Pass.COLD:
        yield from start_findings(report)
        if facts.kind is DeviceKind.IOS and not case.delegate.is_cpu:
            yield _finding("start-unknown", Severity.WARNING)
    if run_pass is Pass.PARITY:
        yield from parity_findings(report)
    if run_pass is Pass.TIMING and report.inference is not None:
        yield from steadiness_findings(report.inference)
        if case.tool in SUMMARY_TOOLS:
            yield from summary_findings(report, is_cpu=case.delegate.is_cpu)
        yield from repetition_findings([float(each) for each in str(report.extra.get("repetitions_us", "")).split()])
        yield from _rounding_findings(report, report.inference)


def _rounding_findings(report: ToolReport, inference: LatencySummary) -> Iterator[Finding]:
    median, resolution = inference.median_us, report.extra.get("resolution_us")
    if median and isinstance(resolution, float) and resolution / 2 / median > ROUNDING_MAX:
        message = (
            f"figures are rounded to {format_latency(resolution)}, {format_percent(resolution / median)} of the median"
        )
        yield _finding("coarse-resolution", Severity.WARNING, message)


def _first(lines: tuple[str, ...]) -> str:
    return lines[0] if lines else ""
