"""The one way out to terminals and pipes: whatever a phone, a file or another lab wrote, it can't drive a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from orchestrator.report.escapes import visible_block

#: Moves to the upper left corner and clears the screen.
_CLEAR_SCREEN = "\x1b[H\x1b[2J"


def say(text: str, *, err: bool = False, end: str = "\n", clears: bool = False) -> None:
    """Print text for people; controls, escape sequences and direction marks in it are shown, not obeyed.

    ``clears``: in the place of all that is on the screen.
    """
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{_CLEAR_SCREEN if clears else ''}{visible_block(text)}{end}")
    stream.flush()


def say_json(pieces: Iterable[str], *, err: bool = False) -> None:
    """Print the pieces of JSON, and a line break."""
    stream = sys.stderr if err else sys.stdout
    stream.writelines(pieces)
    stream.write("\n")
    stream.flush()
