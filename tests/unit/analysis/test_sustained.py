import math
import random

import pytest

from orchestrator.analysis.drift import POINTS_MIN, sustained


def curve(
    chance, *, onset_s=None, slowdown=1.3, every_s=5.0, until_s=1200.0, noise=0.02, fall_s=60.0
):
    """A phone at 10 ms that slows down from ``onset_s`` on, over ``fall_s``."""
    points = []
    for step in range(int(until_s / every_s)):
        at_s = step * every_s
        share = 0.0 if onset_s is None else min(1.0, max(0.0, (at_s - onset_s) / fall_s))
        level = 10_000 * (1 + (slowdown - 1) * share)
        points.append((at_s, level * math.exp(chance.gauss(0, noise))))
    return points


@pytest.mark.parametrize("onset_s", [45.0, 200.0, 600.0])
def test_onset_burst_and_steady_level_are_found(onset_s):
    result = sustained(curve(random.Random(3), onset_s=onset_s))
    assert result.burst_us == pytest.approx(10_000, rel=0.03)
    assert result.steady_us == pytest.approx(13_000, rel=0.03)
    assert result.slowdown == pytest.approx(1.3, rel=0.04)
    assert onset_s - 10 <= result.onset_s <= onset_s + 60


def test_single_inferences_of_half_an_hour_are_read_too():
    points = curve(random.Random(4), onset_s=300.0, every_s=0.05, until_s=1800.0, noise=0.1)
    result = sustained(points)
    assert result.count == 36_000
    assert 300 <= result.onset_s <= 345


def test_phones_that_hold_their_level_have_no_onset():
    chance = random.Random(5)
    found = [
        sustained(curve(chance, noise=noise)).onset_s
        for noise in (0.005, 0.02, 0.08)
        for _ in range(60)
    ]
    assert sum(onset is not None for onset in found) <= 1


def test_phones_that_slow_down_by_a_tenth_are_hardly_ever_missed():
    chance = random.Random(6)
    found = [sustained(curve(chance, onset_s=300.0, slowdown=1.1)).onset_s for _ in range(100)]
    assert sum(onset is not None and 290 <= onset <= 365 for onset in found) >= 98


def test_a_passing_disturbance_is_no_onset():
    points = [(at, us * (1.5 if 300 <= at < 360 else 1.0)) for at, us in curve(random.Random(7))]
    assert sustained(points).onset_s is None


def test_a_phone_that_recovers_for_a_moment_keeps_its_onset():
    points = [
        (at, us / 1.3 if 700 <= at < 730 else us)
        for at, us in curve(random.Random(8), onset_s=300.0, fall_s=1.0)
    ]
    assert 290 <= sustained(points).onset_s <= 320


def test_too_few_points_say_nothing_of_onset():
    points = [(60.0 * step, 100.0 if step < 3 else 300.0) for step in range(POINTS_MIN - 1)]
    assert sustained(points).onset_s is None
    assert sustained(points[:1]).slowdown == 1.0
