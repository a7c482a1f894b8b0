"""What threads and delegates bring, the fastest configuration, which models nothing beats: from a report's rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.analysis.case_result import OWN_FIGURE, OWN_TRUTHS, CaseResult, comparable
from orchestrator.analysis.compare import Ratio, best_of, speed_up
from orchestrator.analysis.matching import SETTINGS
from orchestrator.analysis.summary import Summary
from orchestrator.records.workload import Case, all_but
from orchestrator.report.rows import BestMark, ResultRow

_MOST_OPERATORS: Final = 6
_BESIDE_THREADS: Final = all_but("threads", "affinity")


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
    #: Operators left to the CPU with the program's reasons, as one text.
    fallen_off: str


def thread_steps(rows: Iterable[ResultRow]) -> tuple[ThreadStep, ...]:
    """Return the cases that have siblings with other numbers of threads; only figures of the delegate itself count."""
    groups: dict[tuple[object, ...], dict[int, ResultRow]] = defaultdict(dict)
    for row in rows:
        if row.result.status in OWN_FIGURE and row.case.threads > 0:
            groups[_BESIDE_THREADS(row.case), fixed_cores(row.case)].setdefault(row.case.threads, row)
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
        operators = row.delegate.cpu_operators if row.delegate is not None else ()
        named = [f"{name} ({reason})" if reason else name for name, reason in operators[:_MOST_OPERATORS]]
        more = [f"and {len(operators) - _MOST_OPERATORS} more"] if len(operators) > _MOST_OPERATORS else []
        steps.append(
            DelegateStep(
                row=row,
                speed_up=row.speed_up.value if row.speed_up is not None and row.result.truth in OWN_TRUTHS else None,
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


def with_comparisons(rows: Sequence[ResultRow]) -> Iterator[ResultRow]:
    """Yield the rows with best marks and speed-ups: each among the rows of its model on its device."""
    marks: dict[str, BestMark] = {}
    compared: dict[str, Summary] = {}
    for group in _grouped(rows, _place):
        summaries = _summaries({row.key: row.result for row in group if row.result.is_judged})
        compared |= summaries
        best = best_of(summaries)
        if best is not None and len(summaries) > 1:
            marks |= dict.fromkeys(best.tied, BestMark.TIED)
            marks[best.fastest] = BestMark.BEST if best.is_clear else BestMark.TIED
    gains = {key: gain for group in _grouped(rows, _like) for key, gain in _speed_ups(group)}
    for row in rows:
        gain, baseline = gains.get(row.key, (None, ""))
        mark = marks.get(row.key, BestMark.NONE)
        yield replace(row, best=mark, compared=compared.get(row.key), speed_up=gain, baseline=baseline)


def _place(row: ResultRow) -> Hashable:
    """Return what the configurations of one contest share; a fake binary's figure is none of a real device's."""
    return row.model.subject, row.device.serial, row.is_virtual


def _like(row: ResultRow) -> Hashable:
    """Return what a figure and the CPU's that it is compared with share: all but delegate, threads and flags.

    The cores that a number of threads is kept to follow from it, unless a plan names them.
    """
    case = row.case
    settings = tuple(getattr(case, name) for name in SETTINGS if name != "affinity")
    return _place(row), case.tool, case.build_sha256, case.process_mode, fixed_cores(case), settings


def _speed_ups(group: Sequence[ResultRow]) -> Iterator[tuple[str, tuple[Ratio, str]]]:
    """Yield the keys of the judged rows with their speed-up and what it is over."""
    rows = {row.key: row for row in group if row.own is not None}
    summaries = _summaries({key: row.result for key, row in rows.items()})
    # The fastest of all on the CPU: where that one isn't judged, another one's figure would flatter.
    fastest = best_of({key: summary for key, summary in summaries.items() if rows[key].case.delegate.is_cpu})
    if fastest is None or not rows[fastest.fastest].result.is_judged:
        return
    for key, summary in summaries.items():
        if rows[key].result.is_judged:
            gain = speed_up(summaries[fastest.fastest], summary)
            yield key, (gain, rows[fastest.fastest].configuration)


def _summaries(results: dict[str, CaseResult]) -> dict[str, Summary]:
    """Return the figures of results by case key, all of one kind."""
    return {key: result.summary for key, result in comparable(results).items() if result.summary is not None}


def _grouped(rows: Iterable[ResultRow], of: Callable[[ResultRow], Hashable]) -> Iterable[Sequence[ResultRow]]:
    groups: dict[Hashable, list[ResultRow]] = defaultdict(list)
    for row in rows:
        groups[of(row)].append(row)
    return groups.values()
