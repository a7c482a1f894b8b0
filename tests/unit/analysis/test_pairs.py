import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.effect import compare_pairs, detectable_in_pairs, threshold_for
from orchestrator.analysis.effect import compare_samples as compare_summaries
from orchestrator.analysis.intervals import NO_AUTOCORRELATION, error_factor
from orchestrator.analysis.summary import SessionNoise, session_noise, summarize
from orchestrator.records.verdict import ChangeRule, ComparisonOutcome

FASTER, SLOWER = ComparisonOutcome.FASTER, ComparisonOutcome.SLOWER
SAME, INCONCLUSIVE = ComparisonOutcome.SAME, ComparisonOutcome.INCONCLUSIVE


def compare_samples(baseline_us, candidate_us, change_rule=ChangeRule(), **options):  # noqa: B008
    return compare_summaries(
        summarize(baseline_us), summarize(candidate_us), change_rule, **options
    )


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
    verdict = compare_pairs([100.0, 200.0, 300.0], [110.0, 242.0, 399.3], ChangeRule(level=0.95))
    # Log ratios are 1, 2 and 3 times log(1.1).
    reach = (
        4.302653
        * math.log(1.1)
        / math.sqrt(3)
        * error_factor(3, NO_AUTOCORRELATION.correlation(0.0))
    )
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


@COMPARISONS
def test_single_invocations_are_inconclusive_and_missing_ones_incomparable(compare):
    single = compare([100.0], [50.0])
    assert (single.outcome, single.low, single.detectable) == (INCONCLUSIVE, None, None)
    assert single.ratio == pytest.approx(0.5)
    assert single.reasons
    assert compare_pairs([], []).outcome is ComparisonOutcome.INCOMPARABLE


def test_pairs_of_unequal_sides_and_figures_that_are_no_latencies_are_refused():
    with pytest.raises(ValueError, match="zip"):
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
    found = compare([1.0, 1e9], [1e9, 1.0], ChangeRule(level=level))
    assert found.outcome is INCONCLUSIVE
    assert 0 < found.low < found.ratio < found.high < math.inf
    assert 1 < found.detectable < math.inf


@COMPARISONS
@settings(deadline=None, max_examples=50)
@given(both=sides)
def test_turned_round_the_ratio_and_the_verdict_are_inverted(compare, both):
    there, back = compare(both[0], both[1]), compare(both[1], both[0])
    assert there.ratio * back.ratio == pytest.approx(1.0)
    assert there.low * back.high == pytest.approx(1.0)
    assert there.high * back.low == pytest.approx(1.0)
    assert there.outcome is INVERSE[back.outcome]


@pytest.mark.slow
@COMPARISONS
@pytest.mark.parametrize("noise", [0.016, 0.08])
@pytest.mark.parametrize("count", [8, 24])
def test_equals_are_hardly_ever_called_a_change(compare, noise, count):
    chance = random.Random(20260314)
    alarms = sum(
        compare(sample(chance, count, noise=noise), sample(chance, count, noise=noise)).outcome
        in (FASTER, SLOWER)
        for _ in range(400)
    )
    assert alarms / 400 <= 0.02


def turns(chance, correlation=0.0, effect=0.0, noise=0.015, count=200):
    """Return the log ratios of pairs, each of which resembles the one before it."""
    level, found = chance.gauss(0, 1), []
    for _ in range(count):
        level = correlation * level + math.sqrt(1 - correlation**2) * chance.gauss(0, 1)
        found.append(math.log1p(effect) + math.sqrt(2) * noise * level)
    return found


def judged(logs):
    verdict = compare_pairs(
        [10_000.0] * len(logs),
        [10_000.0 * math.exp(log) for log in logs],
        ChangeRule(most_pairs=len(logs), threshold=threshold_for(0.02)),
    )
    return verdict.outcome, verdict.counts[0]


@pytest.mark.slow
@pytest.mark.parametrize(("effect", "most_pairs"), [(0.02, 36), (0.03, 22), (0.05, 14)])
def test_a_change_is_found_in_few_pairs(effect, most_pairs):
    chance = random.Random(11)
    found = [judged(turns(chance, effect=effect)) for _ in range(100)]
    assert sum(outcome is SLOWER for outcome, _ in found) >= 99
    # By a plan made from 8 pairs: 58 to 67.
    assert sum(pairs for _, pairs in found) / 100 < most_pairs


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.3])
def test_looking_nine_times_calls_equals_a_change_hardly_ever(correlation):
    chance = random.Random(20261122)
    found = [judged(turns(chance, correlation))[0] for _ in range(300)]
    assert sum(outcome in (FASTER, SLOWER) for outcome in found) <= 6
    assert sum(outcome is SAME for outcome in found) >= 280


