"""Temperature and clocks over time, as a report draws them."""

from __future__ import annotations

from orchestrator.records.run import Sample
from orchestrator.report.assembly import build_report_data
from orchestrator.tables.evidence import HEIGHT, WIDTH, condition_traces, sample_traces
from tests.samples.sample_lab import case, lab_of, series


def test_each_quantity_is_a_line_over_its_whole_time() -> None:
    row = build_report_data(**lab_of(series(case(), 10_000)).inputs()).results[0]
    traces = {trace.name: trace for trace in condition_traces(row.invocations)}
    heat = traces["hottest zone"]
    assert (heat.unit, heat.low, heat.high, heat.last, heat.duration_s) == (
        "°C",
        33.5,
        41.0,
        41.0,
        244.0,
    )
    assert set(traces) == {
        "hottest zone",
        "limit of cpu0",
        "limit of cpu4",
        "clock of cpu0",
        "clock of cpu4",
    }
    places = [tuple(map(float, point.split(","))) for point in heat.points.split()]
    assert (places[0][0], places[-1][0]) == (0.0, WIDTH)
    assert all(0 <= y <= HEIGHT for _, y in places)


def test_looks_during_a_run_are_drawn_and_a_single_one_is_no_line() -> None:
    looks = [
        Sample(
            uptime_s=100.0 + second,
            heat_c={"cpu": 30.0 + second, "trip": 9_999.0},
            clock_khz={4: 2_000_000},
        )
        for second in range(5)
    ]
    traces = {trace.name: trace for trace in sample_traces(looks)}
    assert (traces["hottest zone"].high, traces["hottest zone"].duration_s) == (34.0, 4.0)
    assert traces["clock of cpu4"].last == 2_000.0
    assert sample_traces(looks[:1]) == ()
