"""What a stored run's line says."""

import json

from orchestrator.app.progress import describe_run
from orchestrator.cli.result import to_json
from orchestrator.records.verdict import Finding, Quality, Severity
from orchestrator.report.assembly import build_report_data
from orchestrator.tables.results import invocations_table
from tests.samples.sample_lab import case, lab_of, run, series


def test_a_reason_that_was_found_twice_is_told_once() -> None:
    hot = [
        Finding(code="throttled", severity=Severity.WARNING, message=f"a limit of cpu{cpu} fell")
        for cpu in (0, 4)
    ]
    busy = Finding(code="foreign-load", severity=Severity.WARNING, message="busy")
    record = run(case(), quality=Quality.SUSPECT, findings=(hot[0], busy, hot[1]))
    assert "suspect (throttled, foreign-load)" in describe_run(record)


def test_invocations_count_from_one_wherever_they_are_read() -> None:
    runs = series(case(), 5_000, count=3)
    assert [describe_run(item).partition("#")[2][:1] for item in runs] == ["1", "2", "3"]
    assert [item["invocation"] for item in json.loads(to_json({"runs": runs}))["runs"]] == [1, 2, 3]
    table = invocations_table(build_report_data(**lab_of(runs).inputs()).results)  # type: ignore[arg-type]
    assert [table.record(pair)["invocation"] for pair in table.rows] == [1, 2, 3]
