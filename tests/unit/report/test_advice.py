"""Advice speaks where a difference is more than noise, names its runs, and is silent otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from orchestrator.analysis.energy import mean_of
from orchestrator.records.advice import Advice
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import ModelSha, Serial, content_key
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import DelegateTruth, RunRecord
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Case, DelegateName, Model
from orchestrator.report.advice import SOURCES, advice_of, fleet_choice, format_text
from orchestrator.report.allow_list import allow_list
from orchestrator.report.assembly import build_report_data
from orchestrator.report.data import ReportData
from orchestrator.report.passes import EnergyRow
from orchestrator.report.winners import contests_of, figure_of, with_comparisons
from tests.samples.sample_lab import (
    HOST,
    MOBILENET,
    PIXEL_3,
    PIXEL_4,
    REAL_PIXEL,
    case,
    lab_of,
    parity,
    profile,
    run,
    series,
    skewed,
)

GPU = DelegateName.GPU


class Item(NamedTuple):
    """A case's runs, and what else a report knows of it."""

    owner: Case
    runs: list[RunRecord]
    known: dict[str, Any]


def item(
    latency_us: float,
    device: DeviceFacts = PIXEL_3,
    model: Model = MOBILENET,
    delegate: DelegateName = DelegateName.XNNPACK,
    threads: int = 4,
    *,
    runs: list[RunRecord] | None = None,
    **known: Any,
) -> Item:
    owner = case(device, model, delegate, threads)
    return Item(owner, runs or series(owner, latency_us), known)


def data_of(*items: Item) -> ReportData:
    devices = (PIXEL_3, PIXEL_4, HOST, *(replace(REAL_PIXEL, serial=found.owner.serial) for found in items))
    data = build_report_data(**lab_of([run for found in items for run in found.runs], *devices).inputs())  # type: ignore[arg-type]
    known = {found.owner.case_key: found.known for found in items}
    rows = tuple(with_comparisons([replace(row, **{"init_us": None, **known[row.key]}) for row in data.results]))
    return replace(data, results=rows, contests=contests_of(rows))


def rules(*items: Item, inferences: int | None = None) -> dict[str, Advice]:
    return {line.rule: line for line in advice_of(data_of(*items), inferences=inferences).lines}


def phones(*serials: str) -> list[DeviceFacts]:
    return [replace(REAL_PIXEL, serial=Serial(serial)) for serial in serials]


def test_every_line_names_runs_and_a_known_source() -> None:
    slow, fast = item(9_000.0, threads=8, init_us=1_000.0), item(5_000.0, init_us=50_000.0)
    lines = advice_of(data_of(slow, fast), inferences=10).lines
    assert {line.rule for line in lines} >= {"best", "threads", "more-threads-hurt", "break-even"}
    known = {run.run_id for each in (slow, fast) for run in each.runs}
    for line in lines:
        assert line.evidence
        assert set(line.evidence) <= known
        assert line.source == SOURCES[line.rule]


def test_only_judged_figures_count() -> None:
    suspect = item(0, runs=series(case(threads=1), 1_000.0, quality=Quality.SUSPECT), threads=1)
    assert "use xnnpack, 4 threads" in rules(item(5_000.0), suspect)["best"].text
    assert rules(suspect) == {}


def test_threads_that_are_not_faster_by_more_than_noise_are_not_advised() -> None:
    found = rules(item(5_000.0, threads=2), item(4_998.0, threads=4))
    assert "2 threads are enough" in found["threads"].text
    assert "more-threads-hurt" not in found
    assert "would have shown" in found["not-detectable"].text


def metered(latency_us: float, threads: int, *mj: float, grade: str = "rails") -> Item:
    blocks = {("campaign", turn): 1e3 * value for turn, value in enumerate(mj)}
    energy = EnergyRow(net_uj=mean_of(list(blocks.values())), grade=grade, quality=Quality.TRUSTED, blocks=blocks)
    return item(latency_us, threads=threads, energy=energy)


