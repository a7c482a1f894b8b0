"""The charts of a report as Vega-Lite specifications, without their data; the page and the pictures draw the same ones.

Every chart reads the data set ``rows`` (report/chart_rows.py). What the page may change is named in the specification's
``usermeta``: ``measure`` is the channel with the figure that can be relative and logarithmic. Its parameters say how
labels are put into lines: ``label_chars`` and ``legend_chars`` how long a line beside an axis or in a legend may be,
``label_lines`` how many lines the longest label has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import altair as alt

from orchestrator.report.chart_specs import LABEL_CHARS, ChartSpec, label_pattern

#: Okabe and Ito's colours, which people with any kind of colour vision tell apart; the black of the eight is a grey
#: here, so that it is seen on dark ground too.
PALETTE: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B3A125", "#8A8F98")
_SHAPES: Final = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"]


#: What tells two configurations apart often stands at the end of a label: it is put into lines and not cut.
_LINES: Final = "trim(replace(datum.label, regexp('{}', 'g'), '$1$2\\n'))"
_LABEL_LINES: Final = _LINES.format(label_pattern("' + label_chars + '", "\\n"))
_LEGEND_LINES: Final = _LINES.format(label_pattern("' + legend_chars + '", "\\n"))
#: Lines begin at their tick: what stands in the middle of it has half of the lines that there may be above.
_ABOVE: Final = f"pad('', floor((label_lines - length(split({_LABEL_LINES}, '\\n'))) / 2), '\\n')"
_LINE_HALF: Final = 7
#: Of a line, in pixels.
_LABEL_LIMIT: Final = 400


def make_charts() -> tuple[ChartSpec, ...]:
    """Return all charts, in the page's order."""
    return (
        _latency(),
        _threads(),
        _efficiency(),
        _delegates(),
        _pareto("size-latency", "size", "latency", "Model size against latency"),
        _pareto("accuracy-size", "size", "accuracy", "Accuracy against model size"),
        _pareto("accuracy-latency", "latency", "accuracy", "Accuracy against latency"),
        _operators(),
        _starts(),
        _memory(),
        _sustained(),
    )


def _data() -> alt.NamedData:
    return alt.NamedData(name="rows")


def _device_colour() -> alt.Color:
    legend = alt.Legend(orient="top", columns=2, labelExpr=f"split({_LEGEND_LINES}, '\\n')", labelLimit=_LABEL_LIMIT)
    return alt.Color("device:N", title=None, scale=alt.Scale(range=list(PALETTE)), legend=legend)


def _finish(
    chart: alt.Chart | alt.LayerChart | alt.FacetChart,
    *,
    measure: str = "",
    height: int | None = None,
    lines: tuple[str, ...] = (),
) -> Mapping[str, Any]:
    """Return the specification; its height is fixed, or so many lines of the fields in ``lines`` as there are."""
    properties: dict[str, Any] = {
        "width": "container",
        "autosize": alt.AutoSizeParams(type="fit-x", contains="padding"),
    }
    if height is not None:
        properties["height"] = height
    spec: dict[str, Any] = chart.properties(**properties).to_dict()
    # The page brings its own colours, light or dark, and says itself which Vega-Lite it has.
    for name in ("config", "$schema"):
        spec.pop(name, None)
    values = {"label_chars": LABEL_CHARS, "legend_chars": LABEL_CHARS, "label_lines": 1}
    params = [{"name": name, "value": value} for name, value in values.items()]
    return spec | {"params": params, "usermeta": {"measure": measure, "lines": list(lines)}}


def _x(field: str, title: str, *, zero: bool = True) -> alt.X:
    return alt.X(f"{field}:Q", title=title, axis=alt.Axis(tickCount=8), scale=alt.Scale(type="linear", zero=zero))


def _y(field: str, title: str, *, zero: bool = True, padding: int = 0) -> alt.Y:
    return alt.Y(f"{field}:Q", title=title, scale=alt.Scale(type="linear", zero=zero, padding=padding))


def _names(field: str) -> alt.Y:
    return alt.Y(
        f"{field}:N",
        title=None,
        sort=alt.EncodingSortField("order", op="min"),
        axis=alt.Axis(
            labelExpr=f"split({_ABOVE} + {_LABEL_LINES}, '\\n')",
            labelLimit=_LABEL_LIMIT,
            labelOffset=alt.ExprRef(f"-(label_lines - 1) * {_LINE_HALF}"),
        ),
    )


_CASE_TOOLTIP: Final = ["model:N", "device:N", "configuration:N"]


