"""What explains the change between two profiled runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.passes.profile import read_layers
from orchestrator.programs import program
from orchestrator.records.case import DelegateName
from orchestrator.records.run import Attachment, OperatorTime
from orchestrator.tables.operators import Place, Profile, compare_profiles, newest_profiles
from tests.samples.sample_lab import (
    CPU_ROWS,
    GPU_PART,
    GPU_ROWS,
    LATER,
    PIXEL_3,
    SPLIT_ROWS,
    case,
    lab_of,
    profile,
)
from tests.samples.tools import raw_of

GPU = case(PIXEL_3, delegate=DelegateName.GPU, threads=1)
NATIVE = Path(__file__).parents[2] / "data" / "native"


def profile_in(name: str) -> Profile:
    """Return the profile that a program really printed."""
    report = program(GPU.tool).tool().parse(raw_of((NATIVE / name).read_bytes()), GPU)
    (found,) = newest_profiles([replace(profile(GPU, GPU_ROWS), report=report)])
    return found


def profile_of(*rows: tuple[str, str, float]) -> Profile:
    (found,) = newest_profiles([profile(GPU, rows)])
    return found


def changes(before: Profile, after: Profile) -> dict[str, str]:
    return {f"{row.node_type} {row.name}": row.change for row in compare_profiles(before, after)}


def test_operator_that_left_the_delegate_is_named_with_what_it_costs() -> None:
    diff = compare_profiles(profile_of(*GPU_ROWS), profile_of(*SPLIT_ROWS))
    (moved,) = [row for row in diff if row.change == "left the delegate"]
    assert (moved.node_type, moved.before_us, moved.after_us) == ("TOPK_V2", None, 450.0)


def test_a_pair_of_runs_says_in_sentences_what_each_took_and_what_moved() -> None:
    runs = [profile(case(PIXEL_3), CPU_ROWS), profile(GPU, GPU_ROWS)]
    (pair,) = lab_of(runs, PIXEL_3).data().diffs
    assert (pair.before, pair.after) == ("xnnpack, 4 threads, native", "gpu, 1 thread, native")
    assert pair.sentences == (
        "One inference took 21.4 ms before and 6.00 ms after: -15.4 ms.",
        "3 operators taken by a delegate: -21.4 ms.",
    )


def test_operator_that_a_delegate_takes_is_told_from_one_that_is_gone() -> None:
    taken = changes(profile_of(*SPLIT_ROWS), profile_of(*GPU_ROWS))
    assert taken["TOPK_V2 [top]:2"] == "taken by a delegate"
    gone = changes(profile_of(*CPU_ROWS), profile_of(*CPU_ROWS[:2]))
    assert gone["TOPK_V2 [top]:2"] == "gone"


def test_partitions_of_a_delegate_are_compared_as_a_whole() -> None:
    diff = compare_profiles(profile_of(*GPU_ROWS), profile_of(*SPLIT_ROWS))
    (whole,) = [row for row in diff if row.node_type == GPU_PART]
    assert (whole.name, whole.before_us, whole.after_us, whole.change) == (
        "2 partitions",
        6_000.0,
        6_000.0,
        "same",
    )


def test_time_inside_of_a_delegate_isnt_counted_twice() -> None:
    record = profile(GPU, GPU_ROWS)
    assert record.report is not None
    inner = OperatorTime(
        node_type="Conv",
        name="x",
        first_us=None,
        mean_us=5_000.0,
        times_called=1,
        block="Delegate internal",
    )
    cycles = replace(inner, block="", unit="cycles")
    starts = replace(inner, block="", phase="init")
    report = replace(record.report, operators=(*record.report.operators, inner, cycles, starts))
    (found,) = newest_profiles([replace(record, report=report)])
    assert found.total_us == 6_000.0


def test_newest_profile_of_each_campaign_counts() -> None:
    runs = [profile(GPU, GPU_ROWS), profile(GPU, CPU_ROWS), profile(GPU, SPLIT_ROWS, LATER)]
    assert [found.total_us for found in newest_profiles(runs)] == [21_400.0, 6_450.0]


def test_time_of_an_inference_is_the_runs_own_and_not_the_sum_over_operators() -> None:
    gpu = profile_in("gpu_profiling.txt")
    assert gpu.total_us == 4_378
    (outside,) = [row for row in gpu.by_type() if row.place is Place.OUTSIDE]
    assert outside.mean_us == pytest.approx(11_127.5 - 4_378)
    assert sum(row.share for row in gpu.by_type()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "total_us", "nested"),
    [("prof_stdout_lstm.txt", 1_256, 24), ("prof_stdout_while.txt", 637, 6)],
)
def test_what_runs_inside_of_a_loop_isnt_added_to_the_loop(
    name: str, total_us: float, nested: int
) -> None:
    found = profile_in(name)
    assert found.total_us == pytest.approx(total_us)
    assert {row.subgraph for row in found.rows} == {""}
    assert len(found.nested) == nested
    assert all(row.subgraph for row in found.nested)


def test_a_signature_that_isnt_the_first_subgraph_is_the_one_that_ran() -> None:
    record = profile(GPU, [("ADD", "body", 30.0), ("WHILE", "loop", 90.0)])
    assert record.report is not None
    body, loop = record.report.operators
    operators = (replace(body, block="while_body"), replace(loop, block="serve"))
    (found,) = newest_profiles(
        [replace(record, report=replace(record.report, operators=operators))]
    )
    assert [row.node_type for row in found.rows] == ["WHILE"]


def test_kernels_of_a_delegate_are_of_the_delegate_and_have_no_numbers_in_their_types() -> None:
    found = profile_in("gpu_profiling.txt")
    types = {row.node_type: row for row in found.by_type()}
    assert types["convolution_2d -> relu"].nodes == 14
    assert types["depthwise_convolution -> relu"].nodes == 13
    assert {row.place for row in types.values()} == {Place.DELEGATE, Place.OUTSIDE}
    assert found.rows[0].name == "Delegate/convolution_2d 0 -> relu 1:0"


def test_kernels_of_a_delegate_are_matched_in_their_order() -> None:
    row = ("convolution_2d 4 -> relu 5", "Delegate/convolution_2d 4 -> relu 5:0", 400.0)
    shifted = ("convolution_2d 6 -> relu 7", "Delegate/convolution_2d 6 -> relu 7:3", 900.0)
    assert changes(profile_of(row), profile_of(shifted)) == {
        f"convolution_2d -> relu {shifted[1]}": "slower"
    }
    left = compare_profiles(profile_of(row), profile_of(*CPU_ROWS))
    assert [item.change for item in left if item.node_type == "TOPK_V2"] == ["left the delegate"]


LAYERS = (
    ("CONV_2D", "[m/conv1/Relu6;m/conv1/convolution]:0", 900.0),
    ("DEPTHWISE_CONV_2D", "[m/dw1/Relu6]:1", 500.0),
    ("CONV_2D", "[m/conv2/Relu6]:2", 700.0),
    ("RESHAPE", "[m/flat]:3", 10.0),
    ("FULLY_CONNECTED", "[m/logits]:4", 300.0),
)
KERNELS = (
    ("Convolution (NHWC, F32) IGEMM", "Delegate/Convolution (NHWC, F32) IGEMM:0", 300.0),
    ("Convolution (NHWC, F32) DWConv", "Delegate/Convolution (NHWC, F32) DWConv:1", 200.0),
    ("Fully Connected (NC, F32) GEMM", "Delegate/Fully Connected (NC, F32) GEMM:2", 600.0),
    ("Copy (NC, X32)", "Delegate/Copy (NC, X32):3", 5.0),
    ("Fully Connected (NC, F32) GEMM", "Delegate/Fully Connected (NC, F32) GEMM:4", 310.0),
)


NAMED = [
    (kind, name[1:].partition(":")[0].partition(";")[0].rstrip("]")) for kind, name, _ in LAYERS
]


def named(*rows: tuple[str, str, float], layers: Sequence[tuple[str, str]] = NAMED) -> Profile:
    """Return a profile of a run beside which the model's layers were kept."""
    run = profile(GPU, rows)
    assert run.report is not None
    data = "".join(f"{kind}\t{name}\n" for kind, name in layers).encode()
    raw = replace(raw_of(b""), attachments=(Attachment(name="layers", data=data),))
    report = read_layers(program(GPU.tool).tool(), run.report, raw, GPU)
    (found,) = newest_profiles([replace(run, report=report)])
    return found


