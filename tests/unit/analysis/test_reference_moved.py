import math
import random

import pytest

from orchestrator.analysis.drift import reference_moved


def figures(chance, count, level_us=2_000.0, noise=0.01):
    return [level_us * math.exp(chance.gauss(0, noise)) for _ in range(count)]


def test_a_device_at_rest_hardly_ever_moves():
    chance = random.Random(1)
    moved = [
        reference_moved(figures(chance, 3), figures(chance, 3), figures(chance, 20)).moved
        for _ in range(500)
    ]
    assert sum(moved) <= 5


def test_a_throttled_device_has_moved():
    chance = random.Random(2)
    verdicts = [
        reference_moved(figures(chance, 3), figures(chance, 3, 2_200.0), figures(chance, 20))
        for _ in range(200)
    ]
    assert sum(verdict.moved for verdict in verdicts) >= 198
    assert verdicts[0].ratio == pytest.approx(1.1, rel=0.03)


def test_noisy_devices_have_wider_limits():
    chance = random.Random(3)
    quiet, noisy = (
        reference_moved([100.0], [104.0], figures(chance, 30, noise=noise))
        for noise in (0.003, 0.05)
    )
    assert quiet.moved
    assert not noisy.moved
    assert quiet.limit < noisy.limit


def test_outliers_and_old_levels_in_the_history_dont_widen_the_limit():
    chance = random.Random(4)
    history = figures(chance, 30)
    clean = reference_moved([100.0], [101.0], history)
    disturbed = [*history[:10], history[10] * 3, *[us * 1.5 for us in history[11:]]]
    assert reference_moved([100.0], [101.0], disturbed).limit < 1.6 * clean.limit


def test_without_history_noise_is_assumed():
    assert reference_moved([100.0, 101.0], [130.0, 131.0], [100.0]).moved
    assert not reference_moved([100.0, 101.0], [103.0, 104.0], [100.0]).moved


def test_without_a_figure_nothing_is_said():
    assert reference_moved([], [100.0], [100.0] * 6).moved is None