def _latency() -> ChartSpec:
    base = alt.Chart(_data()).encode(
        y=_names("configuration"),
        yOffset=alt.YOffset("device:N"),
        color=_device_colour(),
        tooltip=[*_CASE_TOOLTIP, alt.Tooltip("value:Q", format=".4g"), "low:Q", "high:Q", "delegate_truth:N"],
    )
    interval = base.mark_rule(strokeWidth=2).encode(x=_x("low", "median latency in ms"), x2="high:Q")
    point = base.mark_point(filled=True, size=70, opacity=1).encode(x=_x("value", "median latency in ms"))
    chart = alt.layer(interval, point)
    spec = _finish(chart, measure="x", lines=("configuration", "device"))
    return ChartSpec(
        name="latency",
        title="Latency by configuration and device",
        description="Each point is the median latency of one configuration on one device, its line the 95 % interval. "
        "Only figures of the delegate that was asked for. Of a language model it is a token's time: less is faster.",
        dataset="cases",
        by="model",
        spec=spec,
    )


def _threads() -> ChartSpec:
    base = alt.Chart(_data()).encode(
        x=alt.X("threads:Q", title="threads", axis=alt.Axis(tickMinStep=1, format="d"), scale=alt.Scale(zero=False)),
        y=_y("value", "median latency in ms"),
        color=_device_colour(),
        detail="group:N",
        tooltip=[*_CASE_TOOLTIP, "threads:Q", alt.Tooltip("value:Q", format=".4g")],
    )
    line = base.mark_line(strokeWidth=2).encode(
        strokeDash=alt.StrokeDash("delegate:N", title=None, legend=alt.Legend(orient="top"))
    )
    chart = alt.layer(line, base.mark_point(filled=True, size=60, opacity=1))
    return ChartSpec(
        name="threads",
        title="Latency by number of threads",
        description="Median latency of cases that differ in nothing but the number of threads; of a language model the "
        "time of one token.",
        dataset="threads",
        by="model",
        spec=_finish(chart, measure="y", height=260),
    )


def _efficiency() -> ChartSpec:
    base = alt.Chart(_data()).encode(
        x=alt.X("threads:Q", title="threads", axis=alt.Axis(tickMinStep=1, format="d"), scale=alt.Scale(zero=False)),
        y=alt.Y("efficiency:Q", title="efficiency per thread in %", scale=alt.Scale(domainMin=0)),
        color=_device_colour(),
        detail="group:N",
        tooltip=[*_CASE_TOOLTIP, "threads:Q", alt.Tooltip("efficiency:Q", format=".0f")],
    )
    ideal = alt.Chart().mark_rule(strokeDash=[4, 4], opacity=0.7).encode(y=alt.YDatum(100))
    line = base.mark_line(strokeWidth=2).encode(
        strokeDash=alt.StrokeDash("delegate:N", title=None, legend=alt.Legend(orient="top"))
    )
    chart = alt.layer(ideal, line, base.mark_point(filled=True, size=60, opacity=1))
    return ChartSpec(
        name="efficiency",
        title="Efficiency per thread",
        description="Speed-up over the fewest threads, divided by how many times as many threads it took; 100 % is "
        "ideal.",
        dataset="threads",
        by="model",
        spec=_finish(chart, height=260),
    )


def _delegates() -> ChartSpec:
    base = alt.Chart(_data()).encode(
        y=_names("configuration"),
        yOffset=alt.YOffset("device:N"),
        tooltip=[*_CASE_TOOLTIP, alt.Tooltip("speed_up:Q", format=".2f"), "delegate_truth:N", "fallen_off:N"],
    )
    bar = base.mark_bar(height={"band": 0.75}).encode(x=_x("speed_up", "speed-up over the CPU"), color=_device_colour())
    even = alt.Chart().mark_rule(strokeDash=[4, 4]).encode(x=alt.XDatum(1))
    spec = _finish(alt.layer(bar, even), lines=("configuration", "device"))
    return ChartSpec(
        name="delegates",
        title="Speed-up of delegates over the CPU",
        description="How many times as fast each delegate is as the fastest trusted CPU configuration that was "
        "measured alike on the same device; left of the dashed line it is slower.",
        dataset="delegates",
        by="model",
        spec=spec,
    )


_AXES: Final = {
    "size": ("size_mb", "model size in MB"),
    "latency": ("value", "median latency in ms"),
    "accuracy": ("accuracy", "accuracy in %"),
}


_LABEL_SIDES: Final[tuple[tuple[Literal["left", "right"], int, str], ...]] = (("left", 8, "<="), ("right", -8, ">"))


