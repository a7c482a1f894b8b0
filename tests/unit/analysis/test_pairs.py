import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.compare import (
    compare_pairs,
    compare_samples,
    detectable,
    pairs_for,
    threshold_for,
)
from orchestrator.records.verdict import ComparisonOutcome

FASTER, SLOWER = ComparisonOutcome.FASTER, ComparisonOutcome.SLOWER
SAME, INCONCLUSIVE = ComparisonOutcome.SAME, ComparisonOutcome.INCONCLUSIVE
COMPARISONS = pytest.mark.parametrize(
    "compare", [compare_pairs, compare_samples], ids=["pairs", "samples"]
)
INVERSE = {FASTER: SLOWER, SLOWER: FASTER, SAME: SAME, INCONCLUSIVE: INCONCLUSIVE}
latency = st.floats(10.0, 1e7)
sides = st.integers(2, 30).flatmap(
    lambda count: st.tuples(*[st.lists(latency, min_size=count, max_size=count) for _ in range(2)])
)


def sample(chance, count, latency_us=10_000.0, noise=0.016):
    return [latency_us * math.exp(chance.gauss(0, noise)) for _ in range(count)]


def test_interval_of_few_pairs_is_students_on_log_ratios():
    verdict = compare_pairs([100.0, 200.0, 300.0], [110.0, 242.0, 399.3], level=0.95)
    # Log ratios are 1, 2 and 3 times log(1.1).
    reach = 4.302653 * math.log(1.1) / math.sqrt(3)
    assert verdict.ratio == pytest.approx(1.21)
    assert math.log(verdict.high / 1.21) == pytest.approx(reach, rel=1e-5)
    assert math.log(1.21 / verdict.low) == pytest.approx(reach, rel=1e-5)
    assert (verdict.method, verdict.counts, verdict.level) == ("paired-t", (3, 3), 0.95)


@COMPARISONS
@pytest.mark.parametrize("count", [3, 25])
def test_equal_figures_without_noise_are_the_same(compare, count):
    verdict = compare([500.0] * count, [500.0] * count)
    assert verdict.outcome is SAME
    assert (verdict.ratio, verdict.low, verdict.high) == pytest.approx((1.0, 1.0, 1.0))
    assert verdict.detectable == pytest.approx(verdict.threshold)


def test_a_sure_change_below_the_threshold_is_no_change():
    assert compare_pairs([1000.0, 1001.0, 999.0] * 3, [1010.0, 1011.0, 1009.0] * 3).outcome is SAME


def test_a_large_change_that_may_be_an_accident_is_inconclusive():
    verdict = compare_pairs([100.0, 100.0, 100.0], [100.0, 120.0, 110.0])
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.detectable > 0.2


@COMPARISONS
def test_single_invocations_are_inconclusive_and_missing_ones_incomparable(compare):
    single = compare([100.0], [50.0])
    assert (single.outcome, single.low, single.detectable) == (INCONCLUSIVE, None, None)
    assert single.ratio == pytest.approx(0.5)
    assert single.reasons
    assert compare([], []).outcome is ComparisonOutcome.INCOMPARABLE


def test_pairs_of_unequal_sides_and_figures_that_are_no_latencies_are_refused():
    with pytest.raises(ValueError, match="one length"):
        compare_pairs([1.0], [1.0, 2.0])
    for compare in (compare_pairs, compare_samples):
        with pytest.raises(ValueError, match="positive"):
            compare([1.0, 0.0], [1.0, 2.0])


def test_pairing_takes_out_what_both_sides_share():
    chance = random.Random(5)
    heat = [math.exp(0.01 * step) for step in range(12)]
    baseline = [
        us * factor for us, factor in zip(sample(chance, 12, noise=0.004), heat, strict=True)
    ]
    candidate = [
        us * factor for us, factor in zip(sample(chance, 12, 10_300.0, 0.004), heat, strict=True)
    ]
    assert compare_pairs(baseline, candidate).outcome is SLOWER
    assert compare_samples(baseline, candidate).outcome is INCONCLUSIVE


