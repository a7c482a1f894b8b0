import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.summary import IntervalMethod, summarize

latencies = st.lists(st.floats(1.0, 1e8), min_size=1, max_size=40)


def test_one_invocation_has_a_median_and_no_interval():
    summary = summarize([940.0])
    assert (summary.median_us, summary.count) == (940.0, 1)
    assert summary.interval is None
    assert summary.std_us is None
    assert summary.spread is None


def test_interval_of_few_invocations_is_students_on_logarithms():
    summary = summarize([100.0, 110.0, 121.0])
    # The logarithms are log(110) -+ log(1.1): mean log(110), deviation log(1.1), t(0.975, 2) =
    # 4.30265; three in a row that rise may remember each other.
    reach = 4.30265 * math.log(1.1) / math.sqrt(3) * summary.log_mean.error_factor
    assert 1.5 < summary.log_mean.error_factor < 2.5
    assert summary.interval.method is IntervalMethod.LOG_T
    assert summary.interval.low == pytest.approx(110 * math.exp(-reach), rel=1e-5)
    assert summary.interval.high == pytest.approx(110 * math.exp(reach), rel=1e-5)
    assert summary.spread == pytest.approx((summary.interval.high - summary.interval.low) / 220)


def test_interval_of_twenty_invocations_is_students_of_the_twelve_that_stay():
    logs = [
        statistics.NormalDist(0, 0.03).inv_cdf((rank * 7 % 20 + 0.5) / 20) for rank in range(20)
    ]
    summary = summarize([1000 * math.exp(log) for log in logs])
    reach = 2.201 * summary.log_mean.error
    assert math.log(summary.interval.high / 1000) == pytest.approx(reach, rel=1e-3)
    assert math.log(summary.interval.low / 1000) == pytest.approx(-reach, rel=1e-3)


@pytest.mark.parametrize(
    ("latency_us", "noise", "resolution_us"),
    [(10_300, 0.005, 1000.0), (303, 0.015, 10.0)],
)
def test_an_interval_is_never_narrower_than_the_print_and_holds_the_truth(
    latency_us, noise, resolution_us
):
    chance = random.Random(20261122)
    held = 0
    for _ in range(300):
        printed = [
            round(latency_us * math.exp(chance.gauss(0, noise)) / resolution_us) * resolution_us
            for _ in range(8)
        ]
        interval = summarize(printed, resolution_us=resolution_us).interval
        assert interval.high - interval.low >= 0.999 * resolution_us
        held += interval.low <= latency_us <= interval.high
    # Without it: 0 to 93 of 100.
    assert held / 300 >= 0.93


def test_equal_prints_say_that_the_interval_is_that_of_the_print():
    summary = summarize([10_000.0] * 8, resolution_us=1000.0)
    assert summary.interval.method is IntervalMethod.RESOLUTION
    assert (summary.interval.low, summary.interval.high) == pytest.approx((9500.0, 10_500.0))
    assert summary.spread == pytest.approx(0.05)


def test_figures_are_the_textbook_ones():
    summary = summarize([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    assert summary.mean_us == 5.0
    assert summary.median_us == 4.5
    assert summary.std_us == pytest.approx(math.sqrt(32 / 7))
    assert (summary.min_us, summary.max_us) == (2.0, 9.0)


@pytest.mark.parametrize("values", [[], [0.0], [-1.0, 2.0], [math.nan], [1.0, math.inf]])
def test_what_is_no_latency_is_refused(values):
    with pytest.raises(ValueError, match=r"summarise|positive"):
        summarize(values)


@given(latencies, st.floats(0.01, 100))
def test_twice_as_slow_is_twice_the_figure_and_the_same_spread(values, factor):
    base, scaled = summarize(values), summarize([value * factor for value in values])
    assert scaled.median_us == pytest.approx(base.median_us * factor)
    if base.interval is not None:
        assert scaled.interval.low == pytest.approx(base.interval.low * factor, rel=1e-6)
        assert scaled.spread == pytest.approx(base.spread, rel=1e-6, abs=1e-9)


@given(latencies)
def test_interval_is_never_negative_and_never_reversed(values):
    interval = summarize(values).interval
    if interval is not None:
        assert 0 < interval.low <= interval.high


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 5, 10, 20, 40])
def test_interval_holds_the_truth_as_often_as_it_says(count):
    chance = random.Random(20260314 + count)
    trials = 1500
    hits = 0
    for _ in range(trials):
        interval = summarize(
            [1000 * math.exp(chance.gauss(0, 0.05)) for _ in range(count)]
        ).interval
        hits += interval.low <= 1000 <= interval.high
    # Of few invocations nobody knows whether they remember each other: that costs width.
    assert 0.94 <= hits / trials <= (0.998 if count < 40 else 0.985)