def test_a_delegates_kernels_are_told_by_the_models_own_layers() -> None:
    assert [row.layer for row in named(*KERNELS).rows] == [
        "m/conv1/Relu6",
        "m/dw1/Relu6",
        "m/conv2/Relu6",
        "Delegate/Copy (NC, X32)",
        "m/logits",
    ]
    assert [row.of_layer for row in named(*LAYERS).rows] == [""] * 5
    assert not any(row.of_layer for row in named(*KERNELS, layers=()).rows)


def test_a_layer_that_the_cpu_ran_is_no_kernels() -> None:
    mixed = named(LAYERS[0], KERNELS[1], KERNELS[2], KERNELS[4])
    assert [row.of_layer for row in mixed.rows] == ["", "m/dw1/Relu6", "m/conv2/Relu6", "m/logits"]


def test_the_change_between_delegates_is_told_layer_by_layer() -> None:
    diff = compare_profiles(named(*LAYERS), named(*KERNELS))
    assert [(row.name, row.change, row.difference_us) for row in diff] == [
        ("m/conv1/Relu6", "faster", -600.0),
        ("m/dw1/Relu6", "faster", -300.0),
        ("m/conv2/Relu6", "faster", -100.0),
        ("m/logits", "same", 10.0),
        ("[m/flat]:3", "taken by a delegate", -10.0),
        ("Delegate/Copy (NC, X32):3", "new", 5.0),
    ]
