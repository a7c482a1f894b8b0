"""Percentages as people read them: no more digits than say something."""

import math

import pytest

from orchestrator.units import format_change, format_percent, format_slowdown


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.031, "+3.1 %"),
        (0.98, "-2.0 %"),
        (11.0, "+1000.0 %"),
        (11.01, ">+1000 %"),
        (1e300, ">+1000 %"),
        (1e-300, "-100.0 %"),
        (math.inf, "---"),
        (None, "---"),
    ],
)
def test_a_change_has_its_sign_and_no_absurd_digits(ratio: float | None, text: str) -> None:
    assert format_change(ratio) == text


@pytest.mark.parametrize(("ratio", "text"), [(0.021, "2.1 %"), (10.0, "1000.0 %"), (3e7, ">1000 %"), (None, "---")])
def test_a_percentage_has_no_absurd_digits(ratio: float | None, text: str) -> None:
    assert format_percent(ratio) == text


def test_a_change_in_words_says_its_direction() -> None:
    assert [format_slowdown(ratio) for ratio in (1.081, 0.97, 5e6)] == [
        "8.1 % slower",
        "3.0 % faster",
        ">1000 % slower",
    ]
