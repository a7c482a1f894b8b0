"""Which figures stand against each other in a report: like with like, medians with medians."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.analysis.comparison import Axis, Rule, compare_sides
from orchestrator.analysis.effect import Ratio
from orchestrator.analysis.measured import measured_cases
from orchestrator.records.case import (
    Build,
    BuildSha,
    Case,
    DelegateName,
    Pass,
    ProcessMode,
    content_key,
)
from orchestrator.records.run import RunRecord
from orchestrator.records.verdict import ComparisonOutcome, Quality
from orchestrator.report.advice import collect_advice
from orchestrator.report.data import ReportData
from orchestrator.report.exports import to_json
from orchestrator.tables.rows import BestMark, ResultRow
from tests.samples.sample_lab import (
    FELL_BACK,
    NATIVE,
    REAL_PIXEL,
    SKEW,
    case,
    lab_of,
    run,
    series,
    skewed,
)

GPU = case(REAL_PIXEL, delegate=DelegateName.GPU, threads=1)
CPU = case(REAL_PIXEL)
OTHER_BUILD = replace(NATIVE, name="other", sha256=BuildSha(content_key("other build")))


def data_of(*runs: RunRecord, builds: tuple[Build, ...] = (NATIVE, OTHER_BUILD)) -> ReportData:
    lab = lab_of(runs, REAL_PIXEL)
    lab.builds = {build.sha256: build for build in builds}
    return lab.data()


def row_of(data: ReportData, owner: Case) -> ResultRow:
    (row,) = (row for row in data.results if row.case == owner)
    return row


def printed(owner: Case, latency_us: float, **kinds: bool) -> list[RunRecord]:
    return [skewed(record, **kinds) for record in series(owner, latency_us)]


@pytest.mark.parametrize(
    "unlike",
    [
        {"build_sha256": OTHER_BUILD.sha256},
        {"mode": ProcessMode.TOP_APP},
        {"affinity": "f0"},
        {"num_runs": 500},
        {"warmup_runs": 9},
    ],
)
def test_speed_up_is_over_the_cpu_as_it_was_measured_alike(unlike: dict[str, object]) -> None:
    other = replace(CPU, **unlike)  # type: ignore[arg-type]
    data = data_of(*series(GPU, 5_000), *series(CPU, 20_000), *series(other, 8_000))
    gain = row_of(data, GPU)
    assert gain.speed_up is not None
    assert gain.speed_up.value == pytest.approx(4.0)
    assert gain.baseline == row_of(data, CPU).configuration
    # What is over itself is no second sample.
    assert row_of(data, other).speed_up == Ratio(value=1.0, interval=None)
    # Without a CPU case like it there is nothing to be told.
    assert row_of(data_of(*series(GPU, 5_000), *series(other, 8_000)), GPU).speed_up is None


@pytest.mark.parametrize("other", [{"affinity": "all"}, {"threads": 2}, {"flags": (("a", "1"),)}])
def test_speed_up_is_over_the_fastest_of_what_the_cpu_offers(other: dict[str, object]) -> None:
    faster = replace(CPU, **other)  # type: ignore[arg-type]
    data = data_of(*series(GPU, 5_000), *series(CPU, 20_000), *series(faster, 8_000))
    assert row_of(data, GPU).baseline == row_of(data, faster).configuration


def test_program_that_stands_in_for_a_real_one_never_beats_it() -> None:
    fake = replace(OTHER_BUILD, is_virtual=True)
    quick = replace(CPU, build_sha256=fake.sha256)
    data = data_of(
        *series(CPU, 20_000), *series(GPU, 9_000), *series(quick, 1_000), builds=(NATIVE, fake)
    )
    assert row_of(data, quick).is_virtual
    assert row_of(data, GPU).best is BestMark.BEST


def test_fastest_is_found_by_means_where_one_program_prints_no_medians() -> None:
    older = replace(CPU, build_sha256=OTHER_BUILD.sha256)
    # Its mean lies above the other's median, although it is the faster one.
    data = data_of(*printed(CPU, 10_000), *printed(older, 9_500, has_median=False))
    assert row_of(data, older).summary.median_us == pytest.approx(9_500 * SKEW, rel=0.01)  # type: ignore[union-attr]
    assert (row_of(data, older).best, row_of(data, CPU).best) == (BestMark.BEST, BestMark.NONE)
    assert ": xnnpack, build other" in data.headline.answers[0]
    # What is shown of each stays its own.
    assert row_of(data, CPU).summary.median_us == pytest.approx(10_000, rel=0.01)  # type: ignore[union-attr]


def test_median_that_no_mean_was_printed_of_is_not_ranked_among_means() -> None:
    older = replace(CPU, build_sha256=OTHER_BUILD.sha256)
    data = data_of(*printed(CPU, 5_000, has_mean=False), *printed(older, 9_800, has_median=False))
    assert {row.best for row in data.results} <= {BestMark.NONE, BestMark.ALONE}


@pytest.mark.parametrize(
    "unused",
    [
        FELL_BACK,
        {"quality": Quality.REJECTED},
        {"run_pass": Pass.MEMORY},
        {"run_pass": Pass.PROFILE},
    ],
)
def test_percentiles_are_exported_of_nothing_but_results(unused: dict[str, object]) -> None:
    data = data_of(*series(GPU, 5_000), run(GPU, 90, 9_000, **unused))  # type: ignore[arg-type]
    (result,) = json.loads(to_json(data))["results"]
    found = {
        item["invocation"]: (item["latency_us"], item["p5_us"], item["p95_us"])
        for item in result["invocations"]
    }
    assert found[91] == (None, None, None)
    assert found[1] == pytest.approx((5_000, 4_950, 5_250))


def test_an_invocation_that_is_not_used_is_exported_with_the_mean_that_it_printed() -> None:
    broken = run(GPU, 90, 44_000, quality=Quality.REJECTED)
    assert broken.report is not None
    assert broken.report.inference is not None
    inference = replace(broken.report.inference, median_us=0.0)
    broken = replace(broken, report=replace(broken.report, inference=inference))
    (result,) = json.loads(to_json(data_of(*series(GPU, 5_000), broken)))["results"]
    (found,) = [item for item in result["invocations"] if item["invocation"] == 91]
    assert (found["figure"], found["not_a_result_us"]) == ("mean", 44_000)
    assert result["figure"] == "median"


def test_a_configuration_in_two_states_is_no_winner_over_one_that_is_faster_in_pairs() -> None:
    slow = {0, 3, 4, 6, 9, 10, 11, 14, 17, 18, 20, 23, 25, 26, 30, 31, 34, 36, 39}
    runs = [
        run(owner, number, us * (1 + 0.001 * (number % 5)))
        for number in range(40)
        for owner, us in ((GPU, 113_300 if number in slow else 100_000), (CPU, 101_000))
    ]
    data = data_of(*runs)
    gpu, cpu = row_of(data, GPU), row_of(data, CPU)
    assert gpu.median_us is not None
    assert cpu.median_us is not None
    assert gpu.median_us < cpu.median_us
    assert (gpu.best, cpu.best) == (BestMark.TIED, BestMark.TIED)
    assert " are tied; these processes can't tell them apart" in data.headline.answers[0]
    (won,) = data.contests
    assert won.best is not None
    assert won.best.speed_up is not None
    assert won.best.speed_up.value >= 1
    (advice,) = collect_advice(data).lines
    assert "gpu, 1 thread, native isn't shown to be faster than xnnpack" in advice.text


def test_a_tie_of_many_names_the_fastest_and_counts_the_others() -> None:
    """Three processes each tell no two of twelve apart, of which one takes twice the time."""
    configurations = [replace(CPU, threads=threads) for threads in range(1, 13)]
    runs = [
        run(
            case,
            number,
            (80_000 + 7_000 * case.threads) * (1 + 0.05 * ((number + case.threads) % 2)),
        )
        for number in range(3)
        for case in configurations
    ]
    data = data_of(*reversed(runs))
    (answer,) = data.headline.answers
    assert answer.count(" ms ") == 2, answer
    assert " and 10 more are tied; these processes can't tell them apart (at the 99.75 %" in answer
    assert "that 12 configurations need; 'benchfarm compare' takes 99 % for two)" in answer
    (won,) = data.contests
    assert won.fastest == "xnnpack, 1 thread or xnnpack, 2 threads or 10 more"


def test_the_second_is_the_one_that_the_lead_is_least_over() -> None:
    other = replace(CPU, threads=2)
    runs = []
    for number, us in enumerate(range(90_000, 111_000, 2_500)):
        wobble = 1 + 0.0002 * (-1) ** number
        # Nearly always faster than the other one, but for the middle, which is its median.
        near = us * 0.995 * wobble if number != 4 else 101_200
        runs += [run(GPU, number, us * 0.8), run(CPU, number, us * wobble)]
        runs.append(run(other, number, near))
    data = data_of(*runs)
    (won,) = data.contests
    assert won.second is not None
    assert won.second[0].case == other
    over = {row.case: row.speed_up for row in data.results}
    assert (won.best, row_of(data, GPU).baseline) == (
        row_of(data, GPU),
        won.second[0].configuration,
    )
    assert over[GPU] == won.second[1]


@pytest.mark.parametrize(
    ("rounds", "after_h", "is_told"), [(3, 0, False), (5, 0, True), (12, 0, True), (12, 1, False)]
)
def test_report_advice_and_comparison_tell_the_same_cases_apart(
    rounds: int, after_h: int, is_told: bool
) -> None:
    """What rounds have in common is no difference of two cases; one after the other they have
    nothing in common."""
    gpu_case = replace(GPU, threads=CPU.threads)
    heat = [0.03 * math.sin(1.7 * number) for number in range(rounds)]
    runs = []
    for owner, us, wobble in ((CPU, 10_000, 0.001), (gpu_case, 10_300, -0.0015)):
        for number, shared in enumerate(heat):
            made = run(owner, number, us * (1 + shared + wobble * (number % 2)))
            later = timedelta(hours=after_h if owner is gpu_case else 0)
            runs.append(replace(made, started_at=made.started_at + later))
    data = data_of(*runs)
    builds = {build.sha256: build for build in (NATIVE, OTHER_BUILD)}
    devices = {str(REAL_PIXEL.serial): REAL_PIXEL}
    sides = ([run for run in runs if run.case == owner] for owner in (CPU, gpu_case))
    cpu, gpu = (measured_cases(side, devices=devices, builds=builds) for side in sides)
    (row,) = compare_sides(cpu, gpu, Rule(axis=Axis.DELEGATE)).rows
    (advice,) = collect_advice(data).lines
    assert (row.verdict.outcome is ComparisonOutcome.SLOWER) is is_told
    assert (row_of(data, CPU).best is BestMark.BEST) is is_told
    assert ("is slower than" in advice.text) is is_told


def test_advice_is_as_sure_as_the_ties_of_many_configurations() -> None:
    for many, is_told in ((2, True), (10, False)):
        runs = [
            run(
                replace(CPU, threads=threads),
                number,
                (9_960 if threads == 2 else 10_000 * max(1, threads - 1)) * (1 + wobble),
            )
            for threads in range(1, many + 1)
            for number, wobble in enumerate(
                8 * [0.0]
                if threads == 1
                else [0.004, -0.003, 0.001, -0.004, 0.003, -0.001, 0.002, 0.0]
            )
        ]
        data = data_of(*runs)
        (contest,) = data.contests
        enough = [item.text for item in collect_advice(data).lines if "1 thread," in item.text]
        assert bool(contest.tied) is not is_told
        assert bool(enough) is not is_told
