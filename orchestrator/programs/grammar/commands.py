"""Command lines of benchmark programs, as people write them down above an output.

A command stands behind a phone's or a computer's prompt, a word such as ``CMD:``, a time, or inside
``adb shell "cd ... && ..."``; it may go over several lines that end in a backslash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

#: A benchmark program or its app's activity as a word of its own.
_PROGRAM: Final = re.compile(
    r"(?:^|[\s\"'`/(;&|=])(?:[\w.+-]{1,60}_)?benchmark_(?:litert_|tflite_)?model\w*(?:\.exe)?(?=[\s\"'`\\^]|$)"
    r"|\.BenchmarkModelActivity\b",
    re.ASCII,
)
_MODEL: Final = re.compile(r"--(?:graph|model)=")
_FLAG: Final = re.compile(r"--[\w-]+=")
#: What may stand before a program that was started, as against a sentence that speaks of it.
_BEFORE: Final = re.compile(
    r"(?:.{0,160}[$#%!>\]] ?|.{0,60}\b(?:cmd|command|run|running|exec|executing)\b ?[:=] ?|.{0,160}\badb\b.*|[\s+*`-]*"
    r"|.{0,160}(?:&&|;) ?|[\d\s:.,TZ/-]{1,60}|.{0,160}\b(?:taskset|nohup|su|sudo|time|env)\b.*)"
    r"[\"'`(]?[\w./~-]{0,200}$",
    re.IGNORECASE,
)
_CONTINUES: Final = ("\\", " ^", " `")
_MOST_LINES: Final = 60
_LONGEST: Final = 20_000


def is_command(text: str) -> bool:
    """Whether a line starts a benchmark program; the model, or what stands before, tells it from a sentence."""
    if "enchmark" not in text:
        return False
    match = _PROGRAM.search(text)
    if match is None:
        return False
    rest = text[match.end() :]
    if _MODEL.search(rest):
        return True
    goes_on = rest.rstrip().endswith(_CONTINUES)
    return (goes_on or _FLAG.search(rest) is not None) and _BEFORE.match(text[: match.start() + 1]) is not None


@dataclass(slots=True)
class CommandReader:
    """Joins the lines of a command that goes over several."""

    _parts: list[str] = field(default_factory=list)
    _goes_on: bool = False

    @property
    def is_open(self) -> bool:
        """Whether a command was begun that may go on in the next line."""
        return bool(self._parts)

    def begin(self, text: str) -> None:
        """Take a command's first line."""
        self._parts = [_without_mark(text)]
        self._goes_on = text.endswith(_CONTINUES)

    def takes(self, text: str) -> bool:
        """Take a line that goes on with the command; return False, taking nothing, for any other."""
        is_flag = text.startswith(("--", "-e ", "'--", '"--'))
        if not (is_flag or (self._goes_on and (_FLAG.search(text) or _PROGRAM.search(text)))):
            return False
        if len(self._parts) >= _MOST_LINES or sum(map(len, self._parts)) > _LONGEST:
            return False
        self._goes_on = text.endswith(_CONTINUES)
        self._parts.append(_without_mark(text))
        return True

    def end(self) -> str:
        """Return the whole command; the reader is as new then."""
        whole = " ".join(self._parts)
        self._parts, self._goes_on = [], False
        return whole


def _without_mark(text: str) -> str:
    return next((text.removesuffix(mark).rstrip() for mark in _CONTINUES if text.endswith(mark)), text)
