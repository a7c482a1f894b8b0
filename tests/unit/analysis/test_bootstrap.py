import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.middle import bootstrap_difference, bootstrap_middle, middle
from orchestrator.analysis.summary import own_error, summarize
from orchestrator.records.run import LatencySummary

logs = st.lists(st.floats(-2, 2), min_size=20, max_size=45)


@pytest.mark.slow
@settings(deadline=None)
@given(logs)
def test_the_negative_of_a_sample_has_the_negative_interval(values):
    low, high = bootstrap_middle(values, None, level=0.99)
    back_low, back_high = bootstrap_middle([-value for value in values], None, level=0.99)
    assert (back_low, back_high) == pytest.approx((-high, -low), abs=1e-9)


@pytest.mark.slow
@settings(deadline=None)
@given(logs, logs)
def test_turned_round_the_difference_has_the_negative_interval(left, right):
    low, high = bootstrap_difference(left, right, None, None, level=0.95)
    back_low, back_high = bootstrap_difference(right, left, None, None, level=0.95)
    assert (back_low, back_high) == pytest.approx((-high, -low), abs=1e-9)


@settings(deadline=None)
@given(logs, st.randoms())
def test_order_doesnt_matter_and_the_same_sample_has_the_same_interval(values, chance):
    errors = [abs(value) / 10 for value in values]
    there = bootstrap_middle(values, errors, level=0.95)
    both = list(zip(values, errors, strict=True))
    chance.shuffle(both)
    again = bootstrap_middle([value for value, _ in both], [error for _, error in both], level=0.95)
    assert again == pytest.approx(there, abs=1e-2 * (there[1] - there[0]) + 1e-12)
    assert bootstrap_middle(values, errors, level=0.95) == there


def test_processes_that_are_unsure_of_themselves_widen_the_interval():
    values = [math.sin(step) / 100 for step in range(25)]
    sure = bootstrap_middle(values, [0.0] * 25, level=0.95)
    unsure = bootstrap_middle(values, [0.01] * 25, level=0.95)
    assert unsure[1] - unsure[0] > 1.2 * (sure[1] - sure[0])


def test_skew_makes_the_interval_reach_further_to_the_long_side():
    chance = random.Random(2)
    values = [chance.expovariate(1) ** 2 for _ in range(40)]
    low, high = bootstrap_middle(values, None, level=0.95)
    assert high - middle(values).value > 1.1 * (middle(values).value - low)


def test_a_process_s_own_error_comes_from_its_percentiles_and_not_from_its_slowest_inference():
    printed = LatencySummary(count=100, median_us=1000.0, mean_us=1100.0, std_us=900.0, p5_us=967.1, p95_us=1032.9)
    # p5 to p95 of 65.8 us are a deviation of 20 us; the median of 100 has 1.2533 * 20 / 10.
    assert own_error(printed) == pytest.approx(0.0025066, rel=1e-3)
    assert own_error(LatencySummary(count=100, mean_us=1000.0, std_us=20.0)) == pytest.approx(0.002)


@pytest.mark.parametrize(
    "printed",
    [LatencySummary(count=1, median_us=5.0, std_us=1.0), LatencySummary(count=9), LatencySummary(count=9, mean_us=5.0)],
)
def test_a_process_that_printed_too_little_has_no_known_error(printed):
    assert own_error(printed) is None


def test_summaries_take_own_errors_that_are_partly_unknown():
    latencies = [1000.0 + step for step in range(30)]
    plain = summarize(latencies)
    wide = summarize(latencies, own_errors=[None, *[0.02] * 29])
    assert wide.interval.low < plain.interval.low < plain.interval.high < wide.interval.high
