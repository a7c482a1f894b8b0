"""A comparison: the columns of its cases and of their two sides; and all of it as text, Markdown, JUnit
XML and JSON values, in each of which names are escaped.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from xml.etree import ElementTree

from orchestrator.analysis.case_result import CaseResult
from orchestrator.analysis.comparison import DOUBTFUL, ComparedCase, Comparison, FailOn, Overall
from orchestrator.analysis.effect import CHANGES
from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict
from orchestrator.tables.escapes import WIDTH, markdown_text, visible, wrap
from orchestrator.tables.renderers import as_markdown
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
    json_value,
)
from orchestrator.units import counted, format_change, format_figure, format_percent

#: The order of outcomes, the most important first.
_WORST_FIRST: Final = (
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
_FORBIDDEN_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
VIRTUAL_NOTE: Final = "Figures of virtual phones are computed; they are no measurement."
_VERDICT_WIDTH: Final = 14
#: The greatest number of named cases that only one side has, in text.
_MOST_ALONE: Final = 5
#: The greatest number of cases without a known change on a terminal.
_MOST_UNCHANGED: Final = 30


def worst_first(comparison: Comparison) -> list[ComparedCase]:
    """Return the cases, broken ones first, then by verdict and size of the change."""

    def place(row: ComparedCase) -> tuple[object, ...]:
        size = abs(math.log(row.verdict.ratio)) if row.verdict.ratio else 0.0
        return not row.is_broken, _WORST_FIRST.index(row.verdict.outcome), -size, row.title

    return sorted(comparison.rows, key=place)


def case_title(row: ComparedCase) -> str:
    """Return the title of a case, with model and configuration where the comparison gives none."""
    case = row.baseline.case
    return row.title or f"{case.model_name}: {case.configuration}"


def _change_of(row: ComparedCase) -> tuple[str, str, str]:
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


def _runs_text(verdict: ComparisonVerdict) -> str:
    """Return the runs of a verdict: ``10 / 10`` of baseline and candidate, or ``12 pairs``."""
    is_paired = verdict.method.startswith("paired")
    baseline, candidate = verdict.counts
    return counted(baseline, "pair") if is_paired else f"{baseline} / {candidate}"


def _figure_of(item: CaseResult) -> str:
    """Return the text of a side's figure; none where it isn't the requested one's."""
    return format_figure(item.median_us, is_per_token=item.case.is_per_token)


def _change_words(row: ComparedCase) -> str:
    quantity, change, _ = _change_of(row)
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
        lambda row: _figure_of(side_of(row)),
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
    Column(
        "title",
        "case",
        lambda row: row.title,
        shown=lambda row: row.title + (" [virtual]" if row.is_virtual else ""),
    ),
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
    Column("interval", value=lambda row: _change_of(row)[2], forms=PEOPLE),
    Column(
        "detectable",
        value=lambda row: row.verdict.detectable,
        kind=Kind.NUMBER,
        shown=lambda row: format_percent(row.verdict.detectable),
        forms=EVERYWHERE - NESTED,
    ),
    Column("counts", "runs", lambda row: _runs_text(row.verdict), forms=PEOPLE),
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
    Column("is_broken", "broken", lambda row: row.is_broken, kind=Kind.FLAG, forms=DATA),
    Column("verdict", value=lambda row: row.verdict, kind=Kind.RECORD, forms=NESTED),
    Column("differences", value=lambda row: row.differences, kind=Kind.RECORD, forms=NESTED),
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
        order="worst first",
    )


def level_text(level: float) -> str:
    """Return the level of an interval in percent: ``95 %``, ``99.9 %``."""
    return f"{level * 100:.4g} %"


