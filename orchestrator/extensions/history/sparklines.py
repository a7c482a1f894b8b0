"""Lines of nights as SVG paths: small ones for a row of a table, and a chart of one series.

A path's units are its view box's; both are stretched to the width of their place, so that paths
stay short.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Final

from orchestrator.report.drawing import Axis, number

#: Height of a sparkline's view box, with room for the line's own width.
SPARK_HEIGHT: Final = 32
_SPARK_ROOM: Final = 3
#: How far the scale of every sparkline goes, up and down, as the logarithm of a ratio; what is
#: beyond is cut.
SPARK_REACH: Final = 0.2
#: Nights whose middle is the last level.
_LEVEL_NIGHTS: Final = 7
#: A chart's view box is as wide and as high.
CHART_SIZE: Final = 1000
#: Room at the left, where the axis' words are, and at the right; in the view box' units.
_LEFT, _RIGHT = 75, 985
_TOP, _BOTTOM = 90, 960
#: A line is broken where so many nights are without a figure.
_GAP: Final = 8
_MOST_TICKS: Final = 5


def spark_box(nights: int) -> str:
    """Return the view box of sparklines over so many nights."""
    return f"-1 0 {max(2, nights + 1)} {SPARK_HEIGHT}"


def spark_path(
    figures: Sequence[float], changes: Iterable[int] = (), expected: Iterable[int] = ()
) -> str:
    """Return a series' nights as ``band|line|changes|expected``: vertical lines stand at the nights
    of changes.

    NaN is a night without a figure; the lowest figure is at the bottom. All series have one scale,
    ``SPARK_REACH`` up and down from the middle of their range. The band is the noise from night to
    night (95 %) around the last level.
    """
    logs = [math.log(value) for value in figures if math.isfinite(value)]
    if not logs:
        return "|||"
    middle, half = (min(logs) + max(logs)) / 2, SPARK_HEIGHT / 2
    places = {place: math.log(value) for place, value in enumerate(figures) if math.isfinite(value)}

    def y_of(value: float) -> int:
        way = max(-1.0, min(1.0, (value - middle) / SPARK_REACH))
        return round(half - way * (half - _SPARK_ROOM))

    x, y = 0, 0
    parts: list[str] = []
    for place, value in places.items():
        at = y_of(value)
        parts.append(
            f"M{place} {at}h0" if not parts or place - x > _GAP else f"l{place - x} {at - y}"
        )
        x, y = place, at
    steps = sorted(abs(after - before) for before, after in pairwise(logs)) or [0.0]
    noise = 1.96 * 1.4826 * steps[len(steps) // 2] / math.sqrt(2)
    level = sorted(logs[-_LEVEL_NIGHTS:])[min(len(logs), _LEVEL_NIGHTS) // 2]
    top, bottom = y_of(level + noise), y_of(level - noise)
    band = f"M0 {top}H{len(figures)}V{max(bottom, top + 1)}H0z"
    marks = (
        "".join(f"M{place - 0.5:g} 0v{SPARK_HEIGHT}" for place in some)
        for some in (changes, expected)
    )
    return "|".join((band, "".join(parts), *marks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A line of an axis: where, in percent of the drawing, and what stands there."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NightChart:
    """A series' nights, drawn."""

    #: Paths in the view box: the line through the figures, trusted figures, suspect ones,
    #: intervals.
    line: str
    trusted: str
    suspect: str
    intervals: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    #: Where each night is, in percent of the width.
    places: tuple[float, ...]
    low: float
    high: float


def night_chart(
    nights: Sequence[date],
    figures: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    trusted: Sequence[bool],
) -> NightChart:
    """Return a chart of a series' nights in milliseconds; nights are where the calendar has them.

    All have the same length; NaN is a night without a figure or a figure without an interval.
    """
    shown = [value for value in (*figures, *lows, *highs) if math.isfinite(value)]
    low, high = _range(shown)
    first = nights[0].toordinal() if nights else 0
    days = max(1, (nights[-1].toordinal() - first) if nights else 1)
    xs = [_LEFT + (_RIGHT - _LEFT) * (night.toordinal() - first) / days for night in nights]

    def y_of(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (value - low) / (high - low)

    line: list[str] = []
    dots: list[str] = []
    doubts: list[str] = []
    bars: list[str] = []
    last: int | None = None
    for night, x, figure, lowest, highest, is_trusted in zip(
        nights, xs, figures, lows, highs, trusted, strict=True
    ):
        if not math.isfinite(figure):
            continue
        at = f"{x:.0f} {y_of(figure):.0f}"
        line.append(f"{'M' if last is None or night.toordinal() - last > _GAP else 'L'}{at}")
        (dots if is_trusted else doubts).append(f"M{at}h0")
        if math.isfinite(lowest) and math.isfinite(highest):
            bars.append(f"M{x:.0f} {y_of(highest):.0f}V{y_of(lowest):.0f}")
        last = night.toordinal()
    return NightChart(
        line="".join(line),
        trusted="".join(dots),
        suspect="".join(doubts),
        intervals="".join(bars),
        x_ticks=_date_ticks(nights, xs),
        y_ticks=tuple(
            Tick(at=y_of(value) / CHART_SIZE * 100, label=number(value))
            for value in Axis(low, high).ticks(_MOST_TICKS)
        ),
        places=tuple(round(x / CHART_SIZE * 100, 2) for x in xs),
        low=low,
        high=high,
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return what the axis shows: all figures, with room, and never less than 4 % from end to end."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = max((high - low) * 0.06, high * 0.02)
    return max(0.0, low - room), high + room


def _date_ticks(nights: Sequence[date], xs: Sequence[float]) -> tuple[Tick, ...]:
    """Return up to five nights, evenly apart, never two at one place."""
    if not nights:
        return ()
    count = min(_MOST_TICKS, len(nights))
    places = sorted({round(part * (len(nights) - 1) / max(1, count - 1)) for part in range(count)})
    ticks: list[Tick] = []
    for place in places:
        at = xs[place] / CHART_SIZE * 100
        if not ticks or at - ticks[-1].at > 12:
            ticks.append(Tick(at=at, label=f"{nights[place]:%Y-%m-%d}"))
    return tuple(ticks)
