"""What threads and delegates bring, and which models nothing beats: derived from the rows of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.case_result import OWN_FIGURE, OWN_TRUTHS, comparable
from orchestrator.records.workload import Case
from orchestrator.report.data import ResultRow

_MOST_OPERATORS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStep:
    """One case among those that differ from it in nothing but the number of threads."""

    row: ResultRow
    #: Over the case with the fewest threads.
    speed_up: float
    #: The speed-up divided by how many times as many threads it took: 1.0 is ideal.
    efficiency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateStep:
    """What a delegate brought over the CPU, and what it left to it."""

    row: ResultRow
    #: None when either side isn't judged.
    speed_up: float | None
    delegated_nodes: int | None
    total_nodes: int | None
    #: Operators left to the CPU with the program's reasons, as one text.
    fallen_off: str


def thread_steps(rows: Iterable[ResultRow]) -> tuple[ThreadStep, ...]:
    """Return the cases that have siblings with other numbers of threads; only figures of the delegate itself count."""
    groups: dict[tuple[object, ...], dict[int, ResultRow]] = defaultdict(dict)
    for row in rows:
        if row.result.status in OWN_FIGURE and row.case.threads > 0:
            aspects = {name: value for name, value in row.case.to_row().items() if name not in ("threads", "affinity")}
            key = (str(aspects), fixed_cores(row.case))
            groups[key].setdefault(row.case.threads, row)
    steps: list[ThreadStep] = []
    for group in groups.values():
        if len(group) > 1:
            steps += _steps(group)
    return tuple(steps)


def fixed_cores(case: Case) -> str:
    """Return the cores that a plan keeps a case to; empty where they follow from the number of threads."""
    return "" if case.affinity in ("big", "all") else case.affinity


def delegate_steps(rows: Iterable[ResultRow]) -> tuple[DelegateStep, ...]:
    """Return the cases of every delegate but the CPU, with what it gained and what fell off it."""
    steps = []
    for row in rows:
        if row.case.delegate.is_cpu:
            continue
        evidence = row.delegate
        operators = evidence.cpu_operators if evidence is not None else ()
        named = [f"{name} ({reason})" if reason else name for name, reason in operators[:_MOST_OPERATORS]]
        more = [f"and {len(operators) - _MOST_OPERATORS} more"] if len(operators) > _MOST_OPERATORS else []
        steps.append(
            DelegateStep(
                row=row,
                speed_up=row.speed_up.value if row.speed_up is not None and row.result.truth in OWN_TRUTHS else None,
                delegated_nodes=evidence.delegated_nodes if evidence is not None else None,
                total_nodes=evidence.total_nodes if evidence is not None else None,
                fallen_off="; ".join(named + more),
            )
        )
    return tuple(steps)


def on_front(points: Mapping[str, Sequence[float]]) -> frozenset[str]:
    """Return the points that no other point beats: at least as low in every coordinate, and lower in one."""
    ordered = sorted(points, key=lambda key: tuple(points[key]))
    front: list[str] = []
    for key in ordered:
        if not any(_beats(points[other], points[key]) for other in front):
            front.append(key)
    return frozenset(front)


def _beats(first: Sequence[float], second: Sequence[float]) -> bool:
    pairs = list(zip(first, second, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _steps(group: Mapping[int, ResultRow]) -> Iterable[ThreadStep]:
    first_threads = min(group)
    summaries = {
        threads: result.summary
        for threads, result in comparable({threads: row.result for threads, row in group.items()}).items()
    }
    first = summaries.get(first_threads)
    for threads in sorted(summaries):
        summary = summaries[threads]
        if first is None or summary is None:
            continue
        speed_up = first.median_us / summary.median_us
        yield ThreadStep(
            row=group[threads],
            speed_up=speed_up,
            efficiency=speed_up / (threads / first_threads),
        )
