"""A comparison as one HTML file: what came out in words, the intervals as a picture, and behind each
case the runs of both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from orchestrator.analysis.comparison import ComparedCase, Comparison
from orchestrator.analysis.matching import Measured
from orchestrator.records.verdict import ComparisonOutcome
from orchestrator.report.charts import spread_of
from orchestrator.report.comparisons import level_text, summary_line
from orchestrator.report.drawing import Dot, change_axis, dots, grid_lines, strips, ticks
from orchestrator.report.evidence import case_evidence
from orchestrator.report.render import EVIDENCE_SIZE, render_template
from orchestrator.tables.column import NOTHING, Column, Form, Kind
from orchestrator.tables.comparisons import (
    compared_table,
    interval_text,
    worst_first,
)
from orchestrator.tables.escapes import visible
from orchestrator.tables.html import Html, joined, pack, tag
from orchestrator.tables.operators import compare_profiles
from orchestrator.tables.rows import ResultRow
from orchestrator.tables.table import Table
from orchestrator.units import format_figure, format_percent

#: Cases that are drawn with their runs; of a longer comparison, Markdown and JSON have the others.
MOST_SHOWN: Final = 200
#: Cases whose runs stand on the page itself, to be read without scripts; beyond, they are folded.
_LAID_OUT_CASES: Final = 30
#: Percent between the ends of an interval, from which decimals say nothing.
_WHOLE_FROM: Final = 2.0
_MOST_ALONE: Final = 40
_MOST_NAMED: Final = 8

#: Returns a side's case with everything that shows it; None when it isn't stored any more.
EvidenceOf = Callable[[Measured], ResultRow | None]
Found = tuple[ResultRow | None, ResultRow | None]
Fact = tuple[str, Sequence[str], Sequence[str]]
_SIDES: Final = ("baseline", "candidate")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDetails:
    """What stands behind a compared case."""

    title: str
    is_virtual: bool
    #: The runs of both sides on one axis; None where neither has a figure.
    runs: Html | None
    sentences: Sequence[str]
    keys: tuple[str, str]


def render_comparison(comparison: Comparison, evidence_of: EvidenceOf) -> str:
    """Return the comparison as one HTML file that needs nothing else; names in it are escaped and
    made visible.
    """
    ordered = worst_first(comparison)
    shown = ordered[:MOST_SHOWN]
    found = [(evidence_of(row.baseline), evidence_of(row.candidate)) for row in shown]
    evidence = list(_evidence(shown, found))
    is_laid_out = len(shown) <= _LAID_OUT_CASES
    folds = {}
    if not is_laid_out:
        for place in range(0, len(evidence), EVIDENCE_SIZE):
            group = [
                (title, content) for _, title, content in evidence[place : place + EVIDENCE_SIZE]
            ]
            folds[f"evidence-{place // EVIDENCE_SIZE}"] = pack(group)
    table, grid = _table(comparison, shown)
    sides = zip(_SIDES, (comparison.only_baseline, comparison.only_candidate), strict=True)
    return render_template(
        "compared.html.j2",
        title=f"{comparison.candidate} against {comparison.baseline}",
        comparison=comparison,
        answer=answer_text(shown[0], comparison) if len(ordered) == 1 else summary_line(comparison),
        sentences=_sentences(comparison),
        table=table,
        grid=grid,
        details=[
            _details(row, number, rows, comparison)
            for number, (row, rows) in enumerate(zip(shown, found, strict=True))
        ],
        sides=_facts([(row.baseline, row.candidate) for row in comparison.rows]),
        level=level_text(comparison.level).replace("%", " %"),
        threshold=format_percent(comparison.threshold),
        has_real=any(not row.is_virtual for row in comparison.rows),
        more=len(ordered) - len(shown),
        only=[(name, titles) for name, titles in sides if titles],
        evidence=evidence if is_laid_out else [],
        folds=folds,
        settings={
            "evidence_size": EVIDENCE_SIZE,
            "places": {key: place for place, (key, _, _) in enumerate(evidence)},
        },
        MOST_ALONE=_MOST_ALONE,
    )


def answer_text(row: ComparedCase, comparison: Comparison) -> str:
    """Return what came out of a case: ``gpu is 37 % faster than xnnpack, 95 %: 34 to 40``."""
    verdict = row.verdict
    one, other = (
        name.removeprefix(f"{comparison.axis} ")
        for name in (comparison.candidate, comparison.baseline)
    )
    level = level_text(verdict.level).replace("%", " %")
    if verdict.is_between_sessions:
        level += " between sessions"
    is_known = verdict.low is not None and verdict.high is not None
    match verdict.outcome:
        case ComparisonOutcome.FASTER | ComparisonOutcome.SLOWER if verdict.ratio:
            is_faster = verdict.outcome is ComparisonOutcome.FASTER
            ends = (verdict.low, verdict.ratio, verdict.high)
            low, change, high = (
                sorted(100 * ((1 / end if is_faster else end) - 1) for end in ends if end)
                if is_known
                else (0.0, 100 * abs(verdict.ratio - 1), 0.0)
            )
            digits = 0 if high - low > _WHOLE_FROM or not is_known else 1
            text = f"{one} is {change:.{digits}f} % {verdict.outcome} than {other}"
            if is_known:
                text += f", {level}: {low:.{digits}f} to {high:.{digits}f}"
        case ComparisonOutcome.SAME:
            text = f"{one} takes as long as {other}, within {format_percent(comparison.threshold)}"
        case ComparisonOutcome.INCOMPARABLE:
            return f"{one} and {other} can't be compared"
        case _:
            told = f", {level}: {interval_text(verdict)}" if is_known else ""
            text = f"No difference between {one} and {other} was shown{told}"
    return f"{text}. Smallest visible change: {format_percent(verdict.detectable)}"


def _sentences(comparison: Comparison) -> Iterable[str]:
    """Yield how small a change could have been seen, and what kept cases apart."""
    seen = sorted(row.verdict.detectable for row in comparison.rows if row.verdict.detectable)
    if len(comparison.rows) > 1 and seen:
        least, middle, most = (
            format_percent(seen[place]) for place in (0, len(seen) // 2, len(seen) - 1)
        )
        range_ = "" if least == most else f" in the middle case ({least} to {most} over all)"
        yield f"Smallest visible change: {middle}{range_}."
    if comparison.counts[ComparisonOutcome.INCOMPARABLE]:
        facts = Counter(
            fact
            for row in comparison.rows
            for fact in dict.fromkeys(item.fact.value for item in row.differences)
        )
        causes = ", ".join(f"{fact} ({count})" for fact, count in facts.most_common())
        yield f"Incomparable because of: {causes}."


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
    threshold = comparison.threshold
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
        return dots(axis, change, told, is_dense=True, band=(-threshold, threshold))

    known = {
        column.name: column
        for column in compared_table(comparison).columns
        if Form.HTML in column.forms
    }
    numbers = {id(row): number for number, row in enumerate(shown)}

    def side(name: str, of: Callable[[ComparedCase], Measured]) -> Column[ComparedCase]:
        return replace(
            known[name],
            shown=lambda row: _no_result(of(row)),
            case=lambda row: f"{numbers[id(row)]}-{name}",
        )

    columns: list[Column[Any]] = [
        replace(known["title"], shown=lambda row: row.title.replace(".tflite", "")),
        known["outcome"],
        known["ratio"],
        Column("picture", "change of time", picture, Kind.PICTURE, box=head),
        known["interval"],
        replace(known["detectable"], head="smallest visible"),
        side("baseline", lambda row: row.baseline),
        side("candidate", lambda row: row.candidate),
        known["counts"],
    ]
    table = compared_table(comparison)
    return Table(
        name=table.name,
        caption=table.caption,
        columns=columns,
        rows=shown,
        is_virtual=table.is_virtual,
    ), grid_lines(axis)


def _no_result(item: Measured) -> str | None:
    """Return a figure that is none of what was asked for, as that."""
    summary = item.result.summary
    if summary is None or item.result.own_summary is not None:
        return None
    return f"no result: {format_figure(summary.median_us, is_per_token=item.case.is_per_token)}"


def _details(row: ComparedCase, number: int, found: Found, comparison: Comparison) -> CaseDetails:
    differences = [item.text for item in row.differences]
    sides = list(zip(_SIDES, (row.baseline, row.candidate), strict=True))
    spreads = [
        spread_of(list(item.used.values()), name, f"d{colour}")
        for colour, (name, item) in enumerate(sides, start=1)
        if item.used
    ]
    known = [spread for spread in spreads if spread.runs]
    return CaseDetails(
        title=row.title or f"{row.baseline.case.model_name}: {row.baseline.case.configuration}",
        is_virtual=row.is_virtual,
        runs=strips(known, "The runs of both sides", "ms") if known else None,
        sentences=[
            f"{answer_text(row, comparison)}.",
            *differences,
            *(reason for reason in row.verdict.reasons if reason not in differences),
            *_explained(found),
        ],
        keys=(f"{number}-{_SIDES[0]}", f"{number}-{_SIDES[1]}"),
    )


def _explained(found: Found) -> Sequence[str]:
    before, after = found
    if before is None or after is None or not before.profiles or not after.profiles:
        return ()
    return compare_profiles(before.profiles[-1], after.profiles[-1]).sentences[:3]


def _facts(pairs: Sequence[tuple[Measured, Measured]]) -> Table[Fact]:
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
            sorted({of(before) for before, _ in pairs} - {""}),
            sorted({of(after) for _, after in pairs} - {""}),
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
    more = len(values) - _MOST_NAMED
    return (
        "; ".join([*values[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]) or NOTHING
    )


def _evidence(
    rows: Sequence[ComparedCase], found: Sequence[Found]
) -> Iterable[tuple[str, str, Html]]:
    """Yield key, title and evidence of the runs of both sides."""
    sides = [
        (f"{number}-{side}", f"{side}: {row.title}", item)
        for number, (row, pair) in enumerate(zip(rows, found, strict=True))
        for side, item in zip(_SIDES, pair, strict=True)
    ]
    shown = iter(case_evidence([item for _, _, item in sides if item is not None]))
    for key, title, item in sides:
        gone = tag("p", "Its runs aren't in the store any more.")
        content = next(shown)[1] if item is not None else joined([gone])
        yield key, visible(title), content
