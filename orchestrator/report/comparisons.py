"""A comparison as text, Markdown, JUnit XML and JSON values; names are escaped in each of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from orchestrator.analysis.comparison import DOUBTFUL, ComparedCase, Comparison, FailOn
from orchestrator.analysis.effect import CHANGES
from orchestrator.tables.comparisons import (
    WORST_FIRST,
    case_title,
    change_of,
    change_text,
    compared_table,
    figure_of,
    runs_text,
    worst_first,
)
from orchestrator.tables.escapes import WIDTH, markdown_text, visible, wrap
from orchestrator.tables.renderers import as_markdown
from orchestrator.tables.table import json_value
from orchestrator.units import counted, format_percent

_FORBIDDEN_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
VIRTUAL_NOTE: Final = "Figures of virtual phones are computed; they are no measurement."
_VERDICT_WIDTH: Final = 14
#: The greatest number of named cases that only one side has, in text.
_MOST_ALONE: Final = 5
#: The greatest number of cases without a known change on a terminal.
_MOST_UNCHANGED: Final = 30


def level_text(level: float) -> str:
    """Return the level of an interval in percent: ``95%``, ``99.9%``."""
    return f"{level * 100:.4g}%"


def summary_line(comparison: Comparison) -> str:
    """Return the comparison in one sentence."""
    broken = Counter(row.verdict.outcome for row in comparison.rows if row.is_broken)
    counts = ", ".join(
        f"{count} {outcome}{f' ({broken[outcome]} broken)' if broken[outcome] else ''}"
        for outcome in WORST_FIRST
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
    quantity, change, ends = change_of(row)
    interval = f" ({ends} at {level_text(verdict.level)})" if verdict.low is not None else ""
    runs = "" if verdict.method.startswith("paired") else "runs "
    parts = [
        f"{figure_of(row.baseline)} -> {figure_of(row.candidate)}",
        f"{quantity} {change}{interval}",
        f"detectable {format_percent(verdict.detectable)}" if verdict.detectable else "",
        f"{runs}{runs_text(verdict)}.",
    ]
    return [", ".join(filter(None, parts)), *verdict.reasons]


def _xml_text(text: str) -> str:
    """Return text without characters that XML forbids; ElementTree escapes the rest."""
    return _FORBIDDEN_IN_XML.sub("\N{REPLACEMENT CHARACTER}", visible(text))
