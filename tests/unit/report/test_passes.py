"""Memory, starts, threads, delegates and sustained runs of a report."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.analysis.drift import ATTEMPT_NUMBERS
from orchestrator.analysis.effect import Mean
from orchestrator.records.campaign import Terms
from orchestrator.records.case import DelegateName, Pass, ToolName
from orchestrator.records.run import NOT_BEGUN, Outcome
from orchestrator.records.verdict import Quality
from orchestrator.report.charts import report_charts, thread_steps
from orchestrator.report.exports import to_json
from orchestrator.report.render import render_html
from orchestrator.report.tables import render_text_table
from orchestrator.tables.passes import interval_words
from orchestrator.tables.results import starts_table
from tests.samples.sample_lab import (
    FELL_BACK,
    MOBILENET,
    MOBILENET_INT8,
    PIXEL_3,
    PIXEL_4,
    START,
    case,
    lab_of,
    rich_lab,
    run,
    series,
    small_lab,
)

GPU = case(delegate=DelegateName.GPU)


def memory_run(number, mib, **more):
    record = run(GPU, number, 6_000.0, run_pass=Pass.MEMORY, **more)
    report = replace(
        record.report, init_memory_mib=mib / 2, overall_memory_mib=mib, peak_memory_mib=mib * 2
    )
    return replace(record, report=report)


def data_of(*runs):
    return lab_of(runs, PIXEL_3, PIXEL_4).data()


def column(table, name):
    (own,) = (item for item in table.columns if item.name == name)
    return [own.data(row) for row in table.listed]


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
    grid = starts_table(data.results)
    assert column(grid, "overall_memory_mib") == [50.0]
    assert column(grid, "median_us") == [None]
    assert "gpu 25.0 50.0 100.0" in " ".join(render_text_table(data).split())


def test_start_of_a_figure_that_is_no_result_is_not_shown_beside_its_memory() -> None:
    data = data_of(*series(GPU, 6_450, **FELL_BACK), memory_run(0, 50.0))
    grid = starts_table(data.results)
    assert column(grid, "overall_memory_mib") == [50.0]
    assert column(grid, "init_us") == [None]


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
        for item in row.pass_lines["stages"]
    ] == [
        ("first-load", 2, 400.0, "trusted"),
        ("process-cold", 1, 14.0, "trusted"),
        ("cache-warm", 1, 10.0, "suspect"),
    ]
    assert row.summary is None


def test_starts_are_shown_only_where_there_are_any() -> None:
    without = data_of(*series(GPU, 6_450))
    assert "first-load" not in render_text_table(without)
    assert "Cold starts" not in render_html(without, title="t")


ACCURACY = {MOBILENET.sha256: 71.8, MOBILENET_INT8.sha256: 70.7}


def test_efficiency_is_the_gain_by_the_threads_that_it_took() -> None:
    runs = [
        *series(case(threads=1), 40_000),
        *series(case(threads=2), 25_000),
        *series(case(threads=4), 16_000),
    ]
    (steps,) = thread_steps(data_of(*runs).results)
    assert [step.row.case.threads for step in steps] == [1, 2, 4]
    assert [round(step.speed_up, 3) for step in steps] == [1.0, 1.6, 2.5]
    assert [round(step.efficiency, 3) for step in steps] == [1.0, 0.8, 0.625]


def test_threads_of_other_tools_delegates_and_devices_arent_one_series() -> None:
    runs = [
        *series(case(threads=1), 40_000),
        *series(case(threads=4, tool=ToolName.APK), 20_000),
        *series(case(PIXEL_4, threads=4), 20_000),
        *series(case(delegate=DelegateName.CPU, threads=4), 20_000),
    ]
    assert list(thread_steps(data_of(*runs).results)) == []


def test_delegate_row_names_the_operators_that_fell_off_it() -> None:
    rows = small_lab().data().results
    partial = [row for row in rows if row.evidence and row.evidence.delegated_nodes == 28]
    assert [row.cpu_operators for row in partial] == ["TOPK_V2 (Operation is not supported.)"]
    assert [row.speed_up for row in rows if row.status.value == "fell-back"] == [None]


def test_accuracy_is_known_by_content() -> None:
    data = small_lab().data(accuracy=ACCURACY)
    assert [model.accuracy for model in data.models] == [71.8, 70.7]


def test_attempt_that_was_cut_is_no_part_of_the_one_begun_again() -> None:
    owner = case(threads=4)
    numbers = [*range(3), *range(ATTEMPT_NUMBERS, ATTEMPT_NUMBERS + 8)]
    runs = [
        replace(
            run(
                owner,
                number,
                9_000.0 if number < ATTEMPT_NUMBERS else 6_000.0,
                run_pass=Pass.SUSTAINED,
            ),
            started_at=START
            + timedelta(seconds=(20 if number < ATTEMPT_NUMBERS else 600) + 5 * (number % 100)),
        )
        for number in numbers
    ]
    lab = lab_of([*series(owner, 6_000), *runs], terms=Terms(sustained=30.0))
    data = lab.data()
    cut, whole = data.results[0].pass_lines["sustained"]
    assert [(row.attempt, row.is_whole, len(row.points)) for row in (cut, whole)] == [
        (1, False, 3),
        (2, True, 8),
    ]
    assert (cut.curve.burst_us, whole.curve.burst_us) == (9_000.0, 6_000.0)
    ((_, drawing),) = report_charts(data)["sustained"]
    assert re.findall(r">([^<]+)</text></g>", drawing)[1:] == ["xnnpack", "xnnpack, 2."]


@pytest.mark.parametrize("reason", sorted(NOT_BEGUN))
def test_an_attempt_whose_rest_was_never_begun_is_cut(reason: str) -> None:
    owner = case(threads=4)
    begun = [run(owner, number, 6_000.0, run_pass=Pass.SUSTAINED) for number in range(3)]
    rest = replace(
        run(owner, 3, outcome=Outcome.SKIPPED, reason_code=reason, run_pass=Pass.SUSTAINED),
        report=None,
        started_at=START + timedelta(hours=1),
    )
    lab = lab_of([*series(owner, 6_000), *begun, rest], terms=Terms(sustained=600.0))
    data = lab.data()
    (row,) = data.results[0].pass_lines["sustained"]
    assert (row.attempt, row.is_whole, len(row.points)) == (1, False, 3)


def test_an_interval_that_says_nothing_is_told_in_words() -> None:
    mean = Mean(value=2.0, half_width=3.0, count=2)
    assert interval_words(mean, 1.5) == interval_words(mean, None) == "too few runs"
    assert interval_words(mean, 0.2) is interval_words(None, None) is None


def test_a_chart_of_threads_names_its_lines_at_their_ends_and_only_measured_counts() -> None:
    runs = [
        *series(case(threads=1), 40_000),
        *series(case(threads=4), 16_000),
        *series(case(delegate=DelegateName.CPU, threads=1), 90_000),
        *series(case(delegate=DelegateName.CPU, threads=4), 30_000),
    ]
    ((title, drawing),) = report_charts(data_of(*runs))["threads"]
    assert title == "mobilenet_v1_1.0_224 on Google Pixel 3 (virtual): ms by number of threads"
    assert re.findall(r'y="100%"[^>]*>(\w+)<', drawing) == ["threads", "1", "4"]
    assert re.findall(r">([^<]+)</text></g>", drawing)[1:] == ["cpu", "xnnpack"]


def test_a_language_models_chart_shows_its_speed_as_all_else_does() -> None:
    decode = {"tool": ToolName.LITERT_LM, "flags": (("figure", "decode"),)}
    runs = [run for n in (1, 4) for run in series(case(threads=n, **decode), 100_000 / n)]
    ((title, drawing),) = report_charts(data_of(*runs))["threads"]
    assert title.endswith(": tokens/s by number of threads")
    heights = re.findall(r'<circle cx="[\d.]+%" cy="([\d.]+)%"', drawing)
    assert float(heights[1]) < float(heights[0]), "more threads give more tokens"


def test_a_map_of_layers_is_as_large_as_their_shares() -> None:
    drawn = [drawing for _, drawing in report_charts(rich_lab().data())["operators"]]
    looks = [dict(re.findall(r'class="(d\d)"[^>]*><title>[^(]*\((\w+)\)', item)) for item in drawn]
    types = [{kind: look for look, kind in item.items()} for item in looks]
    # A type has one colour in all of them, and no two types share it.
    assert types == [
        {"TfLiteGpuDelegateV2": "d1", "TOPK_V2": "d2"},
        {"CONV_2D": "d3", "TOPK_V2": "d2"},
    ]
    for drawing in drawn:
        sides = re.findall(r'<svg [^>]*width="([0-9.]+)%" height="([0-9.]+)%"', drawing)
        areas = [float(width) * float(height) / 10_000 for width, height in sides]
        assert abs(sum(areas) - 1) < 0.001
        assert areas == sorted(areas, reverse=True)
    titles = re.findall(r"<title>(\w+) ", drawn[-1])
    assert titles == ["conv2", "conv1", "top"]
