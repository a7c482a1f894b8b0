"""Figures for people, and their units.

Inside benchfarm a latency is in microseconds (``_us``), memory in bytes (``_bytes``), a temperature
in degrees Celsius (``_c``), a frequency in kHz (``_khz``), a time span in seconds (``_s``). Names
carry the unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

US_PER_MS: Final = 1_000.0
US_PER_S: Final = 1_000_000.0
#: Larger ratios are printed as "more than" this.
_MOST_RATIO: Final = 10.0


def parse_number(text: str) -> float | None:
    """Return a figure, None when it is no finite number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def format_latency(latency_us: float | None) -> str:
    """Return a latency as people read it: ``6.45 ms``, ``940 us``, ``1.52 s``; ``---`` when
    unknown.
    """
    if latency_us is None or not math.isfinite(latency_us):
        return "---"
    rounded_us = float(f"{latency_us:.3g}")
    if rounded_us < US_PER_MS:
        return f"{three_digits(latency_us)} us"
    if rounded_us < US_PER_S:
        return f"{three_digits(latency_us / US_PER_MS)} ms"
    return f"{three_digits(latency_us / US_PER_S)} s"


def tokens_per_s(token_us: float | None) -> float | None:
    """Return the speed for the time of one token, None when unknown."""
    return (
        US_PER_S / token_us
        if token_us is not None and token_us > 0 and math.isfinite(token_us)
        else None
    )


def format_figure(latency_us: float | None, *, is_per_token: bool) -> str:
    """Return a case's figure: a latency, or ``21.9 tokens/s`` for the time of one token."""
    speed = tokens_per_s(latency_us) if is_per_token else None
    return format_latency(latency_us) if speed is None else f"{three_digits(speed)} tokens/s"


def format_bytes(size_bytes: float | None) -> str:
    """Return a size as people read it: ``812 B``, ``1.88 MB`` (10**6), ``2.10 GB``; ``---`` when
    unknown.
    """
    if size_bytes is None:
        return "---"
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if float(f"{size_bytes:.3g}") >= factor:
            return f"{three_digits(size_bytes / factor)} {unit}"
    return f"{size_bytes:.0f} B"


def format_duration(seconds: float | None) -> str:
    """Return a time span as people read it: ``850 ms``, ``12.3 s``, ``4 min 05 s``, ``2 h 10 min``."""
    if seconds is None or not math.isfinite(seconds):
        return "---"
    if round(seconds * 1000) < 1000:
        return f"{seconds * 1000:.0f} ms"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_remaining(seconds: float | None) -> str:
    """Return the time until something is done, in whole minutes: ``5 min``, ``2 h 10 min``; empty
    when unknown.
    """
    if seconds is None:
        return ""
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 60 else format_duration(minutes * 60)


def counted(count: int | str, noun: str) -> str:
    """Return ``1 run``, ``2 runs``; a text is a figure as it is printed."""
    return f"{count} {noun}" if f"{count}" == "1" else f"{count} {noun}s"


def first_few(items: Sequence[str], most: int) -> list[str]:
    """Return the first of some items, and how many more there are."""
    more = len(items) - most
    return [*items[:most], *([f"and {more} more"] if more > 0 else [])]


def format_percent(ratio: float | None, digits: int = 1) -> str:
    """Return a ratio as a percentage: 0.021 -> ``2.1 %``; ``>1000 %`` for more than that."""
    if ratio is None or not math.isfinite(ratio):
        return "---"
    return (
        f"{_rounded(ratio * 100, digits):.{digits}f} %"
        if ratio <= _MOST_RATIO
        else f">{_MOST_RATIO * 100:.0f} %"
    )


def format_change(ratio: float | None) -> str:
    """Return a ratio of times as a change: 1.031 -> ``+3.1 %`` (takes longer); ``>+1000 %`` for
    more than that.
    """
    if ratio is None or not math.isfinite(ratio):
        return "---"
    change = ratio - 1
    return (
        f"{_rounded(change * 100, 1):+.1f} %"
        if change <= _MOST_RATIO
        else f">{_MOST_RATIO * 100:+.0f} %"
    )


def format_slowdown(ratio: float) -> str:
    """Return a ratio of times in words: 1.031 -> ``3.1 % slower``, 0.98 -> ``2.0 % faster``."""
    return f"{format_percent(abs(ratio - 1))} {'slower' if ratio > 1 else 'faster'}"


def _rounded(value: float, digits: int) -> float:
    """Return a rounded figure, 0 without a sign."""
    return round(value, digits) + 0.0


def three_digits(value: float) -> str:
    """Return a figure with three digits: ``6.45``, ``124``."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))
    return f"{value:.{digits}f}"


_ItemT = TypeVar("_ItemT")
OneOrMore: TypeAlias = _ItemT | Sequence[_ItemT]

_AMOUNT: Final = re.compile(
    r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s.]\S*)?\s*", re.ASCII
)

_AGES: Final = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SECONDS: Final = _AGES | {"us": 1e-6, "ms": 1e-3, "m": 60.0}
_BYTES: Final = {
    "b": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
}


def as_list(value: object) -> list[Any]:
    """Return one value, or several, as a list; none for None."""
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]


def split(value: object) -> list[str]:
    """Return names of which each text may hold several, joined by commas."""
    texts = [str(item) for item in as_list(value) if str(item).strip()]
    return [part.strip() for text in texts for part in text.split(",")]


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
        raise ValueError(f"{text.strip()!r} has no unit")
    if not 0 <= seconds <= _OLDEST_S:
        raise ValueError(f"{text.strip()!r} isn't an age up to 100 years")
    return seconds


def parse_bytes(text: str) -> int:
    """Return a size in bytes: ``4096``, ``500 MB`` (10**6), ``8 GiB`` (2**30).

    Raises ValueError.
    """
    return round(_parse(text, _BYTES, "a size such as 500 MB or 8 GiB"))


def parse_percent(text: str, *, is_named: bool = False) -> float:
    """Return a percentage: ``20`` and ``20 %`` are 20.0.

    ``is_named``: its key says that it is a percentage.

    Raises:
        ValueError: no percentage, or an ambiguous ``0.02``, which may be a ratio.
    """
    percent = _parse(text, {"%": 1.0}, "a percentage such as 20 %")
    if 0 < percent < 1 and not is_named and not text.rstrip().endswith("%"):
        raise ValueError(
            f"{text.strip()} may be a percentage or a ratio; write {percent:g}% or {percent * 100:g}%"
        )
    return percent


def parse_celsius(text: str) -> float:
    """Return a temperature in degrees Celsius: ``40``, ``40 C``, ``40 °C``. Raises ValueError."""
    return _parse(text, {"c": 1.0, "°c": 1.0}, "a temperature such as 40 C")


def _parse(text: str, factors: Mapping[str, float], description: str) -> float:
    matched = _AMOUNT.fullmatch(text)
    if not matched:
        raise ValueError(f"{text!r} isn't {description}")
    unit = (matched[2] or "").lower()
    if unit and unit not in factors:
        raise ValueError(
            f"{text!r} isn't {description}: unknown unit {matched[2]!r} (known: {', '.join(factors)})"
        )
    value = float(matched[1]) * (factors[unit] if unit else 1.0)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} isn't {description}: it is too large")
    return value
