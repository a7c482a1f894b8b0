"""Fake programs whose version says how fast they are."""

from __future__ import annotations

import pytest

from benchfarm_virtual.programs.process import time_factor_of


@pytest.mark.parametrize(
    ("version", "factor"),
    [
        ("virtual", 1.0),
        ("2.1 time+3%", 1.03),
        ("time-12.5%", 0.875),
        ("2.1 time+3", 1.0),
        ("uptime+3%", 1.0),
        ("time+3%x", 1.0),
        ("time-99%", 0.05),
        ("", 1.0),
    ],
)
def test_a_version_says_how_long_inferences_take(version: str, factor: float) -> None:
    assert time_factor_of(version) == pytest.approx(factor)
