"""Amounts and lists as people write them (``90 s``, ``1.5 GB``, ``40 °C``, ``a,b``), read into our
own units.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

_ItemT = TypeVar("_ItemT")
OneOrMore: TypeAlias = _ItemT | Sequence[_ItemT]

_AMOUNT: Final = re.compile(
    r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s.]\S*)?\s*", re.ASCII
)

_SECONDS: Final = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "mins": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
}
_AGES: Final = {
    **{unit: factor for unit, factor in _SECONDS.items() if factor >= 1.0 and unit != "m"},
    "w": 604800.0,
    "week": 604800.0,
    "weeks": 604800.0,
}
_BYTES: Final = {
    "b": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
    "tib": 2.0**40,
}
_PERCENT: Final = {"%": 1.0, "percent": 1.0}
_CELSIUS: Final = {"c": 1.0, "°c": 1.0, "celsius": 1.0}


def each(value: object) -> list[Any]:
    """Return one value, or several, as a list; none for None."""
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]


def split(value: object) -> list[str]:
    """Return names of which each text may hold several, joined by commas."""
    return [part.strip() for item in each(value) for part in str(item).split(",") if part.strip()]


def parse_seconds(text: str) -> float:
    """Return a time span in seconds: ``90``, ``90 s``, ``1.5 min``, ``250 ms``, ``2 h``.

    Raises ValueError.
    """
    return _parse(text, _SECONDS, "a time span such as 90 s, 1.5 min or 250 ms")


_OLDEST_S: Final = 100 * 366 * 86_400.0


def parse_age(text: str) -> float:
    """Return an age up to which something is kept, in seconds: ``90d``, ``12 w``.

    Raises ValueError, also for a bare number and for ``m``: 90 is meant as days, 3m as months.
    """
    seconds = _parse(text, _AGES, "an age such as 90d or 12w")
    if not text.strip()[-1].isalpha():
        raise ValueError(f"{text.strip()!r} says no unit")
    if seconds < 0:
        raise ValueError(f"{text.strip()!r} is no age")
    if seconds > _OLDEST_S:
        raise ValueError(f"{text.strip()!r} is more than 100 years")
    return seconds


def parse_bytes(text: str) -> int:
    """Return a size in bytes: ``4096``, ``500 MB`` (10**6), ``8 GiB`` (2**30).

    Raises ValueError.
    """
    return round(_parse(text, _BYTES, "a size such as 500 MB or 8 GiB"))


def parse_percent(text: str, *, is_named: bool = False) -> float:
    """Return a percentage: ``20`` and ``20 %`` are 20.0.

    ``is_named``: what it stands under says that it is one.

    Raises:
        ValueError: no percentage, or ``0.02`` where a share may be meant as well.
    """
    percent = _parse(text, _PERCENT, "a percentage such as 20 %")
    if 0 < percent < 1 and not is_named and not text.rstrip().lower().endswith(tuple(_PERCENT)):
        raise ValueError(
            f"{text.strip()} may be meant as a percentage or as a share; write {percent:g}% or {percent * 100:g}%"
        )
    return percent


def parse_celsius(text: str) -> float:
    """Return a temperature in degrees Celsius: ``40``, ``40 C``, ``40 °C``. Raises ValueError."""
    return _parse(text, _CELSIUS, "a temperature such as 40 C")


def _parse(text: str, factors: Mapping[str, float], what: str) -> float:
    matched = _AMOUNT.fullmatch(text)
    if not matched:
        raise ValueError(f"{text!r} isn't {what}")
    unit = (matched[2] or "").lower()
    if unit and unit not in factors:
        raise ValueError(
            f"{text!r} isn't {what}: unknown unit {matched[2]!r} (known: {', '.join(factors)})"
        )
    value = float(matched[1]) * (factors[unit] if unit else 1.0)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} isn't {what}: it is too large")
    return value
