"""Memory in reports: from its own pass, whatever became of the latency, and never another
delegate's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orchestrator.records.case import DelegateName, Pass
from orchestrator.records.run import DelegateTruth, Outcome
from orchestrator.records.verdict import Quality
from orchestrator.report.assembly import build_report_data
from orchestrator.report.exports import to_json
from orchestrator.report.tables import render_text_table
from orchestrator.tables.results import memory_table
from tests.samples.sample_lab import PIXEL_3, case, lab_of, run, series

GPU = case(delegate=DelegateName.GPU)
FELL_BACK = {
    "truth": DelegateTruth.FELL_BACK,
    "outcome": Outcome.FAILED,
    "quality": Quality.REJECTED,
    "reason_code": "delegate-fell-back",
}


def memory_run(number, mib, **more):
    record = run(GPU, number, 6_000.0, run_pass=Pass.MEMORY, **more)
    report = replace(
        record.report, init_memory_mib=mib / 2, overall_memory_mib=mib, peak_memory_mib=mib * 2
    )
    return replace(record, report=report)


def data_of(*runs):
    return build_report_data(**lab_of(runs, PIXEL_3).inputs())


def column(table, name):
    (own,) = (item for item in table.columns if item.name == name)
    return [own.data(row) for row in table.listed]


def test_memory_is_that_of_the_invocations_that_ran_where_they_were_meant_to() -> None:
    data = data_of(*series(GPU, 6_450), memory_run(0, 50.0), memory_run(1, 900.0, **FELL_BACK))
    (row,) = data.results
    assert row.overall_memory_mib == 50.0


@pytest.mark.parametrize(
    "unusable", [FELL_BACK, {"quality": Quality.REJECTED}, {"outcome": Outcome.TIMED_OUT}]
)
def test_memory_of_unusable_invocations_is_not_shown_beside_a_good_latency(unusable) -> None:
    (row,) = data_of(*series(GPU, 6_450), memory_run(0, 900.0, **unusable)).results
    # What the timing invocations printed beside their latency stays.
    assert row.overall_memory_mib == series(GPU, 6_450)[0].report.overall_memory_mib != 900.0


@pytest.mark.parametrize(
    "latency", [[], [run(GPU, 0, None, outcome=Outcome.FAILED, reason_code="crashed")]]
)
def test_memory_is_shown_in_every_form_without_a_latency(latency) -> None:
    data = data_of(*latency, memory_run(0, 50.0))
    assert json.loads(to_json(data))["results"][0]["peak_memory_mib"] == 100.0
    grid = memory_table(data.results)
    assert column(grid, "overall_memory_mib") == [50.0]
    assert column(grid, "median_us") == [None]
    assert "after init 25.0 MB, overall 50.0 MB, peak 100.0 MB" in " ".join(
        render_text_table(data).split()
    )


def test_start_of_a_figure_that_is_no_result_is_not_shown_beside_its_memory() -> None:
    data = data_of(*series(GPU, 6_450, **FELL_BACK), memory_run(0, 50.0))
    grid = memory_table(data.results)
    assert column(grid, "overall_memory_mib") == [50.0]
    assert column(grid, "init_us") == [None]
