"""Figures as people read them.

Inside benchfarm a latency is in microseconds (``_us``), memory in bytes (``_bytes``), a temperature
in degrees Celsius (``_c``), a frequency in kHz (``_khz``), a time span in seconds (``_s``). Names
carry the unit.
"""

from __future__ import annotations

import math
from typing import Final

US_PER_MS: Final = 1_000.0
US_PER_S: Final = 1_000_000.0
#: Beyond this the digits of a percentage say nothing any more.
_MOST_RATIO: Final = 10.0


def format_latency(latency_us: float | None) -> str:
    """Return a latency as people read it: ``6.45 ms``, ``940 us``, ``1.52 s``; ``---`` when
    unknown.
    """
    if latency_us is None or not math.isfinite(latency_us):
        return "---"
    rounded_us = float(f"{latency_us:.3g}")
    if rounded_us < US_PER_MS:
        return f"{_three_digits(latency_us)} us"
    if rounded_us < US_PER_S:
        return f"{_three_digits(latency_us / US_PER_MS)} ms"
    return f"{_three_digits(latency_us / US_PER_S)} s"


def tokens_per_s(token_us: float | None) -> float | None:
    """Return the tokens that a second has room for, of which one takes so long.

    None when unknown.
    """
    return (
        US_PER_S / token_us
        if token_us is not None and token_us > 0 and math.isfinite(token_us)
        else None
    )


def format_figure(latency_us: float | None, *, is_per_token: bool) -> str:
    """Return a case's figure: a latency, or ``21.9 tokens/s`` for the time of one token."""
    speed = tokens_per_s(latency_us) if is_per_token else None
    return format_latency(latency_us) if speed is None else f"{_three_digits(speed)} tokens/s"


def format_bytes(size_bytes: float | None) -> str:
    """Return a size as people read it: ``812 B``, ``1.88 MB`` (10**6), ``2.10 GB``; ``---`` when
    unknown.
    """
    if size_bytes is None:
        return "---"
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if float(f"{size_bytes:.3g}") >= factor:
            return f"{_three_digits(size_bytes / factor)} {unit}"
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


def counted(count: int, noun: str) -> str:
    """Return ``1 run``, ``2 runs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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
    """Return a rounded figure; what rounds to nothing has no sign."""
    return round(value, digits) + 0.0


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))
    return f"{value:.{digits}f}"
