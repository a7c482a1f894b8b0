"""How much invocations resemble their neighbours in time. Pure.

There is one correlation for each device: cases of one device and campaign run in turns, and what
one of them shows holds for the others and for later campaigns. A few invocations say little of it
(Marriott & Pope 1954), so that it is drawn to PRIOR, as if that had been seen PRIOR_WEIGHT times.
The interval of a case of 8 invocations about which nothing else is known is therefore about 1.9
times as wide (:func:`orchestrator.analysis.trimmed_mean.error_factor`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orchestrator.analysis.trimmed_mean import trimmed_each_side

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: The correlation of neighbours where nothing is known, and what that is worth in invocations.
#: Found on series of known truth: intervals of a case alone then hold it at least 93 times of 100
#: for correlations up to 0.5.
PRIOR: Final = 0.5
PRIOR_WEIGHT: Final = 12.0
#: By how many of its own errors an estimate is taken to be too small.
_CAUTION: Final = 0.4
#: Larger ones are not reckoned with: so few invocations don't tell them from a drift.
_MOST: Final = 0.85
#: A sample of so many says nothing: the mean, which is estimated from it too, takes that much away.
LOST: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Autocorrelation:
    """What invocations show of the correlation of neighbours on their device."""

    #: Invocations that show it, less those that each sample loses.
    weight: float = 0.0
    #: The correlation times ``weight``.
    total: float = 0.0

    def __add__(self, other: Autocorrelation) -> Autocorrelation:
        return Autocorrelation(weight=self.weight + other.weight, total=self.total + other.total)

    def __sub__(self, other: Autocorrelation) -> Autocorrelation:
        return Autocorrelation(weight=self.weight - other.weight, total=self.total - other.total)

    def at_most(self, weight: float) -> Autocorrelation:
        """Return the same correlation, of no more weight than this."""
        share = min(1.0, weight / self.weight) if self.weight > 0 else 0.0
        return Autocorrelation(weight=share * self.weight, total=share * self.total)

    def correlation(self, prior: float = PRIOR) -> float:
        """Return the correlation of neighbours, drawn to a prior and a little too large: 0 to 0.85."""
        weight = PRIOR_WEIGHT + self.weight
        found = min(max((PRIOR_WEIGHT * prior + self.total) / weight, 0.0), _MOST)
        return min(found + _CAUTION * math.sqrt((1 - found**2) / weight), _MOST)


#: Nothing was seen.
UNSEEN: Final = Autocorrelation()


def autocorrelation_of(logs: Sequence[float]) -> Autocorrelation:
    """Return what logarithms in order of time show; nothing of fewer than five, and of equal ones."""
    import numpy as np

    if len(logs) <= LOST or min(logs) == max(logs):
        return UNSEEN
    return Autocorrelation(
        weight=len(logs) - LOST, total=float(totals(np.asarray([logs], dtype=float))[0])
    )


def totals(samples: Floats) -> Floats:
    """Return of each row (samples x invocations, five or more) the ``total`` of its autocorrelation.

    The correlation is that of the winsorised figures, so that single slow ones hide nothing; that
    of n figures is too small by (1 + 4 rho) / n, which is taken out.
    """
    import numpy as np

    count = samples.shape[1]
    cut = trimmed_each_side(count)
    ordered = np.sort(samples, axis=1)
    kept = np.clip(samples, ordered[:, cut, None], ordered[:, count - cut - 1, None])
    kept = kept - kept.mean(axis=1, keepdims=True)
    squares = np.sum(kept**2, axis=1)
    products = np.sum(kept[:, 1:] * kept[:, :-1], axis=1)
    found: Floats = 1 + count * products / np.maximum(squares, 1e-300)
    return found
