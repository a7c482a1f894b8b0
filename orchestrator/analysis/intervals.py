"""The trimmed mean of a few logarithms with its standard error and interval, without scipy; and the
autocorrelation of invocations in time, which widens it. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from orchestrator.records import frozen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_SMALLEST = 1e-300
_RELATIVE_ERROR = 1e-14
_STEPS_MAX = 300


def t_cdf(t: float, degrees: float) -> float:
    """Return P(T <= t) for ``degrees`` of freedom (any positive number)."""
    tail = 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))
    return 1 - tail if t > 0 else tail


@lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: float) -> float:
    """Return the t with P(T <= t) = probability, of one half or more: ``t_quantile(0.975, 4)`` is
    2.776; infinite degrees of freedom are those of an error that is known.
    """
    if math.isinf(degrees):
        return NormalDist().inv_cdf(probability)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, high * 2
    while high - low > 1e-12 * max(1.0, high):
        midpoint = (low + high) / 2
        if t_cdf(midpoint, degrees) < probability:
            low = midpoint
        else:
            high = midpoint
    return (low + high) / 2


def margin(error: float, degrees: float, level: float) -> float:
    """Return half of Student's interval of an estimate with this standard error."""
    return t_quantile(0.5 + level / 2, degrees) * error


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # The continued fraction converges fast only on this side; the other side is its mirror.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    upper = 1.0
    lower = 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = lower
    for step in range(1, _STEPS_MAX):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for numerator in (even, odd):
            lower = 1 / _away_from_zero(1 + numerator * lower)
            upper = _away_from_zero(1 + numerator / upper)
            value *= lower * upper
        if abs(lower * upper - 1) < _RELATIVE_ERROR:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _SMALLEST else _SMALLEST


#: Left out at either end.
TRIMMED_SHARE: Final = 0.2
#: Below this, nothing is left out: too little would stay.
TRIM_FROM_COUNT: Final = 8


@frozen
class TrimmedMean:
    """The trimmed mean of a sample with its error."""

    value: float
    #: Standard error of ``value``; None for one figure.
    error: float | None
    count: int
    #: The factor in ``error`` for the correlation of neighbours in time.
    error_factor: float = 1.0

    @property
    def degrees(self) -> int:
        """Degrees of freedom of ``error``."""
        return degrees_of(self.count)

    @property
    def std(self) -> float | None:
        """The deviation of single figures that the error amounts to: error x sqrt(count)."""
        return None if self.error is None else self.error * math.sqrt(self.count)


def trimmed_mean(values: Sequence[float], *, correlation: float = 0.0) -> TrimmedMean:
    """Return the trimmed mean of at least one value, in any order; its error is that of values whose
    neighbours in time have this correlation.
    """
    ordered = sorted(values)
    count, cut = len(ordered), trimmed_each_side(len(ordered))
    inner = ordered[cut : count - cut]
    value = math.fsum(inner) / len(inner)
    if count < 2:
        return TrimmedMean(value=value, error=None, count=count)
    winsorised = [inner[0]] * cut + inner + [inner[-1]] * cut
    center = math.fsum(winsorised) / count if cut else value
    squares = math.fsum([(item - center) ** 2 for item in winsorised])
    error = math.sqrt(squares / (len(inner) * (len(inner) - 1)))
    factor = error_factor(count, correlation)
    error *= factor * (_small_sample(len(inner)) if cut else 1.0)
    return TrimmedMean(value=value, error=error, count=count, error_factor=factor)


def trimmed_means(samples: Floats) -> tuple[Floats, Floats]:
    """Return the trimmed mean and its error of each row (samples x values, two or more values)."""
    import numpy as np

    ordered = np.sort(samples, axis=1)
    count = ordered.shape[1]
    cut = trimmed_each_side(count)
    inner_count = count - 2 * cut
    center = np.mean(ordered[:, cut : count - cut], axis=1)
    winsorised = np.clip(ordered, ordered[:, cut, None], ordered[:, count - cut - 1, None])
    error = np.std(winsorised, axis=1) * math.sqrt(count / (inner_count * (inner_count - 1)))
    return center, error * (_small_sample(inner_count) if cut else 1.0)


