"""The one way out to terminals and pipes: whatever a phone, a file or another lab wrote, it can't
drive a terminal.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, TextIO, cast

from orchestrator import __version__
from orchestrator.tables.escapes import display_width, one_line, visible_block

#: Moves to the upper left corner and clears the screen.
_CLEAR_SCREEN = "\x1b[H\x1b[2J"
#: No line is mixed with another thread's.
LOCK: Final = threading.Lock()


def columns() -> int:
    """Return the width of the terminal: what $COLUMNS says, else its own, else 80."""
    return shutil.get_terminal_size().columns


def room() -> int | None:
    """Return the width that a table has: a terminal's, 80 at least; None where another program, or
    a file, gets it.
    """
    return max(columns(), 80) if sys.stdout.isatty() else None


def lines_that_fit(line: str) -> list[str]:
    """Return one line of prose as lines that fit the terminal; a word that is longer stays whole."""
    import textwrap

    width = max(20, columns() - 1)
    return textwrap.wrap(
        line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ) or [""]


def command_lines(advice: str) -> list[str]:
    """Return advice that ends with a command as lines that fit the terminal.

    A command that doesn't fit stands below, broken so that a shell still reads it as one.
    """
    import re
    import shlex

    about, found, command = advice.partition(": benchfarm ")
    if not found or display_width(advice) < columns():
        return [advice]
    lines = ["  benchfarm"]
    # An option stays beside its value.
    for word in re.split(r" (?=-)", shlex.join(shlex.split(command))):
        if display_width(lines[-1]) + len(word) + 3 > columns():
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}"
    return [f"{about}:", *lines]


#: How a terminal shows a line by its look (tables.text.Line); any other look changes nothing.
_STYLES: Final[Mapping[str, str]] = {
    "title": "1",
    "head": "2",
    "winner": "1;32",
    "unproven": "1",
    "doubt": "33",
    "bad": "31",
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

    Controls, escape sequences and direction marks in it are shown, not obeyed.

    ``clears``: in the place of all that is on the screen. ``looks``: of its lines, where it goes to
    a terminal with colours.
    """
    shown = visible_block(text)
    if looks and _has_colours(sys.stderr if err else sys.stdout):
        lines = itertools.zip_longest(shown.split("\n"), looks, fillvalue="")
        shown = "\n".join(_styled(line, look) for line, look in lines)
    _write([f"{_CLEAR_SCREEN if clears else ''}{shown}{end}"], err=err)


def _styled(line: str, look: str) -> str:
    style = _STYLES.get(look, "")
    return f"\x1b[{style}m{line}\x1b[0m" if style and line else line


def _has_colours(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours, and nobody said that it shouldn't."""
    environ = os.environ
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return bool(environ.get("FORCE_COLOR")) or stream.isatty()


def say_json(pieces: Iterable[str], *, err: bool = False) -> None:
    """Print the pieces of JSON, and a line break."""
    _write(itertools.chain(pieces, ["\n"]), err=err)


def stop_no_more() -> None:
    """Ignore what stops a command from now on, also what comes at this moment."""
    left = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    while left:
        with suppress(KeyboardInterrupt):
            signal.signal(left[-1], signal.SIG_IGN)
            left.pop()


class OutputLostError(Exception):
    """Whoever read standard output has gone. No OSError: click would end the process on one."""


def _write(pieces: Iterable[str], *, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    try:
        stream.writelines(pieces)
        stream.flush()
    except BrokenPipeError as error:
        # What is still kept back, and all that follows, goes nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        raise OutputLostError from error


def write_line(event: str, text: str, *, level: str = "info", **keys: object) -> None:
    """Write one event; keys that are None or empty are left out."""
    import json

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
    """Let what libraries warn of be written as JSON too, and what ends a thread."""
    import logging
    import traceback

    class LibraryLines(logging.Handler):
        """Writes what libraries log in the same form."""

        def emit(self, record: logging.LogRecord) -> None:
            """Write one record."""
            level = "error" if record.levelno >= logging.ERROR else "warning"
            told = (
                "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else None
            )
            text = record.getMessage().strip()
            write_line("library", text, level=level, logger=record.name, traceback=told)

    logging.basicConfig(level=logging.WARNING, handlers=[LibraryLines()], force=True)
    logging.captureWarnings(True)
    threading.excepthook = _thread_ended


def _thread_ended(what: threading.ExceptHookArgs) -> None:
    import traceback

    error = what.exc_value
    if error is not None and not isinstance(error, SystemExit):
        text = f"{what.thread.name if what.thread is not None else 'a thread'} ended: {type(error).__name__}: {error}"
        told = "".join(traceback.format_exception(error))
        write_line("error", text, level="error", code="internal", traceback=told)


class _Progress:
    """Standard error without its errors: a reader that went away or a full disk stops nothing that
    is measured.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what can be written; the rest is lost."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write what can be written of several pieces."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what is kept back, if that can be written."""
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def open_standard_streams() -> None:
    """Give this process an output and a progress stream, also where its parent closed them, and let
    progress get lost.

    What is written to standard error from now on raises no OSError.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # Else the next file that is opened has its number: a database would get what is said.
            with suppress(OSError):
                os.close(number)
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8"))
    sys.stderr = cast(TextIO, _Progress(sys.stderr))
