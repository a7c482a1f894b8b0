"""Results of commands as text and as JSON, and all output to terminals and pipes, without control
characters of phones, files or other labs.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO, TypeVar, cast

from orchestrator import __version__
from orchestrator.errors import (
    HostStorageError,
    StoreAwayError,
    StoreBusyError,
    UsageError,
    choices,
)
from orchestrator.records import frozen
from orchestrator.tables.escapes import WIDTH, is_unseen, one_line, visible_block

if TYPE_CHECKING:
    from orchestrator.records.answers import DoneAnswer
    from orchestrator.tables.renderers import Line
    from orchestrator.tables.table import Table


#: Moves to the upper left corner and clears the screen.
_CLEAR_SCREEN = "\x1b[H\x1b[2J"
#: Keeps lines of several threads apart.
LOCK: Final = threading.Lock()


def room(*, err: bool = False) -> int | None:
    """Return the width for tables: a terminal's ($COLUMNS, else its own), at least 80; None where a
    program or a file reads them, and finds all of a row in its line.
    """
    stream = sys.stderr if err else sys.stdout
    return max(shutil.get_terminal_size().columns, WIDTH) if stream.isatty() else None


#: The terminal style of a line by its look (tables.renderers.Line); other looks have none.
STYLES: Final[Mapping[str, str]] = {
    "title": "1",
    "head": "2",
    "winner": "1;32",
    "unproven": "1",
    "doubt": "33",
    "bad": "31",
    "abandoned": "31",
    "away": "33",
    "waiting": "2",
    "done": "32",
}


def say(
    text: str,
    *,
    err: bool = False,
    end: str = "\n",
    clears: bool = False,
    looks: Sequence[str] = (),
) -> None:
    """Print text for people.

    Control characters, escape sequences and direction marks are shown as text.

    ``clears``: clear the screen first. ``looks``: those of its lines, for a terminal with colours.
    """
    visible = visible_block(text)
    if looks and _has_colours(sys.stderr if err else sys.stdout):
        lines = itertools.zip_longest(visible.split("\n"), looks, fillvalue="")
        visible = "\n".join(styled(line, look) for line, look in lines)
    _write([f"{_CLEAR_SCREEN if clears else ''}{visible}{end}"], err=err)


def styled(line: str, look: str) -> str:
    """Return a line with the escapes of its look for a terminal with colours."""
    style = STYLES.get(look, "")
    return f"\x1b[{style}m{line}\x1b[0m" if style and line else line


def _has_colours(stream: TextIO) -> bool:
    """Whether a stream is a terminal with colours that aren't switched off."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not is_plain


def say_json(pieces: Iterable[str], *, err: bool = False) -> None:
    """Print the pieces of JSON, and a line break."""
    _write(itertools.chain(pieces, ["\n"]), err=err)


def ignore_stop_signals() -> None:
    """Ignore signals that stop a command from now on, also one that arrives at this moment."""
    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    while signals:
        with suppress(KeyboardInterrupt):
            signal.signal(signals[-1], signal.SIG_IGN)
            signals.pop()


class OutputClosedError(Exception):
    """The reader of standard output closed it. No OSError, on which click would end the process."""


def _encoding(stream: TextIO) -> str:
    """Return a stream's encoding; one that only keeps text has none."""
    return stream.encoding or "utf-8"


def _write(pieces: Iterable[str], *, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    stream.writelines(pieces)
    stream.flush()


def write_line(event: str, text: str, *, level: str = "info", **keys: object) -> None:
    """Write one event; keys that are None or empty are left out."""
    line: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "level": level,
        "event": event,
        "text": text,
        "pid": os.getpid(),
        "benchfarm": __version__,
    }
    line |= {name: value for name, value in keys.items() if value is not None and value != ""}
    with LOCK:
        say_json([json.dumps(line, ensure_ascii=True, allow_nan=False, default=str)], err=True)


def tell(log_format: str, event: str, text: str, *, level: str = "info", **keys: object) -> None:
    """Write one event as JSON, or its text alone as a line for people."""
    if log_format == "json":
        write_line(event, text, level=level, **keys)
        return
    with LOCK:
        say(one_line(text), err=True)


def logs_as_json() -> None:
    """Write libraries' warnings, and errors that end a thread, as JSON too."""
    import logging
    import traceback

    class LibraryLines(logging.Handler):
        """Writes what libraries log in the same form."""

        def emit(self, record: logging.LogRecord) -> None:
            """Write one record."""
            level = "error" if record.levelno >= logging.ERROR else "warning"
            trace = (
                "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else None
            )
            text = record.getMessage().strip()
            write_line("library", text, level=level, logger=record.name, traceback=trace)

    logging.basicConfig(level=logging.WARNING, handlers=[LibraryLines()], force=True)
    logging.captureWarnings(True)
    threading.excepthook = _thread_ended


