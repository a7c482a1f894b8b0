"""The page's tables, made from the rows of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from orchestrator.passes import pass_tables
from orchestrator.report.data import ReportData
from orchestrator.report.scaling import ThreadStep, thread_steps
from orchestrator.tables.column import Column, Kind
from orchestrator.tables.operators import CHANGES, OPERATORS, TYPES, DiffPair, DiffRow
from orchestrator.tables.results import (
    OWN_COLUMNS,
    delegates_table,
    figures_table,
    memory_table,
    parts_of,
    parts_table,
    pass_table,
    results_table,
    starts_table,
    sustained_table,
)
from orchestrator.tables.rows import ResultRow
from orchestrator.tables.table import Table

_STEPS: Final[Sequence[Column[ThreadStep]]] = (
    Column("threads", "threads", lambda step: step.row.case.threads, Kind.COUNT),
    Column(
        "speed_up",
        "speed-up",
        lambda step: step.speed_up,
        Kind.NUMBER,
        "x fewest threads",
        digits=2,
    ),
    Column(
        "efficiency",
        "efficiency",
        lambda step: step.efficiency,
        Kind.NUMBER,
        "% per thread",
        100,
        digits=0,
    ),
)


def page_tables(data: ReportData) -> Mapping[str, Table[Any]]:
    """Return the tables that have rows, by name; ``results`` is always among them."""
    rows = data.results
    profiled = [row for row in rows if row.profiles]
    tables: Sequence[Table[Any]] = (
        results_table(rows),
        memory_table(rows),
        starts_table(rows),
        *(pass_table(table, rows) for table in pass_tables()),
        figures_table(rows),
        _threads(rows),
        delegates_table(rows),
        _operators(profiled),
        parts_table(
            "types",
            "Time by type of operator",
            parts_of(profiled, lambda row: row.profiles[-1].by_type()),
            TYPES,
        ),
        _changes(data.diffs),
        sustained_table(rows),
    )
    return {table.name: table for table in tables if table.listed or table.name == "results"}


def _threads(rows: Sequence[ResultRow]) -> Table[Any]:
    caption = "Thread scaling of each case that was measured with several numbers"
    steps = [(step.row, step) for step in thread_steps(rows)]
    return parts_table("threads", caption, steps, _STEPS, of_case=OWN_COLUMNS)


def _operators(rows: Sequence[ResultRow]) -> Table[Any]:
    # What an operator such as WHILE runs stands after it all: its time is in the operator's own.
    numbered = parts_of(
        rows,
        lambda row: sorted(
            enumerate((*row.profiles[-1].rows, *row.profiles[-1].nested), start=1),
            key=lambda item: (bool(item[1].subgraph), -item[1].mean_us),
        ),
    )
    table = parts_table("operators", "Layers of the model, the slowest first", numbered, OPERATORS)
    return replace(table, order="slowest first")


def _changes(pairs: Sequence[DiffPair]) -> Table[Any]:
    """Return the operators of each two runs; a page shows one pair at a time."""
    rows = [
        (pair, number, change) for number, pair in enumerate(pairs) for change in pair.diff.rows
    ]

    def change_of(row: tuple[DiffPair, int, DiffRow]) -> DiffRow:
        return row[2]

    return Table(
        name="changes",
        caption="Operators of two runs, largest difference first",
        columns=[column.of(change_of) for column in CHANGES],
        rows=rows,
        key=lambda row: row[0].row.key,
        is_virtual=lambda row: row[0].row.is_virtual,
        group=lambda row: str(row[1]),
    )
