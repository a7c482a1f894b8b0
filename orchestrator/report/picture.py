"""The first screen: each model's configurations on each phone as dots with intervals, and who wins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.records.case import grouped
from orchestrator.report.charts import colour_of
from orchestrator.report.drawing import Axis, Dot, axis_of, dots, grid_lines, ticks
from orchestrator.report.winners import Contest, kind_title, model_answer
from orchestrator.tables.column import Column, Kind, R
from orchestrator.tables.html import Html
from orchestrator.tables.labels import ShortNames, figure_unit
from orchestrator.tables.results import RESULTS, figures_decimals
from orchestrator.tables.rows import BestMark, ResultRow
from orchestrator.tables.table import Table
from orchestrator.units import US_PER_MS, three_digits, tokens_per_s

#: A phone that is so many times slower than the next is beyond the axis' end.
_BEYOND: Final = 4.0
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPicture:
    """One model over all phones."""

    #: What won, in words.
    sentence: str
    #: A row for each phone (:class:`Contest`); of one phone, one for each configuration
    #: (:class:`ResultRow`).
    table: Table[Any]
    #: Where the lines behind the dots stand: a background in the style sheet's words.
    grid: str


def model_pictures(contests: Sequence[Contest], names: ShortNames) -> dict[str, ModelPicture]:
    """Return the picture of each model by its subject."""
    models = grouped(contests, lambda item: item.shown.model.subject)
    return {subject: _picture(members, names) for subject, members in models.items()}


def _picture(members: Sequence[Contest], names: ShortNames) -> ModelPicture:
    is_one = len(members) == 1
    shown, axis = members[0].shown, _axis(members)
    unit = figure_unit(shown.case)

    def row_of(item: ResultRow | Contest) -> ResultRow:
        return item.shown if isinstance(item, Contest) else item

    def drawn(item: ResultRow | Contest) -> Html:
        rows = item.rows if isinstance(item, Contest) else [item]
        found = [_dot(row, names, has_label=not is_one) for row in rows if row.own]
        return dots(axis, found, f"{row_of(item).device.title}: {unit} of each configuration")

    picture: Column[Any] = Column("picture", unit, drawn, Kind.PICTURE, box=ticks(axis, unit))
    figures = _figures([row for item in members for row in item.rows])
    return ModelPicture(
        sentence=f"{model_answer(members, names)}.",
        table=Table(
            name="fastest",
            caption=f"{shown.model.label}: the configurations on each phone, and the fastest",
            columns=_of_configurations(picture, figures, names)
            if is_one
            else _of_phones(picture, figures, names),
            rows=sorted(members[0].rows, key=_order)
            if is_one
            else sorted(
                members,
                key=lambda item: (item.shown.is_virtual, item.best is None, _order(item.shown)),
            ),
            is_virtual=lambda item: row_of(item).is_virtual,
            attributes=lambda item: {
                "data-model": row_of(item).model.label,
                "data-device": kind_title(row_of(item)),
            },
        ),
        grid=grid_lines(axis),
    )


def _order(row: ResultRow) -> tuple[bool, bool, float]:
    """Put the fastest first and those without a figure last."""
    return row.is_virtual, row.median_us is None, row.median_us or 0.0


def _figures(rows: Sequence[ResultRow]) -> list[Column[ResultRow]]:
    """Return the columns of a case's figure."""
    named = {column.name: column for column in RESULTS}
    return [
        replace(named["median_us"], head="ms", unit="", digits=figures_decimals(rows)),
        replace(named["tokens_per_s"], head="tokens/s", unit=""),
        replace(
            named["precision"],
            head="± %",
            shown=None,
            is_optional=True,
            is_merged=True,
            tone=lambda row: "doubt" if row.result.lacking else "",
        ),
        replace(named["speed_up"], is_optional=True, is_merged=True),
        replace(
            named["outputs"],
            # The reference's own kernels and tokens aren't compared.
            shown=lambda row: row.outputs_text if row.has_checked_outputs else "",
            is_optional=True,
            is_merged=True,
        ),
    ]


