import math
import random

import pytest

from orchestrator.analysis.intervals import (
    autocorrelation_of,
    degrees_of,
    error_factor,
    t_quantile,
    trimmed_mean,
)
from orchestrator.analysis.rounds import decide
from orchestrator.records.plan import StoppingRule

RULE = StoppingRule()


def run_until_enough(chance, noise, rule=RULE):
    """From look to look: nothing is enough between two of them, as a test below shows."""
    latencies = []
    while not (decision := decide(latencies, rule)).is_enough:
        latencies += [
            1000 * math.exp(chance.gauss(0, noise))
            for _ in range(decision.next_count - len(latencies))
        ]
    return latencies, decision


def test_a_noisy_case_wants_as_many_as_its_noise_asks_for():
    latencies = [
        1000 * math.exp(0.02 * step) for step in (0.9, -1.4, 0.1, -0.5, 1.4, -0.9, 0.5, -0.1)
    ]
    decision = decide(latencies, RULE)
    assert (decision.is_enough, decision.reason) == (False, "noisy")
    logs = [math.log(us) for us in latencies]
    correlation = autocorrelation_of(logs).correlation()
    reaches = {
        count: t_quantile(0.975, degrees_of(count))
        * trimmed_mean(logs).std
        * error_factor(count, correlation)
        / math.sqrt(count)
        for count in range(9, 41)
    }
    assert decision.next_count == next(
        count for count in reaches if math.sinh(reaches[count]) < 0.02
    )
    assert 9 < decision.next_count < 40


def test_a_narrow_interval_must_be_so_again_after_three_more():
    chance = random.Random(3)
    calm = [1000 * math.exp(chance.gauss(0, 0.008)) for _ in range(20)]
    decision = decide(calm[:8], RULE)
    assert (decision.is_enough, decision.next_count, decision.reason) == (False, 11, "confirming")
    assert not decide(calm[:10], RULE).is_enough
    assert decide(calm[:11], RULE).reason == "reached"
    burst = [*calm[:8], 1100.0, 1150.0, 1200.0]
    assert decide(burst, RULE).reason == "noisy"


def test_nothing_is_enough_between_two_looks():
    chance = random.Random(17)
    for noise in (0.01, 0.02, 0.03, 0.05):
        latencies = [1000 * math.exp(chance.gauss(0, noise)) for _ in range(RULE.most)]
        counts = [
            count for count in range(RULE.most + 1) if decide(latencies[:count], RULE).is_enough
        ]
        look = 0
        while not (decision := decide(latencies[:look], RULE)).is_enough:
            look = decision.next_count
        assert counts == list(range(look, RULE.most + 1))


def test_the_most_is_the_most_and_says_that_it_wasnt_enough():
    decision = decide([1000.0, 2000.0, 4000.0, 8000.0] * 10, RULE)
    assert (decision.is_enough, decision.next_count, decision.reason) == (True, 40, "most")


@pytest.mark.parametrize("count", [1, 2, 5])
def test_first_equal_to_most_is_a_fixed_number(count):
    rule = StoppingRule(first=count, most=count)
    assert not decide([1000.0] * (count - 1), rule).is_enough
    assert decide([1000.0] * count, rule).is_enough


@pytest.mark.slow
def test_intervals_of_stopped_cases_hold_the_truth():
    from orchestrator.analysis.summary import summarize

    def coverage(rule):
        chance = random.Random(99)
        hits = 0
        for _ in range(400):
            interval = summarize(run_until_enough(chance, 0.03, rule)[0]).interval
            hits += interval.low <= 1000 <= interval.high
        return hits / 400

    assert 0.935 <= coverage(RULE) <= 0.999
