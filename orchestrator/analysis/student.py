"""Student's t distribution without scipy: its distribution function and quantiles."""

from __future__ import annotations

import math
from functools import lru_cache

_SMALLEST = 1e-300
_RELATIVE_ERROR = 1e-14
_MOST_STEPS = 300


def t_cdf(t: float, degrees: float) -> float:
    """Return P(T <= t) for ``degrees`` of freedom (any positive number)."""
    if degrees <= 0:
        raise ValueError(f"degrees of freedom must be positive, not {degrees}")
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    tail = 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))
    return 1 - tail if t > 0 else tail


@lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: float) -> float:
    """Return the t with P(T <= t) = probability, for example ``t_quantile(0.975, 4)`` = 2.776."""
    if not 0 < probability < 1:
        raise ValueError(f"probability must be between 0 and 1, not {probability}")
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, high * 2
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        if t_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # The continued fraction converges fast only on this side; the other side is its mirror.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    upper = 1.0
    lower = 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = lower
    for step in range(1, _MOST_STEPS):
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
