import math
import random

import pytest

from orchestrator.analysis.effect import best_of, compare_samples, speed_up
from orchestrator.analysis.intervals import Autocorrelation
from orchestrator.analysis.summary import Round, summarize
from orchestrator.records.verdict import ChangeRule

STEADY = (1.0, 1.01, 0.99, 1.005, 0.995)


def rounds_of(count, campaign="campaign"):
    """Each a second after the one before it."""
    return [Round(campaign, number, number) for number in range(count)]


def around(latency_us, wobble=STEADY):
    return summarize([latency_us * factor for factor in wobble])


def test_speed_up_interval_is_welchs():
    baseline, candidate = summarize([10.0, 11.0, 12.0]), summarize([5.0, 5.1, 5.2, 5.3])
    first, second = baseline.log_mean.error**2, candidate.log_mean.error**2
    freedom = math.floor((first + second) ** 2 / (first**2 / 2 + second**2 / 3))
    assert freedom == 2
    reach = 4.302653 * math.sqrt(first + second)
    ratio = speed_up(baseline, candidate)
    assert math.log(ratio.interval.high / ratio.value) == pytest.approx(reach, rel=1e-6)


def test_the_interval_of_a_comparison_is_that_of_a_report():
    """What the device's other cases show of its memory counts once."""
    chance = random.Random(3)
    others = Autocorrelation(weight=40, total=4)
    baseline, candidate = (
        summarize([us * math.exp(chance.gauss(0, 0.01)) for _ in range(12)], others=others)
        for us in (1000, 1030)
    )
    verdict = compare_samples(baseline, candidate, ChangeRule(level=0.95))
    interval = speed_up(candidate, baseline).interval
    assert (verdict.low, verdict.high) == pytest.approx((interval.low, interval.high))


def test_single_invocations_are_compared_by_a_margin_and_said_so():
    near, far = (
        speed_up(summarize([100.0]), summarize([97.0])),
        speed_up(summarize([100.0]), summarize([90.0])),
    )
    assert near.interval is None
    assert not near.is_faster()
    assert far.is_faster()


def test_what_cant_be_told_from_the_fastest_is_tied_with_it():
    best = best_of({"a": around(10_000), "b": around(10_020), "c": around(14_000)})
    assert best.fastest == "a"
    assert best.tied == ("b",)


def test_equal_configurations_seldom_get_a_winner():
    chance = random.Random(7)
    winners = 0
    for _ in range(800):
        a, b = (summarize([math.exp(chance.gauss(0, 0.03)) for _ in range(5)]) for _ in range(2))
        winners += not best_of({"a": a, "b": b}).tied
    assert winners / 800 <= 0.06


@pytest.mark.parametrize("count", [4, 12])
@pytest.mark.parametrize("members", [2, 10])
def test_of_many_equal_configurations_one_is_called_slower_as_seldom_as_of_two(members, count):
    chance = random.Random(20261122)
    called = 0
    for _ in range(200):
        heat = [chance.gauss(0, 0.01) for _ in range(count)]
        rounds = rounds_of(count)
        best = best_of(
            {
                name: summarize(
                    [10_000 * math.exp(each + chance.gauss(0, 0.015)) for each in heat],
                    rounds=rounds,
                )
                for name in range(members)
            }
        )
        called += len(best.tied) < members - 1
    # At one level for each pair: 13 to 17 of 100 with 5 members, 19 to 33 with 10.
    assert called / 200 <= 0.055


def test_figures_of_two_sessions_are_tied_where_sessions_differ_by_as_much():
    noise = [0.002 * math.sin(2.3 * number) for number in range(12)]

    def figure(latency_us, campaign):
        return summarize(
            [latency_us * math.exp(each) for each in noise], rounds=rounds_of(12, campaign)
        )

    for campaign, tied in (("one", ()), ("two", ("slow",))):
        members = {"fast": figure(10_000, "one"), "slow": figure(10_300, campaign)}
        assert best_of(members).tied == tied
        assert speed_up(*members.values()).is_between_sessions == bool(tied)
    assert best_of({"fast": figure(10_000, "one"), "slow": figure(12_000, "two")}).tied == ()


def test_what_is_faster_in_nearly_all_pairs_wins_though_its_median_is_larger():
    rounds = rounds_of(9)
    slow = [90.0, 92.5, 95.0, 97.5, 100.0, 102.5, 105.0, 107.5, 110.0]
    fast = [us * (0.995 + 0.0002 * (-1) ** number) for number, us in enumerate(slow)]
    fast[4] = 101.2
    members = {"slow": summarize(slow, rounds=rounds), "fast": summarize(fast, rounds=rounds)}
    assert members["slow"].median_us < members["fast"].median_us
    best = best_of(members)
    assert (best.fastest, best.tied) == ("fast", ())
    assert speed_up(*members.values()).is_faster()


def two_states(fast_us, slow_us, count, *, rounds=()):
    """The first in two states that alternate, the second in one between them."""
    levels = [fast_us if number % 2 else slow_us for number in range(count)]
    wobble = [1 + 0.001 * math.sin(2.3 * number) for number in range(count)]
    one = [us * factor for us, factor in zip(levels, wobble, strict=True)]
    return (
        summarize([*one, fast_us], rounds=rounds),
        summarize([101.0 * factor for factor in [*wobble, 1.0]], rounds=rounds),
    )


@pytest.mark.parametrize("rounds", [(), rounds_of(41)])
def test_two_states_around_a_rival_are_tied_with_it_in_rounds_or_not(rounds):
    mixed, steady = two_states(100.0, 113.0, 40, rounds=rounds)
    assert mixed.median_us < steady.median_us
    best = best_of({"mixed": mixed, "steady": steady})
    assert best.tied
    # The figure that leads is never the slower of the two by what stands beside it.
    members = {"mixed": mixed, "steady": steady}
    ((other),) = best.tied
    assert speed_up(members[other], members[best.fastest]).value >= 1
    interval = speed_up(steady, mixed).interval
    assert interval.low < 1 < interval.high
    # Both states beyond the rival are no matter of shares.
    far, _ = two_states(103.0, 113.0, 40, rounds=rounds)
    assert best_of({"far": far, "steady": steady}).tied == ()


def test_two_states_are_compared_state_by_state_where_both_sides_have_them():
    chance = random.Random(7)
    one, other = (
        summarize(
            [
                level * factor * math.exp(chance.gauss(0, 0.001))
                for level in ([100.0] * 12 + [113.0] * 12)
            ]
        )
        for factor in (1.0, 1.03)
    )
    best = best_of({"one": one, "other": other})
    assert (best.fastest, best.tied) == ("one", ())
