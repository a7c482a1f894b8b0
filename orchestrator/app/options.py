"""The options and arguments of the command line, declared as fields of requests.

A command's options are such a record (``cli.frame``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from orchestrator.errors import UsageError
from orchestrator.units import parse_percent, split

#: Nobody can measure smaller differences, so a request for one is a mistake.
_LEAST_DIFFERENCE: Final = 0.0001


def share_of(text: str, option: str, *, least: float = _LEAST_DIFFERENCE, most: float) -> float:
    """Return a percentage as a share: 0.02 for ``2%``, ``2 %`` and ``2``; the limits are inclusive
    shares.

    Raises:
        UsageError: no percentage, one outside of the limits, or ``0.02``, which may be meant as
            either.
    """
    try:
        share = parse_percent(text) / 100
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if not least <= share <= most:
        raise UsageError(
            f"{option} {text} isn't between {_typed(least)} and {_typed(most)}",
            hint=f"a percentage, for example {_typed(max(least, 0.02))}",
        )
    return share


def _typed(share: float) -> str:
    """Return a share as it is typed."""
    return f"{share * 100:.4g}%"


@dataclass(frozen=True, slots=True)
class Option:
    """An option, or an argument where it has no names; ``further`` is for the option parser."""

    names: tuple[str, ...]
    about: str
    further: Mapping[str, Any]
    #: Converts the typed text to the field's value; ``typed`` converts a default to text.
    read: Callable[[str], Any] | None = None
    typed: Callable[[Any], str] = str


def opt(names: str, about: str, **further: Any) -> Any:  # noqa: ANN401 - the metadata of an annotation
    """Return an option: its names, separated by spaces, and its line of help."""
    return Option(tuple(names.split()), about, further)


def percentage(names: str, about: str, *, most: float, least: float = _LEAST_DIFFERENCE) -> Any:  # noqa: ANN401 - as above
    """Return an option whose value is a share, typed as a percentage."""
    read = partial(share_of, option=names.split(maxsplit=1)[0], most=most, least=least)
    return Option(tuple(names.split()), about, {}, read, _typed)


def arg(about: str, **further: Any) -> Any:  # noqa: ANN401 - as above
    """Return an argument: its line of help."""
    return Option((), about, further)


Texts: TypeAlias = tuple[str, ...]
Paths: TypeAlias = tuple[Path, ...]
#: Values that may be given with commas or by repeating.
Listed = Annotated[tuple[str, ...], split]
Out = Annotated[Path | None, opt("--out -o", "File to write.")]
Campaigns = Annotated[
    Texts, arg("Campaign id, its beginning, or a name (default: the newest campaign).")
]
Wait = Annotated[
    str,
    opt(
        "--wait", "Wait at most this long for phones in use, for example 10m (default: skip them)."
    ),
]
