"""Drawings of a report as SVG: dots on an axis, lines, strips and treemaps.

Places are percentages of the drawing's width, so that it is as wide as there is room for and text
keeps its size. Colours are classes of the style sheet: ``d0`` to ``d7``. Labels stand beside what
they name; one that would cover another is left out, and the title of its mark says it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from orchestrator.tables.escapes import display_width
from orchestrator.tables.html import Html, plain, tag

#: A range with a larger factor between its ends is drawn on a logarithmic axis.
_LOG_FROM: Final = 10.0
#: The axis' ends in percent of the drawing.
_BEGIN: Final = 2.5
_END: Final = 97.5
#: Pixels that labels are placed for: of a drawing in a wide window, and on a phone.
_WIDE: Final = 560.0
_NARROW: Final = 320.0
_CHARACTER: Final = 6.3
_DOT: Final = 7.0
COLOURS: Final = 8
#: Side of a dot -> where its label is anchored from there.
_SIDES: Final = {
    "right": (9, 4, "start"),
    "left": (-9, 4, "end"),
    "above": (0, -8, "middle"),
    "below": (0, 16, "middle"),
}
_BESIDE: Final = ("right", "left")


def _drawing(look: str, told: str, height: float, parts: Iterable[str]) -> Html:
    """Return a drawing so many pixels high, with a text for those who don't see it."""
    role = "group" if look.startswith("dots") else "img"
    head = f'<svg class="{look}" height="{height:g}" role="{role}" aria-label="{plain(told)}">'
    return Html(f"{head}{''.join(parts)}</svg>")


def _group(shapes: Iterable[str], look: str, told: str = "", key: str = "") -> str:
    """Return shapes of one thing: ``told`` says what it is to whoever points at it or listens, and
    ``key`` is the case that it opens.
    """
    title = tag("title", plain(told)) if told else ""
    if not key:
        return tag("g", title + "".join(shapes), look)
    opens = {"href": f"#c-{key}", "aria-label": told, "tabindex": "-1"}
    return tag("a", title + "".join(shapes), f"open {look}".rstrip(), **opens)


def _text(x: str, y: str, text: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}"{more}>{plain(text)}</text>'


def _line(x1: str, x2: str, y1: str, y2: str = "", look: str = "") -> str:
    kind = f' class="{look}"' if look else ""
    return f'<line x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2 or y1}"{kind}/>'


def _circle(x: float, y: str, radius: int) -> str:
    return f'<circle cx="{x}%" cy="{y}" r="{radius}"/>'


@dataclass(frozen=True, slots=True)
class Axis:
    """Where values stand, in percent of a drawing's width."""

    low: float
    high: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """Return the place of a value; one outside of the axis is placed at its end."""
        if self.is_log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(_BEGIN + min(1.0, max(0.0, share)) * (_END - _BEGIN), 2)

    def holds(self, value: float) -> bool:
        """Whether a value isn't beyond the axis' ends."""
        margin = (self.high - self.low) / 1000
        return self.low - margin <= value <= self.high + margin

    def ticks(self, most: int = 6) -> list[float]:
        """Return round values on the axis, not more than asked for."""
        for steps in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)) if self.is_log else ():
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            values = (step * 10.0**power for power in range(first, last + 1) for step in steps)
            ticks = [value for value in values if self.low <= value <= self.high]
            if 1 < len(ticks) <= most:
                return ticks
        span = self.high - self.low
        size = 10.0 ** math.floor(math.log10(span / most))
        step = next(size * n for n in (1, 2, 5, 10, 20) if span / (size * n) <= most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * n for n in range(first, last + 1)]

    def span(self, low: float, high: float, y: float, look: str = "") -> str:
        """Return a line from one value to another."""
        return _line(f"{self.at(low)}%", f"{self.at(high)}%", f"{y:g}", look=look)