def test_a_comparison_in_turns_is_that_of_its_first_look_that_decides():
    chance = random.Random(4)
    logs = turns(chance, effect=0.05, count=60)
    outcome, pairs = judged(logs)
    assert (outcome, pairs < 20) == (SLOWER, True)
    assert judged(logs[:pairs]) == (SLOWER, pairs)
    assert judged(turns(chance, noise=0.2, count=30)) == (INCONCLUSIVE, 30)


def two_sessions(chance, between, effect=0.0):
    return [
        sample(chance, 12, 10_000 * math.exp(shift + chance.gauss(0, between)), 0.01)
        for shift in (0.0, math.log1p(effect))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.01, 0.015])
@pytest.mark.parametrize("is_known", [False, True])
def test_equal_sessions_are_hardly_ever_called_a_change(between, is_known):
    chance = random.Random(20261122)
    alarms = held = 0
    for _ in range(300):
        noise = SessionNoise()
        if is_known:
            noise = session_noise([two_sessions(chance, between)[0] for _ in range(20)])
        before, after = two_sessions(chance, between)
        alarms += compare_samples(before, after, sessions=noise).outcome in (FASTER, SLOWER)
        ends = compare_samples(before, after, ChangeRule(level=0.95), sessions=noise)
        held += ends.low <= 1.0 <= ends.high
    # By what the invocations of two sessions say alone: 20 to 40 of 100 are called a change.
    assert alarms / 300 <= 0.02
    assert held / 300 >= 0.9


def test_what_sessions_differ_by_comes_from_their_steps_and_is_a_default_before():
    chance = random.Random(5)
    quiet = [sample(chance, 10, noise=0.004) for _ in range(40)]
    found = session_noise(quiet)
    assert found.std < 0.008
    assert "from 40 sessions" in found.text
    loud = session_noise([two_sessions(chance, 0.03)[0] for _ in range(40)])
    assert loud.std == pytest.approx(0.03, rel=0.35)
    # A change of the program is one step of many, and no noise.
    stepped = [*quiet[:20], *([us * 1.3 for us in session] for session in quiet[20:])]
    assert session_noise(stepped).std < 0.012
    assert session_noise([]) == session_noise(quiet[:1]) == SessionNoise()
    assert "default until 11 sessions are known; none so far" in SessionNoise().text


def test_a_comparison_between_sessions_is_marked_and_wider():
    chance = random.Random(6)
    before, after = sample(chance, 20, noise=0.004), sample(chance, 20, 10_300.0, 0.004)
    assert compare_samples(before, after).outcome is SLOWER
    verdict = compare_samples(before, after, sessions=SessionNoise())
    assert (verdict.outcome, verdict.is_between_sessions) == (INCONCLUSIVE, True)
    assert verdict.reasons[-1].startswith("Between sessions: ")


@COMPARISONS
def test_equal_prints_are_as_far_apart_as_rounding_may_hide(compare):
    options = {"resolution_us": 1000.0}
    if compare is compare_samples:
        verdict = compare_summaries(
            *(summarize([us] * 8, **options) for us in (10_000.0, 10_000.0))
        )
    else:
        verdict = compare([10_000.0] * 8, [10_000.0] * 8, **options)
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.high == pytest.approx(math.exp(0.1))


@pytest.mark.parametrize("count", [10, 40])
def test_the_change_that_pairs_are_said_to_show_is_mostly_shown(count):
    chance, noise, trials = random.Random(9), 0.02, 100
    change = detectable_in_pairs(noise, count)
    change_rule = ChangeRule(threshold=threshold_for(change), most_pairs=count)
    before = [10_000.0] * count
    found = sum(
        compare_pairs(
            before, sample(chance, count, 10_000 * (1 + change), noise), change_rule
        ).outcome
        is SLOWER
        for _ in range(trials)
    )
    # Of an error that is known, of one look: 6 and 25 of 100.
    assert 55 <= found <= 90


def test_looking_for_less_than_the_threshold_lowers_the_threshold():
    assert threshold_for(0.03) == pytest.approx(0.02)
    assert threshold_for(0.006) == pytest.approx(0.004)
