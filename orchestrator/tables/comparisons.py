"""The columns of a compared case, and of each of its two sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from orchestrator.analysis.case_result import CaseResult
from orchestrator.analysis.comparison import ComparedCase, Comparison, Overall
from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict
from orchestrator.tables.table import (
    DATA,
    EVERYWHERE,
    FLAT,
    IS_VIRTUAL,
    NESTED,
    NOTHING,
    PEOPLE,
    Column,
    Kind,
    Table,
    fields_of,
)
from orchestrator.units import format_change, format_figure, format_percent

#: The order of outcomes, the most important first.
WORST_FIRST: Final = (
    ComparisonOutcome.SLOWER,
    ComparisonOutcome.FASTER,
    ComparisonOutcome.INCONCLUSIVE,
    ComparisonOutcome.INCOMPARABLE,
    ComparisonOutcome.SAME,
)
_CLASSES: Final = {
    ComparisonOutcome.SLOWER: "v-error",
    ComparisonOutcome.FASTER: "v-good",
    ComparisonOutcome.INCONCLUSIVE: "v-warning",
    ComparisonOutcome.INCOMPARABLE: "v-warning",
    ComparisonOutcome.SAME: "",
}


def worst_first(comparison: Comparison) -> list[ComparedCase]:
    """Return the cases, broken ones first, then by verdict and size of the change."""

    def place(row: ComparedCase) -> tuple[object, ...]:
        size = abs(math.log(row.verdict.ratio)) if row.verdict.ratio else 0.0
        return not row.is_broken, WORST_FIRST.index(row.verdict.outcome), -size, row.title

    return sorted(comparison.rows, key=place)


def case_title(row: ComparedCase) -> str:
    """Return the title of a case, with model and configuration where the comparison gives none."""
    case = row.baseline.case
    return row.title or f"{case.model_name}: {case.configuration}"


def change_of(row: ComparedCase) -> tuple[str, str, str]:
    """Return the quantity (``time``, or ``speed`` of a language model), its change and its
    interval: ``+1.2 % to +4.9 %``.

    A speed's change is the time's inverted: where a token takes +25 % time, it is -20 %.
    """
    return change_text(row.verdict, is_speed=row.baseline.case.is_per_token)


def change_text(verdict: ComparisonVerdict | Overall, *, is_speed: bool) -> tuple[str, str, str]:
    """Return quantity, change and interval of a case's verdict or of the overall verdict."""
    ratio, low, high = verdict.ratio, verdict.low, verdict.high
    if is_speed:
        ratio, low, high = (1 / end if end else None for end in (ratio, high, low))
    is_known = low is not None and high is not None
    interval = f"{format_change(low)} to {format_change(high)}" if is_known else NOTHING
    return "speed" if is_speed else "time", format_change(ratio), interval


def runs_text(verdict: ComparisonVerdict) -> str:
    """Return the runs of a verdict: ``10 / 10`` of baseline and candidate, or ``12 pairs``."""
    is_paired = verdict.method.startswith("paired")
    return (
        f"{verdict.counts[0]} pairs" if is_paired else f"{verdict.counts[0]} / {verdict.counts[1]}"
    )


def figure_of(item: CaseResult) -> str:
    """Return the text of a side's figure; none where it isn't the requested one's."""
    return format_figure(item.median_us, is_per_token=item.case.is_per_token)


def _change_words(row: ComparedCase) -> str:
    quantity, change, _ = change_of(row)
    return f"{change} speed" if quantity == "speed" else change


def _record(item: CaseResult) -> dict[str, Any]:
    """Return a side as JSON."""
    of_case = ("case_key", "serial", "model_name", "model_sha256", "build_sha256")
    of_result = (
        "status", "quality", "precision", "is_precise", "grade", "median_us", "not_a_result_us",
    )  # fmt: skip
    return {
        "campaign_id": item.campaign_id,
        "device": item.device_title,
        **fields_of(item, "build", "is_virtual", "origin", "outputs"),
        **fields_of(item.case, *of_case),
        "configuration": item.named(item.case.configuration),
        **fields_of(item, *of_result),
        "figure": item.figure.value if item.summary is not None else None,
        "count": len(item.used),
        "run_ids": list(item.used),
    }


def _side(
    name: str, side_of: Callable[[ComparedCase], CaseResult]
) -> Iterator[Column[ComparedCase]]:
    """Yield the columns of a side: in JSON an object, in frames its figure."""
    yield Column(name, name, lambda row: _record(side_of(row)), Kind.RECORD, forms=NESTED)
    yield Column(
        f"{name}_median_us", name, lambda row: side_of(row).median_us, Kind.NUMBER, forms=FLAT
    )


def _figure(name: str, side_of: Callable[[ComparedCase], CaseResult]) -> Column[ComparedCase]:
    """Return the column of a side's figure, for people."""
    return Column(
        name,
        name,
        lambda row: figure_of(side_of(row)),
        tone=lambda row: "" if side_of(row).own_summary is not None else "bad",
        forms=PEOPLE,
    )


COMPARED: Final[Sequence[Column[ComparedCase]]] = (
    Column(
        "outcome",
        "verdict",
        lambda row: row.verdict.outcome,
        shown=lambda row: row.verdict.outcome.value.upper(),
        tone=lambda row: _CLASSES[row.verdict.outcome],
        is_choice=True,
        forms=EVERYWHERE - NESTED,
    ),
    Column("title", "case", shown=lambda row: row.title + (" [virtual]" if row.is_virtual else "")),
    _figure("baseline", lambda row: row.baseline),
    _figure("candidate", lambda row: row.candidate),
    Column(
        "ratio",
        "change",
        lambda row: row.verdict.ratio,
        Kind.NUMBER,
        shown=_change_words,
        forms=EVERYWHERE - NESTED,
    ),
    Column("interval", value=lambda row: change_of(row)[2], forms=PEOPLE),
    Column(
        "detectable",
        value=lambda row: row.verdict.detectable,
        kind=Kind.NUMBER,
        shown=lambda row: format_percent(row.verdict.detectable),
        forms=EVERYWHERE - NESTED,
    ),
    Column("counts", "runs", lambda row: runs_text(row.verdict), forms=PEOPLE),
    Column("ratio_low", "from", lambda row: row.verdict.low, Kind.NUMBER, forms=FLAT),
    Column("ratio_high", "to", lambda row: row.verdict.high, Kind.NUMBER, forms=FLAT),
    Column(
        "is_between_sessions",
        "between sessions",
        lambda row: row.verdict.is_between_sessions,
        Kind.FLAG,
        forms=FLAT,
    ),
    Column("reasons", value=lambda row: "; ".join(row.verdict.reasons), forms=FLAT),
    IS_VIRTUAL,
    Column("is_broken", "broken", kind=Kind.FLAG, forms=DATA),
    Column("verdict", kind=Kind.RECORD, forms=NESTED),
    Column("differences", kind=Kind.RECORD, forms=NESTED),
    *_side("baseline", lambda row: row.baseline),
    *_side("candidate", lambda row: row.candidate),
)


def compared_table(comparison: Comparison) -> Table[ComparedCase]:
    """Return the compared cases, worst first."""
    return Table(
        name="compared",
        caption=f"{comparison.candidate} against {comparison.baseline}",
        columns=COMPARED,
        rows=worst_first(comparison),
        is_virtual=lambda row: row.is_virtual,
        order="worst first",
    )
