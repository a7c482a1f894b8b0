"""Drawings of a report as SVG: dots on an axis, lines, strips and treemaps.

Places are percentages of the drawing's width, so that it is as wide as there is room for and text
keeps its size. Colours are classes of the style sheet: ``d0`` to ``d7``. Labels stand beside what
they name; one that would cover another is left out, and the title of its mark says it. What is
made here is shapes; drawing.html.j2 writes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from orchestrator.tables.escapes import display_width

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


@dataclass(frozen=True, slots=True)
class Shape:
    """An element of SVG with its attributes, and its text."""

    tag: str
    attributes: Mapping[str, object]
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Shapes of one thing."""

    shapes: Sequence[Shape]
    #: Classes of the style sheet.
    look: str = ""
    #: What it is, for whoever points at it or listens.
    told: str = ""
    #: The case that it opens; empty for none.
    key: str = ""
    #: The rectangle that it is cut to, if any.
    box: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A drawing with a text for those who don't see it."""

    look: str
    told: str
    #: In pixels.
    height: float
    groups: Sequence[Group]


def _text(x: object, y: object, text: str, **other: object) -> Shape:
    return Shape(
        "text", {"x": x, "y": y, **{k.replace("_", "-"): v for k, v in other.items()}}, text
    )


def _line(axis: Axis, low: float, high: float, y: float) -> Shape:
    ends = {"x1": f"{axis.at(low)}%", "x2": f"{axis.at(high)}%", "y1": y, "y2": y}
    return Shape("line", ends)


def _circle(x: float, y: object, radius: int) -> Shape:
    return Shape("circle", {"cx": f"{x}%", "cy": y, "r": radius})


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
        """Whether a value isn't beyond the axis' end."""
        return value <= self.high * 1.001

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