def _of_configurations(
    picture: Column[ResultRow], figures: Sequence[Column[ResultRow]], names: ShortNames
) -> list[Column[ResultRow]]:
    """Return the columns of one phone's configurations."""
    return [
        Column(
            "configuration",
            "configuration",
            lambda row: names.of(row.configuration),
            case=lambda row: row.key,
        ),
        picture,
        *figures,
        _winner_column(lambda row: row.best.value if row.result.is_judged else row.why_not_clean),
    ]


def _of_phones(
    picture: Column[Contest], figures: Sequence[Column[ResultRow]], names: ShortNames
) -> list[Column[Contest]]:
    """Return the columns of the phones, with the figure of the fastest on each."""
    return [
        Column("phone", "phone", lambda contest: contest.shown.device.label),
        picture,
        Column(
            "fastest",
            "fastest",
            lambda contest: contest.fastest(names),
            case=lambda contest: contest.shown.key,
            tone=lambda contest: colour_of(contest.best) if contest.best is not None else "bad",
        ),
        *(column.of(lambda contest: contest.best) for column in figures),
        _winner_column(lambda contest: contest.verdict(names)),
        Column(
            "without",
            "no figure",
            lambda contest: _without(contest, names),
            is_optional=True,
            tone=lambda _: "bad",
        ),
    ]


def _winner_column(word: Callable[[R], str]) -> Column[R]:
    """Return the column of how sure it is who wins."""
    return Column(
        "winner",
        "winner",
        word,
        is_merged=True,
        tone=lambda item: "" if word(item) == BestMark.BEST else "doubt",
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
                item.clean or item.rows, has_intervals=bool(item.clean) or not is_clean
            )
        )
    )
    while len(reached) > 2 and reached[-1][1] > _BEYOND * reached[-2][0]:
        reached.pop()
    return axis_of(end for pair in reached for end in pair)


def _reached(rows: Iterable[ResultRow], *, has_intervals: bool) -> list[float]:
    found = []
    for row in rows:
        if row.own is not None:
            interval = row.own.interval if has_intervals else None
            ends = (interval.low, interval.high) if interval is not None else ()
            found += [_scaled(row, end) for end in (row.own.median_us, *ends) if end > 0]
    return found


def _scaled(row: ResultRow, us: float) -> float:
    speed = tokens_per_s(us) if row.case.is_per_token else None
    return us / US_PER_MS if speed is None else speed


def _dot(row: ResultRow, names: ShortNames, *, has_label: bool) -> Dot:
    assert row.own is not None, "only a figure is drawn"
    interval = row.own.interval
    low = high = None
    if interval is not None and interval.low > 0:
        low, high = sorted(_scaled(row, end) for end in (interval.low, interval.high))
    value = _scaled(row, row.own.median_us)
    mark = "best" if row.best is not BestMark.NONE else "" if row.result.is_judged else "doubt"
    name = names.of(row.configuration)
    told = [
        row.device.title,
        f"{name}: {three_digits(value)} {figure_unit(row.case)}{' (mean)' if row.has_mean else ''}",
        row.spread_text,
        "" if row.result.is_judged else row.why_not_clean,
    ]
    short = (word.partition(" thread")[0] for word in name.split(", "))
    return Dot(
        value=value,
        low=low,
        high=high,
        label="\N{MIDDLE DOT}".join(short) if has_label else "",
        told=", ".join(filter(None, told)),
        look=f"{colour_of(row)} {mark}".rstrip(),
        key=row.key,
    )


def _without(contest: Contest, names: ShortNames) -> str:
    """Return the configurations without a figure of their own, each with what happened."""
    untried = {CaseStatus.SKIPPED, CaseStatus.NOT_RUN}
    rows = [row for row in contest.rows if row.own is None and row.result.status not in untried]
    named = [f"{names.of(row.configuration)}: {row.why_not_clean}" for row in rows[:_MOST_NAMED]]
    more = [f"{len(rows) - _MOST_NAMED} more"] if len(rows) > _MOST_NAMED else []
    return "; ".join([*named, *more])
