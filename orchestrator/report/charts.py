"""The charts of a report as Vega-Lite specifications, without their data.

Every chart reads the data set ``rows`` (report/chart_rows.py). What the page may change is named in
the specification's ``usermeta``: ``measure`` is the channel with the figure that can be relative
and logarithmic, ``lines`` are the fields that the height follows. The parameters ``label_chars``
and ``legend_chars`` say how long a line beside an axis or in a legend may be, ``label_lines`` how
many lines the longest label has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

#: Okabe and Ito's colours, which people with any kind of colour vision tell apart; the black of the
#: eight is a grey here, so that it is seen on dark ground too.
_PALETTE: Final = [
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#B3A125",
    "#8A8F98",
]
_SHAPES: Final = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"]
#: Half a line of a label, in pixels.
_LINE_HALF: Final = 7
#: Characters of one line of a label; the page, which may be narrow, has its own number.
_LABEL_CHARS: Final = 56
#: Of a label's line, in pixels.
_LABEL_LIMIT: Final = 400
#: The lines of a label: broken between words, or within one that is too long. What tells two
#: configurations apart often stands at the end, so labels aren't cut.
_LINE: Final = "(.{{1,{0}}})(?: +|{1}|$)|(.{{{0}}})"
_SPLIT: Final = "trim(replace(datum.label, regexp('{}', 'g'), '$1$2\\n'))"
_LABEL: Final = _SPLIT.format(_LINE.format("' + label_chars + '", "\\n"))
_LEGEND: Final = _SPLIT.format(_LINE.format("' + legend_chars + '", "\\n"))
#: Lines begin at their tick: half of the lines that there may be stand above the middle.
_ABOVE: Final = f"pad('', floor((label_lines - length(split({_LABEL}, '\\n'))) / 2), '\\n')"

Spec = dict[str, Any]
Row = TypeVar("Row", bound=Mapping[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart."""

    name: str
    title: str
    #: What it shows, for people who don't see it, and as the text under it.
    description: str
    #: Which data set of report/chart_rows.py it draws.
    dataset: str
    spec: Mapping[str, Any]
    #: The field that one drawing shows one value of.
    by: str = "model"
    #: Fields without which a row can't be drawn.
    needs: tuple[str, ...] = ()

    def drawable(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that can be drawn: the accuracy charts need accuracies, for example."""
        return [row for row in rows if all(row[field] is not None for field in self.needs)]


def _number(field: str, title: str = "", **other: object) -> Spec:
    return {"field": field, "type": "quantitative"} | ({"title": title} if title else {}) | other


def _name(field: str, **other: object) -> Spec:
    return {"field": field, "type": "nominal", **other}


def _scaled(field: str, title: str, *, zero: bool = True, padding: int = 0) -> Spec:
    return _number(field, title, scale={"type": "linear", "zero": zero, "padding": padding})


def _across(field: str, title: str) -> Spec:
    return _number(field, title, axis={"tickCount": 8}, scale={"type": "linear", "zero": True})


def _coloured(field: str, *, columns: int = 4, sort: str = "", **legend: object) -> Spec:
    order = {"sort": {"field": sort, "op": "min"}} if sort else {}
    return _name(
        field,
        title=None,
        scale={"range": _PALETTE},
        legend={"orient": "top", "columns": columns, **legend},
    ) | (order)


def _dashed(field: str, **legend: object) -> Spec:
    return {"strokeDash": _name(field, title=None, legend={"orient": "top", **legend})}


def _labels(field: str) -> Spec:
    axis = {
        "labelExpr": f"split({_ABOVE} + {_LABEL}, '\\n')",
        "labelLimit": _LABEL_LIMIT,
        "labelOffset": {"expr": f"-(label_lines - 1) * {_LINE_HALF}"},
    }
    return _name(field, title=None, sort={"field": "order", "op": "min"}, axis=axis)


def _tooltip(*fields: str) -> list[Spec]:
    """Return what is shown of a mark: names, and figures as ``field:format`` (``field:`` without a
    format).
    """
    shown = []
    for text in fields:
        field, colon, form = text.partition(":")
        shown.append(
            _number(field, **({"format": form} if form else {})) if colon else _name(field)
        )
    return shown


def _case_tooltip(*fields: str) -> list[Spec]:
    return _tooltip("model", "device", "configuration", *fields)


def _mark(kind: str, encoding: Spec, *transform: Spec, **look: object) -> Spec:
    drawn: Spec = {"mark": {"type": kind, **look}, "encoding": encoding}
    return drawn | ({"transform": list(transform)} if transform else {})


def _ruler(axis: str, value: float, **look: object) -> Spec:
    return {"data": {"values": [{}]}} | _mark(
        "rule", {axis: {"datum": value}}, strokeDash=[4, 4], **look
    )


def _spec(
    *marks: Spec, measure: str = "", height: int | None = None, lines: Sequence[str] = ()
) -> Spec:
    """Return a specification of marks one above the other.

    Its height is fixed, or follows the fields in ``lines``.
    """
    drawn: Spec = marks[0] if len(marks) == 1 else {"layer": list(marks)}
    values = {"label_chars": _LABEL_CHARS, "legend_chars": _LABEL_CHARS, "label_lines": 1}
    return {
        "data": {"name": "rows"},
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        **drawn,
        **({"height": height} if height is not None else {}),
        "params": [{"name": name, "value": value} for name, value in values.items()],
        "usermeta": {"measure": measure, "lines": list(lines)},
    }


_DEVICE: Final = _coloured(
    "device", columns=2, labelExpr=f"split({_LEGEND}, '\\n')", labelLimit=_LABEL_LIMIT
)
_MEDIAN: Final = "median latency in ms"


def _latency() -> Spec:
    base = {
        "y": _labels("configuration"),
        "yOffset": _name("device"),
        "color": _DEVICE,
        "tooltip": _case_tooltip("value:.4g", "low:", "high:", "delegate_truth"),
    }
    interval = _mark(
        "rule", base | {"x": _across("low", _MEDIAN), "x2": {"field": "high"}}, strokeWidth=2
    )
    point = _mark("point", base | {"x": _across("value", _MEDIAN)}, filled=True, size=70, opacity=1)
    return _spec(interval, point, measure="x", lines=("configuration", "device"))


def _over_threads(y: Spec, tip: str, *below: Spec, measure: str = "") -> Spec:
    base = {
        "x": _number(
            "threads", "threads", axis={"tickMinStep": 1, "format": "d"}, scale={"zero": False}
        ),
        "y": y,
        "color": _DEVICE,
        "detail": _name("group"),
        "tooltip": _case_tooltip("threads:", tip),
    }
    line = _mark("line", base | _dashed("delegate"), strokeWidth=2)
    return _spec(
        *below,
        line,
        _mark("point", base, filled=True, size=60, opacity=1),
        measure=measure,
        height=260,
    )


def _delegates() -> Spec:
    encoding = {
        "y": _labels("configuration"),
        "yOffset": _name("device"),
        "tooltip": _case_tooltip("speed_up:.2f", "delegate_truth", "fallen_off"),
        "x": _across("speed_up", "speed-up over the CPU"),
        "color": _DEVICE,
    }
    bar = _mark("bar", encoding, height={"band": 0.75})
    return _spec(bar, _ruler("x", 1), lines=("configuration", "device"))


def _pareto(name: str, title: str, x: Spec, y: Spec) -> Chart:
    field = x["field"]
    on_front = {"filter": {"field": f"front_{name.replace('-', '_')}", "equal": True}}
    look: Spec = {"interpolate": "step-after", "strokeDash": [5, 3], "strokeWidth": 1.5}
    marks = [
        _mark("line", {"x": x, "y": y, "order": _number(field)}, on_front, **look),
        _mark(
            "point",
            {
                "x": x,
                "y": y,
                "color": _coloured("delegate"),
                "shape": _name("delegate", title=None, scale={"range": _SHAPES}),
                "tooltip": _case_tooltip("size_mb:.2f", "value:.4g", "accuracy:"),
            },
            filled=True,
            size=90,
            opacity=0.9,
        ),
    ]
    furthest = {"joinaggregate": [{"op": "max", "field": field, "as": "furthest"}]}
    # A name stands on that side of its point where there is room for it.
    for align, dx, side in (("left", 8, "<="), ("right", -8, ">")):
        where: list[Spec] = [
            furthest,
            on_front,
            {"filter": f"datum['{field}'] {side} datum.furthest / 2"},
        ]
        text = {"x": x, "y": y, "text": _name("model")}
        marks.append(_mark("text", text, *where, align=align, dx=dx, dy=-7, limit=170, fontSize=11))
    return Chart(
        name=name,
        title=title,
        description="Each point is one configuration of one model on this device. The dashed line joins those that no "
        "other beats in both figures.",
        dataset="pareto",
        by="device",
        needs=(field, y["field"]),
        spec=_spec(*marks, height=320),
    )


def _operators() -> Spec:
    encoding = {
        "y": _labels("profile"),
        "x": _number("time", "ms of one inference", aggregate="sum"),
        "color": _coloured("type", sort="type_order", labelLimit=220),
        "order": _number("type_order", aggregate="min"),
        "tooltip": [
            *_tooltip("profile", "type", "where"),
            _number("time", aggregate="sum", format=".4g"),
        ],
    }
    return _spec(_mark("bar", encoding, height=12), lines=("profile",))


def _parts(unit: str) -> Spec:
    encoding = {
        "y": _labels("place"),
        "yOffset": _name("part", sort={"field": "part_order", "op": "min"}),
        "x": _across("amount", unit),
        "color": _coloured("part", sort="part_order"),
        "tooltip": _tooltip("place", "part", "amount:.4g"),
    }
    return _spec(_mark("bar", encoding), lines=("place", "part"))


def _sustained() -> Spec:
    base = {
        "x": _number("at", "seconds since the start"),
        "y": _scaled("value", "latency in ms"),
        "color": _DEVICE,
        "detail": _name("group"),
        "tooltip": _case_tooltip("at:.0f", "value:.4g"),
    }
    line = _mark("line", base | _dashed("configuration", columns=2), strokeWidth=1.5)
    return _spec(
        line, _mark("point", base, filled=True, size=18, opacity=0.7), measure="y", height=280
    )


_SIZE: Final = _across("size_mb", "model size in MB")
_ACCURACY: Final = _scaled("accuracy", "accuracy in %", zero=False, padding=18)

#: All charts, in the page's order.
CHARTS: Final = (
    Chart(
        name="latency",
        title="Latency by configuration and device",
        description="Each point is the median latency of one configuration on one device, its line the 95 % interval. "
        "Only figures of the delegate that was asked for. Of a language model it is a token's time: less is faster.",
        dataset="cases",
        spec=_latency(),
    ),
    Chart(
        name="threads",
        title="Latency by number of threads",
        description="Median latency of cases that differ in nothing but the number of threads; of a language model the "
        "time of one token.",
        dataset="threads",
        spec=_over_threads(_scaled("value", _MEDIAN), "value:.4g", measure="y"),
    ),
    Chart(
        name="efficiency",
        title="Efficiency per thread",
        description="Speed-up over the fewest threads, divided by how many times as many threads it took; 100 % is "
        "ideal.",
        dataset="threads",
        spec=_over_threads(
            _number("efficiency", "efficiency per thread in %", scale={"domainMin": 0}),
            "efficiency:.0f",
            _ruler("y", 100, opacity=0.7),
        ),
    ),
    Chart(
        name="delegates",
        title="Speed-up of delegates over the CPU",
        description="How many times as fast each delegate is as the fastest trusted CPU configuration that was "
        "measured alike on the same device; left of the dashed line it is slower.",
        dataset="delegates",
        spec=_delegates(),
    ),
    _pareto("size-latency", "Model size against latency", _SIZE, _scaled("value", _MEDIAN)),
    _pareto("accuracy-size", "Accuracy against model size", _SIZE, _ACCURACY),
    _pareto("accuracy-latency", "Accuracy against latency", _across("value", _MEDIAN), _ACCURACY),
    Chart(
        name="operators",
        title="Where the time goes",
        description="Time of one profiled inference by type of operator; a partition that a delegate ran whole is one "
        "part. Types below 2 % of each profile, and those beyond the largest, are put together.",
        dataset="operators",
        spec=_operators(),
    ),
    Chart(
        name="starts",
        title="Initialisation, first inference, steady inference",
        description="Medians over the invocations that the latency comes from.",
        dataset="starts",
        spec=_parts("ms"),
    ),
    Chart(
        name="memory",
        title="Memory",
        description="Memory after initialisation, overall and at its peak, as the programs print it.",
        dataset="memory",
        spec=_parts("MB"),
    ),
    Chart(
        name="sustained",
        title="Latency while it runs on and on",
        description="Invocations directly one after the other: a line that rises is a phone that gets hot.",
        dataset="sustained",
        spec=_sustained(),
    ),
)
