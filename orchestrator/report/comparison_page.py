"""A comparison as one HTML file: verdicts worst first, intervals as bars, and the runs of both
sides behind each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from orchestrator.analysis.case_result import OWN_FIGURE
from orchestrator.analysis.comparison import ComparedCase, Comparison
from orchestrator.analysis.matching import Measured
from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict
from orchestrator.report.comparisons import level_text, summary_line
from orchestrator.report.evidence import Part, case_evidence
from orchestrator.report.render import EVIDENCE_SIZE, render_template
from orchestrator.tables.column import column_decimals
from orchestrator.tables.comparisons import WORST_FIRST, change_of, runs_text, worst_first
from orchestrator.tables.escapes import visible
from orchestrator.tables.labels import figure_text
from orchestrator.tables.operators import compare_profiles
from orchestrator.tables.page_policy import pack
from orchestrator.tables.rows import ResultRow
from orchestrator.units import US_PER_MS, format_percent

#: Cases that are laid out with bars and runs; of a longer comparison, Markdown and JSON have the
#: others.
MOST_SHOWN: Final = 200
#: Cases whose runs stand on the page itself, to be read without scripts; beyond, they are folded.
_LAID_OUT_CASES: Final = 30
_MOST_ALONE: Final = 40
_MOST_NAMED: Final = 8
#: Half the drawing's width, and the least and most change that it shows at its ends.
_HALF: Final = 100.0
_LEAST_SPAN: Final = 0.05
_MOST_SPAN: Final = 1.0
#: Ends of intervals beyond this quantile are cut: one case of a hundred must not press all others
#: flat.
_SHOWN_QUANTILE: Final = 0.9

#: Returns a side's case with everything that shows it; None when it isn't stored any more.
EvidenceOf = Callable[[Measured], ResultRow | None]


#: What the template shows of a thing, under the names that it uses.
Shown = Mapping[str, object]


def render_comparison(comparison: Comparison, evidence_of: EvidenceOf) -> str:
    """Return the comparison as one HTML file that needs nothing else.

    Names in it are escaped and made visible.
    """
    ordered = worst_first(comparison)
    shown = ordered[:MOST_SHOWN]
    found = [(evidence_of(row.baseline), evidence_of(row.candidate)) for row in shown]
    page = _page(comparison, shown, found)
    evidence = list(_evidence(shown, found))
    is_laid_out = len(shown) <= _LAID_OUT_CASES
    folds = {}
    if not is_laid_out:
        for place in range(0, len(evidence), EVIDENCE_SIZE):
            group = [
                (title, content) for _, title, content in evidence[place : place + EVIDENCE_SIZE]
            ]
            folds[f"evidence-{place // EVIDENCE_SIZE}"] = pack(group)
    sides = (("baseline", comparison.only_baseline), ("candidate", comparison.only_candidate))
    return render_template(
        "compared.html.j2",
        title=f"{comparison.candidate} against {comparison.baseline}",
        page=page,
        more=len(ordered) - len(shown),
        only=[(name, titles) for name, titles in sides if titles],
        evidence=evidence if is_laid_out else [],
        folds=folds,
        settings={
            "evidence_size": EVIDENCE_SIZE,
            "places": {key: place for place, (key, _, _) in enumerate(evidence)},
        },
        MOST_ALONE=_MOST_ALONE,
        MOST_NAMED=_MOST_NAMED,
    )


def _page(
    comparison: Comparison,
    shown: Sequence[ComparedCase],
    found: Sequence[tuple[ResultRow | None, ResultRow | None]],
) -> Shown:
    span = _span(shown, comparison.threshold)
    digits = column_decimals(
        [
            us / US_PER_MS
            for row in shown
            for side in (row.baseline, row.candidate)
            if (us := _median_us(side))
        ]
    )
    lines = [
        _line(row, number, rows, span=span, digits=digits)
        for number, (row, rows) in enumerate(zip(shown, found, strict=True))
    ]
    sides = [(row.baseline, row.candidate) for row in comparison.rows]
    return {
        "sentences": _sentences(comparison),
        "counts": [(outcome.value, comparison.counts[outcome]) for outcome in WORST_FIRST],
        "lines": lines,
        # The axis above the bars: its ends and middle.
        "ticks": (f"\N{MINUS SIGN}{format_percent(span, 0)}", "0", f"+{format_percent(span, 0)}"),
        "sides": _sides(sides),
        "level": level_text(comparison.level).replace("%", " %"),
        "threshold": format_percent(comparison.threshold),
        "notes": comparison.notes,
        "is_virtual": comparison.is_virtual,
        "has_real": any(not row.is_virtual for row in comparison.rows),
    }


def _sentences(comparison: Comparison) -> tuple[str, ...]:
    """Return what came out, how small a change could have been seen, and what kept cases apart."""
    counts = comparison.counts
    sentences = [f"{summary_line(comparison)}."]
    seen = sorted(
        row.verdict.detectable for row in comparison.rows if row.verdict.detectable is not None
    )
    if seen:
        least, most = format_percent(seen[0]), format_percent(seen[-1])
        middle = format_percent(seen[len(seen) // 2])
        spread = "" if least == most else f" in the middle case ({least} to {most} over all)"
        sentences.append(f"A change of {middle} would have been found 8 times of 10{spread}.")
    if counts[ComparisonOutcome.INCOMPARABLE]:
        facts = Counter(
            fact
            for row in comparison.rows
            for fact in dict.fromkeys(item.fact.value for item in row.differences)
        )
        causes = ", ".join(f"{fact} ({count})" for fact, count in facts.most_common())
        sentences.append(f"Incomparable because of: {causes}.")
    return tuple(sentences)


def _span(rows: Sequence[ComparedCase], threshold: float) -> float:
    """Return the change at the drawing's ends."""
    reaches = sorted(
        max(
            abs(value - 1)
            for value in (row.verdict.ratio, row.verdict.low, row.verdict.high)
            if value is not None
        )
        for row in rows
        if row.verdict.ratio is not None
    )
    usual = reaches[int((len(reaches) - 1) * _SHOWN_QUANTILE)] if reaches else 0.0
    whole = max(usual, 2 * threshold, _LEAST_SPAN)
    step = 0.05 if whole <= 0.5 else 0.25
    return min(_MOST_SPAN, -(-whole // step) * step)


def _line(
    row: ComparedCase,
    number: int,
    found: tuple[ResultRow | None, ResultRow | None],
    *,
    span: float,
    digits: int,
) -> Shown:
    verdict = row.verdict
    differences = tuple(item.text for item in row.differences)
    what, change, interval = change_of(row)
    return {
        "title": row.title or f"{row.baseline.case.model_name}: {row.baseline.case.configuration}",
        "verdict": verdict.outcome.value,
        "is_virtual": row.is_virtual,
        "change": change.removesuffix(" %") + (" speed" if what == "speed" else ""),
        "interval": interval.replace(" %", ""),
        "detectable": format_percent(verdict.detectable).removesuffix(" %"),
        "before": _figure(row.baseline, digits),
        "after": _figure(row.candidate, digits),
        # Figures that are no results of what was asked for.
        "is_struck": [
            side.result.status not in OWN_FIGURE for side in (row.baseline, row.candidate)
        ],
        "runs": runs_text(verdict),
        "shape": _shape(verdict, span) if verdict.ratio is not None else None,
        "differences": differences,
        "reasons": [reason for reason in verdict.reasons if reason not in differences],
        "explained": _explained(found),
        "links": (f"{number}-baseline", f"{number}-candidate"),
    }


def _figure(item: Measured, digits: int) -> str:
    """Return a side's figure; one that isn't in the table's milliseconds with its unit."""
    unit = " tokens/s" if item.case.is_per_token else ""
    return f"{figure_text(item.case, _median_us(item), digits)}{unit}"


def _shape(verdict: ComparisonVerdict, span: float) -> Shown:
    """Return where a change is drawn, from 0 (faster by the span) over 100 (no change) to 200."""

    def place(change: float) -> float:
        return round(_HALF + max(-1.0, min(1.0, change / span)) * _HALF, 1)

    assert verdict.ratio is not None
    ends, seen = None, verdict.detectable
    if verdict.low is not None and verdict.high is not None:
        ends = place(verdict.low - 1), place(verdict.high - 1)
    start = place(-verdict.threshold)
    return {
        "middle": place(verdict.ratio - 1),
        "ends": ends,
        "detectable": None if seen is None else (place(-seen), place(seen)),
        # Start and width of the band of changes that are none.
        "band": (start, round(place(verdict.threshold) - start, 1)),
    }


def _explained(found: tuple[ResultRow | None, ResultRow | None]) -> tuple[str, ...]:
    before, after = found
    if before is None or after is None or not before.profiles or not after.profiles:
        return ()
    return tuple(compare_profiles(before.profiles[-1], after.profiles[-1]).sentences[:3])


def _median_us(item: Measured) -> float | None:
    return item.result.summary.median_us if item.result.summary is not None else None


def _sides(pairs: Sequence[tuple[Measured, Measured]]) -> Sequence[Shown]:
    """Return what each side is made of beside the other."""
    facts: Sequence[tuple[str, Callable[[Measured], str]]] = (
        ("campaign", lambda item: ", ".join(filter(None, (item.campaign_id, item.origin)))),
        ("program", lambda item: item.build),
        ("device", lambda item: item.device),
        ("system", lambda item: item.system),
        ("model", lambda item: f"{item.case.model_name} {item.case.model_sha256[:12]}"),
        (
            "grade of control",
            lambda item: item.grade.value if item.grade is not None else "unknown",
        ),
    )
    return [
        {
            "name": name,
            "before": sorted({of(before) for before, _ in pairs} - {""}),
            "after": sorted({of(after) for _, after in pairs} - {""}),
        }
        for name, of in facts
    ]


def _evidence(
    rows: Sequence[ComparedCase], found: Sequence[tuple[ResultRow | None, ResultRow | None]]
) -> Iterable[tuple[str, str, Sequence[Part]]]:
    """Yield key, title and evidence of the runs of both sides."""
    sides = [
        (f"{number}-{side}", f"{side}: {row.title}", item)
        for number, (row, pair) in enumerate(zip(rows, found, strict=True))
        for side, item in zip(("baseline", "candidate"), pair, strict=True)
    ]
    known = [item for _, _, item in sides if item is not None]
    shown = iter(case_evidence(known))
    for key, title, item in sides:
        content = (
            next(shown)[1]
            if item is not None
            else [{"p": "Its runs aren't in the store any more."}]
        )
        yield key, visible(title), content
