"""Means and ratios of the energy of blocks, with their intervals. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from orchestrator.analysis.autocorrelation import PRIOR, autocorrelation_of
from orchestrator.analysis.trimmed_mean import t_quantile, trimmed_mean

LEVEL: Final = 0.95
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A trimmed mean with half the width of its 95 % interval; None for a single value."""

    value: float
    half_width: float | None
    count: int


def mean_of(values: Sequence[float]) -> Mean | None:
    """Return the trimmed mean of blocks in order of time, with the interval that latencies have; None for
    no value.
    """
    return _mean_of(values, PRIOR)


def _mean_of(values: Sequence[float], prior: float) -> Mean | None:
    if not values:
        return None
    found = trimmed_mean(values, correlation=autocorrelation_of(values).correlation(prior))
    half = None
    # Blocks that are alike to the last digit say nothing of how another one would differ.
    if found.error:
        half = t_quantile(0.5 + LEVEL / 2, found.degrees) * found.error
    return Mean(value=found.value, half_width=half, count=found.count)


def ratio_of(ones: Mapping[_Key, float], others: Mapping[_Key, float]) -> Mean | None:
    """Return how many times as much one takes as another, from the rounds that both have; the
    interval is of pairs.

    ``half_width`` is of the logarithm's interval, as a share of the ratio.
    """
    pairs = [math.log(value / others[key]) for key, value in ones.items() if key in others]
    found = _mean_of(pairs, 0.0)
    if found is None:
        return None
    half = None if found.half_width is None else math.expm1(found.half_width)
    return Mean(value=math.exp(found.value), half_width=half, count=found.count)
