"""Steps that are put into a lab's own series: which are found, and how soon."""

from __future__ import annotations

import numpy as np

from orchestrator.extensions.history.changes import STEPS, detections


def lab(noise: float, nights: int = 60) -> np.ndarray:
    generator = np.random.default_rng(7)
    return 10_000 * np.exp(generator.normal(0, noise, (6, nights)))


def test_a_quiet_lab_finds_small_steps_soon_and_a_noisy_one_only_large_ones() -> None:
    quiet, noisy = ({item.step: item for item in detections(lab(noise))} for noise in (0.004, 0.04))
    assert quiet.keys() == set(STEPS)
    assert quiet[1.05].detected == quiet[1.05].series == 6
    assert quiet[1.05].delay is not None
    assert quiet[1.05].delay <= 3
    assert noisy[1.03].detected < quiet[1.03].detected
    assert noisy[1.20].detected >= noisy[1.03].detected
