"""One chart of a report, ready to be drawn, and how much room it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: Pixels of one line, and the least height of a chart; the page's script has the same.
_STEP: Final = 14
_LEAST_HEIGHT: Final = 70
_TEXT_LINE: Final = 15
#: A long label is put into lines of so many characters; the page, which may be narrow, has its own number.
LABEL_CHARS: Final = 56


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSpec:
    """One chart."""

    name: str
    title: str
    #: What it shows, for those who don't see it, and as the text under it.
    description: str
    #: Which data set of report/chart_rows.py it draws.
    dataset: str
    #: The field that one drawing shows one value of; empty when a drawing shows all rows.
    by: str
    spec: Mapping[str, Any]
    #: Fields without which a row can't be drawn.
    needs: tuple[str, ...] = ()


def drawn_height(chart: ChartSpec, rows: Sequence[Mapping[str, object]]) -> int | None:
    """Return the height in pixels of a chart whose height follows its rows; None for any other."""
    lines = chart.spec["usermeta"]["lines"]
    if not lines:
        return None
    labels, *others = ({row[field] for row in rows} for field in lines)
    step = _STEP
    for values in others:
        step *= max(1, len(values))
    return max(_LEAST_HEIGHT, max(1, len(labels)) * max(step, _TEXT_LINE * label_lines(chart, rows)))


def label_lines(chart: ChartSpec, rows: Sequence[Mapping[str, object]]) -> int:
    """Return how many lines the longest label has, of a chart whose height follows its rows."""
    labels = {str(row[field]) for field in chart.spec["usermeta"]["lines"][:1] for row in rows}
    pattern = label_pattern(str(LABEL_CHARS), "\n")
    return max((len(re.findall(pattern, label)) for label in labels), default=1)


def label_pattern(chars: str, line_end: str) -> str:
    """Return the regular expression of a label's lines: broken between words, or within one that is too long."""
    return f"(.{{1,{chars}}})(?: +|{line_end}|$)|(.{{{chars}}})"
