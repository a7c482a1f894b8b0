"""Starts in reports: by stage, and never as a latency."""

from __future__ import annotations

import json

from orchestrator.records.case import DelegateName, Pass
from orchestrator.records.verdict import Quality
from orchestrator.report.assembly import build_report_data
from orchestrator.report.exports import to_json
from orchestrator.report.render import render_html
from orchestrator.report.tables import render_text_table
from tests.samples.sample_lab import PIXEL_3, case, lab_of, run, series

GPU = case(delegate=DelegateName.GPU)


def data_of(*runs):
    return build_report_data(**lab_of(runs, PIXEL_3).inputs())


def start(number, latency_us, **more):
    return run(GPU, number, latency_us, run_pass=Pass.COLD, **more)


def test_starts_are_medians_by_stage_and_leave_rejected_ones_out() -> None:
    data = data_of(
        start(0, 100.0), start(3, 300.0), start(1, 7.0), start(4, 9_999.0, quality=Quality.REJECTED),
        start(2, 5.0, quality=Quality.SUSPECT),
    )  # fmt: skip
    (row,) = data.results
    # The sample's first inference takes twice its latency.
    assert [
        (item.stage.value, item.count, item.first_us, item.quality.value)
        for item in row.of_passes["stages"]
    ] == [
        ("first-load", 2, 400.0, "trusted"),
        ("process-cold", 1, 14.0, "trusted"),
        ("cache-warm", 1, 10.0, "suspect"),
    ]
    assert row.result.summary is None


def test_starts_are_shown_in_every_form_only_where_there_are_any() -> None:
    with_starts = data_of(*series(GPU, 6_450), start(0, 123_450.0), start(2, 5.0))
    without = data_of(*series(GPU, 6_450))
    assert "246.90" in render_text_table(with_starts)
    page = render_html(with_starts, title="t")
    assert "Cold starts" in page
    assert 'data-grid="stages"' in page
    assert [item["stage"] for item in json.loads(to_json(with_starts))["results"][0]["starts"]] == [
        "first-load",
        "cache-warm",
    ]
    assert "first-load" not in render_text_table(without)
    assert "Cold starts" not in render_html(without, title="t")
