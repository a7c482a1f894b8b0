"""The time budget of a campaign: the cases that fit into it, and the remaining time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from orchestrator.clock import Clock, Deadline
from orchestrator.passes import goes_on, is_reference_run
from orchestrator.planning.expansion import Expansion, least_duration_s, with_skips
from orchestrator.records.campaign import Campaign, Invocation, Terms
from orchestrator.records.case import Case, CaseKey, Pass, Serial, SeriesKey, Skip, grouped
from orchestrator.records.plan import Plan, PlanTerms
from orchestrator.records.run import OUT_OF_TIME, Outcome, RecentRun, RunRecord
from orchestrator.units import format_duration

#: The time of one reference check (three runs with start and probes), and how often it is run.
CHECK_S: Final = 15.0
_CHECK_EVERY_S: Final = 900.0
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
    return max(0.0, total_s - CHECK_S * (2 + total_s // _CHECK_EVERY_S))


def cut_to_time(
    plan: Plan,
    expansion: Expansion,
    limit_s: float | None,
    *,
    recent_of: Callable[[tuple[SeriesKey, ...]], Recent],
    unit_of: Callable[[Case], str],
) -> Expansion:
    """Return the expansion with the cases skipped that don't fit into the time, with reasons.

    Args:
        plan: its settings give the least time of each run.
        expansion: of the plan.
        limit_s: each device's time; None for no limit.
        recent_of: returns the last runs of some series.
        unit_of: returns the key of cases that share a process; empty for a case that runs alone.
    """
    if limit_s is None:
        return expansion
    skips: dict[CaseKey, Skip] = {}
    for serial, queue in expansion.invocations.items():
        recent = recent_of(tuple(dict.fromkeys(item.case.series_key for item in queue)))
        costs_s = case_costs_s(queue, recent, plan)
        cases = [
            case for case in expansion.cases if case.serial == serial and case.case_key in costs_s
        ]
        reasons = over_budget(cases, costs_s, limit_s=limit_s, unit_of=unit_of)
        skips |= {
            key: Skip(reason_code=OUT_OF_TIME, reason=reason) for key, reason in reasons.items()
        }
    return with_skips(expansion, skips)


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
    taken_s = {key: median_s + pause_s for key, median_s in usual_durations_s(recent).items()}
    ratios = [
        taken_s[key] / least_duration_s(item, terms)
        for item in queue
        if not goes_on(item) and (key := (item.case.series_key, item.run_pass)) in taken_s
    ]
    factor = statistics.median(ratios) if ratios else _USUAL_FACTOR
    costs: dict[CaseKey, float] = {}
    for item in queue:
        cost_s = _needed_s(item, taken_s, terms, factor=factor)
        costs[item.case.case_key] = costs.get(item.case.case_key, 0.0) + cost_s
    return costs


def _needed_s(
    item: Invocation,
    taken_s: Mapping[tuple[SeriesKey, Pass], float],
    terms: PlanTerms,
    *,
    factor: float = 1.0,
) -> float:
    """Return the seconds of an invocation: the usual ones of its series and pass, else the least
    by its settings times a factor.
    """
    least_s = least_duration_s(item, terms)
    # A sustained pass takes the time that is set for it.
    if goes_on(item):
        return least_s
    return taken_s.get((item.case.series_key, item.run_pass), least_s * factor)


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


class RemainingTime:
    """The remaining time of one device in a campaign, by a monotonic clock; may be unlimited."""

    def __init__(
        self,
        campaign: Campaign,
        runs: Sequence[RunRecord],
        clock: Clock,
        serial: Serial,
        recent_of: Callable[[Sequence[SeriesKey]], Recent],
    ) -> None:
        """``runs`` are the device's runs of this campaign so far; ``recent_of`` returns the last
        runs of some series.
        """
        terms = campaign.terms
        self._terms = terms
        self._deadline: Deadline | None = None
        #: The seconds of the last run of a series, in one pass.
        self._taken_s: dict[tuple[SeriesKey, Pass], float] = {}
        self._reserve_s = (
            CHECK_S if any(is_reference_run(item) for item in campaign.invocations) else 0.0
        )
        budget_s = None if terms.budget is None else max(0.0, terms.budget - busy_s(terms, runs))
        seconds = time_limit_s(terms.until, budget_s, clock.now())
        if seconds is None:
            return
        self._deadline = Deadline(seconds, clock)
        series = dict.fromkeys(
            item.case.series_key for item in campaign.invocations if item.case.serial == serial
        )
        self._taken_s = usual_durations_s(recent_of(list(series)))
        for run in runs:
            self.learn(run)

    @property
    def is_over(self) -> bool:
        """Whether the time is over: no run may begin."""
        return self._deadline is not None and self._deadline.expired

    @property
    def remaining_s(self) -> float:
        """The remaining seconds; infinite without a limit."""
        return math.inf if self._deadline is None else self._deadline.remaining_s

    def learn(self, run: RunRecord) -> None:
        """Take note of a run's duration."""
        if run.duration_s:
            self._taken_s[run.case.series_key, run.run_pass] = run.duration_s

    def shortage(self, *invocations: Invocation) -> str:
        """Return why there is no time for invocations one after the other; empty if there is."""
        if self._deadline is None:
            return ""
        needed_s = sum(_needed_s(item, self._taken_s, self._terms) for item in invocations)
        if self._deadline.remaining_s >= needed_s + self._reserve_s:
            return ""
        remaining = format_duration(self._deadline.remaining_s)
        return f"about {format_duration(needed_s)} are needed, and {remaining} are left"


def busy_s(terms: Terms, runs: Sequence[RunRecord]) -> float:
    """Return the seconds that a device was busy with its runs, the waits between them included."""
    total_s, ended_at = 0.0, None
    for run in sorted(runs, key=lambda run: run.started_at):
        if run.outcome is Outcome.SKIPPED:
            continue
        pause_s = 0.0 if ended_at is None else (run.started_at - ended_at).total_seconds()
        end = run.started_at + timedelta(seconds=run.duration_s)
        if ended_at is None or end > ended_at:
            total_s += run.duration_s
            total_s += pause_s if 0 < pause_s <= _longest_pause_s(terms) else 0.0
            ended_at = end
    return total_s
