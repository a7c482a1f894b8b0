"""What one invocation's number is worth, and the findings that say why. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orchestrator.analysis.outcome import Ending
from orchestrator.analysis.starts import start_findings
from orchestrator.records.device import DeviceFacts, DeviceState
from orchestrator.records.run import DelegateTruth, LatencySummary, Outcome, ToolReport
from orchestrator.records.verdict import Finding, Quality, QualityVerdict, Severity
from orchestrator.records.workload import IMPORTED_TOOLS, Case, DelegateName, Pass
from orchestrator.units import format_latency, format_percent

#: Fewer inferences than this say little about the process's own spread.
RUNS_MIN: Final = 10
#: (p95 - p5) / median of a steady run stays below this.
SPREAD_MAX: Final = 0.5
#: Rounding that may move a figure by more than this share of its value hides small changes.
ROUNDING_MAX: Final = 0.01
#: A clock limit that fell below this share of what it was before the run is throttling.
CLOCK_LIMIT_MIN: Final = 0.98
#: Cores that other work may keep busy right before a run.
FOREIGN_CORES_MAX: Final = 0.3

#: Every finding's code, what it means and what to do; docs/findings.md says more of each.
CODES: Final = {
    "virtual-device": "the figures come from benchfarm's virtual phone; they are no measurement",
    "emulator": "the figures come from an Android emulator, not from a phone",
    "not-completed": "the invocation gave no result",
    "delegate-partial": "a part of the operators ran on the CPU",
    "delegate-unknown": "nothing shows where the operators ran",
    "flags-ignored": "the program left flags unused",
    "few-runs": "too few inferences",
    "unsteady": "the inferences of this process differ widely",
    "coarse-resolution": "the program rounds its figures too coarsely for so short a latency",
    "sources-disagree": "the log and a result file tell different figures",
    "throttled": "the phone limited its clocks because of heat",
    "rebooted": "the phone was booted anew during the run",
    "foreign-load": "something else kept the processor busy",
    "more-threads-than-big-cores": "threads shared the big cores or ran on small ones",
    "warm-cold-start": "a start that was to be cold used a cache",
    "cache-not-used": "a start that was to be warm found no cache, or didn't use it",
    "battery-low": "the battery was low; phones limit their clocks then",
    "imported": "somebody else made the run; nothing is known of the device's heat, load and battery",
    "unidentified": "nothing in the imported text shows that it is of this case",
}


def judge(
    report: ToolReport | None,
    ending: Ending,
    *,
    case: Case,
    run_pass: Pass,
    facts: DeviceFacts,
    before: DeviceState | None,
    after: DeviceState | None,
) -> QualityVerdict:
    """Return the quality and the findings of one invocation."""
    findings = list(_device_findings(facts))
    if case.tool in IMPORTED_TOOLS:
        findings.append(_finding("imported", Severity.INFO))
    if ending.outcome is not Outcome.COMPLETED or report is None:
        findings.append(_finding("not-completed", Severity.ERROR, f"{ending.outcome}: {ending.reason}"))
    else:
        findings += _report_findings(report, case, run_pass, facts)
    findings += _state_findings(before, after)
    return QualityVerdict(quality=_quality(findings), findings=tuple(findings))


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
    elif truth is DelegateTruth.UNKNOWN and case.delegate is not DelegateName.CPU:
        yield _finding("delegate-unknown", Severity.WARNING, f"nothing shows that {case.delegate} was used")
    if report.unconsumed_flags:
        yield _finding("flags-ignored", Severity.ERROR, evidence=" ".join(report.unconsumed_flags))
    if unidentified := report.extra.get("unidentified"):
        yield _finding("unidentified", Severity.WARNING, evidence=str(unidentified))
    for disagreement in report.disagreements:
        yield _finding("sources-disagree", Severity.WARNING, evidence=disagreement)
    big = len(facts.big_cores)
    if case.delegate in {DelegateName.CPU, DelegateName.XNNPACK} and big and case.threads > big:
        yield _finding("more-threads-than-big-cores", Severity.INFO, f"{case.threads} threads, {big} big cores")
    if run_pass is Pass.COLD:
        yield from start_findings(report)
    if run_pass is Pass.TIMING and report.inference is not None:
        yield from _timing_findings(report, report.inference)


def _timing_findings(report: ToolReport, inference: LatencySummary) -> Iterator[Finding]:
    if inference.count < RUNS_MIN:
        yield _finding("few-runs", Severity.WARNING, f"{inference.count} inferences, at least {RUNS_MIN} are needed")
    median = inference.median_us
    if median and inference.p5_us is not None and inference.p95_us is not None:
        spread = (inference.p95_us - inference.p5_us) / median
        if spread > SPREAD_MAX:
            evidence = f"p5 {format_latency(inference.p5_us)}, p95 {format_latency(inference.p95_us)}"
            message = f"90 % of the inferences spread over {format_percent(spread, 0)} of the median"
            yield _finding("unsteady", Severity.WARNING, message, evidence)
    resolution = report.extra.get("resolution_us")
    if median and isinstance(resolution, float) and resolution / 2 / median > ROUNDING_MAX:
        message = (
            f"figures are rounded to {format_latency(resolution)}, {format_percent(resolution / median)} of the median"
        )
        yield _finding("coarse-resolution", Severity.WARNING, message)


def _state_findings(before: DeviceState | None, after: DeviceState | None) -> Iterator[Finding]:
    if before is None or after is None:
        return
    if before.boot_id and after.boot_id and before.boot_id != after.boot_id:
        yield _finding("rebooted", Severity.ERROR, evidence=f"boot id {before.boot_id}, then {after.boot_id}")
    status = max(before.thermal_status or 0, after.thermal_status or 0)
    if status > 0:
        yield _finding("throttled", Severity.WARNING, f"thermal status {status}", _heat_text(after))
    for cpu, limit in after.clock_limit_khz.items():
        earlier = before.clock_limit_khz.get(cpu)
        if earlier and limit < CLOCK_LIMIT_MIN * earlier:
            evidence = f"cpu{cpu}: {earlier // 1000} MHz, then {limit // 1000} MHz"
            yield _finding("throttled", Severity.WARNING, "a clock limit fell during the run", evidence)
    if before.busy_cores is not None and before.busy_cores > FOREIGN_CORES_MAX:
        yield _finding("foreign-load", Severity.WARNING, f"{before.busy_cores:.1f} cores were busy before the run")
    if after.battery_percent is not None and after.battery_percent < 15:
        yield _finding("battery-low", Severity.WARNING, f"{after.battery_percent} % left")


def _heat_text(state: DeviceState) -> str:
    hottest = sorted(state.heat_c.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{name} {heat:.1f} C" for name, heat in hottest)


def _first(lines: tuple[str, ...]) -> str:
    return lines[0] if lines else ""
