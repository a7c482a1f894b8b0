"""Which format a command writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from orchestrator.errors import UsageError

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