def summary_line(comparison: Comparison) -> str:
    """Return the comparison in one sentence."""
    broken = Counter(row.verdict.outcome for row in comparison.rows if row.is_broken)
    counts = ", ".join(
        f"{count} {outcome}{f' ({broken[outcome]} broken)' if broken[outcome] else ''}"
        for outcome in _WORST_FIRST
        if (count := comparison.counts[outcome])
    )
    overall = comparison.overall
    if overall is None:
        return f"{counts or 'no case'}: nothing could be compared"
    # Where times and speeds are mixed, the overall change is one of time.
    is_speed = all(
        row.baseline.case.is_per_token for row in comparison.rows if row.verdict.ratio is not None
    )
    quantity, change, ends = change_text(overall, is_speed=is_speed)
    interval = f" ({ends}, {level_text(overall.level)})" if overall.low is not None else ""
    cases = counted(overall.count, "case")
    return f"{counts}; overall {change} {quantity}{interval} over {cases}"


def to_text(comparison: Comparison, width: int = WIDTH) -> str:
    """Return the comparison for a terminal of ``width`` columns; no line break at the end."""
    lines = [*(line for text in _head(comparison) for line in wrap(text, width)), ""]
    shared, unchanged = _shared_reasons(comparison), 0
    for row in worst_first(comparison):
        if not row.is_broken and row.verdict.outcome not in CHANGES:
            unchanged += 1
            if unchanged > _MOST_UNCHANGED:
                continue
        lines += [*_case_lines(row, shared, width), ""]
    if (more := unchanged - _MOST_UNCHANGED) > 0:
        lines += [f"and {more} more without a change that is known; --format json has all", ""]
    lines += [
        line
        for text in (*_shared_lines(shared), *_closing_lines(comparison))
        for line in wrap(text, width, following="  " * text.startswith(" "))
    ]
    return "\n".join(lines).rstrip("\n")


def _shared_reasons(comparison: Comparison) -> list[str]:
    """Return the reasons that all cases share, which are shown once."""
    first, *further = [row.verdict.reasons for row in comparison.rows] or [()]
    return [reason for reason in first if further and all(reason in reasons for reasons in further)]


def _case_lines(row: ComparedCase, shared: Sequence[str], width: int) -> list[str]:
    """Return the lines of a case for a terminal: its verdict, its figures and its own reasons."""
    virtual = " [virtual]" * row.is_virtual
    head = f"{row.verdict.outcome.value.upper():<{_VERDICT_WIDTH}}{visible(row.title)}{virtual}"
    indent = " " * _VERDICT_WIDTH
    details = [indent + visible(text) for text in sentences(row) if text not in shared]
    return [
        *wrap(head, width, following=indent),
        *(part for line in details for part in wrap(line, width)),
    ]


def to_markdown(comparison: Comparison) -> str:
    """Return the comparison for a comment on a pull request."""
    head = [markdown_text(line) for line in _head(comparison)]
    lines = [f"### {head[0]}", "", *(f"{line}  " for line in head[1:]), ""]
    rows = worst_first(comparison)
    if rows:
        lines += [*as_markdown(compared_table(comparison)).splitlines(), ""]
    shared = _shared_reasons(comparison)
    case_notes = (
        (row, reason) for row in rows for reason in row.verdict.reasons if reason not in shared
    )
    notes = [f"{row.title}: {reason}" for row, reason in case_notes]
    notes += [*_shared_lines(shared), *_closing_lines(comparison)]
    if notes:
        lines += ["<details><summary>Notes</summary>", ""]
        lines += [f"- {markdown_text(note)}" for note in notes]
        lines += ["", "</details>"]
    return "\n".join(lines).rstrip("\n") + "\n"