def error_factor(count: int, correlation: float) -> float:
    """Return the standard error of the mean of ``count`` figures over that of independent ones: 1 or
    more, 1 for fewer than three.

    Heat and clocks change slowly, so that an invocation is more like the one before it than like any
    other. Then the mean is less certain than the scatter shows, and the scatter itself is too small.
    With a correlation rho between neighbours the variance of the mean of n invocations is
    D (n - 1) / (n - D) times that of independent ones, where D is the mean over invocations of the
    sum of their correlations with all (Bayley & Hammersley 1946).
    """
    if count < 3 or correlation <= 0:
        return 1.0
    uncorrelated = 1 - correlation
    inflation = (1 + correlation) / uncorrelated
    inflation -= 2 * correlation * (1 - correlation**count) / (count * uncorrelated**2)
    return math.sqrt(max(1.0, inflation * (count - 1) / (count - inflation)))


def _small_sample(count: int) -> float:
    """Return the factor by which the error of a small trimmed sample is too small.

    Found on series of known truth: without it 95 % intervals of 8 to 12 normal figures hold the
    truth 93 times of 100.
    """
    return 1 + 1 / (2 * count)


def trimmed_each_side(count: int) -> int:
    """Return the number of values left out at either end of ``count``."""
    return int(TRIMMED_SHARE * count) if count >= TRIM_FROM_COUNT else 0


def degrees_of(count: int) -> int:
    """Return the degrees of freedom of the trimmed mean of ``count`` values, at least 1."""
    return max(1, count - 2 * trimmed_each_side(count) - 1)


#: The correlation of neighbours where nothing is known, and what that is worth in invocations.
#: Found on series of known truth: intervals of a case alone then hold it at least 93 times of 100
#: for correlations up to 0.5.
PRIOR: Final = 0.5
PRIOR_WEIGHT: Final = 12.0
#: By how many of its own errors an estimate is taken to be too small.
_CAUTION: Final = 0.4
#: The largest correlation assumed: few invocations don't distinguish a larger one from a drift.
_CORRELATION_MAX: Final = 0.85
#: Invocations of each sample that don't count: the mean is estimated from the same sample.
SAMPLES_LOST: Final = 4


@frozen
class Autocorrelation:
    """The correlation of neighbouring invocations of a device, estimated from its samples."""

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
        estimate = min(max((PRIOR_WEIGHT * prior + self.total) / weight, 0.0), _CORRELATION_MAX)
        return min(estimate + _CAUTION * math.sqrt((1 - estimate**2) / weight), _CORRELATION_MAX)


#: Nothing was seen.
NO_AUTOCORRELATION: Final = Autocorrelation()


def autocorrelation_of(logs: Sequence[float]) -> Autocorrelation:
    """Return the autocorrelation of logarithms in order of time; NO_AUTOCORRELATION for fewer than five or equal
    ones.
    """
    if len(logs) <= SAMPLES_LOST or min(logs) == max(logs):
        return NO_AUTOCORRELATION
    import numpy as np

    return Autocorrelation(
        weight=len(logs) - SAMPLES_LOST, total=float(totals(np.asarray([logs], dtype=float))[0])
    )


def totals(samples: Floats) -> Floats:
    """Return each row's autocorrelation ``total`` (samples x invocations, five or more).

    The correlation is that of the winsorised figures, so that single slow ones hide nothing; that
    of n figures is too small by (1 + 4 rho) / n, which is taken out.
    """
    import numpy as np

    count = samples.shape[1]
    cut = trimmed_each_side(count)
    ordered = np.sort(samples, axis=1)
    winsorised = np.clip(samples, ordered[:, cut, None], ordered[:, count - cut - 1, None])
    winsorised = winsorised - winsorised.mean(axis=1, keepdims=True)
    squares = np.sum(winsorised**2, axis=1)
    products = np.sum(winsorised[:, 1:] * winsorised[:, :-1], axis=1)
    sums: Floats = 1 + count * products / np.maximum(squares, 1e-300)
    return sums