def axis_of(values: Iterable[float], *, from_zero: bool = False) -> Axis:
    """Return an axis that holds these values: logarithmic where their range exceeds ten times."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = min(known), max(known)
    if high > _LOG_FROM * low and not from_zero:
        return Axis(low, high, is_log=True)
    low = 0.0 if from_zero else max(0.0, low - 0.1 * (high - low))
    return Axis(low, high if high > low else low * 1.1 or 1.0)


#: Changes beyond this quantile are cut: one case of a hundred must not press all others flat.
_SHOWN_QUANTILE: Final = 0.9
_LEAST_CHANGE: Final = 0.05


def change_axis(changes: Sequence[float], threshold: float) -> Axis:
    """Return an axis around no change that most of these changes are on, as shares."""
    ordered = sorted(map(abs, changes))
    usual = ordered[int((len(ordered) - 1) * _SHOWN_QUANTILE)] if ordered else 0.0
    whole = max(usual, 2 * threshold, _LEAST_CHANGE)
    step = 0.1 if whole <= 0.5 else 0.5
    reach = math.ceil(whole / step - 1e-9) * step
    return Axis(-reach, reach)


def number(value: float) -> str:
    """Return a figure with three digits: ``6.45``, ``124``."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A figure with its interval."""

    value: float
    low: float | None = None
    high: float | None = None
    label: str = ""
    #: What it is, for whoever points at it or listens.
    told: str
    #: Its colour, and ``best``, ``doubt`` or nothing: classes of the style sheet.
    look: str = ""
    #: The case that it opens; empty for none.
    key: str = ""
    #: Two values of which a thin line is drawn below, if any.
    bracket: tuple[float, float] | None = None

    @property
    def is_best(self) -> bool:
        """Whether it wins."""
        return self.look.endswith("best")


