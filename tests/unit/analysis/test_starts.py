"""Whether a start was as cold, or as warm, as its stage says."""

from __future__ import annotations

import pytest

from orchestrator.analysis.findings import start_findings
from orchestrator.records.run import DelegateEvidence, ToolReport
from orchestrator.records.verdict import Severity

LINE = "INFO: Initialized OpenCL-based API from serialized data."


@pytest.mark.parametrize(
    ("stage", "actual", "extra", "codes"),
    [
        ("first-load", "gpu", {"cache_bytes_before": 0.0}, []),
        ("process-cold", "gpu", {}, []),
        ("cache-warm", "gpu", {"cache_bytes_before": 9.0, "from_cache": LINE}, []),
        ("cache-warm", "xnnpack", {"cache_bytes_before": 9.0}, []),
        ("first-load", "gpu", {"cache_bytes_before": 0.0, "from_cache": LINE}, ["warm-cold-start"]),
        ("process-cold", "gpu", {"from_cache": LINE}, ["warm-cold-start"]),
        ("first-load", "xnnpack", {"cache_bytes_before": 5.0}, ["warm-cold-start"]),
        ("cache-warm", "nnapi", {"cache_bytes_before": 0.0}, ["cache-not-used"]),
        ("cache-warm", "gpu", {"cache_bytes_before": 9.0}, ["cache-not-used"]),
        ("", "gpu", {"from_cache": LINE}, []),
    ],
)
def test_a_start_is_doubted_where_its_cache_says_otherwise(
    stage: str, actual: str, extra: dict[str, float | str], codes: list[str]
) -> None:
    report = ToolReport(
        outcome="ok", delegate=DelegateEvidence(actual=actual), extra={"start_stage": stage, **extra}
    )  # fmt: skip
    found = list(start_findings(report))
    assert [finding.code for finding in found] == codes
    assert all(
        (finding.severity is Severity.ERROR) == (finding.code == "warm-cold-start")
        for finding in found
    )
