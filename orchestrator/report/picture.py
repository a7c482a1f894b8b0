"""The first screen: each model's configurations on each phone as dots with intervals, and who wins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.records.case import grouped
from orchestrator.records.parity import Outputs
from orchestrator.report.charts import colour_of
from orchestrator.report.drawing import Axis, Dot, axis_of, dots, grid_lines, number, ticks
from orchestrator.report.winners import Contest, kind_title, model_answer
from orchestrator.tables.column import Column, Kind
from orchestrator.tables.html import Html
from orchestrator.tables.labels import (
    ShortNames,
    figure_text,
    figure_unit,
)
from orchestrator.tables.rows import BestMark, ModelRow, ResultRow
from orchestrator.tables.table import Table
from orchestrator.units import US_PER_MS, tokens_per_s

#: Phones that have a row each; of more, equal ones share a row.
_MOST_ROWS: Final = 40
#: Rows of a page that are as high as their text wants to be.
_MOST_ROOMY: Final = 12
#: Rows that still have room between them.
_MOST_DENSE: Final = 30
#: Models that are open from the beginning; more are under a row each, in a table of their own.
MOST_OPEN: Final = 3
#: A phone that is so many times slower than the next is beyond the axis' end.
_BEYOND: Final = 4.0
_MOST_TIED: Final = 2
_MOST_NAMED: Final = 3

#: A row: one phone, or several of a kind with one answer.
Line = tuple[Contest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPicture:
    """One model over all phones."""

    model: ModelRow
    #: Of each phone.
    contests: Sequence[Contest]
    #: What won, in words.
    sentence: str
    table: Table[Line]
    #: Where the lines behind the dots stand: a background in the style sheet's words.
    grid: str
    #: How much room its rows take: ``roomy``, ``dense`` or ``packed``.
    look: str


def model_pictures(contests: Sequence[Contest], names: ShortNames) -> list[ModelPicture]:
    """Return the picture of each model, in the order of the contests."""
    models = list(grouped(contests, lambda item: item.shown.model.subject).values())
    shown = models[:MOST_OPEN]
    rows = sum(len(own) if len(own) > 1 else len(own[0].rows) for own in shown)
    look = "roomy" if rows <= _MOST_ROOMY else "dense" if rows <= _MOST_DENSE else "packed"
    return [_picture(members, names, look) for members in models]


def models_table(
    pictures: Sequence[ModelPicture], names: ShortNames
) -> tuple[Table[ModelPicture], str]:
    """Return a row for each model with a dot for each phone's fastest, and the lines behind them."""
    axis = axis_of(
        value
        for item in pictures
        for contest in item.contests
        if (value := _value(contest.best)) is not None
    )
    head = ticks(axis, "ms")

    def picture(item: ModelPicture) -> Html:
        found = [
            replace(
                _dot(contest.best, names, told=contest.best.device.title),
                look=colour_of(contest.best),
            )
            for contest in item.contests
            if contest.best is not None
        ]
        return dots(axis, found, f"{item.model.label}: the fastest of each phone", is_dense=True)

    columns: list[Column[ModelPicture]] = [
        Column("model", "model", lambda item: item.model.label),
        Column("picture", "", picture, Kind.PICTURE, box=head),
        Column("fastest", "fastest", lambda item: item.sentence),
    ]
    caption = "The fastest configuration of each model, a dot for each phone"
    return Table(name="models", caption=caption, columns=columns, rows=pictures), grid_lines(axis)


def _picture(members: Sequence[Contest], names: ShortNames, look: str) -> ModelPicture:
    is_one = len(members) == 1
    lines = _configurations(members[0]) if is_one else _lines(members, names)
    shown = members[0].shown
    axis = _axis(members)
    unit = figure_unit(shown.case)
    head = ticks(axis, unit)

    def picture(line: Line) -> Html:
        found = [
            _dot(row, names, label="" if is_one else _label(row, names), told=row.device.title)
            for contest in line
            for row in contest.rows
            if row.own is not None
        ]
        return dots(
            axis,
            found,
            f"{line[0].shown.device.title}: {unit} of each configuration",
            is_dense=look != "roomy",
        )

    table = Table(
        name="fastest",
        caption=f"{shown.model.label}: the configurations on each phone, and the fastest",
        columns=_columns(names, unit, picture, head, is_one=is_one),
        rows=lines,
        is_virtual=lambda line: line[0].shown.is_virtual,
        marks=lambda line: {
            "model": line[0].shown.model.label,
            "device": kind_title(line[0].shown),
        },
    )
    return ModelPicture(
        model=shown.model,
        contests=members,
        sentence=f"{model_answer(members, names)}.",
        table=table,
        grid=grid_lines(axis),
        look=look,
    )


