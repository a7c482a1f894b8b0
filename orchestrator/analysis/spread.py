"""Whether one way of measuring scatters less than another: the spread between invocations, robustly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

_DRAWS: Final = 4000
_LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadVerdict:
    """The spread with something as a share of that without it."""

    ratio: float
    low: float
    high: float
    #: One-sided: how often chance alone would show such a reduction.
    p_value: float


def compare_spread(without: Sequence[float], with_it: Sequence[float], *, seed: int = 0) -> SpreadVerdict | None:
    """Compare the scatter of two series of latencies; None for fewer than four of either.

    On logarithms, so that a mode that is slower altogether isn't taken for a noisier one. Each series' spread is the
    mean absolute deviation from its median, as in Brown and Forsythe's test (JASA 69, 1974), which outliers don't
    dominate; the test permutes the deviations, the interval is that of a bootstrap of both series.
    """
    if min(len(without), len(with_it)) < 4:
        return None
    random = np.random.default_rng(seed)
    logs = [np.log(np.asarray(values, dtype=np.float64)) for values in (without, with_it)]
    off, on = (np.abs(values - np.median(values)) for values in logs)
    floor = 1e-9
    ratio = float((on.mean() + floor) / (off.mean() + floor))
    pooled = np.concatenate([off, on])
    shuffled = random.permuted(np.tile(pooled, (_DRAWS, 1)), axis=1)
    chance = shuffled[:, len(off) :].mean(axis=1) - shuffled[:, : len(off)].mean(axis=1)
    as_good = int((chance <= on.mean() - off.mean()).sum())
    drawn = []
    for values in logs:
        picks = values[random.integers(0, len(values), (_DRAWS, len(values)))]
        drawn.append(np.abs(picks - np.median(picks, axis=1, keepdims=True)).mean(axis=1) + floor)
    ends = np.quantile(np.log(drawn[1] / drawn[0]), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return SpreadVerdict(
        ratio=ratio,
        low=math.exp(float(ends[0])),
        high=math.exp(float(ends[1])),
        p_value=(1 + as_good) / (1 + _DRAWS),
    )


def typical_ratio(without: Sequence[float], with_it: Sequence[float]) -> float:
    """Return the ratio of the geometric means."""
    return math.exp(float(np.mean(np.log(with_it)) - np.mean(np.log(without))))
