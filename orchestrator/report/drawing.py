"""Drawings of pages as SVG: dots on an axis, lines over a quantity or over nights, strips and
treemaps.

Places are percentages of the drawing's width: drawings fill their width, and text keeps its size.
Colours are classes of the style sheet: ``d0`` to ``d7``. A label that would cover another is left
out; the title of its mark has the name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from orchestrator.records import frozen
from orchestrator.tables.escapes import display_width
from orchestrator.tables.html import Html, link, plain, tag
from orchestrator.units import three_digits

#: A range with a larger factor between its ends is drawn on a logarithmic axis.
_LOG_FROM: Final = 10.0
#: The axis' ends in percent of the drawing.
_BEGIN: Final = 2.5
_END: Final = 97.5
#: The width of a row of dots for which labels are placed, in pixels; narrower ones have none.
_WIDTH: Final = 560.0
_CHARACTER: Final = 6.3
_DOT: Final = 7.0
_DOTS_HEIGHT: Final = 24
_CENTRED: Final = ' text-anchor="middle"'
COLOURS: Final = 8


def _drawing(css_class: str, description: str, height: float, parts: Iterable[str]) -> Html:
    """Return a drawing ``height`` pixels high, with a description for screen readers."""
    role = "group" if css_class.startswith("dots") else "img"
    label = plain(description)
    head = f'<svg class="{css_class}" height="{height:g}" role="{role}" aria-label="{label}">'
    return Html(f"{head}{''.join(parts)}</svg>")


def _group(shapes: Iterable[str], css_class: str, title: str = "", key: str = "") -> str:
    """Return a group of shapes with a title for tooltip and screen readers; ``key`` is the case
    that it opens.
    """
    content = (tag("title", plain(title)) if title else "") + "".join(shapes)
    if not key:
        return tag("g", content, css_class)
    return link(f"#c-{key}", content, css_class, tabindex="-1", **{"aria-label": title})


def _text(x: str, y: str, text: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}"{more}>{plain(text)}</text>'


def _line(x1: str, x2: str, y1: str, y2: str = "", css_class: str = "") -> str:
    kind = f' class="{css_class}"' if css_class else ""
    return f'<line x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2 or y1}"{kind}/>'


def _circle(x: float, y: str, radius: int) -> str:
    return f'<circle cx="{x}%" cy="{y}" r="{radius}"/>'


def _curve(path: str, box: str = "0 0 100 100") -> str:
    """Return a path that is stretched to its box."""
    return f'<svg viewBox="{box}" preserveAspectRatio="none"><path d="{path}"/></svg>'


#: The lower and the upper end of an interval.
Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis that places values in percent of a drawing's width."""

    low: float
    high: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """Return the place of a value; outside of the axis that of its end."""
        if self.is_log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        place = _BEGIN + min(1.0, max(0.0, share)) * (_END - _BEGIN)
        return math.floor(place * 100 + 0.5) / 100

    def holds(self, value: float) -> bool:
        """Whether a value isn't beyond the axis' ends."""
        margin = (self.high - self.low) / 1000
        return self.low - margin <= value <= self.high + margin

    def ticks(self, limit: int = 6) -> list[float]:
        """Return at most ``limit`` round values on the axis."""
        for steps in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)) if self.is_log else ():
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            values = (step * 10.0**power for power in range(first, last + 1) for step in steps)
            ticks = [value for value in values if self.low <= value <= self.high]
            if 1 < len(ticks) <= limit:
                return ticks
        span = self.high - self.low
        size = 10.0 ** math.floor(math.log10(span / limit))
        step = next(size * n for n in (1, 2, 5, 10, 20) if span / (size * n) <= limit)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * n for n in range(first, last + 1)]

    def span(self, low: float, high: float, y: float, css_class: str = "") -> str:
        """Return a line from one value to another."""
        return _line(f"{self.at(low)}%", f"{self.at(high)}%", f"{y:g}", css_class=css_class)


