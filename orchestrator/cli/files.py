"""What words of options mean: the format that a command writes, and percentages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.quantities import parse_percent

#: Ending of a file's name -> the formats that belong into such a file, the usual one first.
_ENDINGS: Final[Mapping[str, tuple[str, ...]]] = {
    ".html": ("html", "html-section"),
    ".htm": ("html", "html-section"),
    ".md": ("markdown",),
    ".txt": ("text", "markdown", "github"),
    ".csv": ("csv",),
    ".json": ("json", "bencher"),
    ".xml": ("junit",),
    ".tex": ("latex",),
    ".parquet": ("parquet",),
    ".zip": ("bundle",),
}


def format_of(chosen: str, out: Path | None, known: Collection[str], *, default: str) -> str:
    """Return the format to write: the chosen one, else the one that the ending of ``out`` means, else the default.

    Raises UsageError for a format that isn't known, and for an ending that belongs to another format.
    """
    if chosen and chosen not in known:
        raise UsageError(f"there is no format {chosen!r}", hint=f"choose one of {', '.join(known)}")
    fitting = _ENDINGS.get(out.suffix.lower()) if out is not None else None
    if fitting is None:
        return chosen or default
    if chosen and chosen not in fitting:
        raise UsageError(f"{out}: the file's name ends as {fitting[0]} does, and --format is {chosen}")
    possible = [item for item in (chosen, default, *fitting) if item in fitting and item in known]
    if not possible:
        raise UsageError(f"{out}: this command writes {', '.join(known)}, not {fitting[0]}", hint="name another file")
    return possible[0]


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