def _thread_ended(ended: threading.ExceptHookArgs) -> None:
    import traceback

    error = ended.exc_value
    if error is not None and not isinstance(error, SystemExit):
        name = ended.thread.name if ended.thread is not None else "a thread"
        trace = "".join(traceback.format_exception(error))
        text = f"{name} ended: {type(error).__name__}: {error}"
        write_line("error", text, level="error", code="internal", traceback=trace)


class _Stream:
    """A standard stream whose write errors are handled, whoever writes: the option parser too."""

    def __init__(self, stream: TextIO, on_error: Callable[[TextIO, OSError], None]) -> None:
        self._stream = stream
        self._on_error = on_error

    def write(self, text: str) -> int:
        """Write text; the option parser writes an empty one to learn whether it is a text stream."""
        if text != "":
            self.writelines([text])
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several pieces of text; a sign that the locale lacks becomes a question mark."""
        encoding = _encoding(self._stream)
        writable = (line.encode(encoding, "replace").decode(encoding) for line in lines)
        try:
            self._stream.writelines(writable)
        except OSError as error:
            self._on_error(self._stream, error)

    def flush(self) -> None:
        """Write the buffered output."""
        try:
            self._stream.flush()
        except OSError as error:
            self._on_error(self._stream, error)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def _lose(stream: TextIO, error: OSError) -> None:
    """Lose what can't be written: progress must not stop a measurement."""


def _refuse(stream: TextIO, error: OSError) -> None:
    # Discard the buffered output and all that follows.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    if isinstance(error, BrokenPipeError):
        raise OutputClosedError from error
    raise HostStorageError(f"the output can't be written: {error.strerror}") from error


