"""How long invocations take, the time that a device has for them, and the cases that fit into it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final

from orchestrator.delegates import shared_case
from orchestrator.passes import is_sustained, pass_of
from orchestrator.records import frozen
from orchestrator.records.campaign import Invocation, Terms
from orchestrator.records.case import FIGURE_PASS, Case, CaseKey, Pass, SeriesKey, grouped
from orchestrator.records.plan import Plan, PlanTerms
from orchestrator.records.run import Outcome, RecentRun, RunRecord
from orchestrator.units import format_duration

#: The time of one reference check (three runs with start and probes), and how often it is run.
CHECK_S: Final = 15.0
CHECK_EVERY_S: Final = 900.0
#: The median of this many last runs of a series and pass estimates the next one.
_MEDIAN_RUNS: Final = 8
#: A run's estimate, as a multiple of its least time, where the device has no runs yet.
_USUAL_FACTOR: Final = 1.5
#: Between two runs a phone is probed and files are placed; waits come on top.
_BETWEEN_S: Final = 60.0
#: The limit for pauses of earlier campaigns, which may have waited longer than this plan.
_EARLIER_PAUSE_S: Final = 360.0

#: Runs of series, the newest first.
Recent = Mapping[SeriesKey, Sequence[RecentRun]]
#: The seconds that a run of a series takes in a pass.
Durations = Mapping[tuple[SeriesKey, Pass], float]


@frozen
class Estimate:
    """The seconds of an invocation; for one that stands for several runs, of all of them."""

    #: By its settings: it takes at least these.
    least_s: float
    #: As earlier runs of its series took; None where there are none.
    usual_s: float | None = None

    def needed_s(self, factor: float = 1.0) -> float:
        """Return the usual seconds; where none are known, ``factor`` times the least ones."""
        return factor * self.least_s if self.usual_s is None else self.usual_s


def estimate(
    invocation: Invocation, terms: PlanTerms, durations_s: Durations = MappingProxyType({})
) -> Estimate:
    """Return the estimate of an invocation; plans, budgets and the engine ask no other function."""
    least_s = pass_of(invocation.run_pass).least_s(invocation.case, terms)
    # A sustained pass takes the time that is set for it.
    if is_sustained(invocation):
        return Estimate(least_s=least_s, usual_s=least_s)
    usual_s = durations_s.get((invocation.case.series_key, invocation.run_pass))
    return Estimate(least_s=least_s, usual_s=usual_s)


def bounds_s(plan: Plan, queue: Sequence[Invocation]) -> tuple[float, float]:
    """Return the least seconds of a device's queue: with nothing added, and with everything added.

    Thread counts that a delegate may leave unused count once when nothing is added.
    """
    counted_keys: dict[CaseKey, CaseKey] = {}
    minimum_s = maximum_s = 0.0
    for item in queue:
        least_s = estimate(item, plan).least_s
        key = None if plan.matrix.every_thread_count else shared_case(item.case)
        if key is None or counted_keys.setdefault(key, item.case.case_key) == item.case.case_key:
            minimum_s += least_s
        maximum_s += least_s
    if plan.stopping is None:
        return minimum_s, maximum_s
    extra_rounds = plan.stopping.most - plan.invocations.first
    first = (item for item in queue if item.run_pass is FIGURE_PASS and item.number == 0)
    added_s = sum(extra_rounds * estimate(item, plan).least_s for item in first)
    return minimum_s, max(minimum_s, min(maximum_s + added_s, plan.budget or math.inf))


def time_limit_s(until: datetime | None, budget_s: float | None, now: datetime) -> float | None:
    """Return a device's remaining time in seconds; None for no limit."""
    limits = [(until - now).total_seconds()] if until is not None else []
    limits += [budget_s] if budget_s is not None else []
    return max(0.0, min(limits)) if limits else None


