"""Invocations that resemble their neighbours, and phones with two clock states, on series of known
truth."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from orchestrator.analysis.case_result import judge_latency
from orchestrator.analysis.effect import compare_samples as compare_summaries
from orchestrator.analysis.intervals import (
    NO_AUTOCORRELATION,
    Autocorrelation,
    autocorrelation_of,
)
from orchestrator.analysis.measured import judge_cases
from orchestrator.analysis.summary import IntervalMethod, summarize
from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict
from tests.samples.sample_lab import START, case, run

SEED = 20261122
CHANGED = {ComparisonOutcome.FASTER, ComparisonOutcome.SLOWER}


def remembering(
    generator: np.random.Generator, rho: float, rows: int, count: int, std: float = 0.015
) -> list[list[float]]:
    """Return logarithms around 0, each row an autoregression."""
    news = generator.standard_normal((rows, count))
    found = news.copy()
    for place in range(1, count):
        found[:, place] = rho * found[:, place - 1] + math.sqrt(1 - rho**2) * news[:, place]
    return (std * found).tolist()  # type: ignore[no-any-return]


def two_clocks(
    generator: np.random.Generator, rows: int, count: int, gap: float = 0.04
) -> list[list[float]]:
    fast = generator.random((rows, count)) < 0.3
    return (0.005 * generator.standard_normal((rows, count)) - gap * fast).tolist()  # type: ignore[no-any-return]


def us(logs: list[float]) -> list[float]:
    return [10_000 * math.exp(log) for log in logs]


def compare_samples(baseline_us: list[float], candidate_us: list[float]) -> ComparisonVerdict:
    return compare_summaries(summarize(baseline_us), summarize(candidate_us))


def held(samples: list[list[float]], others: Autocorrelation = NO_AUTOCORRELATION) -> float:
    intervals = [summarize(us(logs), others=others).interval for logs in samples]
    return sum(
        found is not None and found.low <= 10_000 <= found.high for found in intervals
    ) / len(samples)


@pytest.mark.parametrize(("rho", "count"), [(0.5, 8), (0.5, 20), (0.6, 12), (0.6, 40)])
def test_intervals_hold_the_truth_of_invocations_that_remember(rho: float, count: int) -> None:
    # Without memory: 71 to 82 of 100.
    assert held(remembering(np.random.default_rng(SEED), rho, 400, count)) >= 0.91


def test_siblings_show_whether_a_device_remembers() -> None:
    generator = np.random.default_rng(SEED)
    grown = {}
    for rho in (0.0, 0.6):
        cases = dict(enumerate(remembering(generator, rho, 12, 12)))
        runs = {
            number: [
                replace(
                    run(case(threads=number + 1), place, 10_000 * math.exp(log)),
                    started_at=START + place * MINUTE,
                )
                for place, log in enumerate(logs)
            ]
            for number, logs in cases.items()
        }
        own = [judge_latency(runs[number]).summary for number in cases]
        siblings = judge_cases(item for case_runs in runs.values() for item in case_runs)
        with_siblings = [item.summary for item in siblings.values()]
        grown[rho] = [
            float(np.mean([item.log_mean.error_factor for item in found if item is not None]))
            for found in (own, with_siblings)
        ]
    assert grown[0.0][1] < 1.4 < grown[0.0][0]
    assert grown[0.6][1] > 1.7


MINUTE = timedelta(minutes=1)


def test_runs_count_in_the_order_in_which_they_were_made() -> None:
    logs = [0.01 * math.sin(2 * math.pi * place / 12) for place in range(24)]
    slowly = [
        replace(run(case(), n, 10_000 * math.exp(log)), started_at=START + n * MINUTE)
        for n, log in enumerate(logs)
    ]
    there, back = judge_latency(slowly), judge_latency(slowly[::-1])
    assert there.summary == back.summary
    assert there.used == back.used
    order = np.random.default_rng(SEED).permutation(24).tolist()
    shuffled = [
        replace(item, started_at=START + order[n] * MINUTE) for n, item in enumerate(slowly)
    ]
    forgetful = judge_latency(shuffled)
    assert there.precision is not None
    assert forgetful.precision is not None
    assert there.precision > 1.5 * forgetful.precision


def test_single_slow_invocations_dont_hide_what_the_others_remember() -> None:
    generator = np.random.default_rng(SEED)
    means = []
    for logs in remembering(generator, 0.6, 40, 40):
        logs[7] += 0.3
        logs[25] += 0.2
        shown = autocorrelation_of(logs)
        means.append(shown.total / shown.weight)
    assert 0.35 < float(np.mean(means)) < 0.7


def test_equal_nights_that_remember_are_hardly_ever_called_different() -> None:
    generator = np.random.default_rng(SEED)
    sides = [remembering(generator, 0.5, 500, 12) for _ in range(2)]
    alarms = sum(
        compare_samples(us(one), us(other)).outcome in CHANGED
        for one, other in zip(*sides, strict=True)
    )
    # Without memory: 6 of 100.
    assert alarms / 500 <= 0.02


# --- two clock states


def test_of_two_clock_states_the_interval_is_the_medians_and_holds_it() -> None:
    generator = np.random.default_rng(SEED)
    # The 20 % quantile of the slow state, 0.005 wide: 50 = 30 + 70 x 28.6 %.
    truth = 10_000 * math.exp(-0.005 * 0.566)
    for count in (8, 12, 40):
        found = [summarize(us(logs)).interval for logs in two_clocks(generator, 300, count)]
        assert (
            sum(item is not None and item.low <= truth <= item.high for item in found) / 300 >= 0.93
        )
    summary = summarize(us([0.0, 0.002, -0.04, 0.001, -0.041, -0.001, 0.003, -0.039, 0.0, 0.002]))
    assert summary.states is not None
    assert (summary.states.slow, summary.states.count) == (7, 10)
    assert summary.states.gap == pytest.approx(0.041, abs=0.001)
    assert summary.interval is not None
    assert summary.interval.method is IntervalMethod.ORDER
    assert summary.interval.low <= summary.median_us <= summary.interval.high


def test_many_invocations_of_two_states_show_them_though_their_edges_come_close() -> None:
    generator = np.random.default_rng(SEED)
    samples = two_clocks(generator, 300, 40)
    assert sum(summarize(us(logs)).states is not None for logs in samples) / 300 >= 0.9


def test_a_case_with_two_clock_states_says_so() -> None:
    logs = (0.0, 0.001, -0.04, 0.002, -0.041, -0.001, 0.003, 0.0)
    result = judge_latency(
        [run(case(), number, 10_000 * math.exp(log)) for number, log in enumerate(logs)]
    )
    assert [finding.code for finding in result.findings] == ["two-states"]
    assert (
        "two clock states 4.2 % apart, 6 of 8 invocations in the slow one"
        in result.findings[0].message
    )


def test_another_share_of_two_clock_states_is_no_change_and_a_larger_difference_is() -> None:
    slow = [0.0, 0.001, -0.001, 0.002, 0.0015, -0.002, 0.001, 0.0, -0.04, -0.041]
    fast = [-0.04, -0.041, -0.039, -0.0405, 0.001, -0.04, -0.0395, -0.041, 0.0, -0.0402]
    verdict = compare_samples(us(slow * 3), us(fast * 3))
    assert verdict.outcome is ComparisonOutcome.INCONCLUSIVE
    assert any("share of the two states" in reason for reason in verdict.reasons)
    faster = compare_samples(us(slow * 3), us([log - 0.1 for log in fast * 3]))
    assert faster.outcome is ComparisonOutcome.FASTER
    assert any("two clock states" in reason for reason in faster.reasons)


def test_a_change_is_found_beneath_two_clock_states() -> None:
    before = [0.0, 0.004, -0.04, 0.006, -0.042, -0.005, 0.003, -0.038, 0.001, -0.004]
    after = [-0.041, 0.002, -0.036, -0.003, -0.04, 0.005, 0.0, -0.044, 0.003, -0.041]
    verdict = compare_samples(us(before), us([log + 0.05 for log in after]))
    assert verdict.outcome is ComparisonOutcome.SLOWER
    assert verdict.method == "state-by-state"
    assert verdict.ratio == pytest.approx(math.exp(0.05), abs=0.004)
    assert verdict.low is not None
    assert verdict.low > 1.03


def test_a_lone_invocation_in_the_other_state_says_that_there_are_two() -> None:
    slow, fast = (
        [0.001, 0.0, -0.001, 0.002, 0.0, -0.002, 0.001],
        [-0.04, -0.041, -0.039, -0.042, -0.04, -0.041, -0.038],
    )
    assert compare_samples(us([*slow, 0.0]), us([*fast, -0.04])).outcome is ComparisonOutcome.FASTER
    verdict = compare_samples(us([*slow, -0.04]), us([*fast, -0.04]))
    assert verdict.outcome is ComparisonOutcome.INCONCLUSIVE
    assert any("share of the two states" in reason for reason in verdict.reasons)
