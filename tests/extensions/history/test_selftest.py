"""Steps that are put into a lab's own series: which are found, and how soon."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from orchestrator.extensions.history.changes import STEPS, detections
from orchestrator.store.opening import open_store
from tests.samples.command import Cli
from tests.samples.history_lab import Weeks


def lab(noise: float, nights: int = 60) -> np.ndarray:
    generator = np.random.default_rng(7)
    return 10_000 * np.exp(generator.normal(0, noise, (6, nights)))


def test_a_quiet_lab_finds_small_steps_soon_and_a_noisy_one_only_large_ones() -> None:
    quiet, noisy = ({item.step: item for item in detections(lab(noise))} for noise in (0.004, 0.04))
    assert quiet.keys() == set(STEPS)
    assert quiet[1.05].found == quiet[1.05].series == 6
    assert quiet[1.05].delay is not None
    assert quiet[1.05].delay <= 3
    assert noisy[1.03].found < quiet[1.03].found
    assert noisy[1.20].found >= noisy[1.03].found


def test_nothing_is_said_of_series_too_short_for_a_level() -> None:
    assert {(item.found, item.series, item.delay) for item in detections(lab(0.01, 6))} == {
        (0, 0, None)
    }


@pytest.mark.parametrize(
    ("nights", "noise", "told"),
    [
        (6, 0.0, "no series has 10 nights yet: a step can't be told from noise"),
        (12, 0.0, "a slowdown of +3.0 % would be found in most series within 5 nights"),
        (12, 0.15, "not even a slowdown of +20.0 % would be found in most series"),
        (50, 0.0, ""),
    ],
    ids=["few", "quiet", "noisy", "old"],
)
def test_a_young_lab_without_a_change_says_what_would_have_been_found(
    tmp_path: Path, nights: int, noise: float, told: str
) -> None:
    generator = np.random.default_rng(7)
    lab = Weeks(nights=nights, factor=lambda *_: float(np.exp(generator.normal(0, noise))))
    with closing(open_store(tmp_path / "store.sqlite")) as store:
        lab.fill(store)
    benchfarm = Cli(home=tmp_path)
    said = " ".join(benchfarm("history", "changes").ok().stdout.split())
    heading, _, rest = said.partition(f" series over {nights} nights")
    assert heading.startswith("0 changes ")
    assert rest.strip().startswith(told)
    assert bool(told) == bool(rest)
    assert benchfarm("history", "changes", "--json").ok().json["limit"].startswith(told)
    if noise == 0 and told.startswith("a slowdown"):
        larger = benchfarm("history", "changes", "--threshold", "15%", "--json").ok().json
        assert larger["limit"].startswith("a slowdown of +20.0 %")
    one = benchfarm("history", "changes", "--series", "delegate=gpu").ok().stdout
    assert bool(told) == ("would be found" in one or "no series has" in one)
