"""What a case comes to that several phones share."""

import random
import statistics

import pytest

from orchestrator.report.shared import shared_figure


def test_phones_are_what_is_counted_however_many_invocations_each_has() -> None:
    few = shared_figure({"B": (1100.0, 2), "A": (1000.0, 2)})
    many = shared_figure({"A": (1000.0, 200), "B": (1100.0, 2)})
    assert (few.low_us, few.high_us, few.middle_us) == (many.low_us, many.high_us, many.middle_us)
    assert few.middle_us == pytest.approx((1000 * 1100) ** 0.5)
    assert (few.difference, few.invocations, list(few.phones)) == (pytest.approx(0.1), 4, ["A", "B"])


def test_one_phone_says_nothing_about_another() -> None:
    alone = shared_figure({"A": (1000.0, 9)})
    assert (alone.low_us, alone.high_us, alone.difference) == (None, None, 0.0)


@pytest.mark.parametrize("phones", [2, 3, 8])
def test_the_interval_holds_the_kinds_mean_as_often_as_it_says(phones: int) -> None:
    draw, tries = random.Random(phones), 2000
    hits = 0
    for _ in range(tries):
        figure = shared_figure(
            {f"P{number}": (1000 * 2.718281828 ** draw.gauss(0, 0.03), 3) for number in range(phones)}
        )
        assert figure.low_us is not None
        assert figure.high_us is not None
        hits += figure.low_us <= 1000 <= figure.high_us
    assert hits / tries == pytest.approx(0.95, abs=4 * statistics.NormalDist().stdev * (0.95 * 0.05 / tries) ** 0.5)
