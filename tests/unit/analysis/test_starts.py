"""Whether a start was as cold, or as warm, as its stage says."""

from __future__ import annotations

import pytest

from orchestrator.analysis.findings import start_findings
from orchestrator.records.run import DelegateEvidence, ToolReport
from orchestrator.records.verdict import Severity

LINE = "INFO: Initialized OpenCL-based API from serialized data."


def codes(stage: str, actual: str = "gpu", **extra: float | str) -> list[str]:
    report = ToolReport(
        outcome="ok", delegate=DelegateEvidence(actual=actual), extra={"start_stage": stage, **extra}
    )  # fmt: skip
    return [finding.code for finding in start_findings(report)]


def test_starts_as_they_should_be_have_no_finding() -> None:
    assert codes("first-load", cache_bytes_before=0.0) == []
    assert codes("process-cold") == []
    assert codes("cache-warm", cache_bytes_before=9.0, from_cache=LINE) == []
    assert codes("cache-warm", "xnnpack", cache_bytes_before=9.0) == []


@pytest.mark.parametrize("stage", ["first-load", "process-cold"])
def test_a_cold_start_from_serialized_data_is_an_error(stage: str) -> None:
    report = ToolReport(outcome="ok", extra={"start_stage": stage, "cache_bytes_before": 0.0, "from_cache": LINE})
    (finding,) = start_findings(report)
    assert (finding.code, finding.severity, finding.evidence) == ("warm-cold-start", Severity.ERROR, LINE)


def test_a_first_load_beside_a_cache_is_an_error() -> None:
    assert codes("first-load", "xnnpack", cache_bytes_before=5.0) == ["warm-cold-start"]


def test_a_warm_start_without_a_cache_or_its_use_is_doubtful() -> None:
    assert codes("cache-warm", "nnapi", cache_bytes_before=0.0) == ["cache-not-used"]
    assert codes("cache-warm", "gpu", cache_bytes_before=9.0) == ["cache-not-used"]


def test_reports_of_other_passes_have_no_such_finding() -> None:
    assert list(start_findings(ToolReport(outcome="ok", extra={"from_cache": LINE}))) == []
