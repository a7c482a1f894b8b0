"""Headings above runs: Markdown's, and those that a console prints between rules."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from orchestrator.reading.lines import Line
from orchestrator.reading.profile import TABLE_TITLE

_CONSOLE: Final = re.compile(
    r"[\u2500\u2501=]{2,}\s+(?P<title>[^\u2500\u2501=].*?)\s*[\u2500\u2501=]{3,}$"
)
_CONSOLE_MARKS: Final = frozenset("\u2500\u2501=")
#: With a single ``#`` a notebook marks output.
_MARKDOWN: Final = re.compile(r"\s*(?P<marks>#{2,6}) +(?P<title>\S.*)$")
#: A program's own titles, which look like headings.
_OURS: Final = re.compile(rf"{TABLE_TITLE.pattern}|=+ BENCHMARK RESULTS =+")
#: Of the headings that a console prints, which are below all of Markdown's.
CONSOLE_LEVEL: Final = 7


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading and its level: 2 to 6 of Markdown, ``CONSOLE_LEVEL`` of a console."""

    level: int
    title: str


def heading_in(line: Line) -> Heading | None:
    """Return the heading that a line of a console is; None for any other line."""
    if line.severity or line.style != "console":
        return None
    if line.text[:1] in _CONSOLE_MARKS:
        match = None if _OURS.fullmatch(line.text) else _CONSOLE.match(line.text)
    else:
        match = _MARKDOWN.match(line.raw) if "##" in line.raw else None
    if match is None:
        return None
    level = CONSOLE_LEVEL if match.re is _CONSOLE else len(match["marks"])
    return Heading(level, match["title"].rstrip(" #"))


@dataclass(slots=True)
class Headings:
    """The headings that a line stands below: one until another of its level, or of one above."""

    _titles: dict[int, str] = field(default_factory=dict)

    def take(self, heading: Heading) -> None:
        """Take the next heading."""
        above = {level: title for level, title in self._titles.items() if level < heading.level}
        self._titles = {**above, heading.level: heading.title}

    def __str__(self) -> str:
        """Return all of them, the outermost first."""
        return " / ".join(self._titles.values())
