"""What one invocation's number is worth, and the findings that say why. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.analysis.findings import finding
from orchestrator.analysis.grading import grade_of
from orchestrator.analysis.outcome import Ending
from orchestrator.analysis.samples import derive_conditions, parse_samples
from orchestrator.analysis.state_findings import state_findings
from orchestrator.delegates import DELEGATES
from orchestrator.records.case import IMPORTED_TOOLS, Case
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.plan import Screen
from orchestrator.records.run import DelegateTruth, Outcome, RunSamples, ToolReport
from orchestrator.records.verdict import Finding, Quality, QualityVerdict, Severity

#: Yields what a report of a case on a device means in one pass alone.
FindingsOf: TypeAlias = Callable[[ToolReport, Case, DeviceFacts], Iterable[Finding]]


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
    of_pass: FindingsOf,
    facts: DeviceFacts,
    before: DeviceState | None,
    after: DeviceState | None,
    around: Surroundings | None = None,
) -> QualityVerdict:
    """Return the quality, the grade and the findings of one invocation; ``of_pass`` yields those of
    its pass alone.
    """
    around = around or Surroundings()
    looks = parse_samples(around.samples)
    conditions = derive_conditions(before, after, looks)
    findings = list(_device_findings(facts))
    if case.tool in IMPORTED_TOOLS:
        findings.append(finding("imported"))
    if ending.outcome is not Outcome.COMPLETED or report is None:
        findings.append(finding("not-completed", f"{ending.outcome}: {ending.reason}"))
    else:
        findings += (*_report_findings(report, case, facts), *of_pass(report, case, facts))
    if _lacks_looks(looks, ending, case, facts, before, after):
        seen = f"{len(looks.samples)} of at least 2 looks"
        trouble = (
            around.samples.decode("utf-8", "replace").strip().splitlines()[-1:]
            if not looks.samples
            else []
        )
        findings.append(finding("unwatched", evidence=": ".join([seen, *trouble])[:300]))
    is_median = (
        report is not None
        and report.inference is not None
        and report.inference.median_us is not None
    )
    findings += state_findings(
        before,
        after,
        case=case,
        kind=facts.kind,
        looks=looks,
        conditions=conditions,
        is_median=is_median,
        screen=around.screen,
    )
    codes = frozenset(each.code for each in findings)
    has_ended = ending.outcome is Outcome.COMPLETED
    grade = (
        grade_of(facts, before, after, looks=looks, conditions=conditions, codes=codes)
        if has_ended
        else None
    )
    return QualityVerdict(quality=_quality(findings), findings=tuple(findings), grade=grade)


def _lacks_looks(
    looks: RunSamples,
    ending: Ending,
    case: Case,
    facts: DeviceFacts,
    before: DeviceState | None,
    after: DeviceState | None,
) -> bool:
    """Whether the sampler should have seen a run and didn't: a program of ours that ended well on a
    phone.
    """
    is_ours = facts.kind is DeviceKind.ANDROID and not (
        case.tool.is_app or case.tool.is_session or case.tool in IMPORTED_TOOLS
    )
    is_measured = ending.outcome is Outcome.COMPLETED and before is not None and after is not None
    return is_ours and is_measured and len(looks.samples) < 2


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
        known = delegate.delegated_nodes is not None and delegate.total_nodes is not None
        nodes = (
            f"{delegate.delegated_nodes} of {delegate.total_nodes} operators"
            if known
            else "not all operators"
        )
        parts = f" in {delegate.partitions} partitions" if delegate.partitions else ""
        yield finding(
            "delegate-partial", f"{nodes} ran on {delegate.requested}{parts}", *delegate.lines[:1]
        )
    elif truth is DelegateTruth.UNKNOWN and not DELEGATES[case.delegate].is_builtin:
        if delegate.actual == case.delegate.value:
            message = f"{case.delegate} was used; how many of the operators it ran isn't reported"
            yield finding("delegate-unknown", message, *delegate.lines[:1], severity=Severity.INFO)
        else:
            yield finding("delegate-unknown", f"nothing shows that {case.delegate} was used")
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