def _pareto(name: str, x: Literal["size", "latency"], y: Literal["latency", "accuracy"], title: str) -> ChartSpec:
    (x_field, x_title), (y_field, y_title) = _AXES[x], _AXES[y]
    base = alt.Chart(_data()).encode(
        x=_x(x_field, x_title), y=_y(y_field, y_title, zero=y != "accuracy", padding=18 if y == "accuracy" else 0)
    )
    front_field = f"front_{name.replace('-', '_')}"
    is_front = alt.FieldEqualPredicate(field=front_field, equal=True)
    front = (
        base.mark_line(interpolate="step-after", strokeDash=[5, 3], strokeWidth=1.5)
        .encode(order=f"{x_field}:Q")
        .transform_filter(is_front)
    )
    tooltip = [
        *_CASE_TOOLTIP,
        alt.Tooltip("size_mb:Q", format=".2f"),
        alt.Tooltip("value:Q", format=".4g"),
        "accuracy:Q",
    ]
    point = base.mark_point(filled=True, size=90, opacity=0.9).encode(
        color=alt.Color(
            "delegate:N", title=None, scale=alt.Scale(range=list(PALETTE)), legend=alt.Legend(orient="top", columns=4)
        ),
        shape=alt.Shape("delegate:N", title=None, scale=alt.Scale(range=_SHAPES)),
        tooltip=tooltip,
    )
    # A name stands on that side of its point where there is room for it.
    labels = [
        base.mark_text(align=align, dx=dx, dy=-7, limit=170, fontSize=11)
        .encode(text="model:N")
        .transform_joinaggregate(furthest=f"max({x_field})")
        .transform_filter(is_front)
        .transform_filter(f"datum['{x_field}'] {side} datum.furthest / 2")
        for align, dx, side in _LABEL_SIDES
    ]
    return ChartSpec(
        name=name,
        title=title,
        description="Each point is one configuration of one model on this device. The dashed line joins those that no "
        "other beats in both figures.",
        dataset="pareto",
        by="device",
        needs=(x_field, y_field),
        spec=_finish(alt.layer(front, point, *labels), height=320),
    )


def _operators() -> ChartSpec:
    chart = (
        alt.Chart(_data())
        .mark_bar(height=12)
        .encode(
            y=_names("profile"),
            x=alt.X("sum(time):Q", title="ms of one inference"),
            color=alt.Color(
                "type:N",
                title=None,
                scale=alt.Scale(range=list(PALETTE)),
                sort=alt.EncodingSortField("type_order", op="min"),
                legend=alt.Legend(orient="top", columns=4, labelLimit=220),
            ),
            order=alt.Order("min(type_order):Q"),
            tooltip=["profile:N", "type:N", "where:N", alt.Tooltip("sum(time):Q", format=".4g")],
        )
    )
    return ChartSpec(
        name="operators",
        title="Where the time goes",
        description="Time of one profiled inference by type of operator; a partition that a delegate ran whole is one "
        "part. Types below 2 % of each profile, and those beyond the largest, are put together.",
        dataset="operators",
        by="model",
        spec=_finish(chart, lines=("profile",)),
    )


def _grouped_bars(name: str, title: str, description: str, dataset: str, unit: str) -> ChartSpec:
    chart = (
        alt.Chart(_data())
        .mark_bar()
        .encode(
            y=_names("place"),
            yOffset=alt.YOffset("part:N", sort=alt.EncodingSortField("part_order", op="min")),
            x=_x("amount", unit),
            color=alt.Color(
                "part:N",
                title=None,
                scale=alt.Scale(range=list(PALETTE)),
                sort=alt.EncodingSortField("part_order", op="min"),
                legend=alt.Legend(orient="top", columns=4),
            ),
            tooltip=["place:N", "part:N", alt.Tooltip("amount:Q", format=".4g")],
        )
    )
    spec = _finish(chart, lines=("place", "part"))
    return ChartSpec(name=name, title=title, description=description, dataset=dataset, by="model", spec=spec)


def _starts() -> ChartSpec:
    return _grouped_bars(
        "starts",
        "Initialisation, first inference, steady inference",
        "Medians over the invocations that the latency comes from.",
        "starts",
        "ms",
    )


def _memory() -> ChartSpec:
    return _grouped_bars(
        "memory",
        "Memory",
        "Memory after initialisation, overall and at its peak, as the programs print it.",
        "memory",
        "MB",
    )


def _sustained() -> ChartSpec:
    base = alt.Chart(_data()).encode(
        x=alt.X("at:Q", title="seconds since the start"),
        y=_y("value", "latency in ms"),
        color=_device_colour(),
        detail="group:N",
        tooltip=[*_CASE_TOOLTIP, alt.Tooltip("at:Q", format=".0f"), alt.Tooltip("value:Q", format=".4g")],
    )
    chart = alt.layer(
        base.mark_line(strokeWidth=1.5).encode(
            strokeDash=alt.StrokeDash("configuration:N", title=None, legend=alt.Legend(orient="top", columns=2))
        ),
        base.mark_point(filled=True, size=18, opacity=0.7),
    )
    return ChartSpec(
        name="sustained",
        title="Latency while it runs on and on",
        description="Invocations directly one after the other: a line that rises is a phone that gets hot.",
        dataset="sustained",
        by="model",
        spec=_finish(chart, measure="y", height=280),
    )
