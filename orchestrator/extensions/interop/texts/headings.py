"""Headings above runs: Markdown's, and those that a console prints between rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from orchestrator.reading.lines import TABLE_TITLE, Heading, Line

_CONSOLE: Final = re.compile(
    r"[\u2500\u2501=]{2,}\s+(?P<title>[^\u2500\u2501=].*?)\s*[\u2500\u2501=]{2,}$"
)
#: With a single ``#`` a notebook marks output.
_MARKDOWN: Final = re.compile(r"\s*(?P<marks>#{2,6}) +(?P<title>\S.*)$")
#: The title of the rows that name the performance options' runs.
SUMMARY_TITLE: Final = "Summary of All Runs w/ Different Performance Options"
#: A program's own titles, which look like headings.
_OURS: Final = re.compile(
    rf"{TABLE_TITLE.pattern}|=+ (?:BENCHMARK RESULTS|{re.escape(SUMMARY_TITLE)}) =+"
)
#: Of the headings that a console prints, which are below all of Markdown's.
CONSOLE_LEVEL: Final = 7


def below_headings(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines, each with the headings that it stands below."""
    headings: tuple[Heading, ...] = ()
    for line in lines:
        if (heading := _heading_in(line)) is not None:
            headings = (*(each for each in headings if each.level < heading.level), heading)
        line.headings, line.is_heading = headings, heading is not None
        yield line


def _heading_in(line: Line) -> Heading | None:
    if line.severity or line.style != "console":
        return None
    match = _CONSOLE.match(line.text)
    if match is None and "##" in line.raw:
        match = _MARKDOWN.match(line.raw)
    if match is None or _OURS.fullmatch(line.text):
        return None
    level = CONSOLE_LEVEL if match.re is _CONSOLE else len(match["marks"])
    return Heading(level, match["title"].rstrip(" #"))