def _columns(
    names: ShortNames,
    unit: str,
    picture: Callable[[Line], Html],
    head: Html,
    *,
    is_one: bool,
) -> list[Column[Line]]:
    columns: list[Column[Line]] = [
        Column("phone", "phone", _who),
        Column("picture", unit, picture, Kind.PICTURE, box=head),
        Column(
            "fastest",
            "fastest",
            lambda line: _take(line[0], names) if line[0].best is not None else "no clean figure",
            case=lambda line: line[0].shown.key,
            tone=lambda line: colour_of(line[0].best) if line[0].best is not None else "bad",
        ),
        Column(
            "median",
            unit,
            lambda line: line[0].shown.median_us if line[0].best is not None else None,
            Kind.NUMBER,
            shown=lambda line: _range(
                [
                    figure_text(item.best.case, item.best.median_us, _digits(item.best))
                    for item in line
                    if item.best
                ]
            ),
        ),
        Column(
            "precision",
            "± %",
            lambda line: line[0].best.result.precision if line[0].best is not None else None,
            Kind.NUMBER,
            "",
            100,
            digits=1,
            is_optional=True,
            is_merged=True,
            tone=lambda line: "doubt" if line[0].best and line[0].best.result.imprecision else "",
        ),
        Column(
            "speed_up",
            "vs CPU",
            lambda line: _gain(line[0].best, of_cpu=is_one),
            Kind.NUMBER,
            is_optional=True,
            shown=lambda line: (
                _range(
                    [f"{gain:.2f}" for item in line if (gain := _gain(item.best, of_cpu=is_one))]
                )
                or "---"
            ),
        ),
        Column(
            "winner",
            "winner",
            lambda line: _winner(line[0], names),
            is_merged=True,
            tone=lambda line: "" if _winner(line[0], names) == BestMark.BEST else "doubt",
        ),
        Column(
            "outputs",
            "outputs",
            lambda line: _outputs(line[0].best),
            is_optional=True,
            is_merged=True,
            tone=lambda line: _outputs_tone(line[0].best),
        ),
        Column(
            "without",
            "no figure",
            lambda line: _without(line, names),
            is_optional=True,
            tone=lambda _: "bad",
        ),
    ]
    if not is_one:
        return columns
    configuration: Column[Line] = Column(
        "configuration",
        "configuration",
        lambda line: names.of(line[0].rows[0].configuration),
        case=lambda line: line[0].rows[0].key,
    )
    return [configuration, *(item for item in columns if item.name not in _OF_PHONES)]


#: Columns of a row that is a phone, where a row isn't a configuration.
_OF_PHONES: Final = frozenset({"phone", "fastest", "without"})


def _configurations(contest: Contest) -> list[Line]:
    """Return a row for each configuration of one phone, the fastest first."""
    rows = sorted(contest.rows, key=lambda row: (row.median_us is None, row.median_us or 0.0))
    return [(Contest(rows=(row,), best=row if row.own is not None else None),) for row in rows]


def _lines(members: Sequence[Contest], names: ShortNames) -> list[Line]:
    """Return the rows, the fastest first and those without a figure last."""
    lines: list[Line] = [(item,) for item in members]
    if len(lines) > _MOST_ROWS:

        def answer(item: Contest) -> object:
            return (
                kind_title(item.shown),
                item.shown.is_virtual,
                _take(item, names),
                _winner(item, names),
            )

        lines = [tuple(group) for group in grouped(members, answer).values()]
    return sorted(
        lines,
        key=lambda line: (
            line[0].shown.is_virtual,
            line[0].best is None,
            line[0].shown.median_us or 0.0,
        ),
    )


def _axis(members: Sequence[Contest]) -> Axis:
    """Return an axis for the model.

    A lone phone far beyond all others doesn't press them flat, nor does a figure that isn't clean,
    nor the interval of one that isn't.
    """
    is_clean = any(item.clean for item in members)
    reached = sorted(
        (max(values), min(values))
        for item in members
        if (
            values := _reached(
                item.clean or item.rows, has_intervals=bool(item.clean or not is_clean)
            )
        )
    )
    while len(reached) > 2 and reached[-1][1] > _BEYOND * reached[-2][0]:
        reached.pop()
    return axis_of(end for pair in reached for end in pair)