@pytest.mark.parametrize("level", [0.99, 0.999999])
@COMPARISONS
def test_two_invocations_that_have_nothing_in_common_say_nothing_and_break_nothing(compare, level):
    found = compare([1.0, 1e9], [1e9, 1.0], level=level)
    assert found.outcome is INCONCLUSIVE
    assert 0 < found.low < found.ratio < found.high < math.inf
    assert 1 < found.detectable < math.inf


@COMPARISONS
@settings(deadline=None)
@given(both=sides)
def test_turned_round_the_ratio_and_the_verdict_are_inverted(compare, both):
    there, back = compare(both[0], both[1]), compare(both[1], both[0])
    assert there.ratio * back.ratio == pytest.approx(1.0)
    assert there.low * back.high == pytest.approx(1.0)
    assert there.high * back.low == pytest.approx(1.0)
    assert there.outcome is INVERSE[back.outcome]


@COMPARISONS
@settings(deadline=None)
@given(both=sides, factor=st.floats(0.01, 100))
def test_another_unit_changes_nothing(compare, both, factor):
    there = compare(*both)
    scaled = compare(*([us * factor for us in side] for side in both))
    assert scaled.ratio == pytest.approx(there.ratio, rel=1e-9)
    assert scaled.low == pytest.approx(there.low, rel=1e-6)


@settings(deadline=None)
@given(both=sides, seed=st.integers(0, 1000))
def test_order_of_pairs_doesnt_matter(both, seed):
    pairs = list(zip(*both, strict=True))
    there = compare_pairs([a for a, _ in pairs], [b for _, b in pairs])
    random.Random(seed).shuffle(pairs)
    assert compare_pairs([a for a, _ in pairs], [b for _, b in pairs]).low == pytest.approx(
        there.low, rel=1e-9
    )


@pytest.mark.slow
@COMPARISONS
@pytest.mark.parametrize("noise", [0.016, 0.08])
@pytest.mark.parametrize("count", [8, 24])
def test_equals_are_hardly_ever_called_a_change(compare, noise, count):
    chance = random.Random(20260314)
    alarms = sum(
        compare(sample(chance, count, noise=noise), sample(chance, count, noise=noise)).outcome
        in (FASTER, SLOWER)
        for _ in range(600)
    )
    assert alarms / 600 <= 0.02


def test_planned_pairs_find_the_change_that_they_were_planned_for():
    count = pairs_for(0.03, 0.0225)
    assert 10 <= count <= 25
    chance = random.Random(11)
    found = sum(
        compare_pairs(sample(chance, count), sample(chance, count, 10_300.0)).outcome is SLOWER
        for _ in range(400)
    )
    assert found / 400 >= 0.92


def test_minimum_detectable_effect_is_found_four_times_in_five():
    # Leaving a fifth out at either end costs some of a normal sample's precision, six that are left
    # some more, and not knowing whether they remember each other most.
    effect = detectable(0.016 * 1.08 * (1 + 1 / 12) * 1.6, 10, paired=False)
    chance = random.Random(12)
    found = sum(
        compare_samples(sample(chance, 10), sample(chance, 10, 10_000 * (1 + effect))).outcome
        is SLOWER
        for _ in range(500)
    )
    # With as few as ten each the deviation itself is uncertain, which costs some of the 80 %.
    assert 0.68 <= found / 500 <= 0.9


def test_more_pairs_show_smaller_effects_and_none_below_the_threshold():
    effects = [detectable(0.02, count, paired=True) for count in (3, 8, 40, 10_000)]
    assert effects == sorted(effects, reverse=True)
    assert effects[-1] == pytest.approx(0.02, rel=0.02)
    with pytest.raises(ValueError, match="single"):
        detectable(0.02, 1, paired=True)


def test_looking_for_less_than_the_threshold_lowers_the_threshold():
    assert threshold_for(0.03) == pytest.approx(0.02)
    assert threshold_for(0.006) == pytest.approx(0.004)
    assert pairs_for(0.006, 0.01) > pairs_for(0.02, 0.01)
    with pytest.raises(ValueError, match="threshold"):
        pairs_for(0.01, 0.01, threshold=0.02)