def test_what_the_fastest_number_of_threads_costs_in_energy_is_told() -> None:
    frugal = metered(5_400.0, 2, 10.0, 10.1, 10.2)
    told = rules(frugal, metered(5_000.0, 4, 14.0, 14.2, 14.2))["energy-of-threads"].text
    assert told.startswith(
        "xnnpack: 4 threads are 8.0 % faster than 2 threads and cost 39.9 % more energy an inference ["
    )
    same = rules(metered(5_000.0, 1, 10.0, 10.1, 10.2), metered(4_999.0, 4, 14.0, 14.2, 14.2))["energy-of-threads"].text
    assert "4 threads are not shown to be faster than 1 thread, and cost 39.9 % more energy" in same


@pytest.mark.parametrize(
    "beside",
    [
        metered(5_000.0, 4, 9.0, 9.2, 9.2),
        metered(5_000.0, 4, 6.0, 25.0, 9.0),
        metered(5_000.0, 4, 14.0, 14.2, 14.2, grade="battery"),
        metered(5_000.0, 4, 14.0),
    ],
    ids=["frugal too", "noisy", "another meter", "single"],
)
def test_energy_of_threads_is_silent_where_nothing_is_shown(beside: Item) -> None:
    assert "energy-of-threads" not in rules(metered(5_400.0, 2, 10.0, 10.1, 10.2), beside)


def test_more_threads_than_big_cores_are_told_only_where_they_cost() -> None:
    assert "more-threads-than-big-cores" in rules(item(5_000.0, threads=4), item(9_000.0, threads=8))
    assert "more-threads-than-big-cores" not in rules(item(9_000.0, threads=4), item(5_000.0, threads=8))


def test_a_delegate_is_worth_it_only_where_it_is_faster() -> None:
    cpu = item(5_000.0, init_us=1_000.0)
    told = rules(cpu, item(9_000.0, delegate=GPU, init_us=90_000.0))["delegate-not-worth-it"].text
    assert "isn't worth it" in told
    assert "takes 1.80 times" in told
    assert "starts in 90.0 ms instead of 1.00 ms" in told
    assert "isn't shown to be worth it" in rules(cpu, item(5_001.0, delegate=GPU))["delegate-not-worth-it"].text
    assert "delegate-not-worth-it" not in rules(cpu, item(2_000.0, delegate=GPU, init_us=90_000.0))


def test_break_even_is_where_both_have_taken_as_long() -> None:
    both = item(5_000.0, init_us=1_000.0), item(3_000.0, delegate=GPU, init_us=101_000.0)
    text = rules(*both)["break-even"].text
    assert "from 51 inferences" in text or "from 50 inferences" in text
    few = [line.text for line in advice_of(data_of(*both), inferences=10).lines if line.rule == "break-even"]
    assert any(text.startswith("for 10 inferences with one start: xnnpack") for text in few)


def test_a_single_invocation_supports_only_differences_far_beyond_noise() -> None:
    eight = case(threads=8)
    near = rules(item(5_000.0), item(0, threads=8, runs=[run(eight, 0, 5_900.0)]))
    assert "more-threads-hurt" not in near
    far = rules(item(5_000.0), item(0, threads=8, runs=[run(eight, 0, 9_000.0)]))
    assert "times (single invocation, not tested) as long as 4" in far["more-threads-hurt"].text


def test_a_front_is_not_filled_by_differences_that_no_app_would_notice() -> None:
    fast = item(2_000.0, init_us=1_300.0, overall_memory_mib=3.87)
    slow = item(40_000.0, threads=8, init_us=1_150.0, overall_memory_mib=3.86)
    small = item(3_000.0, threads=1, init_us=1_300.0, overall_memory_mib=1.5)
    text = rules(fast, slow, small)["pareto"].text
    assert "8 threads" not in text
    assert "1 thread" in text
    assert "starts in 1.30 ms, 1.5 MiB" in text


