"""The report's drawings: each model's configurations on each phone as dots with intervals, and the
winner; thread scaling, layers and sustained runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from orchestrator.analysis.quality import figure_us
from orchestrator.records import frozen
from orchestrator.records.case import Case, grouped
from orchestrator.records.run import FigureKind, RunRecord
from orchestrator.report.data import ReportData
from orchestrator.report.drawing import (
    COLOURS,
    Across,
    Axis,
    Dot,
    Line,
    Part,
    Point,
    Strip,
    axis_of,
    dots,
    grid_lines,
    lines,
    ticks,
    treemap,
)
from orchestrator.report.winners import (
    Contest,
    by_threads,
    figures_of_one_kind,
    kind_title,
    model_answer,
)
from orchestrator.tables.html import Html
from orchestrator.tables.labels import (
    ShortNames,
    delegate_place,
    figure_unit,
    figure_value,
)
from orchestrator.tables.operators import Profile
from orchestrator.tables.results import BY_NAME, figures_decimals
from orchestrator.tables.rows import BestMark, ResultRow
from orchestrator.tables.table import Column, Kind, R, Table
from orchestrator.units import (
    counted,
    format_latency,
    format_percent,
    three_digits,
)

_MOST_CHARTS: Final = 12
_MOST_LINES: Final = 8
#: The greatest number of layers in a map; smaller ones are one part.
_MOST_PARTS: Final = 60
#: The greatest number of drawn runs of a case.
_MOST_RUNS: Final = 60


def report_charts(data: ReportData) -> Mapping[str, Sequence[tuple[str, Html]]]:
    """Return the first charts with their titles, by their section; one more than are shown, where
    there are more.
    """
    profiled = sorted(
        (row for row in data.results if row.profiles),
        key=lambda row: (row.model.label, row.median_us or 0.0),
    )
    # By type of operator; all but operators is grey.
    colours: dict[str, int] = {}
    charts = {
        "threads": _threads(data),
        "operators": ((row.title, _map(row, row.profiles[-1], colours)) for row in profiled),
        "sustained": _sustained(data),
    }
    return {
        name: list(islice(section_charts, _MOST_CHARTS + 1))
        for name, section_charts in charts.items()
    }


def _threads(data: ReportData) -> Iterator[tuple[str, Html]]:
    of_place = grouped(thread_steps(data.results), lambda steps: steps[0].row.place)
    for series in of_place.values():
        members = [step.row for steps in series for step in steps]
        drawn = [
            Line(
                points=[
                    Point(
                        x=step.row.case.threads,
                        y=figure_value(step.row.case, step.row.median_us or 0.0),
                    )
                    for step in steps
                ],
                label=_without_threads(data.names.of(steps[-1].row.configuration)),
                look=_delegate_colour(steps[0].row),
            )
            for steps in series
        ]
        words = [(n, f"{n}") for n in sorted({row.case.threads for row in members})]
        title = f"{members[0].where}: {figure_unit(members[0].case)} by number of threads"
        yield (
            title,
            lines(drawn[:_MOST_LINES], title, Across(name="threads", words=words, is_log=True)),
        )


def _without_threads(configuration: str) -> str:
    return ", ".join(part for part in configuration.split(", ") if " thread" not in part)


def _map(row: ResultRow, profile: Profile, colours: dict[str, int]) -> Html:
    """Return a treemap of the layers of a profiled case by time; ``colours`` are by type, and new
    types get the next one.
    """
    ordered = sorted(profile.rows, key=lambda item: -item.mean_us)
    parts = [
        Part(
            label=f"{item.layer} {format_percent(item.share, 0)}",
            share=item.mean_us,
            told=f"{item.layer} ({item.node_type}): {format_latency(item.mean_us)}, {format_percent(item.share)}",
            look=f"d{1 + colours.setdefault(item.node_type, len(colours)) % (COLOURS - 1)}",
        )
        for item in ordered[:_MOST_PARTS]
    ]
    rest = {
        "smaller layers": sum(item.mean_us for item in ordered[_MOST_PARTS:]),
        "outside of operators": profile.outside_us,
    }
    for name, us in rest.items():
        text = f"{name}: {format_latency(us)}"
        parts.append(Part(label=name, share=us, told=text, look="d0"))
    return treemap(parts, f"{row.title}: the time of an inference by layer")


def _sustained(data: ReportData) -> Iterator[tuple[str, Html]]:
    of_place = grouped(
        (row for row in data.results if row.pass_lines.get("sustained")),
        lambda row: row.place,
    )
    for members in of_place.values():
        drawn = [
            Line(
                points=[Point(x=at_s, y=figure_value(row.case, us)) for at_s, us in run.points],
                label=data.names.of(row.configuration)
                + (f", {run.attempt}." if run.attempt > 1 else ""),
                look=_delegate_colour(row),
            )
            for row in members
            for run in row.pass_lines["sustained"]
        ]
        title = f"{members[0].where}: {figure_unit(members[0].case)} over time"
        yield title, lines(drawn[:_MOST_LINES], title, Across(name="s"))


def _delegate_colour(row: ResultRow) -> str:
    """Return the class with the colour of a case's delegate."""
    return f"d{delegate_place(row.case) % COLOURS}"


