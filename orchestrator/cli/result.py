"""What a command found out, as text and as JSON, and the formats that it can write."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from orchestrator.errors import UsageError
from orchestrator.tables.escapes import is_unseen

if TYPE_CHECKING:
    from orchestrator.tables.table import Table

ItemT = TypeVar("ItemT")
#: The exit code of a command that did all it had time for, and left something out.
CUT_EXIT_CODE: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """One result in its two renderings."""

    #: For people; no line break at the end.
    text: str
    #: For programs: plain values, records, dates and paths (see :func:`to_json`).
    data: object
    exit_code: int = 0
    #: How a terminal shows the lines of the text.
    looks: Sequence[str] = ()
    #: What stands in the place of the text where that may be very long: its lines, made while they
    #: are printed.
    lines: Iterable[str] = ()
    #: What ``--format`` writes in another form.
    tables: Sequence[Table[Any]] = ()
    #: Whether all that it tells of is stored: the exit code is the work's own then, though nobody
    #: reads the output.
    is_kept: bool = False


def shown(
    *parts: str | Table[Any],
    facts: Mapping[str, object] | None = None,
    exit_code: int = 0,
    width: int | None = None,
) -> CommandResult:
    """Return tables, with lines of text between them, in the order in which people read them.

    Within a ``width``, columns that don't fit follow below: for tables whose rows are known by
    their first column. ``--json`` prints ``facts``, and each table's rows under its name; a table without facts beside
    it is a list.
    """
    # Not where this module is loaded: a command's help shows no table.
    from orchestrator.tables import text
    from orchestrator.tables.table import Table

    tables = [part for part in parts if isinstance(part, Table)]
    rows = {table.name: [table.record(row) for row in table.rows] for table in tables}
    lines = [
        line
        for part in parts
        for line in (text.lines(part, width) if isinstance(part, Table) else [(part, "")])
    ]
    return CommandResult(
        text="\n".join(line for line, _ in lines),
        looks=[look for line, look in lines for _ in line.split("\n")],
        data={**(facts or {}), **rows} if facts or len(rows) != 1 else next(iter(rows.values())),
        exit_code=exit_code,
        tables=tables,
    )


class Streamed(list[ItemT]):
    """A list of a result whose items are made when they are written, one after the other, and not
    before.
    """

    def __init__(self, items: Callable[[], Iterable[ItemT]]) -> None:
        """``items`` is asked for when the result is written; it must not need what the command has
        closed.
        """
        super().__init__()
        self._items = items
        self._begun: Iterator[ItemT] | None = None

    def __bool__(self) -> bool:
        """Begin with the items; whether there are any, which the encoder asks first."""
        items = iter(self._items())
        first = list(itertools.islice(items, 1))
        self._begun = itertools.chain(first, items)
        return bool(first)

    def __iter__(self) -> Iterator[ItemT]:
        begun, self._begun = self._begun, None
        return iter(self._items()) if begun is None else begun


def to_json(value: object) -> str:
    """Return a value as indented JSON; records become objects, bytes are left out."""
    return "".join(json_pieces(value))


def json_pieces(value: object) -> Iterator[str]:
    """Yield the text of :func:`to_json` piece by piece: that of thousands of runs is never there as
    a whole.

    Nothing in it drives a terminal or turns text around: such characters are written as JSON's own
    escapes.
    """
    encoder = json.JSONEncoder(
        indent=2, ensure_ascii=False, allow_nan=False, check_circular=False, default=_plain
    )
    for piece in encoder.iterencode(value):
        if piece.replace("\n", "").isprintable():
            yield piece
        else:
            yield "".join(
                char if char == "\n" or not is_unseen(char) else json.dumps(char)[1:-1]
                for char in piece
            )


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        from orchestrator.records.run import RunRecord

        fields = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
        if isinstance(value, RunRecord):
            # Stored from 0; whoever reads it counts from 1, as everywhere.
            fields["invocation"] += 1
        return {name: item for name, item in fields.items() if not isinstance(item, bytes)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return list(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


#: Ending of a file's name -> the formats that belong into such a file, the usual one first.
ENDINGS: Final[dict[str, tuple[str, ...]]] = {
    ".html": ("html",),
    ".htm": ("html",),
    ".md": ("markdown",),
    ".txt": ("text", "markdown"),
    ".csv": ("csv",),
    ".json": ("json",),
    ".xml": ("junit",),
    ".parquet": ("parquet",),
    ".zip": ("bundle",),
}


def format_of(
    chosen: str,
    out: Path | None,
    known: Collection[str],
    *,
    default: str,
    endings: Mapping[str, tuple[str, ...]] = ENDINGS,
) -> str:
    """Return the format to write: the chosen one, else the one that the ending of ``out`` means,
    else the default.

    ``endings`` has the formats by the ending of a file's name.

    Raises UsageError for a format that isn't known, and for an ending that belongs to another
    format.
    """
    # "md" is the format that such a file has.
    of_ending = next(iter(endings.get(f".{chosen}", ())), "")
    chosen = of_ending if of_ending in known and chosen not in known else chosen
    if chosen and chosen not in known:
        raise UsageError(f"there is no format {chosen!r}", hint=f"choose one of {', '.join(known)}")
    fitting = endings.get(out.suffix.lower()) if out is not None else None
    if fitting is None:
        return chosen or default
    if chosen and chosen not in fitting:
        raise UsageError(
            f"{out}: the file's name ends as {fitting[0]} does, and --format is {chosen}"
        )
    possible = [item for item in (chosen, default, *fitting) if item in fitting and item in known]
    if not possible:
        raise UsageError(
            f"{out}: this command writes {', '.join(known)}, not {fitting[0]}",
            hint="name another file",
        )
    return possible[0]
