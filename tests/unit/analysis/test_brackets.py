"""The reference workload's checks within a campaign, and sustained attempts: read from stored runs
alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from orchestrator.analysis.drift import (
    ATTEMPT_NUMBERS,
    attempts,
    baseline_of,
    checks,
    curve_of,
    history_of,
    is_over,
    reference_doubts,
    verdict_of,
)
from orchestrator.records.campaign import Invocation
from orchestrator.records.case import CampaignId, Pass, RunId
from orchestrator.records.run import LatencySummary, Outcome, RunRecord
from tests.unit.analysis.test_rounds import START, case, run

#: The workload's figures of a calm phone in earlier campaigns.
CALM = [1000.0 + step for step in (0, 3, -2, 4, 1, -3, 2, 0, -1)]


def measured(run_pass: Pass, number: int, at_s: float, latency_us: float) -> RunRecord:
    made = run(Invocation(case=case(1), run_pass=run_pass, number=number))
    assert made.report is not None
    return replace(
        made,
        run_id=RunId(f"{run_pass}-{number}"),
        started_at=START + timedelta(seconds=at_s),
        report=replace(made.report, inference=LatencySummary(count=50, median_us=latency_us)),
    )


def check(number: int, at_s: float, latency_us: float) -> list[RunRecord]:
    return [
        measured(Pass.REFERENCE, 3 * number + one, at_s + 5 * one, latency_us + one)
        for one in range(3)
    ]


def timing(number: int, at_s: float) -> RunRecord:
    return measured(Pass.TIMING, number, at_s, 500.0)


NIGHT = [
    *check(0, 0, 1000), timing(0, 20), timing(1, 30), *check(1, 40, 1002), timing(2, 60), timing(3, 70),
    *check(2, 80, 1200), *check(3, 100, 1001), timing(4, 120), *check(4, 130, 999),
]  # fmt: skip


def test_runs_between_a_good_check_and_one_that_moved_are_doubted_and_no_others() -> None:
    assert set(reference_doubts(NIGHT, CALM)) == {"timing-2", "timing-3"}
    assert (
        reference_doubts(
            [item for item in NIGHT if item.invocation // 3 != 2 or item.run_pass is Pass.TIMING],
            CALM,
        )
        == {}
    )


def test_a_check_without_a_figure_says_nothing_good_or_bad() -> None:
    aborted = [replace(item, outcome=Outcome.ABORTED, report=None) for item in check(1, 40, 1000)]
    night = [
        *check(0, 0, 1000),
        timing(0, 20),
        *aborted,
        timing(1, 60),
        *check(2, 80, 1200),
        *check(3, 100, 1200),
    ]
    assert set(reference_doubts(night, CALM)) == {"timing-0", "timing-1"}


def test_later_checks_are_held_against_the_last_one_before_any_other_run() -> None:
    night = [*check(0, 0, 1300), *check(1, 20, 1000), timing(0, 40), *check(2, 50, 1003)]
    baseline = baseline_of(night)
    assert baseline is not None
    assert baseline.number == 1
    first, _, last = checks(night)
    assert verdict_of(night, first, CALM).moved
    assert not verdict_of(night, last, CALM).moved


def test_a_first_check_without_history_decides_nothing() -> None:
    night = check(0, 0, 1300)
    assert verdict_of(night, checks(night)[0], []).moved is None


def test_a_check_that_was_cut_off_is_not_whole() -> None:
    assert [item.is_whole for item in checks([*check(0, 0, 1000), *check(1, 20, 1000)[:2]])] == [
        True,
        False,
    ]


def sustained_run(number: int, at_s: float, latency_us: float = 1000.0) -> RunRecord:
    return replace(measured(Pass.SUSTAINED, number, at_s, latency_us), duration_s=5.0)


def test_attempts_are_told_apart_by_their_numbers_and_only_the_last_one_counts() -> None:
    cut = [sustained_run(number, 6 * number) for number in range(3)]
    whole = [
        sustained_run(ATTEMPT_NUMBERS + number, 1000 + 6 * number, 1000 + 50 * number)
        for number in range(10)
    ]
    assert not is_over(cut, 55)
    assert is_over([*cut, *whole], 55)
    first, second = attempts([*whole, *cut])
    assert (len(first.runs), len(second.runs), second.elapsed_s) == (3, 10, 59.0)
    curve = curve_of(second)
    assert curve is not None
    assert curve.slowdown > 1.2


def test_an_attempt_without_figures_ends_and_an_unfit_wait_is_none() -> None:
    failed = [
        replace(sustained_run(number, 6 * number), outcome=Outcome.FAILED) for number in range(3)
    ]
    assert is_over(failed, 600)
    assert curve_of(attempts(failed)[0]) is None
    assert attempts([replace(sustained_run(0, 0), outcome=Outcome.UNFIT)]) == ()


def test_the_noise_of_a_device_is_that_between_checks_and_not_within_one() -> None:
    nights = []
    for night, level in enumerate((1000, 1040, 1005, 1045, 1000, 1042)):
        nights += [
            replace(item, campaign_id=CampaignId(f"night-{night}")) for item in check(0, 0, level)
        ]
    history_us = history_of([*nights, timing(0, 500)])
    assert history_us == (1001, 1041, 1006, 1046, 1001, 1043)
    tonight = [*check(0, 0, 1000), timing(0, 20), *check(1, 40, 1042)]
    assert not verdict_of(tonight, checks(tonight)[1], history_us).moved
    assert verdict_of(
        [*tonight, *check(2, 60, 1500)], checks(check(2, 60, 1500))[0], history_us
    ).moved