def axis_of(values: Iterable[float], *, from_zero: bool = False) -> Axis:
    """Return an axis for these values: logarithmic where their ratio exceeds ten."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive), max(positive)
    if high > _LOG_FROM * low and not from_zero:
        return Axis(low, high, is_log=True)
    low = 0.0 if from_zero else max(0.0, low - 0.1 * (high - low))
    return Axis(low, high if high > low else low * 1.1 or 1.0)


#: Changes beyond this quantile are cut: a few outliers must not shrink all others.
_SHOWN_QUANTILE: Final = 0.9
_LEAST_CHANGE: Final = 0.05


def change_axis(changes: Sequence[float], threshold: float) -> Axis:
    """Return an axis around 0 that holds most of these changes, as shares."""
    ordered = sorted(map(abs, changes))
    usual = ordered[math.ceil((len(ordered) - 1) * _SHOWN_QUANTILE)] if ordered else 0.0
    extent = max(usual, 2 * threshold, _LEAST_CHANGE)
    step = 0.1 if extent <= 0.5 else 0.5
    reach = math.ceil(extent / step - 1e-9) * step
    return Axis(-reach, reach)


@frozen
class Dot:
    """A figure with its interval."""

    value: float
    interval: Ends | None = None
    label: str = ""
    #: The title for tooltip and screen readers.
    told: str
    #: Classes of the style sheet: its colour, and ``best``, ``doubt`` or nothing.
    look: str = ""
    #: The case that it opens; empty for none.
    key: str = ""
    #: The ends of a thin line below it, or None.
    bracket: Ends | None = None

    @property
    def is_best(self) -> bool:
        """Whether it wins."""
        return self.look.endswith("best")


def dots(axis: Axis, items: Sequence[Dot], description: str, *, band: Ends | None = None) -> Html:
    """Return a row of dots with intervals on an axis, with labels beside them where there is room,
    and in a list below for narrow rows; ``band`` are the ends of a background.
    """
    ends = [_ends(axis, item) for item in items]
    sides = _label_sides(items, ends)
    drawn = []
    if band is not None:
        x, end = map(axis.at, band)
        drawn = [f'<rect x="{x}%" width="{end - x:.2f}%" y="0" height="{_DOTS_HEIGHT}"/>']
    # The best is drawn above all others.
    for place in sorted(range(len(items)), key=lambda place: items[place].is_best):
        drawn.append(_dot(axis, items[place], ends[place], sides.get(place, "")))
    return Html(_drawing("dots", description, _DOTS_HEIGHT, drawn) + _labels_below(items))


def _labels_below(items: Iterable[Dot]) -> str:
    """Return the list of labels with figures in the order of the dots, for narrow screens."""
    names = [
        tag("li", f"{plain(item.label)} {three_digits(item.value)}", item.look)
        for item in sorted(items, key=lambda item: item.value)
        if item.label
    ]
    return tag("ul", "".join(names), "below") if names else ""


def ticks(axis: Axis, unit: str, words: Callable[[float], str] = "{:.6g}".format) -> Html:
    """Return the axis above a column of dots."""
    description = f"{unit}, {'logarithmic' if axis.is_log else 'linear'}"
    return _drawing("ticks", description, 16, _marks(axis, "12", words))


def _marks(axis: Axis, y: str, words: Callable[[float], str] = "{:.6g}".format) -> Iterator[str]:
    """Yield the texts of a horizontal axis."""
    for value in axis.ticks():
        yield _text(f"{axis.at(value)}%", y, words(value), _CENTRED)


def grid_lines(axis: Axis) -> str:
    """Return the lines behind a column of dots as a style's background."""
    lines = (
        f"linear-gradient(var(--line),var(--line)) {axis.at(value)}% 0/1px 100% no-repeat"
        for value in axis.ticks()
    )
    return ",".join(lines) or "none"


def _dot(axis: Axis, item: Dot, ends: tuple[float, float, float], side: str) -> str:
    low, x, high = ends
    y = _DOTS_HEIGHT // 2
    shapes = []
    if item.bracket is not None:
        shapes.append(axis.span(*item.bracket, y + 8, "visible"))
    if item.interval is not None:
        shapes.append(_line(f"{low}%", f"{high}%", str(y)))
    low, high = min(low, x), max(x, high)
    if axis.holds(item.value):
        shapes.append(_circle(x, str(y), 6 if item.is_best else 4))
    else:
        mark = "\N{BLACK LEFT-POINTING TRIANGLE}"
        if item.value > axis.low:
            mark = "\N{BLACK RIGHT-POINTING TRIANGLE}"
        shapes.append(_text(f"{x}%", str(y + 4), mark, ' class="off"'))
    if side == "right":
        shapes.append(_text(f"{high}%", str(y + 4), item.label, ' dx="9" text-anchor="start"'))
    elif side == "left":
        shapes.append(_text(f"{low}%", str(y + 4), item.label, ' dx="-9" text-anchor="end"'))
    return _group(shapes, item.look, item.told, item.key)


def _ends(axis: Axis, item: Dot) -> tuple[float, float, float]:
    """Return the places of a dot's lower end, the dot and its upper end, in percent."""
    x = axis.at(item.value)
    low, high = map(axis.at, item.interval or (item.value, item.value))
    return low, x, high


