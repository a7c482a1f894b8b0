"""In which order a device runs its invocations, and how long they take at the least."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.delegates import DELEGATES
from orchestrator.programs import program
from orchestrator.records.campaign import Invocation
from orchestrator.records.energy import LEAST_REST_S, LEAST_WORK_S, PowerSource
from orchestrator.records.identity import CaseKey, Serial
from orchestrator.records.plan import Order, Plan
from orchestrator.records.run import DelegateTruth, Outcome, RunRecord
from orchestrator.records.start import START_STAGES, StartStage
from orchestrator.records.workload import IMPORTED_TOOLS, Case, Pass


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


#: Of a declared program nothing but its time is known: not its starts, nor when its work began.
DECLARED_PASSES: Final = (Pass.TIMING, Pass.SUSTAINED)
#: Rounds of cold starts where no fixed number is given.
_COLD_ROUNDS: Final = 3
#: Rounds of the passes ``energy`` and ``contention`` where no fixed number is given.
_ROUNDS: Final = 6
#: What one invocation costs beside its inferences: start, load, probes before and after.
_OVERHEAD_S: Final = 3.0


def bounds_s(plan: Plan, queue: Sequence[Invocation]) -> tuple[float, float]:
    """Return the seconds that a device's queue takes at the least: when nothing is added, and when all is.

    Thread counts that a delegate may leave unused count once when nothing is added: one of them shows the figure.
    """
    known: dict[CaseKey, CaseKey] = {}
    least = most = 0.0
    for item in queue:
        duration_s = least_duration_s(item, sustained_s=plan.sustained_s)
        key = None if plan.matrix.every_thread_count else shared_case(item.case)
        if key is None or known.setdefault(key, item.case.case_key) == item.case.case_key:
            least += duration_s
        most += duration_s
    if plan.stopping is None:
        return least, most
    beyond = plan.stopping.most - plan.invocations
    added = sum(beyond * least_duration_s(item) for item in queue if item.run_pass is Pass.TIMING and item.number == 0)
    return least, most + (added if plan.budget_s is None else min(added, plan.budget_s))


def least_duration_s(invocation: Invocation, *, sustained_s: float = 0.0) -> float:
    """Seconds that an invocation takes at the least; that of the pass ``sustained`` stands for all of them."""
    case = invocation.case
    if invocation.run_pass is Pass.SUSTAINED:
        return sustained_s
    if invocation.run_pass is Pass.COLD:
        return _OVERHEAD_S
    if invocation.run_pass is Pass.ENERGY:
        # With rails; a battery takes five times as long.
        return _OVERHEAD_S + 2 * LEAST_REST_S[PowerSource.RAILS] + max(LEAST_WORK_S[PowerSource.RAILS], case.min_secs)
    return _OVERHEAD_S + case.warmup_min_secs + case.min_secs


def cold_rounds(plan: Plan) -> int:
    """Return how many rounds of its stages the pass ``cold`` has."""
    return plan.invocations if plan.stopping is None else min(plan.invocations, _COLD_ROUNDS)


def _in_turns(plan: Plan, run_pass: Pass, cases: Sequence[Case]) -> list[Invocation]:
    """Return a pass whose cases, or loads, are compared in rounds: A B, B A, A B ... so that drift hits all alike."""
    rounds = plan.invocations if plan.stopping is None else _ROUNDS
    width = 1 + len(plan.contention) if run_pass is Pass.CONTENTION else 1
    found: list[Invocation] = []
    for turn in range(rounds):
        own = [
            Invocation(case=case, run_pass=run_pass, number=turn * width + place)
            for case in cases
            for place in range(width)
        ]
        found += reversed(own) if turn % 2 else own
    return found


def order_invocations(plan: Plan, serial: Serial, cases: Sequence[Case]) -> tuple[Invocation, ...]:
    """Return a device's invocations: timing round by round, then each further pass, case by case.

    A further pass has one invocation of each case; ``cold`` has as many rounds of its stages as timing has invocations.
    ``sustained`` comes last, because it heats; its one invocation stands for all that fit into its time.
    """
    passes = [run_pass for run_pass in plan.passes if run_pass is not Pass.TIMING]
    passes.sort(key=lambda run_pass: run_pass is Pass.SUSTAINED)
    further: list[Invocation] = []
    for run_pass in passes:
        own = [case for case in cases if run_pass in DECLARED_PASSES or not case.tool.is_declared]
        if run_pass in (Pass.ENERGY, Pass.CONTENTION):
            further += _in_turns(plan, run_pass, own)
            continue
        further += [
            Invocation(case=case, run_pass=run_pass, number=number)
            for case in own
            for number in (cold_numbers(case, cold_rounds(plan)) if run_pass is Pass.COLD else (0,))
        ]
    rounds = range(plan.invocations) if Pass.TIMING in plan.passes else range(0)
    if plan.order is Order.SEQUENTIAL:
        timing = [Invocation(case=case, run_pass=Pass.TIMING, number=number) for case in cases for number in rounds]
        return (*timing, *further)
    # The order is for spreading drift, not for secrecy.
    shuffler = random.Random(f"{plan.seed}:{serial}")  # noqa: S311
    timing = []
    for number in rounds:
        shuffled = list(cases)
        shuffler.shuffle(shuffled)
        shuffled = first_of_each(cases, shuffled)
        timing += [Invocation(case=case, run_pass=Pass.TIMING, number=number) for case in shuffled]
    return (*timing, *further)


def cold_numbers(case: Case, rounds: int) -> tuple[int, ...]:
    """Return the numbers of a case's cold invocations.

    Without a cache there is only the stage ``process-cold``; a program whose process isn't the case's own has none.
    """
    if case.tool.is_session or case.tool in IMPORTED_TOOLS:
        return ()
    caches = DELEGATES[case.delegate].cache_flags is not None and program(case.tool).is_benchmark_model
    wanted = START_STAGES if caches else (StartStage.PROCESS_COLD,)
    return tuple(len(START_STAGES) * turn + START_STAGES.index(stage) for turn in range(rounds) for stage in wanted)
