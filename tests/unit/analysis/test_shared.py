"""What a case comes to that several phones share."""

import random
import statistics

import pytest

from orchestrator.report.shared import SharedCase


def test_phones_are_what_is_counted_however_many_invocations_each_has() -> None:
    few = SharedCase(phones={"A": (1000.0, 2), "B": (1100.0, 2)})
    many = SharedCase(phones={"A": (1000.0, 200), "B": (1100.0, 2)})
    assert (few.ends_us, few.middle_us) == (many.ends_us, many.middle_us)
    assert few.middle_us == pytest.approx((1000 * 1100) ** 0.5)
    assert (few.difference, few.invocations) == (pytest.approx(0.1), 4)


def test_one_phone_says_nothing_about_another() -> None:
    alone = SharedCase(phones={"A": (1000.0, 9)})
    assert (alone.ends_us, alone.difference) == (None, 0.0)


@pytest.mark.parametrize("phones", [2, 3, 8])
def test_the_interval_holds_the_kinds_mean_as_often_as_it_says(phones: int) -> None:
    draw, tries = random.Random(phones), 2000
    hits = 0
    for _ in range(tries):
        drawn = {f"P{number}": (1000 * 2.718281828 ** draw.gauss(0, 0.03), 3) for number in range(phones)}
        ends_us = SharedCase(phones=drawn).ends_us
        assert ends_us is not None
        hits += ends_us[0] <= 1000 <= ends_us[1]
    assert hits / tries == pytest.approx(0.95, abs=4 * statistics.NormalDist().stdev * (0.95 * 0.05 / tries) ** 0.5)
