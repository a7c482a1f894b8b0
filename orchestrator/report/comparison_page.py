"""A comparison as one HTML file: what came out in words, the intervals as a picture, and behind each
case the runs of both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from orchestrator.analysis.comparison import ComparedCase, Comparison
from orchestrator.analysis.measured import Measured
from orchestrator.report.charts import spread_of
from orchestrator.report.comparisons import level_text, sentences, summary_line
from orchestrator.report.drawing import Dot, change_axis, dots, grid_lines, strips, ticks
from orchestrator.tables.column import NOTHING, Column, Form, Kind
from orchestrator.tables.comparisons import case_title, compared_table, worst_first
from orchestrator.tables.html import Html, template
from orchestrator.tables.table import Table
from orchestrator.units import format_figure, format_percent

#: Cases that are drawn with their runs; of a longer comparison, Markdown and JSON have the others.
MOST_SHOWN: Final = 200
_MOST_ALONE: Final = 40
_MOST_NAMED: Final = 8
_SIDES: Final = ("baseline", "candidate")
#: A fact, and its values on the two sides.
Fact = tuple[str, Sequence[str], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDetails:
    """What stands behind a compared case."""

    title: str
    is_virtual: bool
    #: The runs of both sides on one axis; None where neither has a figure.
    runs: Html | None
    sentences: Sequence[str]


def render_comparison(comparison: Comparison) -> str:
    """Return the comparison as one HTML file that needs nothing else; names in it are escaped and
    made visible.
    """
    shown = worst_first(comparison)[:MOST_SHOWN]
    table, grid = _table(comparison, shown)
    sides = zip(_SIDES, (comparison.only_baseline, comparison.only_candidate), strict=True)
    return template("compared.html.j2").render(
        title=f"{comparison.candidate} against {comparison.baseline}",
        comparison=comparison,
        answer=summary_line(comparison),
        table=table,
        grid=grid,
        details=[_details(row) for row in shown],
        sides=_facts(comparison),
        level=level_text(comparison.claim.level).replace("%", " %"),
        threshold=format_percent(comparison.claim.threshold),
        has_real=any(not row.is_virtual for row in comparison.rows),
        more=len(comparison.rows) - len(shown),
        only=[(name, titles) for name, titles in sides if titles],
        folds={},
        MOST_ALONE=_MOST_ALONE,
    )


def _table(
    comparison: Comparison, shown: Sequence[ComparedCase]
) -> tuple[Table[ComparedCase], str]:
    """Return the cases with their intervals as a picture, and the lines behind those."""
    verdicts = [row.verdict for row in shown]
    ends = [
        end - 1
        for verdict in verdicts
        for end in (verdict.ratio, verdict.low, verdict.high)
        if end is not None
    ]
    threshold = comparison.claim.threshold
    axis = change_axis(ends, threshold)
    head = ticks(axis, "change of time", lambda change: f"{change:+.0%}" if change else "0")

    def picture(row: ComparedCase) -> Html:
        verdict, told, change = row.verdict, "nothing to compare", []
        if verdict.ratio is not None:
            told, seen = f"{verdict.ratio - 1:+.1%} time", verdict.detectable
            change.append(
                Dot(
                    value=verdict.ratio - 1,
                    low=None if verdict.low is None else verdict.low - 1,
                    high=None if verdict.high is None else verdict.high - 1,
                    bracket=None if seen is None else (-seen, seen),
                    look=f"r-{verdict.outcome} best",
                    told=told,
                )
            )
        return dots(axis, change, told, band=(-threshold, threshold))

    table = compared_table(comparison)
    known = {column.name: column for column in table.columns if Form.HTML in column.forms}
    columns: list[Column[Any]] = [
        replace(known["title"], shown=lambda row: row.title.replace(".tflite", "")),
        known["outcome"],
        known["ratio"],
        Column("picture", "change of time", picture, Kind.PICTURE, box=head),
        known["interval"],
        known["detectable"],
        replace(known["baseline"], shown=lambda row: _no_result(row.baseline)),
        replace(known["candidate"], shown=lambda row: _no_result(row.candidate)),
        known["counts"],
    ]
    return replace(table, columns=columns, rows=shown), grid_lines(axis)


def _no_result(item: Measured) -> str | None:
    """Return a figure that is none of what was asked for, as that."""
    other_us = item.result.not_a_result_us
    if other_us is None:
        return None
    return f"no result: {format_figure(other_us, is_per_token=item.case.is_per_token)}"


def _details(row: ComparedCase) -> CaseDetails:
    spreads = [
        spread_of(list(item.used.values()), item.result.figure, name, f"d{colour}")
        for colour, (name, item) in enumerate(
            zip(_SIDES, (row.baseline, row.candidate), strict=True), start=1
        )
    ]
    known = [spread for spread in spreads if spread.runs]
    return CaseDetails(
        title=case_title(row),
        is_virtual=row.is_virtual,
        runs=strips(known, "The runs of both sides", "ms") if known else None,
        sentences=sentences(row),
    )


def _facts(comparison: Comparison) -> Table[Fact]:
    """Return what each side is made of beside the other."""
    facts: Mapping[str, Callable[[Measured], str]] = {
        "campaign": lambda item: ", ".join(filter(None, (item.campaign_id, item.origin))),
        "program": lambda item: item.build,
        "device": lambda item: item.device,
        "system": lambda item: item.system,
        "model": lambda item: f"{item.case.model_name} {item.case.model_sha256[:12]}",
        "grade of control": lambda item: item.grade.value if item.grade is not None else "unknown",
    }
    rows = [
        (
            name,
            sorted({of(row.baseline) for row in comparison.rows} - {""}),
            sorted({of(row.candidate) for row in comparison.rows} - {""}),
        )
        for name, of in facts.items()
    ]

    def side(place: Literal[1, 2]) -> Column[Fact]:
        return Column(
            _SIDES[place - 1],
            _SIDES[place - 1],
            lambda fact: fact[place],
            shown=lambda fact: _listed(fact[place]),
            tone=lambda fact: "" if fact[1] == fact[2] else "doubt",
        )

    return Table(
        name="sides",
        caption="What each side is made of",
        columns=(Column("fact", "what", lambda fact: fact[0]), side(1), side(2)),
        rows=rows,
    )


def _listed(values: Sequence[str]) -> str:
    more = [f"and {len(values) - _MOST_NAMED} more"] * (len(values) > _MOST_NAMED)
    return "; ".join([*values[:_MOST_NAMED], *more]) or NOTHING
