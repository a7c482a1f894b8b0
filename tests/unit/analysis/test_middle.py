import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.middle import (
    bootstrap_difference,
    bootstrap_middle,
    middle,
    t_cdf,
    t_quantile,
    trimmed_each_side,
)
from orchestrator.analysis.summary import own_error, summarize
from orchestrator.records.run import LatencySummary

logs = st.lists(st.floats(-2, 2), min_size=20, max_size=45)


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.975, 4, 2.7764),
        (0.975, 9, 2.2622),
        (0.975, 18, 2.1009),
        (0.95, 7, 1.8946),
        (0.995, 3, 5.8409),
        (0.9995, 10, 4.5869),
        (0.975, 1_000_000, 1.95997),
    ],
)
def test_quantiles_are_those_of_printed_tables(probability, degrees, expected):
    assert t_quantile(probability, degrees) == pytest.approx(expected, abs=6e-5)


@given(st.floats(-50, 50), st.floats(0.5, 500))
def test_distribution_is_symmetric(t, degrees):
    assert t_cdf(t, degrees) + t_cdf(-t, degrees) == pytest.approx(1.0)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.9, 0), (0.9, -1)])
def test_what_has_no_quantile_is_refused(probability, degrees):
    with pytest.raises(ValueError, match="must be"):
        t_quantile(probability, degrees)


def test_few_figures_have_their_mean_and_its_usual_error():
    found = middle([1.0, 2.0, 3.0, 4.0])
    assert found.value == 2.5
    assert found.error == pytest.approx(math.sqrt(5 / 3) / 2)
    assert (found.degrees, found.std) == (3, pytest.approx(math.sqrt(5 / 3)))


def test_from_eight_on_a_fifth_is_left_out_at_either_end():
    found = middle([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 1e9])
    assert found.value == pytest.approx((2 + 3 + 4 + 5 + 6 + 7) / 6)
    # Winsorised: 2 2 3 4 5 6 7 7, squared deviations 28 around 4.5 minus nothing; h(h - 1) = 30.
    yuen = math.sqrt(sum((x - 4.5) ** 2 for x in (2, 2, 3, 4, 5, 6, 7, 7)) / 30)
    # Widened by 1 / 2h, because so few are left.
    assert found.error == pytest.approx(yuen * (1 + 1 / 12))
    assert found.degrees == 5
    assert [trimmed_each_side(count) for count in (2, 7, 8, 10, 20, 40)] == [0, 0, 1, 2, 4, 8]


def test_one_slow_invocation_in_eight_neither_moves_nor_widens_the_middle():
    chance = random.Random(1)
    steady = [chance.gauss(0, 0.015) for _ in range(8)]
    slowed = [*sorted(steady)[:-1], 0.3]
    assert middle(slowed).value == pytest.approx(middle(steady).value)
    assert middle(slowed).error == pytest.approx(middle(steady).error)


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
    printed = LatencySummary(
        count=100, median_us=1000.0, mean_us=1100.0, std_us=900.0, p5_us=967.1, p95_us=1032.9
    )
    # p5 to p95 of 65.8 us are a deviation of 20 us; the median of 100 has 1.2533 * 20 / 10.
    assert own_error(printed) == pytest.approx(0.0025066, rel=1e-3)
    assert own_error(LatencySummary(count=100, mean_us=1000.0, std_us=20.0)) == pytest.approx(0.002)


@pytest.mark.parametrize(
    "printed",
    [
        LatencySummary(count=1, median_us=5.0, std_us=1.0),
        LatencySummary(count=9),
        LatencySummary(count=9, mean_us=5.0),
    ],
)
def test_a_process_that_printed_too_little_has_no_known_error(printed):
    assert own_error(printed) is None


def test_summaries_take_own_errors_that_are_partly_unknown():
    latencies = [1000.0 + step for step in range(30)]
    plain = summarize(latencies)
    wide = summarize(latencies, own_errors=[None, *[0.02] * 29])
    assert wide.interval.low < plain.interval.low < plain.interval.high < wide.interval.high
