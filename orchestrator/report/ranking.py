"""Which configuration of a model is the fastest on a device, and how many times as fast as on the CPU each is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

from orchestrator.analysis.case_result import CaseResult, comparable
from orchestrator.analysis.compare import best_of, speed_up
from orchestrator.analysis.matching import SETTINGS
from orchestrator.analysis.summary import Summary
from orchestrator.report.data import BestMark, ResultRow
from orchestrator.report.scaling import fixed_cores


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
    gains = {row.key: row for group in _grouped(rows, _like) for row in _with_speed_ups(group)}
    for row in rows:
        yield replace(gains[row.key], best=marks.get(row.key, BestMark.NONE), compared=compared.get(row.key))


def _place(row: ResultRow) -> Hashable:
    """Return what the configurations of one contest share; a stand-in's figure is none of a real device's."""
    return row.model.subject, row.device.serial, row.is_virtual


def _like(row: ResultRow) -> Hashable:
    """Return what a figure and the CPU's that it is compared with share: all but delegate, threads and flags.

    The cores that a number of threads is kept to follow from it, unless a plan names them.
    """
    case = row.case
    settings = tuple(getattr(case, name) for name in SETTINGS if name != "affinity")
    return _place(row), case.tool, case.build_sha256, case.process_mode, fixed_cores(case), settings


def _with_speed_ups(group: Sequence[ResultRow]) -> Iterator[ResultRow]:
    rows = {row.key: row for row in group if row.result.own_summary is not None}
    summaries = _summaries({key: row.result for key, row in rows.items()})
    # The fastest of all on the CPU: where that one isn't judged, another one's figure would flatter.
    fastest = best_of({key: summary for key, summary in summaries.items() if rows[key].case.delegate.is_cpu})
    baseline = rows[fastest.fastest] if fastest is not None else None
    for row in group:
        if baseline is None or not baseline.result.is_judged or not row.result.is_judged or row.key not in summaries:
            yield replace(row, speed_up=None, baseline="")
            continue
        gain = speed_up(summaries[baseline.key], summaries[row.key])
        yield replace(row, speed_up=gain, baseline=baseline.configuration)


def _summaries(results: dict[str, CaseResult]) -> dict[str, Summary]:
    """Return the figures of results by case key, all of one kind."""
    return {key: result.summary for key, result in comparable(results).items() if result.summary is not None}


def _grouped(rows: Iterable[ResultRow], of: Callable[[ResultRow], Hashable]) -> Iterable[Sequence[ResultRow]]:
    groups: dict[Hashable, list[ResultRow]] = defaultdict(list)
    for row in rows:
        groups[of(row)].append(row)
    return groups.values()