def axis_of(values: Iterable[float], *, from_zero: bool = False) -> Axis:
    """Return an axis that holds these values: logarithmic where their range exceeds ten times."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = min(known), max(known)
    if high > _LOG_FROM * low and not from_zero:
        return Axis(low, high, is_log=True)
    low = 0.0 if from_zero else max(0.0, low - 0.1 * (high - low))
    return Axis(low, high if high > low else low * 1.1 or 1.0)


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
    colour: int = 0
    #: ``best``, ``doubt`` or nothing.
    look: str = ""
    #: The case that it opens; empty for none.
    key: str = ""


def dots(axis: Axis, items: Sequence[Dot], told: str, *, is_dense: bool = False) -> Drawing:
    """Return a row of dots with intervals on an axis, each with its label beside it.

    Where there is room, also above and below it.
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
    order = sorted(lifts, key=lambda place: items[place].look == "best")
    drawn = [
        _dot(axis, items[place], height // 2 + lifts[place], wide.get(place, ""), narrow.get(place))
        for place in order
    ]
    return Drawing(look="dots", told=told, height=height, groups=drawn)


def ticks(axis: Axis, unit: str) -> tuple[Drawing, str]:
    """Return the axis above a column of dots, and the lines behind them as a style's background."""
    known = [(axis.at(value), f"{value:.6g}") for value in axis.ticks()]
    words = [_text(f"{x}%", 12, word, text_anchor="middle") for x, word in known]
    background = ",".join(
        f"linear-gradient(var(--line),var(--line)) {x}% 0/1px 100% no-repeat" for x, _ in known
    )
    told = f"{unit}, {'logarithmic' if axis.is_log else 'linear'}"
    drawn = Drawing(look="ticks", told=told, height=16, groups=[Group(shapes=words)])
    return drawn, background or "none"


def _dot(axis: Axis, item: Dot, y: int, side: str, kept: str | None) -> Group:
    x = axis.at(item.value)
    shapes = []
    if item.low is not None and item.high is not None:
        shapes.append(_line(axis, item.low, item.high, y))
    if axis.holds(item.value):
        shapes.append(_circle(x, y, 6 if item.look == "best" else 4))
    else:
        shapes.append(
            _text(f"{x}%", y + 4, "\N{BLACK RIGHT-POINTING TRIANGLE}", **{"class": "off"})
        )
    if side:
        dx, dy, anchor = _SIDES[side]
        look = {"class": "keep"} if kept == side else {}
        beside = dict(zip(("left", "right"), _ends(axis, item), strict=True)).get(side, x)
        shapes.append(_text(f"{beside}%", y + dy, item.label, dx=dx, text_anchor=anchor, **look))
    return Group(
        shapes=shapes, look=f"d{item.colour} {item.look}".strip(), told=item.told, key=item.key
    )


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
    order = sorted(
        range(len(items)), key=lambda place: (items[place].look != "best", centres[place])
    )
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
    colour: int = 0


#: Of a drawing of lines, in pixels.
_HEIGHT: Final = 170
_LEAST_GAP: Final = 13.0


def lines(items: Sequence[Line], told: str, *, across: str, marks: Sequence[float] = ()) -> Drawing:
    """Return lines over a quantity, each named at its end.

    ``marks`` are the places that are named below, where only those have points; else round ones.
    """
    xs, ys = zip(*(point for item in items for point in item.points), strict=True)
    horizontal = Axis(min(xs), max(xs), is_log=bool(marks)) if max(xs) > min(xs) else axis_of(xs)
    vertical = axis_of(ys, from_zero=max(ys) <= _LOG_FROM * min(ys))

    def y_of(value: float) -> float:
        return round(100 - vertical.at(value), 2)

    frame = [_text("100%", "100%", across, dy=14, dx=8)]
    for value in vertical.ticks(4):
        y = f"{y_of(value)}%"
        frame.append(Shape("line", {"x1": 0, "x2": "100%", "y1": y, "y2": y}))
        frame.append(_text(-6, y, f"{value:.4g}", dy=4, text_anchor="end"))
    for value in marks or horizontal.ticks(5):
        x = f"{horizontal.at(value)}%"
        frame.append(_text(x, "100%", f"{value:.6g}", dy=14, text_anchor="middle"))
    groups = [Group(shapes=frame, look="frame")]
    ends = _spread([y_of(item.points[-1][1]) for item in items])
    for item, end in zip(items, ends, strict=True):
        places = [(horizontal.at(x), y_of(y)) for x, y in item.points]
        path = Shape("polyline", {"points": " ".join(f"{x},{y}" for x, y in places)})
        dots_ = [_circle(x, f"{y}%", 3) for x, y in places] if marks else []
        name = _text("100%", f"{end}%", item.label, dx=8, dy=4)
        groups.append(Group(shapes=[path, *dots_, name], look=f"d{item.colour}"))
    return Drawing(look="lines", told=told, height=_HEIGHT, groups=groups)


def _spread(places: Sequence[float]) -> list[float]:
    """Return places in percent of the height that are far enough apart for a line of text each."""
    gap = 100 * _LEAST_GAP / _HEIGHT
    spread = list(places)
    order = sorted(range(len(places)), key=places.__getitem__)
    for before, place in pairwise(order):
        spread[place] = max(spread[place], spread[before] + gap)
    over = max(0.0, spread[order[-1]] - 98) if order else 0.0
    return [round(place - over, 2) for place in spread]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a whole."""

    label: str
    share: float
    told: str
    colour: int = 0


#: A treemap's sides, for the shape of its parts and for the room of their names; pixels.
_MAP: Final = (1100.0, 220.0)
_NAMED_FROM: Final = (46.0, 16.0)


def treemap(items: Sequence[Part], told: str) -> Drawing:
    """Return rectangles as large as the parts' shares, the largest first, each with its name."""
    groups = []
    for item, (x, y, width, height) in _tiles(sorted(items, key=lambda item: -item.share)):
        places = {"x": x / _MAP[0], "y": y / _MAP[1]}
        sizes = {"width": width / _MAP[0], "height": height / _MAP[1]}
        box = {name: f"{share:.3%}" for name, share in (places | sizes).items()}
        letters = int((width - 8) / _CHARACTER)
        name = item.label if len(item.label) <= letters else f"{item.label[: letters - 1]}…"
        shapes = [Shape("rect", {"width": "100%", "height": "100%"})]
        if width >= _NAMED_FROM[0] and height >= _NAMED_FROM[1]:
            shapes.append(_text(6, 15, name))
        groups.append(Group(shapes=shapes, look=f"d{item.colour}", told=item.told, box=box))
    return Drawing(look="treemap", told=told, height=_MAP[1], groups=groups)


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
    colour: int = 0


def strips(items: Sequence[Spread], told: str, unit: str) -> Drawing:
    """Return the runs of cases, one case below the other on one axis: a line each, a dot at its
    median.
    """
    axis = axis_of(end for item in items for run in item.runs for end in run if end is not None)
    groups, y = [], 12
    for item in items:
        shapes = [_text(0, y, item.label)]
        for middle, low, high in item.runs:
            y += 7
            if low is not None and high is not None:
                shapes.append(_line(axis, low, high, y))
            shapes.append(_circle(axis.at(middle), y, 3))
        groups.append(Group(shapes=shapes, look=f"d{item.colour}"))
        y += 20
    marks = [
        _text(f"{axis.at(value)}%", y + 2, f"{value:.6g}", text_anchor="middle")
        for value in axis.ticks()
    ]
    groups.append(Group(shapes=marks, look="frame"))
    return Drawing(look="strips", told=f"{told}, in {unit}", height=y + 8, groups=groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A change with its interval, as shares; None where it isn't known."""

    change: float | None
    low: float | None
    high: float | None
    #: The smallest change that would have been seen.
    visible: float | None
    look: str
    told: str


#: Ends of intervals beyond this quantile are cut: one case of a hundred must not press all others
#: flat.
_SHOWN_QUANTILE: Final = 0.9
_LEAST_SPAN: Final = 0.05


@dataclass(frozen=True, slots=True)
class SpanAxis:
    """Changes around none; changes below the threshold are none."""

    reach: float
    threshold: float

    def at(self, change: float) -> float:
        """Return the place of a change in percent; one beyond the axis is placed at its end."""
        return round(50 + max(-1.0, min(1.0, change / self.reach)) * (_END - 50), 2)

    def ticks(self) -> tuple[Drawing, str]:
        """Return the axis, and the lines behind the changes."""
        words = [
            _text(
                f"{self.at(change)}%", 12, f"{change:+.0%}" if change else "0", text_anchor="middle"
            )
            for change in (-self.reach, -self.reach / 2, 0.0, self.reach / 2, self.reach)
        ]
        drawn = Drawing(
            look="ticks", told="change of time", height=16, groups=[Group(shapes=words)]
        )
        line = "linear-gradient(var(--quiet),var(--quiet)) 50% 0/1px 100% no-repeat"
        return drawn, line

    def draw(self, span: Span) -> Drawing:
        """Return a change with its interval, the band of those that are none, and the bracket of
        those that couldn't have been seen.
        """
        left, right = self.at(-self.threshold), self.at(self.threshold)
        band = {"x": f"{left}%", "width": f"{right - left:.2f}%", "y": 2, "height": 18}
        shapes = [Shape("rect", band)]
        if span.change is not None and span.visible is not None:
            ends = {"x1": f"{self.at(-span.visible)}%", "x2": f"{self.at(span.visible)}%"}
            shapes.append(Shape("line", ends | {"y1": 18, "y2": 18, "class": "visible"}))
        if span.low is not None and span.high is not None:
            ends = {"x1": f"{self.at(span.low)}%", "x2": f"{self.at(span.high)}%"}
            shapes.append(Shape("line", ends | {"y1": 10, "y2": 10}))
        if span.change is not None:
            shapes.append(_circle(self.at(span.change), 10, 5))
        return Drawing(
            look="spans", told=span.told, height=22, groups=[Group(shapes=shapes, look=span.look)]
        )


def span_axis(reaches: Sequence[float], threshold: float) -> SpanAxis:
    """Return an axis that most of these changes are on."""
    ordered = sorted(reaches)
    usual = ordered[int((len(ordered) - 1) * _SHOWN_QUANTILE)] if ordered else 0.0
    whole = max(usual, 2 * threshold, _LEAST_SPAN)
    step = 0.1 if whole <= 0.5 else 0.5
    return SpanAxis(math.ceil(whole / step - 1e-9) * step, threshold)
