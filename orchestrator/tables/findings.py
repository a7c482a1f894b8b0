"""The tables of findings and skipped cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.analysis.case_result import SEVERITIES, FindingCount
from orchestrator.records.case import SkippedCase
from orchestrator.records.verdict import Severity
from orchestrator.tables.rows import ResultRow, SkipRow
from orchestrator.tables.table import DATA, IS_VIRTUAL, PAGE, PEOPLE, Column, Kind, Table

#: The greatest number of named cases of a finding.
_MOST_NAMED: Final = 8
#: A finding with the cases that have it.
Kinds = tuple[FindingCount, Sequence[ResultRow]]

FINDINGS: Final[Sequence[Column[FindingCount]]] = (
    Column("code", "finding", lambda item: item.finding.code),
    Column(
        "severity",
        value=lambda item: item.finding.severity,
        tone=lambda item: f"v-{item.finding.severity.value}",
    ),
    Column[FindingCount]("message", value=lambda item: item.finding.message).sentence,
    Column[FindingCount](
        "evidence", value=lambda item: item.finding.evidence, is_optional=True
    ).sentence,
    Column("invocations", "runs", lambda item: item.count, Kind.COUNT),
    Column("next_step", "what to do", lambda row: row.next_step),
)


def findings_table(rows: Sequence[FindingCount]) -> Table[FindingCount]:
    """Return the findings of one case."""
    columns = [replace(column, is_optional=True) for column in FINDINGS]
    return Table(name="findings", caption="Findings", columns=columns, rows=rows)


def _name(row: ResultRow) -> str:
    """Return a case's title, with ``(virtual)`` where only its program or run is virtual."""
    return row.title + " (virtual)" * (row.is_virtual and not row.device.is_virtual)


def _which(item: Kinds) -> list[tuple[str, str]]:
    _, rows = item
    more = len(rows) - _MOST_NAMED
    links = [(_name(row), row.key) for row in rows[:_MOST_NAMED]]
    return links + ([(f"and {more} more", "")] if more > 0 else [])


def kinds_table(rows: Iterable[ResultRow]) -> Table[Kinds]:
    """Return the table of findings by code, worst first: the first of each, and its cases."""
    kinds: dict[tuple[str, Severity], tuple[FindingCount, list[ResultRow]]] = {}
    for row in rows:
        for item in row.finding_counts:
            kinds.setdefault((item.finding.code, item.finding.severity), (item, []))[1].append(row)
    keys = sorted(kinds, key=lambda key: (SEVERITIES.index(key[1]), -len(kinds[key][1]), key[0]))
    cases: Sequence[Column[Kinds]] = (
        Column("cases", value=lambda item: len(item[1]), kind=Kind.COUNT),
        Column("which", value=_which, kind=Kind.CASES, forms=PAGE),
    )
    finding_columns: list[Column[Kinds]] = [column.of(lambda item: item[0]) for column in FINDINGS]
    return Table(
        name="kinds",
        caption="Findings, worst first",
        nothing="No findings.",
        columns=(*finding_columns[:4], *cases, finding_columns[5]),
        rows=[kinds[key] for key in keys],
    )


#: A combination that the plan names and that isn't run.
SKIPPED: Final[Sequence[Column[SkippedCase]]] = (
    Column("model_name", "model", lambda row: row.model_name),
    Column("delegate", value=lambda row: row.delegate),
    Column("threads", value=lambda row: row.threads, kind=Kind.COUNT),
    Column("tool", value=lambda row: row.tool),
    Column("reason_code", "code", lambda row: row.reason_code),
    Column[SkippedCase]("reason", value=lambda row: row.reason).sentence,
)


def _skipped(row: SkipRow) -> SkippedCase:
    return row.skipped


def skips_table(rows: Sequence[SkipRow]) -> Table[SkipRow]:
    """Return the table of combinations that a plan names and that weren't run."""
    model, *settings, code, reason = SKIPPED
    return Table(
        name="skipped",
        caption="Combinations that the plan names and that weren't run",
        columns=(
            model.of(_skipped, name="model"),
            Column("serial", value=lambda row: row.device.serial, forms=DATA),
            Column("device", value=lambda row: row.device.title),
            IS_VIRTUAL.of(lambda row: row.device),
            Column("configuration", value=lambda row: row.configuration, forms=PEOPLE),
            *(column.of(_skipped, forms=DATA) for column in settings),
            code.of(_skipped),
            reason.of(_skipped),
        ),
        rows=rows,
    )
