import math
import random

import pytest

from orchestrator.analysis.intervals import (
    t_quantile,
    trimmed_each_side,
    trimmed_mean,
)


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [
        (0.975, 1, 12.7062),
        (0.975, 9, 2.2622),
        (0.95, 7, 1.8946),
        (0.995, 3, 5.8409),
        (0.9995, 10, 4.5869),
        (0.975, 1_000_000, 1.95997),
    ],
)
def test_quantiles_are_those_of_printed_tables(probability, degrees, expected):
    assert t_quantile(probability, degrees) == pytest.approx(expected, abs=6e-5)


def test_few_figures_have_their_mean_and_its_usual_error():
    found = trimmed_mean([1.0, 2.0, 3.0, 4.0])
    assert found.value == 2.5
    assert found.error == pytest.approx(math.sqrt(5 / 3) / 2)
    assert (found.degrees, found.std) == (3, pytest.approx(math.sqrt(5 / 3)))


def test_from_eight_on_a_fifth_is_left_out_at_either_end():
    found = trimmed_mean([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 1e9])
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
    assert trimmed_mean(slowed).value == pytest.approx(trimmed_mean(steady).value)
    assert trimmed_mean(slowed).error == pytest.approx(trimmed_mean(steady).error)
