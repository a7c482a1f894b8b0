"""What explains the change between two profiled runs."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.records.run import OperatorTime
from orchestrator.records.workload import DelegateName
from orchestrator.report.assembly import build_report_data
from orchestrator.report.operators import Profile, compare_profiles, profiles_of
from tests.samples.sample_lab import CPU_ROWS, GPU_PART, GPU_ROWS, LATER, PIXEL_3, SPLIT_ROWS, case, profile, rich_lab

GPU = case(PIXEL_3, delegate=DelegateName.GPU, threads=1)


def profile_of(*rows: tuple[str, str, float]) -> Profile:
    (found,) = profiles_of([profile(GPU, rows)])
    return found


def changes(before: Profile, after: Profile) -> dict[str, str]:
    return {f"{row.node_type} {row.name}": row.change for row in compare_profiles(before, after).rows}


def test_operator_that_left_the_delegate_is_named_with_what_it_costs() -> None:
    diff = compare_profiles(profile_of(*GPU_ROWS), profile_of(*SPLIT_ROWS))
    (moved,) = [row for row in diff.rows if row.change == "left the delegate"]
    assert (moved.node_type, moved.before_us, moved.after_us) == ("TOPK_V2", None, 450.0)
    text = " ".join(diff.sentences)
    assert "1 operator left the delegate (now on the CPU): TOPK_V2 (+450 us)." in text
    assert "CPU islands beside a delegate's partitions: 0 before, 1 after." in text


def test_operator_that_a_delegate_takes_is_told_from_one_that_is_gone() -> None:
    taken = changes(profile_of(*SPLIT_ROWS), profile_of(*GPU_ROWS))
    assert taken["TOPK_V2 [top]:2"] == "taken by a delegate"
    gone = changes(profile_of(*CPU_ROWS), profile_of(*CPU_ROWS[:2]))
    assert gone["TOPK_V2 [top]:2"] == "gone"


def test_partitions_of_a_delegate_are_compared_as_a_whole() -> None:
    diff = compare_profiles(profile_of(*GPU_ROWS), profile_of(*SPLIT_ROWS))
    (whole,) = [row for row in diff.rows if row.node_type == GPU_PART]
    assert (whole.name, whole.before_us, whole.after_us, whole.change) == ("2 partitions", 6_000.0, 6_000.0, "same")


def test_shifted_node_number_doesnt_make_another_operator() -> None:
    before = profile_of(("CONV_2D", "[a]:4", 100.0), ("CONV_2D", "[b]:5", 200.0))
    after = profile_of(("CONV_2D", "[a]:1", 100.0), ("CONV_2D", "[b]:2", 400.0))
    assert changes(before, after) == {"CONV_2D [b]:2": "slower", "CONV_2D [a]:1": "same"}


def test_time_inside_of_a_delegate_isnt_counted_twice() -> None:
    record = profile(GPU, GPU_ROWS)
    assert record.report is not None
    inner = OperatorTime(
        node_type="Conv", name="x", first_us=None, mean_us=5_000.0, times_called=1, block="Delegate internal"
    )
    cycles = replace(inner, block="", unit="cycles")
    starts = replace(inner, block="", phase="init")
    report = replace(record.report, operators=(*record.report.operators, inner, cycles, starts))
    (found,) = profiles_of([replace(record, report=report)])
    assert found.total_us == 6_000.0


def test_nights_of_one_case_and_delegate_against_cpu_are_the_pairs() -> None:
    pairs = build_report_data(**rich_lab().inputs()).diffs
    assert [(pair.before, pair.after) for pair in pairs] == [
        ("nightly, 2026-03-14 22:05", "nightly, 2026-03-15 22:05"),
        ("xnnpack, 1 thread, native", "gpu, 1 thread, native"),
    ]


def test_newest_profile_of_each_campaign_counts() -> None:
    runs = [profile(GPU, GPU_ROWS), profile(GPU, CPU_ROWS), profile(GPU, SPLIT_ROWS, LATER)]
    assert [found.total_us for found in profiles_of(runs)] == [21_400.0, 6_450.0]
