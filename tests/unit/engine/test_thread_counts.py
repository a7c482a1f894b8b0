"""A delegate that takes all operators uses no threads: it is measured with one number of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from orchestrator.analysis.measured import judge_cases
from orchestrator.analysis.rounds import progress_by_case
from orchestrator.records.campaign import Invocation, Terms
from orchestrator.records.case import DelegateName, Pass
from orchestrator.records.run import DelegateTruth, Outcome
from tests.unit.analysis.test_rounds import RULE, campaign, case
from tests.unit.engine.test_case_runner import Rig

THREADS = (1, 2, 3)


def rig_of(
    delegate: DelegateName, truth: DelegateTruth = DelegateTruth.FULL, **terms: object
) -> Rig:
    """A campaign of three invocations of each number of threads, whose runs have this truth."""
    planned = tuple(
        Invocation(
            case=replace(case(threads), delegate=delegate), run_pass=Pass.TIMING, number=number
        )
        for number in range(3)
        for threads in THREADS
    )
    begun = replace(campaign(rule=None), invocations=planned, terms=Terms(**terms))  # type: ignore[arg-type]
    return Rig(campaign=begun, truth=truth)


def counted(rig: Rig) -> dict[tuple[int, Outcome], int]:
    return dict(Counter((run.case.threads, run.outcome) for run in rig.store.runs()))


@pytest.mark.parametrize(
    "delegate", [DelegateName.GPU, DelegateName.NNAPI, DelegateName.NPU, DelegateName.HEXAGON]
)
def test_the_other_thread_counts_are_skipped_with_the_reason(delegate: DelegateName) -> None:
    rig = rig_of(delegate)
    rig.measure()
    assert counted(rig) == {
        (1, Outcome.COMPLETED): 3,
        (2, Outcome.SKIPPED): 3,
        (3, Outcome.SKIPPED): 3,
    }
    skipped = [run for run in rig.store.runs() if run.outcome is Outcome.SKIPPED]
    assert {run.reason_code for run in skipped} == {"threads-unused"}
    assert {run.reason for run in skipped} == {
        f"threads unused: all operators ran on the {delegate.value}; the figure is that of 1 thread"
    }
    assert {request.case.threads for request in rig.asked} == {1}


@pytest.mark.parametrize(
    ("delegate", "truth"),
    [
        (DelegateName.GPU, DelegateTruth.PARTIAL),
        (DelegateName.GPU, DelegateTruth.UNKNOWN),
        (DelegateName.XNNPACK, DelegateTruth.FULL),
        (DelegateName.CPU, DelegateTruth.FULL),
        (DelegateName.EXTERNAL, DelegateTruth.FULL),
    ],
)
def test_where_the_cpu_has_a_part_every_thread_count_is_measured(
    delegate: DelegateName, truth: DelegateTruth
) -> None:
    rig = rig_of(delegate, truth)
    rig.measure()
    assert counted(rig) == {(threads, Outcome.COMPLETED): 3 for threads in THREADS}


def test_who_asks_for_every_thread_count_gets_it() -> None:
    rig = rig_of(DelegateName.GPU, every_thread_count=True)
    rig.measure()
    assert counted(rig) == {(threads, Outcome.COMPLETED): 3 for threads in THREADS}


def test_a_failure_of_the_first_lets_the_next_one_show_the_figure() -> None:
    rig = rig_of(DelegateName.GPU)
    rig.end = lambda request: "gpu-init-failed" if request.case.threads == 1 else "ok"
    rig.measure()
    assert counted(rig)[2, Outcome.COMPLETED] == 3
    assert counted(rig)[3, Outcome.SKIPPED] == 3
    assert not any(
        outcome is Outcome.COMPLETED for threads, outcome in counted(rig) if threads == 1
    )


def test_a_resume_keeps_to_the_thread_count_that_was_measured_and_no_round_is_added_to_the_others() -> (
    None
):
    rig = rig_of(DelegateName.GPU, stopping=replace(RULE, first=3, half_width=0.0001, most=5))
    rig.measure()
    before = counted(rig)
    rig.measure()
    assert (
        counted(rig)
        == before
        == {(1, Outcome.COMPLETED): 3, (2, Outcome.SKIPPED): 3, (3, Outcome.SKIPPED): 3}
    )
    texts = {
        item.case.threads: item.text
        for item in progress_by_case(
            rig.campaign, judge_cases(rig.store.runs(), [rig.campaign])
        ).values()
    }
    assert texts[2] == "threads unused: measured with another number of them"