def usable_s(plan: Plan, now: datetime, *, reference_check: bool) -> float | None:
    """Return the seconds for the cases of a plan that begins now; None for no limit.

    With ``reference_check``, the time of the reference workload is taken off.
    """
    total_s = time_limit_s(plan.until, plan.budget, now)
    if total_s is None or not reference_check:
        return total_s
    return max(0.0, total_s - CHECK_S * (2 + total_s // CHECK_EVERY_S))


def over_budget(
    cases: Sequence[Case],
    costs_s: Mapping[CaseKey, float],
    *,
    limit_s: float,
    unit_of: Callable[[Case], str],
) -> dict[CaseKey, str]:
    """Return the cases of one device that don't fit into its time, each with the reason as a
    sentence.

    Cases are taken in the plan's order as long as they fit; a case that doesn't is left out whole,
    and shorter cases after it are still tried. When no case fits, the first is kept.

    Args:
        cases: All cases of the device, in the plan's order.
        costs_s: The seconds of each case with all its invocations, see :func:`case_costs_s`.
        limit_s: The device's time.
        unit_of: Returns the key of cases that share a process; empty for a case that runs alone.
    """
    units = grouped(cases, lambda case: unit_of(case) or case.case_key)
    # One process measures a whole unit.
    unit_costs = {
        name: max(costs_s[case.case_key] for case in unit) for name, unit in units.items()
    }
    # The cost may be an estimate, which only a run can correct: it is begun, and cut if needed.
    forced_unit = (
        next(iter(units), "")
        if limit_s > 0 and min(unit_costs.values(), default=0.0) > limit_s
        else ""
    )
    used_s, reasons = 0.0, dict[CaseKey, str]()
    for name, unit in units.items():
        if used_s + unit_costs[name] <= limit_s or name == forced_unit:
            used_s += unit_costs[name]
            continue
        reason = (
            f"it needs about {format_duration(unit_costs[name])}; "
            f"{format_duration(max(0.0, limit_s - used_s))} of {format_duration(limit_s)} "
            "are left after the cases before it in the plan"
        )
        reasons |= {case.case_key: reason for case in unit}
    return reasons


def usual_durations_s(recent: Recent) -> dict[tuple[SeriesKey, Pass], float]:
    """Return the usual seconds of a run of each series and pass: the median of the last ones."""
    medians: dict[tuple[SeriesKey, Pass], float] = {}
    for series_key, runs in recent.items():
        for run_pass in {run.run_pass for run in runs}:
            durations_s = [run.duration_s for run in runs if run.run_pass is run_pass]
            medians[series_key, run_pass] = statistics.median(durations_s[:_MEDIAN_RUNS])
    return medians


def case_costs_s(
    queue: Sequence[Invocation], recent: Recent, terms: PlanTerms
) -> dict[CaseKey, float]:
    """Return the seconds of each case with all its invocations and the pauses between them.

    Cases without runs are estimated from their settings, scaled like the cases with runs.
    """
    pause_s = usual_pause_s(recent, terms)
    durations_s = {key: run_s + pause_s for key, run_s in usual_durations_s(recent).items()}
    estimates = [(item, estimate(item, terms, durations_s)) for item in queue]
    ratios = [
        each.usual_s / each.least_s
        for item, each in estimates
        if each.usual_s is not None and not is_sustained(item)
    ]
    factor = statistics.median(ratios) if ratios else _USUAL_FACTOR
    costs_s: dict[CaseKey, float] = {}
    for item, each in estimates:
        cost_s = costs_s.get(item.case.case_key, 0.0) + each.needed_s(factor)
        costs_s[item.case.case_key] = cost_s
    return costs_s


def _longest_pause_s(terms: PlanTerms) -> float:
    """Return the longest pause between two runs of one command; in longer ones the device was
    unused.
    """
    return terms.limits.wait + _BETWEEN_S


def usual_pause_s(recent: Recent, terms: PlanTerms) -> float:
    """Return the median time between two runs of a device; 0 when unknown.

    Long pauses, from an outage or a hot phone, are ignored.
    """
    longest_s = max(_longest_pause_s(terms), _EARLIER_PAUSE_S)
    pauses = [
        run.pause_s
        for runs in recent.values()
        for run in runs
        if run.pause_s is not None and 0 <= run.pause_s <= longest_s
    ]
    return statistics.median(pauses) if pauses else 0.0


def busy_s(terms: Terms, runs: Sequence[RunRecord]) -> float:
    """Return the seconds that a device was busy with its runs, the waits between them included."""
    total_s, ended_at = 0.0, None
    for run in sorted(runs, key=lambda run: run.started_at):
        if run.outcome is Outcome.SKIPPED:
            continue
        pause_s = 0.0 if ended_at is None else (run.started_at - ended_at).total_seconds()
        if ended_at is None or run.ended_at > ended_at:
            total_s += run.duration_s
            total_s += pause_s if 0 < pause_s <= _longest_pause_s(terms) else 0.0
            ended_at = run.ended_at
    return total_s
