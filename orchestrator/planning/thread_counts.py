"""Cases that differ in nothing but a number of threads which their delegate may leave unused. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.delegates import DELEGATES
from orchestrator.records.identity import CaseKey
from orchestrator.records.run import DelegateTruth, Outcome, RunRecord
from orchestrator.records.workload import Case


def shared_case(case: Case) -> CaseKey | None:
    """Return what a case has in common with its other thread counts; None where threads always count.

    Phones that share a case measure what they are given of it.
    """
    if DELEGATES[case.delegate].uses_threads or case.shard:
        return None
    return replace(case, threads=0).case_key


def first_of_each(cases: Sequence[Case], order: Iterable[Case]) -> list[Case]:
    """Return cases in this order, but of those that may be one in the order of ``cases``: the first shows it."""
    waiting: dict[CaseKey, list[Case]] = {}
    for case in cases:
        if (key := shared_case(case)) is not None:
            waiting.setdefault(key, []).append(case)
    found = []
    for case in order:
        key = shared_case(case)
        found.append(case if key is None else waiting[key].pop(0))
    return found


class UnusedThreads:
    """Which cases one device needn't measure: their delegate took all operators with another number of threads."""

    def __init__(self, runs: Iterable[RunRecord] = ()) -> None:
        self._measured: dict[CaseKey, Case] = {}
        for run in runs:
            self.learn(run)

    def learn(self, run: RunRecord) -> None:
        """Note a run, in the order in which they were stored."""
        if run.outcome is not Outcome.COMPLETED or run.report is None:
            return
        if run.report.delegate.truth is DelegateTruth.FULL and (key := shared_case(run.case)) is not None:
            self._measured.setdefault(key, run.case)

    def reason(self, case: Case) -> str:
        """Return why a case needn't be measured, empty when it is."""
        key = shared_case(case)
        measured = self._measured.get(key) if key is not None else None
        if measured is None or measured.threads == case.threads:
            return ""
        count = "1 thread" if measured.threads == 1 else f"{measured.threads} threads"
        return f"threads unused: all operators ran on the {case.delegate.value}; the figure is that of {count}"