def run_strip(
    case: Case, runs: Sequence[RunRecord], kind: FigureKind, name: str, css_class: str
) -> Strip:
    """Return a case's runs for a strip: each with its figure of this kind and the ends of its
    inferences, from 5 to 95 %.
    """
    figures = [figure_us(run, kind) for run in runs]
    points = []
    for run, latency_us in list(zip(runs, figures, strict=True))[:_MOST_RUNS]:
        if run.report is None or latency_us is None:
            continue
        inference, ends = run.report.inference, None
        if inference is not None and inference.p5_us is not None and inference.p95_us is not None:
            ends = figure_value(case, inference.p5_us), figure_value(case, inference.p95_us)
        points.append((figure_value(case, latency_us), ends))
    return Strip(runs=points, label=f"{name}: {percentiles(case, figures)}", look=css_class)


def percentiles(case: Case, figures_us: Iterable[float | None]) -> str:
    """Return the percentiles of runs: ``12 runs, p50 6.45, p90 6.50, max 6.52 ms``; of speeds those
    at the slow end, too: p10 and the minimum.

    A percentile is the smallest figure that as many percent don't exceed. With fewer than 10 runs
    p90 would be the maximum, with fewer than 100 p99: these are left out.
    """
    figures = sorted(filter(None, figures_us))
    if not figures:
        return "no figure"
    count = len(figures)
    marks = {"p50": statistics.median(figures)}
    marks |= {
        f"p{100 - share if case.is_per_token else share}": figures[
            math.ceil(count * share / 100) - 1
        ]
        for share in (90, 99)
        if count * (100 - share) >= 100
    }
    marks["min" if case.is_per_token else "max"] = figures[-1]
    parts = [f"{name} {figure_value(case, us):.4g}" for name, us in marks.items()]
    return f"{counted(count, 'run')}, {', '.join(parts)} {figure_unit(case)}"


@frozen
class ThreadStep:
    """One case among those that differ only in the number of threads."""

    row: ResultRow
    #: Over the case with the fewest threads.
    speed_up: float
    #: The speed-up divided by the ratio of threads: 1.0 is ideal.
    efficiency: float


def thread_steps(rows: Iterable[ResultRow]) -> Iterator[list[ThreadStep]]:
    """Yield the cases that differ only in the number of threads, the fewest first; only figures of
    the requested delegate count.
    """
    for members in by_threads(
        row for row in rows if row.own_summary is not None and row.case.threads > 0
    ):
        figures = figures_of_one_kind({row.key: row for row in members})
        fewest = members[0]
        if fewest.key not in figures:
            continue
        steps = []
        for row in (row for row in members if row.key in figures):
            speed_up = figures[fewest.key].median_us / figures[row.key].median_us
            efficiency = speed_up * fewest.case.threads / row.case.threads
            steps.append(ThreadStep(row=row, speed_up=speed_up, efficiency=efficiency))
        yield steps


#: A phone that is slower than the next one by more than this factor is beyond the axis' end.
_BEYOND: Final = 4.0


@frozen
class ModelPicture:
    """One model over all phones."""

    #: The winner in words.
    sentence: str
    #: A row for each phone (:class:`Contest`); of one phone, one for each configuration
    #: (:class:`ResultRow`).
    table: Table[Any]
    #: The lines behind the dots, as a CSS background.
    grid: str


def model_pictures(contests: Sequence[Contest]) -> dict[str, ModelPicture]:
    """Return the picture of each model by its subject."""
    models = grouped(contests, lambda item: item.shown.model.subject)
    return {subject: _picture(members) for subject, members in models.items()}


def _picture(members: Sequence[Contest]) -> ModelPicture:
    is_one_phone, names = len(members) == 1, members[0].names
    first_row, axis = members[0].shown, _axis(members)
    unit = figure_unit(first_row.case)

    def result_row(item: ResultRow | Contest) -> ResultRow:
        return item.shown if isinstance(item, Contest) else item

    def drawn(item: ResultRow | Contest) -> Html:
        rows = item.rows if isinstance(item, Contest) else [item]
        dot_list = [_dot(row, names, has_label=not is_one_phone) for row in rows if row.own_summary]
        return dots(
            axis, dot_list, f"{result_row(item).device.title}: {unit} of each configuration"
        )

    picture: Column[Any] = Column("picture", unit, drawn, Kind.PICTURE, box=ticks(axis, unit))
    every = [row for item in members for row in item.rows]
    figures = _figures(every)
    columns: Sequence[Column[Any]] = (
        _configuration_columns(picture, figures, names)
        if is_one_phone
        else _phone_columns(picture, figures)
    )
    if not any(row.own_summary for row in every):
        columns = [column for column in columns if column is not picture]
    return ModelPicture(
        sentence=f"{model_answer(members)}.",
        table=Table(
            name="fastest",
            caption=f"{first_row.model.label}: the configurations on each phone, and the fastest",
            columns=columns,
            rows=sorted(members[0].rows, key=_order)
            if is_one_phone
            else sorted(
                members,
                key=lambda item: (item.shown.is_virtual, item.best is None, _order(item.shown)),
            ),
            is_virtual=lambda item: result_row(item).is_virtual,
            attributes=lambda item: {
                "data-model": result_row(item).model.label,
                "data-device": kind_title(result_row(item)),
            },
        ),
        grid=grid_lines(axis),
    )


