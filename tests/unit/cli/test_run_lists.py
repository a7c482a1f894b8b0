"""What a list of runs says of each."""

from __future__ import annotations

from orchestrator.app.progress import listed_runs
from orchestrator.records.run import Outcome
from orchestrator.tables import text
from orchestrator.tables.runs import runs_table
from tests.samples.sample_lab import rich_lab, small_lab


def test_a_run_that_fell_back_has_a_reason_and_no_figure() -> None:
    fell = [run for run in rich_lab().runs if run.reason_code == "delegate-fell-back"]
    assert fell
    assert all(run.report is not None and run.report.latency_us() for run in fell)
    for table in (listed_runs(fell), runs_table(fell)):
        told = text.render(table, 300)
        assert "delegate-fell-back" in told
        assert " ms" not in told.split("\n", 1)[1]
        for run in fell:
            assert f"{run.report.latency_us() / 1000:.2f}" not in told


def test_each_run_of_a_virtual_phone_says_so() -> None:
    runs = [run for run in small_lab().runs if run.is_virtual and run.outcome is Outcome.COMPLETED]
    assert runs
    lines = text.render(listed_runs(runs), 300).split("\n")[1:]
    assert all("(virtual)" in line for line in lines[: len(runs)])
