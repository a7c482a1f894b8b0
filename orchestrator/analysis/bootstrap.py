"""The hierarchical bootstrap of the middle of logarithms: invocations are drawn again, and each brings its own error.

Two levels, after Kalibera & Jones, "Rigorous benchmarking in reasonable time" (ISMM 2013): processes are drawn with
replacement, and within each drawn process its figure is drawn again. Benchmark programs print a summary of a process
(count, deviation, percentiles) and seldom its single inferences, so the inner level is drawn from the standard error
of the process's own median, which that summary gives. What processes differ by includes that error already; they are
moved together first by as much (Davison & Hinkley 1997, section 3.8), or it would count twice.

Plain percentile intervals of small samples are too short. The percentiles are moved outwards as Hesterberg, "What
teachers should know about the bootstrap" (2015, section 5.3) says, so that they agree with Student's t for a normal
sample.

All draws are seeded and shared by samples of one size, so that the same sample always gives the same interval,
thousands of cases cost one matrix product each, and turning a comparison round turns its interval round exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from orchestrator.analysis.student import t_quantile
from orchestrator.analysis.trimming import middle, trimmed_each_side

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: From so many invocations on, intervals are bootstrapped; below, Student's t does better (evidence: docs/evidence.md).
BOOTSTRAP_FROM_COUNT: Final = 20
#: Draws; half of them, the other half is their mirror image.
HALF_DRAWS: Final = 4000
_SEED: Final = 20130620


def bootstrap_middle(
    logs: Sequence[float], errors: Sequence[float] | None, *, level: float, growth: float = 1.0
) -> tuple[float, float]:
    """Return the interval of the middle of ``logs``; ``errors`` are the standard errors of the single logs, or None.

    Draws forget the order of the invocations; ``growth`` is what :mod:`orchestrator.analysis.memory` makes of it.
    """
    import numpy as np

    draws = np.concatenate(_middles(logs, errors, stream=0, growth=growth))
    return _ends(draws, len(logs), level)


def bootstrap_difference(
    logs: Sequence[float],
    minus: Sequence[float],
    errors: Sequence[float] | None,
    minus_errors: Sequence[float] | None,
    *,
    level: float,
    growths: tuple[float, float] = (1.0, 1.0),
) -> tuple[float, float]:
    """Return the interval of middle(logs) - middle(minus), the two drawn apart; ``growths`` are theirs."""
    import numpy as np

    parts = []
    # Both ways round, so that the interval of the opposite difference is the opposite interval.
    for stream, other in ((0, 1), (1, 0)):
        left = _middles(logs, errors, stream=stream, growth=growths[0])
        right = _middles(minus, minus_errors, stream=other, growth=growths[1])
        parts += [left[0] - right[0], left[1] - right[1]]
    return _ends(np.concatenate(parts), min(len(logs), len(minus)), level)


def _middles(
    logs: Sequence[float], errors: Sequence[float] | None, *, stream: int, growth: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the middles of the draws and of their mirror images, ``growth`` times as far from the sample's middle."""
    import numpy as np

    values = np.asarray(logs, dtype=float)
    order = np.argsort(values, kind="stable")
    values = values[order]
    weights, squares, noise = _draws(len(values), stream)
    variances = None
    if errors is not None:
        variances = np.square(np.asarray(errors, dtype=float))[order]
        values = _without_own_errors(values, float(variances.mean()))
    both = []
    # A draw is its share of each invocation; taken from the sample's other end, it is a draw too.
    for way, sign in ((1, 1.0), (-1, -1.0)):
        middles = weights @ values[::way]
        if variances is not None:
            middles = middles + sign * noise * np.sqrt(squares @ variances[::way])
        both.append(middles)
    if growth == 1.0:
        return both[0], both[1]
    center = middle(values.tolist()).value
    return center + growth * (both[0] - center), center + growth * (both[1] - center)


def _without_own_errors(values: NDArray[np.float64], own_variance: float) -> NDArray[np.float64]:
    """Return the values moved together by as much as their own errors have moved them apart."""
    found = middle(values.tolist())
    variance = (found.std or 0.0) ** 2
    share = math.sqrt(max(0.0, 1 - own_variance / variance)) if variance > 0 else 0.0
    return found.value + share * (values - found.value)


@lru_cache(maxsize=24)
def _draws(count: int, stream: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the share of each invocation, by rank, in each draw's middle, its square, and a standard normal for each.

    The shares are HALF_DRAWS x count. How often each rank was drawn decides which copies are trimmed, whatever the
    values are, so that the middle of every draw is one product.
    """
    import numpy as np

    chance = np.random.default_rng((_SEED, count, stream))
    drawn = chance.multinomial(count, np.full(count, 1 / count), size=HALF_DRAWS)
    upto, cut = drawn.cumsum(axis=1), trimmed_each_side(count)
    kept = np.clip(np.minimum(upto, count - cut) - np.maximum(upto - drawn, cut), 0, None)
    shares = kept / (count - 2 * cut)
    return shares, shares**2, chance.standard_normal(HALF_DRAWS)


def _ends(middles: NDArray[np.float64], count: int, level: float) -> tuple[float, float]:
    import numpy as np

    wide = t_quantile(0.5 + level / 2, count - 1) * math.sqrt(count / (count - 1))
    tail = NormalDist().cdf(-wide)
    low, high = np.quantile(middles, (tail, 1 - tail))
    return float(low), float(high)