def _order(row: ResultRow) -> tuple[bool, bool, float]:
    """Return the sort key of a row: the fastest first, those without a figure last."""
    return row.is_virtual, row.median_us is None, row.median_us or 0.0


def _figures(rows: Sequence[ResultRow]) -> list[Column[ResultRow]]:
    """Return the columns of a case's figure."""
    return [
        replace(BY_NAME["median_us"], head="ms", unit="", digits=figures_decimals(rows)),
        replace(BY_NAME["tokens_per_s"], head="tokens/s", unit=""),
        replace(
            BY_NAME["precision"],
            head="± %",
            shown=None,
            is_optional=True,
            is_merged=True,
            tone=lambda row: "doubt" if row.lacking else "",
        ),
        replace(BY_NAME["speed_up"], is_optional=True, is_merged=True),
        replace(
            BY_NAME["outputs"],
            # The outputs of the reference's own kernels and of tokens aren't checked.
            shown=lambda row: row.outputs_text if row.has_checked_outputs else "",
            is_optional=True,
            is_merged=True,
        ),
    ]


def _configuration_columns(
    picture: Column[ResultRow], figures: Sequence[Column[ResultRow]], names: ShortNames
) -> list[Column[ResultRow]]:
    """Return the columns of one phone's configurations."""
    return [
        Column(
            "configuration", value=lambda row: names.of(row.configuration), case=lambda row: row.key
        ),
        picture,
        *figures,
        _winner_column(lambda row: row.best.value if row.is_judged else row.why_not_clean),
    ]


def _phone_columns(
    picture: Column[Contest], figures: Sequence[Column[ResultRow]]
) -> list[Column[Contest]]:
    """Return the columns of the phones, with the figure of the fastest on each."""
    return [
        Column("phone", value=lambda contest: contest.shown.device.label),
        picture,
        Column(
            "fastest",
            value=lambda row: row.fastest,
            case=lambda contest: contest.shown.key,
            tone=lambda contest: (
                _delegate_colour(contest.best) if contest.best is not None else "bad"
            ),
        ),
        *(column.of(lambda contest: contest.best) for column in figures),
        _winner_column(lambda contest: contest.verdict),
    ]


def _winner_column(word: Callable[[R], str]) -> Column[R]:
    """Return the column of the verdict on the winner."""
    return Column(
        "winner",
        value=word,
        is_merged=True,
        tone=lambda item: "" if word(item) == BestMark.BEST else "doubt",
    )


def _axis(members: Sequence[Contest]) -> Axis:
    """Return an axis for the model: without a lone phone far beyond all others, and without figures
    and intervals that aren't clean where others are.
    """
    is_clean = any(item.clean for item in members)
    extents = sorted(
        (max(values), min(values))
        for item in members
        if (
            values := _ends(item.clean or item.rows, has_intervals=bool(item.clean) or not is_clean)
        )
    )
    while len(extents) > 2 and extents[-1][1] > _BEYOND * extents[-2][0]:
        extents.pop()
    return axis_of(end for pair in extents for end in pair)


def _ends(rows: Iterable[ResultRow], *, has_intervals: bool) -> list[float]:
    values = []
    for row in rows:
        if row.own_summary is not None:
            interval = row.own_summary.interval if has_intervals else None
            ends = (interval.low, interval.high) if interval is not None else ()
            values += [
                figure_value(row.case, end) for end in (row.own_summary.median_us, *ends) if end > 0
            ]
    return values


def _dot(row: ResultRow, names: ShortNames, *, has_label: bool) -> Dot:
    assert row.own_summary is not None, "only a figure is drawn"
    interval, ends = row.own_summary.interval, None
    if interval is not None and interval.low > 0:
        ends = figure_value(row.case, interval.low), figure_value(row.case, interval.high)
    value = figure_value(row.case, row.own_summary.median_us)
    mark = "best" if row.best is not BestMark.NONE else "" if row.is_judged else "doubt"
    name = names.of(row.configuration)
    texts = [
        row.device.title,
        f"{name}: {three_digits(value)} {figure_unit(row.case)}{' (mean)' if row.has_mean else ''}",
        row.spread_text,
        "" if row.is_judged else row.why_not_clean,
    ]
    short = (word.partition(" thread")[0] for word in name.split(", "))
    return Dot(
        value=value,
        interval=ends and (min(ends), max(ends)),
        label="\N{MIDDLE DOT}".join(short) if has_label else "",
        told=", ".join(filter(None, texts)),
        look=f"{_delegate_colour(row)} {mark}".rstrip(),
        key=row.key,
    )