def test_every_variant_that_benchfarm_builds_is_known_as_quantised() -> None:
    def model(name: str) -> Model:
        return Model(name=name, sha256=ModelSha(content_key(name)), size_bytes=1)

    for variant in ("int8", "int16x8", "dynamic-range"):
        both = item(5_000.0, model=model("net_float32")), item(2_500.0, model=model(f"net_{variant}"))
        assert "2.00 times as fast as net_float32" in rules(*both)["quantised"].text


def test_the_fleets_choice_has_the_smallest_worst_regret() -> None:
    one, two = phones("A", "B")
    items = [item(1_000.0, one, delegate=GPU), item(1_300.0, one), item(9_000.0, two, delegate=GPU), item(3_000.0, two)]
    groups = {contest.shown.device.serial: contest.rows for contest in data_of(*items).contests}
    choice = fleet_choice(groups)
    assert choice is not None
    rows, regrets = choice
    assert {row.case.delegate.value for row in rows} == {"xnnpack"}
    assert regrets == pytest.approx([0.3, 0.0], abs=0.01)
    again = [replace(rows[0], compared=replace(figure_of(rows[0]), count=9)), rows[0]]
    known = fleet_choice({"A": again, "B": [rows[1]]})
    assert known is not None
    assert known[0][0] is again[0]
    found = rules(items[0], items[3])["fleet"].text
    assert found == "no configuration has a figure that counts on every phone"


def test_virtual_phones_have_a_choice_of_their_own_and_weigh_nothing_beside_real_ones() -> None:
    real = [each for phone in phones("A", "B") for each in (item(9_000.0, phone, delegate=GPU), item(8_000.0, phone))]
    virtual = [
        each for phone in phones("virtual-1", "virtual-2")
        for each in (item(1_000.0, phone, delegate=GPU), item(90_000.0, phone))
    ]  # fmt: skip
    told = {line.device: line.text for line in advice_of(data_of(*virtual, *real)).lines if line.rule == "fleet"}
    assert "one choice for all: xnnpack" in told["all phones"]
    assert "one choice for all: gpu" in told["all virtual phones"]
    assert "virtual-1" not in told["all phones"]
    # One real phone beside a virtual one is no fleet.
    assert "fleet" not in rules(real[0], virtual[0])


def test_advice_on_one_phone_is_by_figures_of_one_kind() -> None:
    # Its mean lies above the other's median, although it is the faster one.
    faster = item(0, threads=2, runs=[skewed(one, has_median=False) for one in series(case(threads=2), 9_500)])
    slower = item(0, runs=[skewed(one) for one in series(case(), 10_000)])
    assert "use xnnpack, 2 threads" in rules(faster, slower)["best"].text


def test_what_is_wrong_is_named_and_what_was_not_compared_is_said() -> None:
    gpu = case(delegate=GPU)
    wrong = item(0, delegate=GPU, runs=[*series(gpu, 1_000.0), parity(gpu, ParityVerdict.WRONG, 0.9)])
    found = rules(item(5_000.0), wrong)
    assert "don't use gpu" in found["wrong-outputs"].text
    assert "use xnnpack" in found["best"].text
    assert "were not compared" in found["best"].text


def test_partial_delegation_names_the_operators() -> None:
    runs = series(case(delegate=GPU), 5_000.0, truth=DelegateTruth.PARTIAL, nodes=(29, 31))
    text = rules(item(0, delegate=GPU, runs=runs))["partial-delegation"].text
    assert "29 of 31" in text
    assert "replace TOPK_V2 (Operation is not supported.)" in text


