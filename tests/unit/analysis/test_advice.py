"""Advice speaks where a difference is more than noise, names its runs, and is silent otherwise."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orchestrator.analysis.advice import advise, fleet_choice
from orchestrator.analysis.advice_case import SOURCES, AdviceCase
from orchestrator.analysis.case_result import judge_case
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import DelegateTruth
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import DelegateName
from orchestrator.report.advice import advice_of, allow_list, format_markdown, format_text
from orchestrator.report.assembly import build_report_data
from tests.samples.sample_lab import HOST, PIXEL_3, PIXEL_4, case, lab_of, run, series, skewed


def item(latency_us, *, delegate=DelegateName.XNNPACK, threads=4, big_cores=4, parity=None, runs=None, **other):
    identity = {key: other.pop(key) for key in ("serial", "model_name", "model_sha256") if key in other}
    owner = replace(case(delegate=delegate, threads=threads), **identity)
    result = judge_case(runs or series(owner, latency_us))
    if parity is not None:
        result = replace(result, parity=parity)
    return AdviceCase(
        case=owner, result=result, device=f"phone {owner.serial}", big_cores=big_cores, **{"is_virtual": True, **other}
    )


def rules(*cases, **options):
    return {line.rule: line for line in advise(cases, **options).lines}


def test_every_line_names_runs_and_a_known_source():
    slow = item(9_000.0, threads=8, init_us=1_000.0)
    fast = item(5_000.0, init_us=50_000.0)
    lines = advise([slow, fast], inferences=10).lines
    assert {line.rule for line in lines} >= {"best", "threads", "more-threads-hurt", "break-even"}
    known = {run_id for each in (slow, fast) for run_id in each.result.used}
    for line in lines:
        assert line.evidence
        assert set(line.evidence) <= known
        assert line.source == SOURCES[line.rule]


def test_only_judged_figures_count():
    good, suspect = item(5_000.0), item(1_000.0, threads=1)
    suspect = replace(suspect, result=replace(suspect.result, quality=Quality.SUSPECT))
    found = rules(good, suspect)
    assert "use xnnpack, 4 threads" in found["best"].text
    assert advise([suspect]).lines == ()


def test_threads_that_are_not_faster_by_more_than_noise_are_not_advised():
    found = rules(item(5_000.0, threads=2), item(4_998.0, threads=4))
    assert "2 threads are enough" in found["threads"].text
    assert "more-threads-hurt" not in found
    assert "not-detectable" in found


def metered(latency_us, threads, *mj, by="rails"):
    blocks = {(by, "campaign", turn): 1e3 * value for turn, value in enumerate(mj)}
    return item(latency_us, threads=threads, energy_uj=sum(blocks.values()) / len(blocks), energy_blocks=blocks)


def test_what_the_fastest_number_of_threads_costs_in_energy_is_told():
    frugal = metered(5_400.0, 2, 10.0, 10.1, 10.2)
    told = rules(frugal, metered(5_000.0, 4, 14.0, 14.2, 14.2))["energy-of-threads"].text
    assert told.startswith(
        "xnnpack: 4 threads are 8.0 % faster than 2 threads and cost 39.9 % more energy an inference ["
    )
    same = rules(metered(5_000.0, 1, 10.0, 10.1, 10.2), metered(4_999.0, 4, 14.0, 14.2, 14.2))["energy-of-threads"].text
    assert "4 threads are not shown to be faster than 1 thread, and cost 39.9 % more energy" in same


def test_energy_of_threads_is_silent_where_nothing_is_shown():
    frugal, fast = metered(5_400.0, 2, 10.0, 10.1, 10.2), metered(5_000.0, 4, 9.0, 9.2, 9.2)
    noisy, other = metered(5_000.0, 4, 6.0, 25.0, 9.0), metered(5_000.0, 4, 14.0, 14.2, 14.2, by="battery")
    single = metered(5_000.0, 4, 14.0)
    for beside in (fast, noisy, other, single):
        assert "energy-of-threads" not in rules(frugal, beside)


def test_more_threads_than_big_cores_are_told_only_where_they_cost():
    assert "more-threads-than-big-cores" in rules(item(5_000.0, threads=4), item(9_000.0, threads=8))
    assert "more-threads-than-big-cores" not in rules(item(9_000.0, threads=4), item(5_000.0, threads=8))


def test_a_delegate_is_worth_it_only_where_it_is_faster():
    cpu = item(5_000.0, init_us=1_000.0)
    slower = item(9_000.0, delegate=DelegateName.GPU, init_us=90_000.0)
    faster = item(2_000.0, delegate=DelegateName.GPU, init_us=90_000.0)
    assert "takes 1.80 times" in rules(cpu, slower)["delegate-not-worth-it"].text
    assert "delegate-not-worth-it" not in rules(cpu, faster)


def test_break_even_is_where_both_have_taken_as_long():
    found = rules(item(5_000.0, init_us=1_000.0), item(3_000.0, delegate=DelegateName.GPU, init_us=101_000.0))
    assert "from 51 inferences" in found["break-even"].text or "from 50 inferences" in found["break-even"].text
    few = [line.text for line in advise(
        [item(5_000.0, init_us=1_000.0), item(3_000.0, delegate=DelegateName.GPU, init_us=101_000.0)], inferences=10
    ).lines if line.rule == "break-even"]  # fmt: skip
    assert any(text.startswith("for 10 inferences with one start: xnnpack") for text in few)


def test_a_single_invocation_supports_only_differences_far_beyond_noise():
    four, eight = case(threads=4), case(threads=8)
    near = rules(item(0, runs=series(four, 5_000.0)), item(0, threads=8, runs=[run(eight, 0, 5_900.0)]))
    assert "more-threads-hurt" not in near
    far = rules(item(0, runs=series(four, 5_000.0)), item(0, threads=8, runs=[run(eight, 0, 9_000.0)]))
    assert "times (single invocation, not tested) as long as 4" in far["more-threads-hurt"].text


def test_a_front_is_not_filled_by_differences_that_no_app_would_notice():
    fast = item(2_000.0, init_us=1_300.0, memory_mib=3.87)
    slow = item(40_000.0, threads=8, init_us=1_150.0, memory_mib=3.86)
    small = item(3_000.0, threads=1, init_us=1_300.0, memory_mib=1.5)
    text = rules(fast, slow, small)["pareto"].text
    assert "8 threads" not in text
    assert "1 thread" in text


def test_a_delegate_that_cannot_be_told_from_the_cpu_is_not_called_worthless():
    text = rules(item(5_000.0), item(5_001.0, delegate=DelegateName.GPU))["delegate-not-worth-it"].text
    assert "isn't shown to be worth it" in text


def test_every_variant_that_benchfarm_builds_is_known_as_quantised():
    large = item(5_000.0, model_name="net_float32", model_sha256="1" * 64)
    for place, variant in enumerate(("int8", "int16x8", "dynamic-range"), start=2):
        small = item(2_500.0, model_name=f"net_{variant}", model_sha256=str(place) * 64)
        assert "2.00 times as fast as net_float32" in rules(large, small)["quantised"].text


def test_the_fleets_choice_has_the_smallest_worst_regret():
    groups = {
        "A": [item(1_000.0, delegate=DelegateName.GPU, serial="A"), item(1_300.0, serial="A")],
        "B": [item(9_000.0, delegate=DelegateName.GPU, serial="B"), item(3_000.0, serial="B")],
    }
    name, regrets = fleet_choice(groups)
    assert name.startswith("xnnpack")
    assert regrets == pytest.approx({"A": 0.3, "B": 0.0}, abs=0.01)
    assert fleet_choice({"A": groups["A"][:1], "B": groups["B"][1:]}) is None


def test_virtual_phones_have_a_choice_of_their_own_and_weigh_nothing_beside_real_ones():
    real = [item(9_000.0, delegate=DelegateName.GPU, serial=serial, is_virtual=False) for serial in ("A", "B")] + [
        item(8_000.0, serial=serial, is_virtual=False) for serial in ("A", "B")
    ]
    virtual = [item(1_000.0, delegate=DelegateName.GPU, serial=serial) for serial in ("V", "W")]
    virtual += [item(90_000.0, serial=serial) for serial in ("V", "W")]
    lines = [line for line in advise([*virtual, *real]).lines if line.rule == "fleet"]
    told = {line.device: line.text for line in lines}
    assert "one choice for all: xnnpack" in told["all phones"]
    assert "one choice for all: gpu" in told["all virtual phones"]
    assert "phone V" not in told["all phones"]
    # One real phone beside a virtual one is no fleet.
    assert "fleet" not in {line.rule for line in advise([real[0], virtual[0]]).lines}


def test_advice_on_one_phone_is_by_figures_of_one_kind():
    # Its mean lies above the other's median, although it is the faster one.
    faster = item(0, threads=2, runs=[skewed(one, has_median=False) for one in series(case(threads=2), 9_500)])
    slower = item(0, runs=[skewed(one) for one in series(case(), 10_000)])
    assert "use xnnpack, 2 threads" in rules(faster, slower)["best"].text


def test_what_is_wrong_is_named_and_what_was_not_compared_is_said():
    good = item(5_000.0)
    wrong = item(1_000.0, delegate=DelegateName.GPU, parity=ParityVerdict.WRONG)
    wrong = replace(wrong, result=replace(wrong.result, quality=Quality.REJECTED))
    found = rules(good, wrong)
    assert "don't use gpu" in found["wrong-outputs"].text
    assert "were not compared" in found["best"].text


def test_partial_delegation_names_the_operators():
    partial = item(
        5_000.0, delegate=DelegateName.GPU, delegated_nodes=29, total_nodes=31, cpu_operators=(("TOPK_V2", "no"),)
    )
    partial = replace(partial, result=replace(partial.result, truth=DelegateTruth.PARTIAL))
    text = rules(partial)["partial-delegation"].text
    assert "29 of 31" in text
    assert "replace TOPK_V2 (no)" in text


def test_a_report_gives_advice_and_a_list_for_apps():
    runs = [
        each
        for device in (PIXEL_3, PIXEL_4)
        for delegate, latency_us in ((DelegateName.XNNPACK, 5_000.0), (DelegateName.CPU, 9_000.0))
        for each in series(case(device, delegate=delegate), latency_us)
    ]
    data = build_report_data(**lab_of(runs, PIXEL_3, PIXEL_4, HOST).inputs())
    advice = advice_of(data)
    assert {line.rule for line in advice.lines} >= {"best", "fleet"}
    assert "one choice for all: xnnpack" in format_text(advice)
    assert format_markdown(advice).count("\n|") > len(advice.lines)
    document = json.loads(allow_list(data))
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
    assert json.loads(allow_list(data, need_parity=True))["models"] == {}


def test_what_dominates_the_fastest_configuration_is_told_once():
    spread = (("CONV_2D", "b", 0.3), ("CONV_2D", "c", 0.25), ("ADD", "d", 0.05))
    slow = item(9_000.0, threads=1, operators=(("CONV_2D", "a", 0.9),))
    one = rules(slow, item(5_000.0, operators=(("CONV_2D", "a", 0.62), *spread)))["dominating-operator"].text
    assert one.startswith("62 % of the time is one operator: CONV_2D a; look at it first (xnnpack, 4 threads")
    # As LiteRT's profile of a recurrent network has it.
    name = "[functional_1/lstm_1/while, functional_1/lstm_1/while1, Unknown]:1"
    loop = rules(item(5_000.0, operators=(("WHILE", name, 0.97),)))["dominating-operator"].text
    assert loop.startswith("97 % of the time is one operator: WHILE functional_1/lstm_1/while, a loop or branch whose")
    fused = rules(item(5_000.0, operators=(("DEPTHWISE_CONV_2D", "[a/Relu6;a/mul_1;a/depthwise]:1", 0.6),)))
    assert ": DEPTHWISE_CONV_2D a/Relu6; look" in fused["dominating-operator"].text
    several = rules(item(5_000.0, operators=spread))["dominating-operator"].text
    assert several.startswith("55 % of the time is in 2 operators of one type: CONV_2D")
    assert "dominating-operator" not in rules(item(5_000.0, operators=spread[1:]))


def test_copies_and_conversions_are_told_from_a_tenth_of_the_time_on():
    work = (("CONV_2D", "a", 0.4),)
    moving = (("TRANSPOSE", "t", 0.08), ("DEQUANTIZE", "q", 0.03), ("Copy (NC, X32)", "k", 0.02))
    told = rules(item(5_000.0, operators=(*work, *moving), islands=3))["moves-data"].text
    assert told.startswith(
        "13 % of the time only moves or converts data: 1 TRANSPOSE 8 %, 1 DEQUANTIZE 3 %, 1 Copy (NC, X32) 2 %; "
        "a delegate's and the CPU's operators alternate 3 times"
    )
    assert "moves-data" not in rules(item(5_000.0, operators=(*work, *moving[1:])))