def open_standard_streams() -> None:
    """Open standard streams that the parent process closed, and handle their write errors from now
    on.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # Else the next opened file gets its number: output would go into a database.
            with suppress(OSError):
                os.close(number)
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8"))
    sys.stdout = cast(TextIO, _Stream(sys.stdout, _refuse))
    sys.stderr = cast(TextIO, _Stream(sys.stderr, _lose))


ItemT = TypeVar("ItemT")
#: The exit code of a command whose time was too short for all cases.
CUT_EXIT_CODE: Final = 6


@frozen
class CommandResult:
    """A result as text and as data."""

    #: For people; no line break at the end.
    text: str
    #: For programs: plain values, records, dates and paths (see :func:`to_json`).
    data: object
    exit_code: int = 0
    #: How a terminal shows the lines of the text.
    looks: Sequence[str] = ()
    #: Replaces a text that may be very long: its lines, made while they are printed.
    lines: Iterable[str] = ()
    #: The tables that ``--format`` prints.
    tables: Sequence[Table[Any]] = ()
    #: Whether all results are stored: then a closed output doesn't change the exit code.
    is_kept: bool = False


def joined(lines: Iterable[Line]) -> tuple[str, list[str]]:
    """Return lines as one text, with the looks of its lines."""
    rows = [(row, look) for line, look in lines for row in line.split("\n")]
    return "\n".join(row for row, _ in rows), [look for _, look in rows]


def tables_result(
    *parts: str | Table[Any],
    facts: Mapping[str, object] | None = None,
    exit_code: int = 0,
    width: int | None = None,
) -> CommandResult:
    """Return a result of tables, with lines of text between them, in this order.

    Within a ``width``, columns that don't fit follow below: for tables whose first column names
    their rows. ``--json`` prints ``facts``, and each table's rows under its name; a table without
    facts beside it is a list.
    """
    # Imported here: a command's help needs no tables.
    from orchestrator.tables.renderers import laid_out
    from orchestrator.tables.table import Table

    tables = [part for part in parts if isinstance(part, Table)]
    rows = {table.name: [table.record(row) for row in table.rows] for table in tables}
    text, looks = joined(
        line
        for part in parts
        for line in (laid_out(part, width) if isinstance(part, Table) else [(part, "")])
    )
    return CommandResult(
        text=text,
        looks=looks,
        data={**(facts or {}), **rows} if facts or len(rows) != 1 else next(iter(rows.values())),
        exit_code=exit_code,
        tables=tables,
    )


def show(result: CommandResult | DoneAnswer, form: str) -> NoReturn:
    """Print a result in a form, and exit with its code."""
    from orchestrator.tables.renderers import as_markdown, csv_lines

    if not isinstance(result, CommandResult):
        result = CommandResult(text=result.text, data=result.data)
    if result.is_kept:
        # The work is done: a late signal must not cut off its output.
        ignore_stop_signals()
    try:
        if form == "json":
            say_json(json_pieces(result.data, sys.stdout))
        elif form == "csv" and result.tables:
            for number, table in enumerate(result.tables):
                # A large campaign's rows aren't held in memory.
                for line in itertools.chain(["\n"] * bool(number), csv_lines(table)):
                    say(line, end="")
        elif form != "text" and result.tables:
            whole = [dataclasses.replace(table, rows=[*table.rows]) for table in result.tables]
            if form == "html":
                from orchestrator.tables.html import page

                text = page(whole)
            else:
                text = "\n".join(map(as_markdown, whole))
            say(text.rstrip("\n"))
        else:
            for line in [result.text] if result.text else result.lines:
                say(line, looks=result.looks)
    except OutputClosedError:
        if not result.is_kept:
            raise
    # The option parser would take 130 for Ctrl-C.
    raise SystemExit(result.exit_code)


def watched(
    read: Callable[[], tuple[CommandResult, bool]],
    log_format: str,
    every_s: float = 2.0,
    *,
    is_shown: bool,
) -> CommandResult:
    """Return a result once it is final; until then read it again and again, and show its changes.

    ``read`` returns the result and whether it may still change. While a database can't be reached
    it is tried again, as those that measure do.
    """
    is_terminal, before = sys.stdout.isatty(), ""
    while True:
        try:
            result, is_open = read()
        except (StoreAwayError, StoreBusyError) as error:
            tell(log_format, "watch", f"{error}; trying again", level="warning")
        else:
            if not is_open:
                return result
            if is_shown and result.text != before:
                say(f"{result.text}\n", end="" if is_terminal else "\n", clears=is_terminal)
                before = result.text
        time.sleep(every_s)


class Streamed(list[ItemT]):
    """A list in a result whose items are made one by one while they are written."""

    def __init__(self, items: Callable[[], Iterable[ItemT]]) -> None:
        """``items`` is called when the result is written; it must not use what the command closed."""
        super().__init__()
        self._items = items
        self._started: Iterator[ItemT] | None = None

    def __bool__(self) -> bool:
        """Start the items; return whether there are any, which the encoder asks first."""
        items = iter(self._items())
        first = list(itertools.islice(items, 1))
        self._started = itertools.chain(first, items)
        return bool(first)

    def __iter__(self) -> Iterator[ItemT]:
        started, self._started = self._started, None
        return iter(self._items()) if started is None else started


def to_json(value: object) -> str:
    """Return a value as indented JSON; records become objects, bytes are left out."""
    return "".join(json_pieces(value))


def json_pieces(value: object, stream: TextIO | None = None) -> Iterator[str]:
    """Yield the text of :func:`to_json` in pieces: the whole text of thousands of runs is never
    held.

    Control characters and direction marks are written as JSON's escapes; for a stream that isn't of
    Unicode, all that isn't ASCII.
    """
    is_ascii = stream is not None and not _encoding(stream).lower().startswith("utf")
    encoder = json.JSONEncoder(
        indent=2, ensure_ascii=is_ascii, allow_nan=False, check_circular=False, default=_plain
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
    from orchestrator.records.run import RunRecord
    from orchestrator.tables.table import plain_value

    if isinstance(value, RunRecord):
        # Stored from 0, printed from 1 as everywhere.
        value = dataclasses.replace(value, invocation=value.invocation + 1)
    plain = plain_value(value)
    return str(value) if plain is value else plain


#: Ending of a file's name -> the formats of such a file, the usual one first.
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
    formats: Collection[str],
    *,
    default: str,
    endings: Mapping[str, tuple[str, ...]] = ENDINGS,
) -> str:
    """Return the format to write: the chosen one, else the one of the ending of ``out``, else the
    default.

    ``endings`` has the formats by the ending of a file's name.

    Raises UsageError for an unknown format or ending, and for the ending of another format.
    """
    # An ending is a format's name too: "md".
    of_ending = next(iter(endings.get(f".{chosen}", ())), "")
    chosen = of_ending if of_ending in formats and chosen not in formats else chosen
    if chosen and chosen not in formats:
        raise UsageError(f"there is no format {chosen!r}", hint=choices(chosen, formats))
    ending = out.suffix.lower() if out is not None else ""
    fitting = endings.get(ending, ())
    if not fitting and (chosen or not ending):
        return chosen or default
    if chosen and chosen not in fitting:
        raise UsageError(
            f"{out}: the ending is of the format {fitting[0]}, but --format is {chosen}"
        )
    possible = [item for item in (chosen, default, *fitting) if item in fitting and item in formats]
    if not possible:
        other = fitting[0] if fitting else ending
        raise UsageError(f"{out}: this command writes {', '.join(formats)}, not {other}")
    return possible[0]