def test_a_report_gives_advice_and_a_list_for_apps() -> None:
    items = [
        item(latency_us, device, delegate=delegate)
        for device in (PIXEL_3, PIXEL_4)
        for delegate, latency_us in ((DelegateName.XNNPACK, 5_000.0), (DelegateName.CPU, 9_000.0))
    ]
    data = data_of(*items)
    advice = advice_of(data)
    assert {line.rule for line in advice.lines} >= {"best", "fleet"}
    assert "one choice for all: xnnpack" in format_text(advice)
    document: Any = allow_list(data)
    # What apps read: another name or meaning of a key needs another version (docs/guides/choose-a-delegate.md).
    assert list(document) == ["format", "version", "campaigns", "is_virtual", "models"]
    assert (document["format"], document["version"]) == ("benchfarm-allow-list", 1)
    (model,) = document["models"].values()
    assert list(model) == ["name", "default", "devices"]
    assert list(model["default"]) == ["delegate", "threads", "flags", "worst_regret", "is_virtual"]
    assert set(model["devices"][0]) == {
        "match", "is_virtual", "configuration", "latency_us", "interval_us", "parity", "tied", "runs",
    }  # fmt: skip
    assert model["default"]["delegate"] == "xnnpack"
    assert [entry["configuration"]["delegate"] for entry in model["devices"]] == ["xnnpack", "xnnpack"]
    assert allow_list(data, need_parity=True)["models"] == {}


def told_of(rule: str, *operators: tuple[str, str, float]) -> str:
    """Return what a rule says of a configuration that was profiled so; the shares are those of the inference."""
    owner = case()
    found = rules(item(0, runs=[*series(owner, 5_000.0), profile(owner, operators)]))
    return found[rule].text if rule in found else ""


#: As LiteRT's profile of a recurrent network has it, and a fused operator.
LOOP = "[functional_1/lstm_1/while, functional_1/lstm_1/while1, Unknown]:1"
FUSED = "[a/Relu6;a/mul_1;a/depthwise]:1"


@pytest.mark.parametrize(
    ("operators", "told"),
    [
        (
            [("CONV_2D", "a", 62.0), ("CONV_2D", "b", 33.0), ("ADD", "d", 5.0)],
            "62 % of the time is one operator: CONV_2D a; look at it first (xnnpack, 4 threads",
        ),
        (
            [("WHILE", LOOP, 97.0), ("ADD", "d", 3.0)],
            "97 % of the time is one operator: WHILE functional_1/lstm_1/while, a loop or branch whose",
        ),
        (
            [("DEPTHWISE_CONV_2D", FUSED, 60.0), ("ADD", "d", 40.0)],
            "60 % of the time is one operator: DEPTHWISE_CONV_2D a/Relu6; look",
        ),
        (
            [("CONV_2D", "b", 30.0), ("CONV_2D", "c", 25.0), ("ADD", "d", 45.0)],
            "55 % of the time is in 2 operators of one type: CONV_2D",
        ),
    ],
)
def test_what_dominates_the_fastest_configuration_is_told_once(
    operators: list[tuple[str, str, float]], told: str
) -> None:
    assert told_of("dominating-operator", *operators).startswith(told)


def test_nothing_is_said_of_operators_that_do_not_dominate_or_move_little() -> None:
    spread = [("CONV_2D", "c", 40.0), ("ADD", "d", 30.0), ("MUL", "m", 30.0)]
    assert told_of("dominating-operator", *spread) == ""
    assert told_of("moves-data", *spread, ("TRANSPOSE", "t", 5.0)) == ""


def test_copies_and_conversions_are_told_from_a_tenth_of_the_time_on() -> None:
    moving = [("TRANSPOSE", "t", 8.0), ("DEQUANTIZE", "q", 3.0), ("Copy (NC, X32)", "k", 2.0)]
    text = told_of("moves-data", ("CONV_2D", "a", 44.0), ("ADD", "b", 43.0), *moving)
    assert text.startswith(
        "13 % of the time only moves or converts data: 1 TRANSPOSE 8 %, 1 DEQUANTIZE 3 %, 1 Copy (NC, X32) 2 %"
    )