def _label_sides(
    items: Sequence[Dot], ends: Sequence[tuple[float, float, float]]
) -> dict[int, str]:
    """Return the side of the dot for each label that covers no other, placing the best first."""
    spans = [
        (min(low, x) * _WIDTH / 100 - _DOT, max(x, high) * _WIDTH / 100 + _DOT)
        for low, x, high in ends
    ]
    taken = list(spans)
    sides: dict[int, str] = {}
    for place in sorted(range(len(items)), key=lambda place: (not items[place].is_best, place)):
        low, high = spans[place]
        long = display_width(items[place].label) * _CHARACTER
        for side, begin in (("right", high + 2), ("left", low - 2 - long)) if long else ():
            end = begin + long
            if begin >= 0 and end <= _WIDTH and all(end < a or begin > b for a, b in taken):
                taken.append((begin, end))
                sides[place] = side
                break
    return sides


@frozen
class Point:
    """A point of a line, with its interval where it is known."""

    x: float
    y: float
    interval: Ends | None = None
    told: str = ""
    look: str = ""


@frozen
class Line:
    """A line with its name at its right end."""

    points: Sequence[Point]
    label: str = ""
    look: str


@frozen
class Mark:
    """An event: a vertical line with a label."""

    x: float
    told: str
    label: str = ""
    look: str


@frozen
class Across:
    """The quantity on the horizontal axis of lines."""

    name: str = ""
    #: The values with labels, where only these have points, which are marked; else empty, and round
    #: values have labels.
    words: Sequence[tuple[float, str]] = ()
    is_log: bool = False
    #: A line is broken where its points are further apart.
    break_at: float = math.inf


#: Of lines, in pixels.
_LINES_HEIGHT: Final = 170
_LEAST_GAP: Final = 13.0


def lines(
    items: Sequence[Line],
    description: str,
    across: Across,
    *,
    marks: Sequence[Mark] = (),
    vertical: Axis | None = None,
) -> Html:
    """Return lines over a quantity, each named at its end."""
    points = [point for item in items for point in item.points]
    xs, ys = [point.x for point in points], [point.y for point in points]
    x_axis = Axis(min(xs), max(xs), across.is_log) if max(xs) > min(xs) else axis_of(xs)
    y_axis = vertical or axis_of(ys, from_zero=max(ys) <= _LOG_FROM * min(ys))

    def y_place(value: float) -> str:
        return f"{100 - y_axis.at(value):.2f}%"

    frame = [_text("100%", "100%", across.name, ' dx="8" dy="14"')]
    for value in y_axis.ticks(4):
        frame.append(_line("0", "100%", y_place(value)))
        frame.append(_text("-6", y_place(value), f"{value:.4g}", ' dy="4" text-anchor="end"'))
    for value, word in across.words or [(value, f"{value:.6g}") for value in x_axis.ticks(5)]:
        frame.append(_text(f"{x_axis.at(value)}%", "100%", word, f' dy="14"{_CENTRED}'))
    groups = [_group(frame, "frame")]
    for mark in marks:
        x = f"{x_axis.at(mark.x)}%"
        more = ' dx="-4" text-anchor="end"' if x_axis.at(mark.x) > 60 else ' dx="4"'
        shapes = [_line(x, x, "0", "100%"), _text(x, "10", mark.label, more)]
        groups.append(_group(shapes, mark.look, mark.told))
    ends = _spaced_places([100 - y_axis.at(item.points[-1].y) for item in items])
    for item, end in zip(items, ends, strict=True):
        shapes = []
        for part in _unbroken(item.points, across.break_at):
            places = [f"{x_axis.at(p.x)},{100 - y_axis.at(p.y):.2f}" for p in part]
            shapes.append(_curve(f"M{' '.join(places)}"))
        for point in item.points if across.words else ():
            point_x = x_axis.at(point.x)
            dot = [_circle(point_x, y_place(point.y), 3)]
            if point.interval is not None:
                dot.append(_line(f"{point_x}%", f"{point_x}%", *map(y_place, point.interval)))
            shapes.append(_group(dot, point.look, point.told))
        shapes.append(_text("100%", f"{end}%", item.label, ' dx="8" dy="4"'))
        groups.append(_group(shapes, item.look))
    return _drawing("lines", description, _LINES_HEIGHT, groups)


def _unbroken(points: Sequence[Point], break_at: float) -> Iterator[Sequence[Point]]:
    """Yield the parts of a line that have no gap."""
    begin = 0
    for place, (before, after) in enumerate(pairwise(points), start=1):
        if after.x - before.x > break_at:
            yield points[begin:place]
            begin = place
    yield points[begin:]


def _spaced_places(places: Sequence[float]) -> list[float]:
    """Return places in percent of the height, moved apart by at least a line of text."""
    gap = 100 * _LEAST_GAP / _LINES_HEIGHT
    spaced = list(places)
    order = sorted(range(len(places)), key=places.__getitem__)
    for before, place in pairwise(order):
        spaced[place] = max(spaced[place], spaced[before] + gap)
    over = max(0.0, spaced[order[-1]] - 98) if order else 0.0
    return [round(place - over, 2) for place in spaced]


