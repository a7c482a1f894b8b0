"""The one way out to terminals and pipes: whatever a phone, a file or another lab wrote, it can't
drive a terminal.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from contextlib import suppress
from typing import TextIO, cast

from orchestrator.tables.escapes import visible_block

#: Moves to the upper left corner and clears the screen.
_CLEAR_SCREEN = "\x1b[H\x1b[2J"


def columns() -> int:
    """Return the width of the terminal: what $COLUMNS says, else its own, else 80."""
    return shutil.get_terminal_size().columns


def lines_that_fit(line: str) -> list[str]:
    """Return one line of prose as lines that fit the terminal.

    A word that is longer stays whole.
    """
    width = max(20, columns() - 1)
    return textwrap.wrap(
        line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ) or [""]


def say(text: str, *, err: bool = False, end: str = "\n", clears: bool = False) -> None:
    """Print text for people.

    Controls, escape sequences and direction marks in it are shown, not obeyed.

    ``clears``: in the place of all that is on the screen.
    """
    _write([f"{_CLEAR_SCREEN if clears else ''}{visible_block(text)}{end}"], err=err)


def say_json(pieces: Iterable[str], *, err: bool = False) -> None:
    """Print the pieces of JSON, and a line break."""
    _write(itertools.chain(pieces, ["\n"]), err=err)


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
