"""What a command found out, as text and as JSON; the formats that it can write, and percentages that it reads."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePath
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.quantities import parse_percent
from orchestrator.records.run import RunRecord
from orchestrator.report.escapes import is_unseen, one_line

#: The exit code of a command that did all it had time for, and left something out.
CUT_EXIT_CODE: Final = 6
#: A result's own fields, and the items of a list in one of these.
_PIECES_DEPTH: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """One result in its two renderings."""

    #: For people; no line break at the end.
    text: str
    #: For programs: plain values, records, dates and paths (see :func:`to_json`).
    data: object
    exit_code: int = 0
    #: What stands in the place of the text where that may be very long: its lines, made while they are printed.
    lines: Iterable[str] = ()
    #: Whether all that it tells of is stored: the exit code is the work's own then, though nobody reads the output.
    is_kept: bool = False


class Streamed:
    """A list of a result whose items are made when they are written, one after the other, and not before."""

    def __init__(self, items: Callable[[], Iterable[object]]) -> None:
        """``items`` is asked for when the result is written; it must not need what the command has closed."""
        self.items = items


def to_json(value: object) -> str:
    """Return a value as indented JSON; records become objects, bytes are left out."""
    return "".join(json_pieces(value))


def json_pieces(value: object, *, depth: int = 0) -> Iterator[str]:
    """Yield the text of :func:`to_json`, one item after the other of a list that is the value or stands in it.

    Thousands of runs as one text, and as plain values beside it, take many times their own place.
    """
    indent = "  " * depth
    brackets = ""
    items: Iterator[tuple[str, object]] = iter(())
    if isinstance(value, Mapping) and value and depth < _PIECES_DEPTH:
        brackets = "{}"
        items = ((_shown(f"{json.dumps(str(_plain(key)), ensure_ascii=False)}: "), item) for key, item in value.items())
    elif isinstance(value, list | tuple) and value and depth < _PIECES_DEPTH:
        brackets, items = "[]", (("", item) for item in value)
    elif isinstance(value, Streamed) and depth < _PIECES_DEPTH:
        brackets, items = "[]", (("", item) for item in value.items())
    if not brackets:
        whole = json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False, default=str)
        # No text has a line break of its own: JSON escapes them.
        yield _shown(whole.replace("\n", f"\n{indent}"))
        return
    yield brackets[0]
    number = -1
    for number, (key, item) in enumerate(items):
        yield f"{',' if number else ''}\n{indent}  {key}"
        yield from json_pieces(item, depth=depth + 1)
    yield brackets[1] if number < 0 else f"\n{indent}{brackets[1]}"


def _shown(text: str) -> str:
    """Return JSON in which nothing drives a terminal or turns text around: such characters as JSON's own escapes."""
    if all(line.isprintable() for line in text.split("\n")):
        return text
    return "".join(char if char == "\n" or not is_unseen(char) else json.dumps(char)[1:-1] for char in text)


def _plain(value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Streamed):
        return [_plain(item) for item in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
        if isinstance(value, RunRecord):
            # Stored from 0; whoever reads it counts from 1, as everywhere.
            fields["invocation"] += 1
        return {name: _plain(item) for name, item in fields.items() if not isinstance(item, bytes)}
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, PurePath):
        return str(value)
    return value


def table(headers: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, right: tuple[int, ...] = ()) -> str:
    """Return a plain text table; columns whose index is in ``right`` are aligned to the right."""
    printable = [tuple(one_line(cell) for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in [headers, *printable]) for column in range(len(headers))]
    lines = []
    for row in [headers, *printable]:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


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