#: Half the height of a sparkline, as the logarithm of a ratio; figures beyond are cut.
_SPARK_REACH: Final = 0.2


def sparkline(figures: Sequence[float], changes: Iterable[tuple[int, str]], break_at: int) -> Html:
    """Return figures as a small line; all such lines have one scale, and lower is less.

    NaN is no figure; ``changes`` are the places of vertical lines and their classes.
    """
    logs = {place: math.log(figure) for place, figure in enumerate(figures) if figure > 0}
    centre = (min(logs.values()) + max(logs.values())) / 2 if logs else 0.0
    axis = Axis(centre - _SPARK_REACH, centre + _SPARK_REACH)
    span = len(figures) + 1
    # Steps from one figure to the next are shorter than their places.
    path, last_place, last_y = "", -math.inf, 0
    for place, log in logs.items():
        y = round(100 - axis.at(log))
        is_near = place - last_place <= break_at
        path += f" {place - last_place} {y - last_y}" if is_near else f"M{place} {y}l0 0"
        last_place, last_y = place, y
    parts = [_curve(path, f"-1 0 {span} 100")] if path else []
    for place, css_class in changes:
        x = f"{100 * (place + 0.5) / span:.2f}%"
        parts.append(_line(x, x, "0", "100%", css_class=css_class))
    return Html(f'<svg class="spark" aria-hidden="true">{"".join(parts)}</svg>')


@frozen
class Part:
    """A part of a whole."""

    label: str
    share: float
    told: str
    look: str = ""


#: A treemap's width and height in pixels, and the least size of a part with a name.
_MAP: Final = (1100.0, 220.0)
_NAMED_FROM: Final = (46.0, 16.0)


def treemap(items: Iterable[Part], description: str) -> Html:
    """Return a treemap: rectangles with areas by share, the largest first, with names."""
    groups = []
    ordered = sorted((item for item in items if item.share > 0), key=lambda item: -item.share)
    for item, x, y, width, height in _tiles(ordered, 0, 0, *_MAP):
        letters = int((width - 8) / _CHARACTER)
        name = item.label if len(item.label) <= letters else f"{item.label[: letters - 1]}…"
        shapes = [tag("title", plain(item.told)), '<rect width="100%" height="100%"/>']
        if width >= _NAMED_FROM[0] and height >= _NAMED_FROM[1]:
            shapes.append(_text("6", "15", name))
        box = {"x": x / _MAP[0], "y": y / _MAP[1]}
        box |= {"width": width / _MAP[0], "height": height / _MAP[1]}
        places = {key: f"{share:.3%}" for key, share in box.items()}
        groups.append(tag("svg", "".join(shapes), item.look, **places))
    return _drawing("treemap", description, _MAP[1], groups)


def _tiles(
    items: Sequence[Part], x: float, y: float, width: float, height: float
) -> Iterator[tuple[Part, float, float, float, float]]:
    """Yield the parts with their rectangles, cutting the longer side in two recursively."""
    if len(items) == 1:
        yield items[0], x, y, width, height
    if len(items) < 2:
        return
    whole, first, cut = sum(item.share for item in items), items[0].share, 1
    while cut < len(items) - 1 and 2 * first + items[cut].share <= whole:
        first += items[cut].share
        cut += 1
    if width >= height:
        first_width = width * first / whole
        yield from _tiles(items[:cut], x, y, first_width, height)
        yield from _tiles(items[cut:], x + first_width, y, width - first_width, height)
    else:
        first_height = height * first / whole
        yield from _tiles(items[:cut], x, y, width, first_height)
        yield from _tiles(items[cut:], x, y + first_height, width, height - first_height)


@frozen
class Strip:
    """The runs of a case: each with its figure, and the ends of its inferences or None."""

    runs: Sequence[tuple[float, Ends | None]]
    label: str
    look: str = ""


def strips(items: Sequence[Strip], description: str, unit: str) -> Html:
    """Return the runs of cases on one axis: a line for each run, with a dot at its figure."""
    figures = [run for item in items for run in item.runs]
    axis = axis_of(end for figure, ends in figures for end in (figure, *(ends or ())))
    groups, y = [], 12
    for item in items:
        shapes = [_text("0", str(y), item.label)]
        for figure, ends in item.runs:
            y += 7
            if ends is not None:
                shapes.append(axis.span(*ends, y))
            shapes.append(_circle(axis.at(figure), str(y), 3))
        groups.append(_group(shapes, item.look))
        y += 20
    frame = _group(_marks(axis, str(y + 2)), "frame")
    return _drawing("strips", f"{description}, in {unit}", y + 8, [*groups, frame])