def _reached(rows: Iterable[ResultRow], *, has_intervals: bool) -> list[float]:
    return [
        _scaled(row, end)
        for row in rows
        if row.own is not None
        for end in (
            row.own.median_us,
            *(
                (row.own.interval.low, row.own.interval.high)
                if row.own.interval and has_intervals
                else ()
            ),
        )
        if end > 0
    ]


def _scaled(row: ResultRow, us: float) -> float:
    speed = tokens_per_s(us) if row.case.is_per_token else None
    return us / US_PER_MS if speed is None else speed


def _value(row: ResultRow | None) -> float | None:
    return None if row is None or row.median_us is None else _scaled(row, row.median_us)


def _dot(row: ResultRow, names: ShortNames, *, told: str, label: str = "") -> Dot:
    assert row.own is not None, "only a figure is drawn"
    interval = row.own.interval
    ends = (
        sorted(_scaled(row, end) for end in (interval.low, interval.high))
        if interval and interval.low > 0
        else [None, None]
    )
    value = _scaled(row, row.own.median_us)
    doubt = "" if row.result.is_judged else f", {row.why_not_clean}"
    kind = " (mean)" if row.has_mean else ""
    mark = "best" if row.best is not BestMark.NONE else "" if row.result.is_judged else "doubt"
    return Dot(
        value=value,
        low=ends[0],
        high=ends[1],
        label=label,
        told=f"{told}, {names.of(row.configuration)}: {number(value)} {figure_unit(row.case)}{kind}, {row.spread_text}{doubt}",
        look=f"{colour_of(row)} {mark}".rstrip(),
        key=row.key,
    )


def _label(row: ResultRow, names: ShortNames) -> str:
    """Return a configuration beside its dot: ``xnnpack·4``."""
    words = names.of(row.configuration).split(", ")
    return "\N{MIDDLE DOT}".join(word.partition(" thread")[0] for word in words)


def _who(line: Line) -> str:
    first = line[0].shown
    if len(line) == 1:
        return first.device.label
    return f"{kind_title(first)} x {len(line)}"


def _digits(row: ResultRow) -> int:
    value = (row.median_us or 0.0) / US_PER_MS
    return 3 if value < 1 else 2 if value < 10 else 1


def _take(contest: Contest, names: ShortNames) -> str:
    """Return the winner, or all that are tied in alphabetical order: which of them leads is noise."""
    if contest.best is None:
        return ""
    takes = sorted(names.of(row.configuration) for row in (contest.best, *contest.tied))
    more = f" or {len(takes) - _MOST_TIED} more" if len(takes) > _MOST_TIED else ""
    return " or ".join(takes[:_MOST_TIED]) + more


def _winner(contest: Contest, names: ShortNames) -> str:
    """Return whether the winner is one: ``clear``, ``tied``, ``only one``, or what may be faster."""
    if contest.best is None:
        return "; ".join(dict.fromkeys(row.unclean_reason for row in contest.rows))
    if not contest.best.result.is_judged:
        return contest.best.why_not_clean
    if contest.doubted:
        first = contest.doubted[0]
        return f"{names.of(first.configuration)} may be faster: {first.unclean_reason}"
    return contest.best.best.value


def _gain(row: ResultRow | None, *, of_cpu: bool) -> float | None:
    """Return how many times as fast as the fastest on the CPU it is; of the CPU where asked for."""
    if row is None or row.speed_up is None or (row.case.delegate.is_cpu and not of_cpu):
        return None
    return row.speed_up.value


def _outputs(row: ResultRow | None) -> str:
    """Return what is known of a winner's outputs; empty for the reference's own kernels."""
    return row.outputs_text if row is not None and row.may_be_wrong else ""


def _outputs_tone(row: ResultRow | None) -> str:
    if row is None or row.outputs is Outputs.CHECKED or not _outputs(row):
        return ""
    return "bad" if row.outputs is Outputs.DIFFER else "doubt"


def _without(line: Line, names: ShortNames) -> str:
    """Return the configurations without a figure of their own, each with what happened."""
    rows = [
        row
        for row in line[0].rows
        if row.own is None and row.result.status not in {CaseStatus.SKIPPED, CaseStatus.NOT_RUN}
    ]
    named = [f"{names.of(row.configuration)}: {row.unclean_reason}" for row in rows[:_MOST_NAMED]]
    more = [f"{len(rows) - _MOST_NAMED} more"] if len(rows) > _MOST_NAMED else []
    return "; ".join([*named, *more])


def _range(values: Sequence[str]) -> str:
    """Return the lowest and the highest, or the one that there is; empty for none."""
    if not values:
        return ""
    low, high = min(values, key=float), max(values, key=float)
    return low if low == high else f"{low} to {high}"
