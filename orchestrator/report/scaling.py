"""What more threads bring, from a report's rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.case_result import OWN_FIGURE
from orchestrator.records.case import all_but
from orchestrator.report.winners import alike, fixed_cores
from orchestrator.tables.rows import ResultRow

_BESIDE_THREADS: Final = all_but("threads", "affinity")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStep:
    """One case among those that differ from it in nothing but the number of threads."""

    row: ResultRow
    #: Over the case with the fewest threads.
    speed_up: float
    #: The speed-up divided by how many times as many threads it took: 1.0 is ideal.
    efficiency: float


def thread_steps(rows: Iterable[ResultRow]) -> Iterator[ThreadStep]:
    """Yield the cases that have siblings with other numbers of threads; only figures of the
    delegate itself count.
    """
    groups: dict[tuple[object, ...], dict[int, ResultRow]] = defaultdict(dict)
    for row in rows:
        if row.result.status in OWN_FIGURE and row.case.threads > 0:
            groups[_BESIDE_THREADS(row.case), fixed_cores(row.case)].setdefault(
                row.case.threads, row
            )
    for group in groups.values():
        if len(group) < 2:
            continue
        members = [group[threads] for threads in sorted(group)]
        figures = alike({row.key: row.result for row in members})
        fewest = members[0]
        if fewest.key not in figures:
            continue
        for row in (row for row in members if row.key in figures):
            speed_up = figures[fewest.key].median_us / figures[row.key].median_us
            yield ThreadStep(
                row=row,
                speed_up=speed_up,
                efficiency=speed_up * fewest.case.threads / row.case.threads,
            )
