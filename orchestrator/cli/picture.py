"""What the phones of a campaign do, as lines that fit a terminal: the same for the live view and ``status``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Final

from orchestrator.cli.result import one_line

#: The pace is that of so many last runs.
PACE_RUNS: Final = 20
_SERIAL_MAX: Final = 24
#: What a phone does is told in so many characters at the least, before another column is left out.
_DOING_MIN: Final = 18
_GAP: Final = "  "
_DOTS: Final = ".."
#: Of a text that is cut in its middle.
_END_SHARE: Final = 0.7


class Standing(IntEnum):
    """How a phone stands; those that want somebody's attention come first."""

    GIVEN_UP = 0
    AWAY = 1
    WORKING = 2
    WAITING = 3
    DONE = 4

    @property
    def word(self) -> str:
        """In words."""
        return self.name.lower().replace("_", " ")


_UNDER_WAY: Final = frozenset({Standing.WORKING, Standing.WAITING})


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneRow:
    """One phone of a campaign."""

    serial: str
    standing: Standing
    #: What it measures, waits for, or why it was given up.
    doing: str
    stored: int
    #: At least so many invocations.
    left: int
    battery_heat_c: float | None
    #: None when too little is known.
    eta_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the picture, and what it is: a standing's word, ``title`` or ``head``."""

    text: str
    kind: str


def pace_of(started: Sequence[datetime]) -> float | None:
    """Return the mean time between the last of these starts in seconds; None for fewer than two."""
    begun = sorted(started)[-PACE_RUNS:]
    if len(begun) < 2:
        return None
    return (begun[-1] - begun[0]) / timedelta(seconds=1) / (len(begun) - 1)


def campaign_eta_s(rows: Sequence[PhoneRow]) -> float | None:
    """Return how long the campaign takes: as its longest phone. None while nothing is known.

    Phones that are away or given up aren't waited for; one whose pace isn't known yet is taken for as slow as the
    slowest of the others.
    """
    left = [row for row in rows if row.left and row.standing in _UNDER_WAY]
    known = [(row.eta_s, row.left) for row in left if row.eta_s is not None]
    slowest_s = max((eta_s / left for eta_s, left in known), default=0.0)
    return max(slowest_s * row.left if row.eta_s is None else row.eta_s for row in left) if known else None


def about(seconds: float | None) -> str:
    """Return a time that is only roughly known: ``1 min``, ``2 h 10 min``, ``3 d 4 h``; empty for None."""
    if seconds is None:
        return ""
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def picture(title: str, rows: Sequence[PhoneRow], *, width: int | None = None, height: int | None = None) -> list[Line]:
    """Return a campaign's lines: its own, a head, a line for each phone; None is as wide or high as it takes.

    Phones that don't fit are counted in the last line: those that are done first, those in trouble never while there
    is room.
    """
    ordered = sorted(rows, key=lambda row: (row.standing, _natural(row.serial)))
    room = len(ordered) if height is None else max(0, height - 2)
    shown, hidden = (ordered, []) if len(ordered) <= room else (ordered[: room - 1], ordered[max(0, room - 1) :])
    lines = [Line(text=_title(title, rows, width), kind="title")]
    if shown:
        texts = _aligned(shown, width)
        kinds = ["head", *(row.standing.word for row in shown)]
        lines += [Line(text=text, kind=kind) for text, kind in zip(texts, kinds, strict=True)]
    if hidden:
        text = f"... and {len(hidden)} more: {_counted(hidden)}"
        lines.append(Line(text=_cut_end(text, width), kind="head"))
    return lines


def _title(title: str, rows: Sequence[PhoneRow], width: int | None) -> str:
    stored, left = sum(row.stored for row in rows), sum(row.left for row in rows)
    eta = about(campaign_eta_s(rows))
    told = f"{stored}/{stored + left} runs{f', about {eta} left' if eta else ''}; {_counted(rows)}"
    # The name is what everybody knows.
    name = _cut(one_line(title), None if width is None else max(10, width - len(told) - 2))
    return _cut_end(f"{name}: {told}", width)


def _counted(rows: Sequence[PhoneRow]) -> str:
    counts = Counter(row.standing for row in rows)
    return ", ".join(f"{counts[standing]} {standing.word}" for standing in sorted(counts))


def _cells(row: PhoneRow) -> tuple[str, ...]:
    heat = f"{row.battery_heat_c:.1f} C" if row.battery_heat_c is not None else ""
    eta = about(row.eta_s) if row.left and row.standing in _UNDER_WAY else ""
    runs = f"{row.stored}/{row.stored + row.left}"
    doing = row.doing if row.standing in _UNDER_WAY else ": ".join(filter(None, (row.standing.word, row.doing)))
    return (_cut(one_line(row.serial), _SERIAL_MAX), one_line(doing), runs, heat, eta)


def _aligned(rows: Sequence[PhoneRow], width: int | None) -> list[str]:
    """Return rows of a table; what is done takes what is left, then the battery and the time are left out."""
    cells = [("phone", "does", "runs", "battery", "left"), *map(_cells, rows)]
    # What is measured differs at its end, a reason begins with what matters.
    cuts = [_cut, *(_cut if row.standing in _UNDER_WAY else _cut_end for row in rows)]
    columns = [0, 1, 2, 3, 4]
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    for dropped in (3, 4, None):
        others = sum(widths[column] for column in columns if column != 1) + len(_GAP) * (len(columns) - 1)
        if width is None or dropped is None or width - others >= min(_DOING_MIN, widths[1]):
            break
        columns.remove(dropped)
    if width is not None:
        widths[1] = max(1, min(widths[1], width - others))
    lines = []
    for row, cut in zip(cells, cuts, strict=True):
        parts = [
            row[column].rjust(widths[column]) if column > 1 else cut(row[column], widths[column]).ljust(widths[column])
            for column in columns
        ]
        lines.append(_cut_end(_GAP.join(parts).rstrip(), width))
    return lines


def _cut(text: str, width: int | None) -> str:
    """Return text that fits; its end is what tells phones and cases of one kind apart, so the middle goes."""
    if width is None or len(text) <= width or width < 8:
        return _cut_end(text, width)
    end = round((width - len(_DOTS)) * _END_SHARE)
    return f"{text[: width - len(_DOTS) - end]}{_DOTS}{text[len(text) - end :]}"


def _cut_end(text: str, width: int | None) -> str:
    if width is None or len(text) <= width:
        return text
    return text[: max(0, width - len(_DOTS))] + _DOTS[:width]


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text) if part]