def dots(
    axis: Axis,
    items: Sequence[Dot],
    told: str,
    *,
    is_dense: bool = False,
    band: tuple[float, float] | None = None,
) -> Html:
    """Return a row of dots with intervals on an axis, each with its label beside it.

    Where there is room, also above and below it. ``band`` are the ends of a ground behind them.
    """
    places = [axis.at(item.value) for item in items]
    sides = _BESIDE if is_dense else tuple(_SIDES)
    wide, narrow = (_labels(axis, items, width, sides) for width in (_WIDE, _NARROW))
    height = 20 if is_dense else 36
    lifts: dict[int, int] = {}
    before, lift = -100.0, 0
    for place in sorted(range(len(items)), key=places.__getitem__):
        # Those that would cover each other stand above and below the line.
        lift = (-lift or -3) if (places[place] - before) * _WIDE / 100 < _DOT else 0
        before, lifts[place] = places[place], lift
    # The best is drawn above all others.
    order = sorted(lifts, key=lambda place: items[place].is_best)
    drawn = [
        _dot(axis, items[place], height // 2 + lifts[place], wide.get(place, ""), narrow.get(place))
        for place in order
    ]
    if band is not None:
        x, end = map(axis.at, band)
        drawn.insert(0, f'<rect x="{x}%" width="{end - x:.2f}%" y="0" height="{height}"/>')
    return _drawing("dots", told, height, drawn)


def ticks(axis: Axis, unit: str, words: Callable[[float], str] = "{:.6g}".format) -> Html:
    """Return the axis above a column of dots."""
    marks = (
        _text(f"{axis.at(value)}%", "12", words(value), ' text-anchor="middle"')
        for value in axis.ticks()
    )
    told = f"{unit}, {'logarithmic' if axis.is_log else 'linear'}"
    return _drawing("ticks", told, 16, marks)


def grid_lines(axis: Axis) -> str:
    """Return the lines behind a column of dots as a style's background."""
    lines = (
        f"linear-gradient(var(--line),var(--line)) {axis.at(value)}% 0/1px 100% no-repeat"
        for value in axis.ticks()
    )
    return ",".join(lines) or "none"


def _dot(axis: Axis, item: Dot, y: int, side: str, kept: str | None) -> str:
    x = axis.at(item.value)
    shapes = []
    if item.bracket is not None:
        shapes.append(axis.span(*item.bracket, y + 8, "visible"))
    if item.low is not None and item.high is not None:
        shapes.append(axis.span(item.low, item.high, y))
    if axis.holds(item.value):
        shapes.append(_circle(x, str(y), 6 if item.is_best else 4))
    else:
        mark = "\N{BLACK RIGHT-POINTING TRIANGLE}"
        if item.value < axis.low:
            mark = "\N{BLACK LEFT-POINTING TRIANGLE}"
        shapes.append(_text(f"{x}%", str(y + 4), mark, ' class="off"'))
    if side:
        dx, dy, anchor = _SIDES[side]
        look = ' class="keep"' if kept == side else ""
        beside = dict(zip(("left", "right"), _ends(axis, item), strict=True)).get(side, x)
        more = f' dx="{dx}" text-anchor="{anchor}"{look}'
        shapes.append(_text(f"{beside}%", str(y + dy), item.label, more))
    return _group(shapes, item.look, item.told, item.key)


def _ends(axis: Axis, item: Dot) -> tuple[float, float]:
    """Return where a dot's interval ends, in percent."""
    ends = (item.low if item.low is not None else item.value, item.value, item.high or item.value)
    places = [axis.at(end) for end in ends]
    return min(places), max(places)


def _labels(axis: Axis, items: Sequence[Dot], width: float, sides: Sequence[str]) -> dict[int, str]:
    """Return on which side of its dot each label stands that covers nothing, the best one first."""
    centres = [axis.at(item.value) * width / 100 for item in items]
    spans = [[end * width / 100 for end in _ends(axis, item)] for item in items]
    # Lane -> what is taken of it: from, to, and the dot that takes it.
    taken = {
        "line": [
            (min(low, at - _DOT), max(high, at + _DOT), place)
            for place, (at, (low, high)) in enumerate(zip(centres, spans, strict=True))
        ]
    }
    found: dict[int, str] = {}
    order = sorted(range(len(items)), key=lambda place: (not items[place].is_best, centres[place]))
    for place in order:
        long, centre = display_width(items[place].label) * _CHARACTER, centres[place]
        low, high = spans[place]
        begins = {"right": max(high, centre) + 9, "left": min(low, centre) - 9 - long}
        for side in sides if long else ():
            begin = begins.get(side, centre - long / 2)
            lane = taken.setdefault("line" if side in begins else side, [])
            is_free = all(
                begin + long < start or begin > end or owner == place for start, end, owner in lane
            )
            if is_free and begin >= 0 and begin + long <= width:
                lane.append((begin, begin + long, -1))
                found[place] = side
                break
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line with its name at its right end."""

    points: Sequence[tuple[float, float]]
    label: str
    look: str


#: Of a drawing of lines, in pixels.
_HEIGHT: Final = 170
_LEAST_GAP: Final = 13.0


def lines(items: Sequence[Line], told: str, *, across: str, marks: Sequence[float] = ()) -> Html:
    """Return lines over a quantity, each named at its end.

    ``marks`` are the places that are named below, where only those have points; else round ones.
    """
    xs, ys = zip(*(point for item in items for point in item.points), strict=True)
    horizontal = Axis(min(xs), max(xs), is_log=bool(marks)) if max(xs) > min(xs) else axis_of(xs)
    vertical = axis_of(ys, from_zero=max(ys) <= _LOG_FROM * min(ys))

    def y_of(value: float) -> float:
        return round(100 - vertical.at(value), 2)

    frame = [_text("100%", "100%", across, ' dx="8" dy="14"')]
    for value in vertical.ticks(4):
        y = f"{y_of(value)}%"
        frame.append(_line("0", "100%", y))
        frame.append(_text("-6", y, f"{value:.4g}", ' dy="4" text-anchor="end"'))
    for value in marks or horizontal.ticks(5):
        more = ' dy="14" text-anchor="middle"'
        frame.append(_text(f"{horizontal.at(value)}%", "100%", f"{value:.6g}", more))
    groups = [_group(frame, "frame")]
    ends = _spread([y_of(item.points[-1][1]) for item in items])
    for item, end in zip(items, ends, strict=True):
        places = [(horizontal.at(x), y_of(y)) for x, y in item.points]
        points = " ".join(f"{x},{y}" for x, y in places)
        path = f'<svg viewBox="0 0 100 100" preserveAspectRatio="none"><polyline points="{points}"/></svg>'
        marked = [_circle(x, f"{y}%", 3) for x, y in places] if marks else []
        name = _text("100%", f"{end}%", item.label, ' dx="8" dy="4"')
        groups.append(_group([path, *marked, name], item.look))
    return _drawing("lines", told, _HEIGHT, groups)


def _spread(places: Sequence[float]) -> list[float]:
    """Return places in percent of the height that are far enough apart for a line of text each."""
    gap = 100 * _LEAST_GAP / _HEIGHT
    spread = list(places)
    order = sorted(range(len(places)), key=places.__getitem__)
    for before, place in pairwise(order):
        spread[place] = max(spread[place], spread[before] + gap)
    over = max(0.0, spread[order[-1]] - 98) if order else 0.0
    return [round(place - over, 2) for place in spread]


def curve(points: str, told: str) -> str:
    """Return a small line of points in a box of 300 by 60."""
    return (
        f'<svg viewBox="0 0 300 60" preserveAspectRatio="none" role="img" aria-label="{plain(told)}">'
        f'<polyline class="trace-line" points="{points}"/></svg>'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a whole."""

    label: str
    share: float
    told: str
    look: str = ""


#: A treemap's sides, for the shape of its parts and for the room of their names; pixels.
_MAP: Final = (1100.0, 220.0)
_NAMED_FROM: Final = (46.0, 16.0)


def treemap(items: Sequence[Part], told: str) -> Html:
    """Return rectangles as large as the parts' shares, the largest first, each with its name."""
    groups = []
    for item, (x, y, width, height) in _tiles(sorted(items, key=lambda item: -item.share)):
        letters = int((width - 8) / _CHARACTER)
        name = item.label if len(item.label) <= letters else f"{item.label[: letters - 1]}…"
        shown = [tag("title", plain(item.told)), '<rect width="100%" height="100%"/>']
        if width >= _NAMED_FROM[0] and height >= _NAMED_FROM[1]:
            shown.append(_text("6", "15", name))
        box = {
            "x": f"{x / _MAP[0]:.3%}",
            "y": f"{y / _MAP[1]:.3%}",
            "width": f"{width / _MAP[0]:.3%}",
            "height": f"{height / _MAP[1]:.3%}",
        }
        groups.append(tag("svg", "".join(shown), item.look, **box))
    return _drawing("treemap", told, _MAP[1], groups)


def _tiles(items: Sequence[Part]) -> Iterable[tuple[Part, tuple[float, float, float, float]]]:
    """Yield the parts with their rectangles, rows of them along the shorter side of what is left."""
    x, y, (width, height) = 0.0, 0.0, _MAP
    left = sum(item.share for item in items)
    waiting = [item for item in items if item.share > 0]
    while waiting:
        short, area = min(width, height), width * height / left
        row = [waiting.pop(0)]
        while waiting and _worst([*row, waiting[0]], short, area) <= _worst(row, short, area):
            row.append(waiting.pop(0))
        share = sum(item.share for item in row)
        thick, along = share * area / short, 0.0
        for item in row:
            long = item.share / share * short
            if width >= height:
                yield item, (x, y + along, thick, long)
            else:
                yield item, (x + along, y, long, thick)
            along += long
        if width >= height:
            x, width = x + thick, width - thick
        else:
            y, height = y + thick, height - thick
        left -= share


def _worst(row: Sequence[Part], short: float, area: float) -> float:
    """Return how far from square the longest rectangle of a row would be."""
    thick = sum(item.share for item in row) * area / short
    return max(
        max(thick * thick / (item.share * area), item.share * area / (thick * thick))
        for item in row
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The runs of a case: each with its median, and how far its inferences reach where it is known."""

    runs: Sequence[tuple[float, float | None, float | None]]
    label: str
    look: str = ""


def strips(items: Sequence[Spread], told: str, unit: str) -> Html:
    """Return the runs of cases, one case below the other on one axis: a line each, a dot at its
    median.
    """
    axis = axis_of(end for item in items for run in item.runs for end in run if end is not None)
    groups, y = [], 12
    for item in items:
        shapes = [_text("0", str(y), item.label)]
        for middle, low, high in item.runs:
            y += 7
            if low is not None and high is not None:
                shapes.append(axis.span(low, high, y))
            shapes.append(_circle(axis.at(middle), str(y), 3))
        groups.append(_group(shapes, item.look))
        y += 20
    marks = [
        _text(f"{axis.at(value)}%", str(y + 2), f"{value:.6g}", ' text-anchor="middle"')
        for value in axis.ticks()
    ]
    return _drawing("strips", f"{told}, in {unit}", y + 8, [*groups, _group(marks, "frame")])
