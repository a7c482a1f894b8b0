"""The time that a campaign may take: which cases it has time for, by what their last runs took, and
what is left.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from orchestrator.clock import Clock, Deadline
from orchestrator.passes import goes_on, is_around_others
from orchestrator.planning.expansion import Expansion, least_duration_s, without
from orchestrator.records.campaign import Campaign, Invocation, Terms
from orchestrator.records.case import Case, CaseKey, Pass, Serial, SeriesKey, Skip, grouped
from orchestrator.records.plan import Plan, PlanTerms
from orchestrator.records.run import OUT_OF_TIME, Outcome, RecentRun, RunRecord
from orchestrator.units import format_duration

#: Three times the reference workload, with its start and the probes around it; and how often it is
#: run.
CHECK_S: Final = 15.0
_CHECK_EVERY_S: Final = 900.0
#: The last runs of a series and pass whose median says how long the next one takes.
_LAST: Final = 8
#: How many times the least that its settings require a run takes, where nothing is known of the
#: device.
_USUAL_FACTOR: Final = 1.5
#: Between two runs a phone is probed and given files, beside what it is waited for.
_BETWEEN_S: Final = 60.0
#: Earlier campaigns may have waited longer than a plan that waits for nothing.
_EARLIER_PAUSE_S: Final = 360.0

#: Runs of series, the newest first.
Recent = Mapping[SeriesKey, Sequence[RecentRun]]


def left_s(until: datetime | None, budget_s: float | None, now: datetime) -> float | None:
    """Return the time that a device has from now on; None for no limit."""
    limits = [(until - now).total_seconds()] if until is not None else []
    limits += [budget_s] if budget_s is not None else []
    return max(0.0, min(limits)) if limits else None


def usable_s(plan: Plan, now: datetime, *, reference_check: bool) -> float | None:
    """Return the time that a plan which begins now has for its cases; None for no limit.

    ``reference_check``: the reference workload will bracket them, and takes its part.
    """
    total_s = left_s(plan.until, plan.budget, now)
    if total_s is None or not reference_check:
        return total_s
    return max(0.0, total_s - CHECK_S * (2 + total_s // _CHECK_EVERY_S))


def cut_to_time(
    plan: Plan,
    expansion: Expansion,
    limit_s: float | None,
    *,
    recent_of: Callable[[Sequence[SeriesKey]], Recent],
    unit_of: Callable[[Case], str],
) -> Expansion:
    """Return what a plan has time for; the rest is skipped, each case with its reason.

    Args:
        plan: whose settings say how long its runs take at least.
        expansion: what it means on the devices.
        limit_s: each device's time; None for no limit.
        recent_of: returns the last runs of some series.
        unit_of: what cases have in common that one process measures; empty for a case that is run
            alone.
    """
    if limit_s is None:
        return expansion
    skips: dict[CaseKey, Skip] = {}
    for serial, queue in expansion.invocations.items():
        recent = recent_of(list(dict.fromkeys(item.case.series_key for item in queue)))
        costs_s = costs_of(queue, recent, plan)
        cases = [
            case for case in expansion.cases if case.serial == serial and case.case_key in costs_s
        ]
        reasons = left_out(cases, costs_s, left_s=limit_s, unit_of=unit_of)
        skips |= {
            key: Skip(reason_code=OUT_OF_TIME, reason=reason) for key, reason in reasons.items()
        }
    return without(expansion, skips)


def left_out(
    cases: Sequence[Case],
    costs_s: Mapping[CaseKey, float],
    *,
    left_s: float,
    unit_of: Callable[[Case], str],
) -> dict[CaseKey, str]:
    """Return the cases of one device that don't fit into its time, each with the reason as a
    sentence.

    Cases are taken in the plan's order as long as they fit; one that doesn't is left out whole, and
    smaller ones behind it are still tried. When not even one fits, the first is kept.

    Args:
        cases: All that the device is to measure, in the plan's order.
        costs_s: What each case takes with all its invocations, as :func:`costs_of` returns it.
        left_s: The device's time.
        unit_of: What cases have in common that one process measures; empty for a case that is run
            alone.
    """
    units = grouped(cases, lambda case: unit_of(case) or case.case_key)
    # One process measures a whole unit.
    unit_costs = {
        name: max(costs_s[case.case_key] for case in unit) for name, unit in units.items()
    }
    # What was never run is only estimated to take long, and would never be known: it is begun, and
    # cut if needed.
    begun = (
        next(iter(units), "")
        if left_s > 0 and min(unit_costs.values(), default=0.0) > left_s
        else ""
    )
    kept_s, reasons = 0.0, dict[CaseKey, str]()
    for name, unit in units.items():
        if kept_s + unit_costs[name] <= left_s or name == begun:
            kept_s += unit_costs[name]
            continue
        reason = (
            f"it would take about {format_duration(unit_costs[name])}, and of {format_duration(left_s)} in all "
            f"{format_duration(max(0.0, left_s - kept_s))} are left after the cases before it in the plan"
        )
        reasons |= {case.case_key: reason for case in unit}
    return reasons


def usual_s(recent: Recent) -> dict[tuple[SeriesKey, Pass], float]:
    """Return what a run of each series and pass takes: the median of the last ones."""
    medians: dict[tuple[SeriesKey, Pass], float] = {}
    for series_key, runs in recent.items():
        for run_pass in {run.run_pass for run in runs}:
            own_s = [run.duration_s for run in runs if run.run_pass is run_pass]
            medians[series_key, run_pass] = statistics.median(own_s[:_LAST])
    return medians


def costs_of(queue: Sequence[Invocation], recent: Recent, terms: PlanTerms) -> dict[CaseKey, float]:
    """Return the seconds that each case takes with all its invocations, the pauses between them
    included.

    What was never run is estimated from its settings, scaled as the known cases are.
    """
    pause_s = usual_pause_s(recent, terms)
    taken_s = {key: median_s + pause_s for key, median_s in usual_s(recent).items()}
    known = [
        taken_s[key] / least_duration_s(item, terms)
        for item in queue
        if not goes_on(item) and (key := (item.case.series_key, item.run_pass)) in taken_s
    ]
    factor = statistics.median(known) if known else _USUAL_FACTOR
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
    """Return the seconds that an invocation takes: as those of its series and pass took, else the
    least by its settings times a factor.
    """
    least_s = least_duration_s(item, terms)
    # One that goes on for a time takes that time.
    if goes_on(item):
        return least_s
    return taken_s.get((item.case.series_key, item.run_pass), least_s * factor)


def _longest_pause_s(terms: PlanTerms) -> float:
    """Return how long a pause between two runs may be; a longer one is time in which nobody ran the
    device.
    """
    return terms.limits.wait + _BETWEEN_S


def usual_pause_s(recent: Recent, terms: PlanTerms) -> float:
    """Return the median time between two runs of a device; 0 when nothing is known.

    A few long ones, of an outage or of a hot phone, don't make all runs seem long.
    """
    longest_s = max(_longest_pause_s(terms), _EARLIER_PAUSE_S)
    pauses = [
        run.pause_s
        for runs in recent.values()
        for run in runs
        if run.pause_s is not None and 0 <= run.pause_s <= longest_s
    ]
    return statistics.median(pauses) if pauses else 0.0


class TimeLeft:
    """What one device has left of a campaign's time, by a clock that nobody sets; without a limit
    there is no end.
    """

    def __init__(
        self,
        campaign: Campaign,
        runs: Sequence[RunRecord],
        clock: Clock,
        serial: Serial,
        recent_of: Callable[[Sequence[SeriesKey]], Recent],
    ) -> None:
        """``runs`` are the device's of this campaign so far; ``recent_of`` returns the last runs of
        some series.
        """
        terms = campaign.terms
        self._terms = terms
        self._deadline: Deadline | None = None
        #: What the last run of a series took, in one pass.
        self._taken_s: dict[tuple[SeriesKey, Pass], float] = {}
        self._reserve_s = (
            CHECK_S if any(is_around_others(item) for item in campaign.invocations) else 0.0
        )
        budget_s = None if terms.budget is None else max(0.0, terms.budget - busy_s(terms, runs))
        seconds = left_s(terms.until, budget_s, clock.now())
        if seconds is None:
            return
        self._deadline = Deadline(seconds, clock)
        series = dict.fromkeys(
            item.case.series_key for item in campaign.invocations if item.case.serial == serial
        )
        self._taken_s = usual_s(recent_of(list(series)))
        for run in runs:
            self.learn(run)

    @property
    def is_over(self) -> bool:
        """Whether nothing may begin any more."""
        return self._deadline is not None and self._deadline.expired

    @property
    def remaining_s(self) -> float:
        """What is left, infinite without a limit."""
        return math.inf if self._deadline is None else self._deadline.remaining_s

    def learn(self, run: RunRecord) -> None:
        """Take note of how long a run took."""
        if run.duration_s:
            self._taken_s[run.case.series_key, run.run_pass] = run.duration_s

    def shortage(self, *invocations: Invocation) -> str:
        """Return why invocations, one after the other, would end too late; empty when there is time
        for all.
        """
        if self._deadline is None:
            return ""
        needed_s = sum(_needed_s(item, self._taken_s, self._terms) for item in invocations)
        if self._deadline.remaining_s >= needed_s + self._reserve_s:
            return ""
        left = format_duration(self._deadline.remaining_s)
        return f"about {format_duration(needed_s)} are needed, and {left} are left"


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
