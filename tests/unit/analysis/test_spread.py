"""Whether one way scatters less than another, on series whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.engine.tuning import compare_spread, typical_ratio


def series(random: np.random.Generator, spread: float, count: int, level: float = 1000.0) -> list[float]:
    return list(level * np.exp(random.normal(0.0, spread, count)))


def kept(spread_off: float, spread_on: float, count: int, tries: int, level: float = 1000.0) -> float:
    random = np.random.default_rng(7)
    found = 0
    for number in range(tries):
        verdict = compare_spread(
            series(random, spread_off, count), series(random, spread_on, count, level), seed=number
        )
        assert verdict is not None
        found += verdict.p_value < 0.05 and verdict.ratio < 1
    return found / tries


@pytest.mark.slow
@pytest.mark.parametrize("count", [6, 8, 16])
def test_no_reduction_is_seldom_taken_for_one(count: int) -> None:
    assert kept(0.015, 0.015, count, 200) <= 0.11


def test_a_slower_mode_that_scatters_alike_is_not_taken_for_a_calmer_one() -> None:
    assert kept(0.015, 0.015, 8, 200, level=300.0) <= 0.11


def test_a_third_of_the_spread_is_found_with_a_dozen_invocations() -> None:
    assert kept(0.015, 0.005, 12, 100) >= 0.8


def test_one_outlier_is_no_proof() -> None:
    random = np.random.default_rng(3)
    off = [*series(random, 0.005, 7), 3000.0]
    verdict = compare_spread(off, series(random, 0.005, 8))
    assert verdict is not None
    assert verdict.p_value > 0.05


def test_three_invocations_say_nothing() -> None:
    assert compare_spread([1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]) is None


def test_levels_are_compared_by_their_geometric_means() -> None:
    assert typical_ratio([100.0, 400.0], [300.0, 300.0]) == pytest.approx(1.5)
