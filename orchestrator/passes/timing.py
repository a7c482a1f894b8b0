"""The pass ``timing``: the runs that give a case's latency."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.analysis.findings import (
    repetition_findings,
    rounding_findings,
    steadiness_findings,
    summary_findings,
)
from orchestrator.passes.specification import (
    INFO_FILES,
    INFO_FLAGS,
    PassSpec,
    Repetition,
)
from orchestrator.records.case import SUMMARY_TOOLS, Case, Pass
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import ToolReport
from orchestrator.records.verdict import Finding


def _findings(report: ToolReport, case: Case, facts: DeviceFacts) -> Iterator[Finding]:
    if report.inference is None:
        return
    yield from steadiness_findings(report.inference)
    if case.tool in SUMMARY_TOOLS:
        yield from summary_findings(report, is_cpu=case.delegate.is_cpu)
    yield from repetition_findings(
        [float(duration) for duration in str(report.extra.get("repetitions_us", "")).split()]
    )
    yield from rounding_findings(report)


PASS = PassSpec(
    name=Pass.TIMING,
    about="The latency, in rounds until it is certain enough",
    repetition=Repetition.UNTIL_CERTAIN,
    flags=INFO_FLAGS,
    files=INFO_FILES,
    shares_process=True,
    takes_declared=True,
    findings=_findings,
    prints_latency=True,
)
