"""Bisecting rows of builds whose speeds are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from orchestrator.analysis.bisection import (
    BisectResult,
    Compared,
    Judgement,
    judgement_of,
    search,
    worst_verdict,
)
from orchestrator.app.bisecting import not_slower
from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict


def verdict(ratio: float, *, reach: float = 0.01, threshold: float = 0.02) -> ComparisonVerdict:
    low, high = ratio * math.exp(-reach), ratio * math.exp(reach)
    outcome = ComparisonOutcome.INCONCLUSIVE
    if low > 1 and ratio >= 1 + threshold:
        outcome = ComparisonOutcome.SLOWER
    elif high < 1 and ratio <= 1 / (1 + threshold):
        outcome = ComparisonOutcome.FASTER
    elif 1 / (1 + threshold) <= low and high <= 1 + threshold:
        outcome = ComparisonOutcome.SAME
    return ComparisonVerdict(
        outcome=outcome, ratio=ratio, low=low, high=high, threshold=threshold, detectable=0.02
    )


def searched(
    times: Sequence[float | None], **other: float
) -> tuple[BisectResult, list[tuple[int, int]]]:
    """Bisect builds that take these times; None can't be measured."""
    asked: list[tuple[int, int]] = []

    def compare(baseline: int, candidate: int) -> Compared:
        asked.append((baseline, candidate))
        before, after = times[baseline], times[candidate]
        if before is None or after is None:
            return Compared(verdict=None, reason="the program crashed")
        return Compared(verdict=verdict(after / before, **other))

    return search(len(times), compare), asked


@pytest.mark.parametrize("count", [2, 3, 6, 17, 64])
def test_the_first_bad_one_is_found_wherever_it_is_in_few_steps(count: int) -> None:
    for first in range(1, count):
        result, asked = searched([1.0] * first + [1.05] * (count - first))
        assert (result.first_bad, result.last_good, result.suspects) == (first, first - 1, ())
        assert result.remarks == ()
        assert result.step is not None
        assert result.step.verdict is not None
        assert result.step.verdict.ratio == pytest.approx(1.05)
        assert len(asked) <= 2 + math.ceil(math.log2(count))


def test_a_build_that_cannot_be_measured_away_from_the_step_is_gone_around() -> None:
    result, _ = searched([1.0, None, 1.0, 1.05, None, 1.05, 1.05])
    assert (result.first_bad, result.last_good) == (3, 2)


def test_builds_that_cannot_be_measured_at_the_step_are_suspects() -> None:
    result, _ = searched([1.0, 1.0, None, None, 1.05, 1.05])
    assert result.first_bad is None
    assert result.last_good == 1
    assert result.suspects == (2, 3, 4)


def test_ends_that_do_not_differ_end_the_search_at_once() -> None:
    result, asked = searched([1.0, 1.05, 1.0])
    assert (result.first_bad, result.last_good) == (None, None)
    assert asked == [(0, 2)]
    assert "isn't found slower" in not_slower(result.probes[0])
    result, asked = searched([1.0, 1.0, None])
    assert "crashed" in not_slower(result.probes[0])


@pytest.mark.parametrize(
    "times", [(1.0, 1.0, 1.0, 1.05, 1.05, 1.15), (1.0, 1.01, 1.019, 1.029, 1.039, 1.05)]
)
def test_a_change_in_several_steps_is_told(times: tuple[float, ...]) -> None:
    assert "in several steps" in searched([*times])[0].remarks[0]


def test_an_inconclusive_build_is_good_below_half_of_the_change_and_unclear_above() -> None:
    whole = math.log(1.10)
    assert judgement_of(verdict(1.015, reach=0.02), whole) is Judgement.GOOD
    assert judgement_of(verdict(1.015, reach=0.02), math.log(1.04)) is Judgement.UNCLEAR
    assert judgement_of(verdict(1.015, reach=0.02), None) is Judgement.UNCLEAR
    # Of two such models that which may have the change tells.
    noisy = worst_verdict([verdict(1.015, reach=0.02), verdict(1.01, reach=0.1)])
    assert judgement_of(noisy, whole) is Judgement.UNCLEAR
