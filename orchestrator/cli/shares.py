"""Percentages as people type them."""

from __future__ import annotations

from typing import Final

from orchestrator.errors import UsageError
from orchestrator.quantities import parse_percent

#: Smaller differences nobody can measure, so that asking for one is a mistake.
_LEAST_DIFFERENCE: Final = 0.0001


def share_of(text: str, option: str, *, least: float = _LEAST_DIFFERENCE, most: float, example: str = "2%") -> float:
    """Return a percentage as a share: 0.02 for ``2%``, ``2 %`` and ``2``; the limits are shares and let themselves in.

    Raises:
        UsageError: no percentage, one outside of the limits, or ``0.02``, which may be meant as either.
    """
    share = percent_of(text, option) / 100
    if not least <= share <= most:
        limits = f"{least * 100:.4g}% and {most * 100:.4g}%"
        raise UsageError(f"{option} {text} isn't between {limits}", hint=f"a percentage, for example {example}")
    return share


def percent_of(text: str, option: str) -> float:
    """Return a percentage as typed: 2.0 for ``2%``; raises UsageError for none, and for ``0.02`` as `share_of`."""
    try:
        return parse_percent(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
