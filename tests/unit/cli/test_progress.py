"""What a stored run's line says."""

from orchestrator.cli.progress import describe_run
from orchestrator.records.verdict import Finding, Quality, Severity
from tests.samples.sample_lab import case, run


def test_a_reason_that_was_found_twice_is_told_once() -> None:
    hot = [Finding(code="throttled", severity=Severity.WARNING, message=f"a limit of cpu{cpu} fell") for cpu in (0, 4)]
    busy = Finding(code="foreign-load", severity=Severity.WARNING, message="busy")
    record = run(case(), quality=Quality.SUSPECT, findings=(hot[0], busy, hot[1]))
    assert "suspect (throttled, foreign-load)" in describe_run(record)
