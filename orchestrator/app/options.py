"""What a field of a request is called on the command line.

A command's options are such a record (``cli.frame``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from orchestrator.units import split


@dataclass(frozen=True, slots=True)
class Option:
    """An option, or an argument where it has no names; ``further`` is for the option parser."""

    names: tuple[str, ...]
    about: str
    further: Mapping[str, Any]


def opt(names: str, about: str, **further: Any) -> Any:  # noqa: ANN401 - the metadata of an annotation
    """Return an option: its names, separated by spaces, and its line of help."""
    return Option(tuple(names.split()), about, further)


def arg(about: str, **further: Any) -> Any:  # noqa: ANN401 - as above
    """Return an argument: its line of help."""
    return Option((), about, further)


Texts: TypeAlias = tuple[str, ...]
Paths: TypeAlias = tuple[Path, ...]
#: Values that may be given with commas or by repeating.
Listed = Annotated[tuple[str, ...], split]
Out = Annotated[Path | None, opt("--out -o", "File to write.")]
Campaigns = Annotated[Texts, arg("Campaign id or its beginning (default: the newest campaign).")]
Device = Annotated[Texts, opt("--serial -s", "Serial number, or host. Repeat for several.")]
