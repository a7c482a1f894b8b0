"""The first screen: each model's configurations on each phone as dots with intervals, and who wins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.records.case import grouped
from orchestrator.records.parity import Outputs
from orchestrator.report.charts import colour_of
from orchestrator.report.drawing import Axis, Dot, axis_of, dots, grid_lines, ticks
from orchestrator.report.winners import Contest, kind_title, model_answer
from orchestrator.tables.column import Column, Kind
from orchestrator.tables.html import Html
from orchestrator.tables.labels import ShortNames, figure_text, figure_unit
from orchestrator.tables.rows import BestMark, ResultRow
from orchestrator.tables.table import Table
from orchestrator.units import US_PER_MS, three_digits, tokens_per_s

#: A phone that is so many times slower than the next is beyond the axis' end.
_BEYOND: Final = 4.0
_MOST_TIED: Final = 2
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPicture:
    """One model over all phones."""

    #: What won, in words.
    sentence: str
    #: A row for each phone; of one phone, a row for each configuration.
    table: Table[Contest]
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

    def picture(contest: Contest) -> Html:
        found = [_dot(row, names, has_label=not is_one) for row in contest.rows if row.own]
        told = f"{contest.shown.device.title}: {unit} of each configuration"
        return dots(axis, found, told)

    drawn = Column("picture", unit, picture, Kind.PICTURE, box=ticks(axis, unit))
    table = Table(
        name="fastest",
        caption=f"{shown.model.label}: the configurations on each phone, and the fastest",
        columns=_columns(drawn, names, unit, is_one=is_one),
        rows=_configurations(members[0]) if is_one else sorted(members, key=_order),
        is_virtual=lambda contest: contest.shown.is_virtual,
        attributes=lambda contest: {
            "data-model": contest.shown.model.label,
            "data-device": kind_title(contest.shown),
        },
    )
    return ModelPicture(
        sentence=f"{model_answer(members, names)}.",
        table=table,
        grid=grid_lines(axis),
    )


def _order(contest: Contest) -> tuple[bool, bool, float]:
    """Put the fastest first and those without a figure last."""
    shown = contest.shown
    return shown.is_virtual, contest.best is None, shown.median_us or 0.0


def _configurations(contest: Contest) -> list[Contest]:
    """Return a row for each configuration of one phone, the fastest first."""
    rows = sorted(contest.rows, key=lambda row: (row.median_us is None, row.median_us or 0.0))
    return [Contest(rows=(row,), best=row if row.own is not None else None) for row in rows]


def _columns(
    drawn: Column[Contest], names: ShortNames, unit: str, *, is_one: bool
) -> list[Column[Contest]]:
    def precision(row: ResultRow) -> float | None:
        return row.result.precision

    def doubted(row: ResultRow) -> str:
        return "doubt" if row.result.lacking else ""

    def gain(row: ResultRow) -> float | None:
        """Return the speed over the fastest on the CPU's; of the CPU itself where it has rows."""
        is_other = is_one or not row.case.delegate.is_cpu
        return row.speed_up.value if row.speed_up is not None and is_other else None

    figures: list[Column[ResultRow]] = [
        Column(
            "median",
            unit,
            lambda row: row.median_us,
            Kind.NUMBER,
            shown=lambda row: figure_text(row.case, row.median_us, _digits(row)),
        ),
        Column(
            "precision", "± %", precision, Kind.NUMBER, "", 100, 1,
            is_optional=True, is_merged=True, tone=doubted,
        ),
        Column("speed_up", "vs CPU", gain, Kind.NUMBER, digits=2, is_optional=True),
    ]  # fmt: skip
    checks: list[Column[ResultRow]] = [
        Column(
            "outputs", "outputs", _outputs, is_optional=True, is_merged=True, tone=_outputs_tone
        ),
    ]
    winner: Column[Contest] = Column(
        "winner",
        "winner",
        lambda contest: _winner(contest, names),
        is_merged=True,
        tone=lambda contest: "" if _winner(contest, names) == BestMark.BEST else "doubt",
    )
    columns = [
        drawn,
        *(column.of(lambda contest: contest.best) for column in figures),
        winner,
        *(column.of(lambda contest: contest.best) for column in checks),
    ]
    if is_one:
        configuration: Column[Contest] = Column(
            "configuration",
            "configuration",
            lambda contest: names.of(contest.shown.configuration),
            case=lambda contest: contest.shown.key,
        )
        return [configuration, *columns]
    fastest: Column[Contest] = Column(
        "fastest",
        "fastest",
        lambda contest: _take(contest, names) or "no clean figure",
        case=lambda contest: contest.shown.key,
        tone=lambda contest: colour_of(contest.best) if contest.best is not None else "bad",
    )
    without: Column[Contest] = Column(
        "without",
        "no figure",
        lambda contest: _without(contest, names),
        is_optional=True,
        tone=lambda _: "bad",
    )
    phone: Column[Contest] = Column("phone", "phone", lambda contest: contest.shown.device.label)
    return [phone, drawn, fastest, *columns[1:], without]


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
        return "; ".join(dict.fromkeys(row.why_not_clean for row in contest.rows))
    if not contest.best.result.is_judged:
        return contest.best.why_not_clean
    if contest.doubted:
        first = contest.doubted[0]
        return f"{names.of(first.configuration)} may be faster: {first.why_not_clean}"
    return contest.best.best.value


def _outputs(row: ResultRow) -> str:
    """Return what is known of a winner's outputs; empty for the reference's own kernels."""
    return row.outputs_text if row.may_be_wrong else ""


def _outputs_tone(row: ResultRow) -> str:
    if row.outputs is Outputs.CHECKED or not _outputs(row):
        return ""
    return "bad" if row.outputs is Outputs.DIFFER else "doubt"


def _without(contest: Contest, names: ShortNames) -> str:
    """Return the configurations without a figure of their own, each with what happened."""
    untried = {CaseStatus.SKIPPED, CaseStatus.NOT_RUN}
    rows = [row for row in contest.rows if row.own is None and row.result.status not in untried]
    named = [f"{names.of(row.configuration)}: {row.why_not_clean}" for row in rows[:_MOST_NAMED]]
    more = [f"{len(rows) - _MOST_NAMED} more"] if len(rows) > _MOST_NAMED else []
    return "; ".join([*named, *more])
