"""What a tune of a phone keeps: rarely anything where nothing helps, and what helps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from orchestrator.engine.tuning import CONFIRMATION, Tuned, chosen, judged
from orchestrator.records.tuning import OptionTrial

OPTIONS = ("airplane", "no_doze", "animations_off", "sync_off", "fixed_performance", "pin_clocks", "pin_gpu")


def tuned(seed: int, spread_of: Callable[[tuple[str, ...]], float], *, invocations: int = 8) -> Tuned:
    """Tune a phone that scatters by 5 % without options, and by so much with some."""
    random = np.random.default_rng(seed)

    def tried(names: tuple[str, ...], *, is_confirmation: bool = False) -> OptionTrial:
        count = invocations * (CONFIRMATION if is_confirmation else 1)
        without, with_it = (1000.0 * np.exp(random.normal(0.0, spread, count)) for spread in (0.05, spread_of(names)))
        return judged(names, list(without), list(with_it))

    return chosen(OPTIONS, tried)


@pytest.mark.slow
def test_where_no_option_helps_hardly_any_tune_keeps_one() -> None:
    kept = [sum(tuned(seed, lambda names: 0.05).options.values()) for seed in range(120)]
    assert sum(count > 0 for count in kept) <= 6


@pytest.mark.slow
def test_an_option_that_helps_much_is_kept_and_the_others_mostly_are_not() -> None:
    def spread_of(names: tuple[str, ...]) -> float:
        return 0.01 if "pin_clocks" in names else 0.05

    found = [tuned(seed, spread_of).options for seed in range(20)]
    assert sum(options["pin_clocks"] for options in found) >= 16


def test_a_single_option_that_passes_is_tried_once_more_with_fresh_runs() -> None:
    asked: list[tuple[tuple[str, ...], bool]] = []

    def tried(names: tuple[str, ...], *, is_confirmation: bool = False) -> OptionTrial:
        asked.append((names, is_confirmation))
        return OptionTrial(options=names, is_kept=names == ("no_doze",) and not is_confirmation, reason="")

    assert not any(chosen(OPTIONS, tried).options.values())
    assert asked[len(OPTIONS) :] == [(("no_doze",), True)]