def to_junit(comparison: Comparison, *, fail_on: FailOn = FailOn.SLOWER) -> str:
    """Return JUnit XML with a test case for each compared case: a failure by ``fail_on``, skipped
    where the verdict is doubtful.
    """
    name = _xml_text(f"benchfarm compare: {comparison.candidate} against {comparison.baseline}")
    tests: list[tuple[str, str, str, str]] = []
    for row in worst_first(comparison):
        outcome = row.verdict.outcome
        tag = "failure" if row.fails(fail_on) else "skipped" if outcome in DOUBTFUL else ""
        kind = "broken" if row.is_broken else "failed" if row.failed else outcome.value
        virtual = " [virtual]" * row.is_virtual
        tests.append((case_title(row) + virtual, tag, kind, " ".join(sentences(row))))
    if why := comparison.lack(fail_on):
        details = " ".join([summary_line(comparison), *_closing_lines(comparison)])
        tests.append(("whole", "error", why, details))
    tags = [tag for _, tag, _, _ in tests]
    counts = {
        "tests": str(len(tests)),
        "failures": str(tags.count("failure")),
        "errors": str(tags.count("error")),
    }
    suites = ElementTree.Element("testsuites", counts, name="benchfarm")
    skipped = str(tags.count("skipped"))
    suite = ElementTree.SubElement(suites, "testsuite", counts, name=name, skipped=skipped)
    for title, tag, kind, text in tests:
        words = {"classname": "benchfarm.compare", "name": _xml_text(title), "time": "0"}
        test = ElementTree.SubElement(suite, "testcase", words)
        if tag:
            ElementTree.SubElement(test, tag, message=_xml_text(text), type=kind)
        ElementTree.SubElement(test, "system-out").text = _xml_text(text)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode") + "\n"


def to_data(comparison: Comparison) -> dict[str, object]:
    """Return the comparison as JSON values: latencies in microseconds, ratios as candidate time /
    baseline time.
    """
    table = compared_table(comparison)
    return {
        "axis": comparison.axis,
        "baseline": comparison.baseline,
        "candidate": comparison.candidate,
        "is_virtual": comparison.is_virtual,
        "threshold": comparison.change_rule.threshold,
        "level": comparison.change_rule.level,
        "overall": json_value(comparison.overall),
        "only_baseline": list(comparison.only_baseline),
        "only_candidate": list(comparison.only_candidate),
        "notes": list(comparison.notes),
        "counts": {outcome.value: count for outcome, count in comparison.counts.items()},
        "cases": [table.record(row) for row in table.listed],
    }


def _head(comparison: Comparison) -> list[str]:
    lines = [
        visible(f"{comparison.candidate} (candidate) against {comparison.baseline} (baseline)"),
        summary_line(comparison),
    ]
    if comparison.is_virtual:
        lines.append(VIRTUAL_NOTE)
    return lines


def _shared_lines(shared: Sequence[str]) -> list[str]:
    return [visible(f"For all cases: {reason}") for reason in shared]


def _closing_lines(comparison: Comparison) -> list[str]:
    lines = []
    sides = {"baseline": comparison.only_baseline, "candidate": comparison.only_candidate}
    for side, titles in sides.items():
        if titles:
            lines.append(f"only in the {side}: {counted(len(titles), 'case')}")
            lines += [f"  {title}" for title in titles[:_MOST_ALONE]]
        if len(titles) > _MOST_ALONE:
            lines.append(f"  and {len(titles) - _MOST_ALONE} more; --format json has all")
    lines += comparison.notes
    lines.append(
        f"A change is claimed when its {level_text(comparison.change_rule.level)} interval leaves out 0 and "
        f"it is at least {format_percent(comparison.change_rule.threshold)}; 'detectable' is the smallest "
        "change that would be found 8 times out of 10. Figures are medians, where no note says "
        "otherwise; changes are measured on pairs or trimmed means, so that a quotient of medians may "
        "differ."
    )
    return [visible(line) for line in lines]


def sentences(row: ComparedCase) -> list[str]:
    """Return a case's figures as one sentence, where they are compared, and its reasons."""
    verdict = row.verdict
    if verdict.ratio is None:
        return list(verdict.reasons)
    quantity, change, ends = _change_of(row)
    interval = f" ({ends} at {level_text(verdict.level)})" if verdict.low is not None else ""
    runs = "" if verdict.method.startswith("paired") else "runs "
    parts = [
        f"{_figure_of(row.baseline)} -> {_figure_of(row.candidate)}",
        f"{quantity} {change}{interval}",
        f"detectable {format_percent(verdict.detectable)}" if verdict.detectable else "",
        f"{runs}{_runs_text(verdict)}.",
    ]
    return [", ".join(filter(None, parts)), *verdict.reasons]


def _xml_text(text: str) -> str:
    """Return text without characters that XML forbids; ElementTree escapes the rest."""
    return _FORBIDDEN_IN_XML.sub("\N{REPLACEMENT CHARACTER}", visible(text))
