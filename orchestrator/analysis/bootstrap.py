"""The hierarchical bootstrap of a mean of logarithms: invocations are drawn again, and each brings its own error.

Two levels, after Kalibera & Jones, "Rigorous benchmarking in reasonable time" (ISMM 2013): processes are drawn with
replacement, and within each drawn process its figure is drawn again. Benchmark programs print a summary of a process
(count, deviation, percentiles) and seldom its single inferences, so the inner level is drawn from the standard error
of the process's own median, which that summary gives.

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

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: From so many invocations on, intervals are bootstrapped; below, Student's t does better (evidence: docs/evidence.md).
BOOTSTRAP_FROM_COUNT: Final = 20
#: Draws; half of them, the other half is their mirror image.
HALF_DRAWS: Final = 4000
_SEED: Final = 20130620


def bootstrap_mean(logs: Sequence[float], errors: Sequence[float] | None, *, level: float) -> tuple[float, float]:
    """Return the interval of the mean of ``logs``; ``errors`` are the standard errors of the single logs, or None."""
    import numpy as np

    means = _means(logs, errors, stream=0)
    # The mirrored draws take the sample from its other end, so that the interval of -x is minus the interval of x.
    return _ends(np.concatenate(means), len(logs) - 1, level)


def bootstrap_difference(
    logs: Sequence[float],
    minus: Sequence[float],
    errors: Sequence[float] | None,
    minus_errors: Sequence[float] | None,
    *,
    degrees: float,
    level: float,
) -> tuple[float, float]:
    """Return the interval of mean(logs) - mean(minus), drawn apart; ``degrees`` of freedom widen it as t does."""
    import numpy as np

    parts = []
    for stream, other in ((0, 1), (1, 0)):
        left, right = _means(logs, errors, stream=stream), _means(minus, minus_errors, stream=other)
        parts += [left[0] - right[0], left[1] - right[1]]
    return _ends(np.concatenate(parts), degrees, level)


def _means(
    logs: Sequence[float], errors: Sequence[float] | None, *, stream: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the means of the draws and of their mirror images."""
    import numpy as np

    values = np.asarray(logs, dtype=float)
    order = np.argsort(values, kind="stable")
    values = values[order]
    weights, noise = _draws(len(values), stream)
    both = []
    variances = None if errors is None else np.square(np.asarray(errors, dtype=float))[order]
    # A draw is its counts of each invocation; taken from the other end, it is a draw too.
    for counts, sign in ((weights, 1.0), (weights[:, ::-1], -1.0)):
        means = counts @ values
        if variances is not None:
            means = means + sign * noise * np.sqrt(counts @ variances)
        both.append(means / len(values))
    return both[0], both[1]


@lru_cache(maxsize=24)
def _draws(count: int, stream: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how often each invocation is in each draw, HALF_DRAWS x count, and a standard normal for each draw."""
    import numpy as np

    chance = np.random.default_rng((_SEED, count, stream))
    weights = chance.multinomial(count, np.full(count, 1 / count), size=HALF_DRAWS).astype(float)
    return weights, chance.standard_normal(HALF_DRAWS)


def _ends(means: NDArray[np.float64], degrees: float, level: float) -> tuple[float, float]:
    import numpy as np

    wide = t_quantile(0.5 + level / 2, degrees) * math.sqrt((degrees + 1) / degrees)
    tail = NormalDist().cdf(-wide)
    low, high = np.quantile(means, (tail, 1 - tail))
    return float(low), float(high)
