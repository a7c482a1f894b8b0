"""The time that a campaign may take, and which cases it has time for. Pure.

The stalest and most important cases go first, by what their last runs took.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from orchestrator.planning.expansion import Expansion, least_duration_s, without
from orchestrator.records.campaign import Invocation
from orchestrator.records.identity import CaseKey, SeriesKey
from orchestrator.records.night import OUT_OF_TIME, ImportanceRule, RecentRun
from orchestrator.records.plan import Plan
from orchestrator.records.workload import Case, Pass, Skip
from orchestrator.units import format_duration

#: Three times the reference workload, with its start and the probes around it; and how often it is run.
CHECK_S: Final = 15.0
_CHECK_EVERY_S: Final = 900.0
#: The last runs of a series and pass whose median says how long the next one takes.
_LAST: Final = 8
#: What was never run counts as that old.
NEVER_DAYS: Final = 10_000.0
#: How many times the least that its settings require a run takes, where nothing is known of the device.
_USUAL_FACTOR: Final = 1.5
#: Between two runs a phone is probed, cooled, given files; a longer pause is time in which nobody ran it.
_PAUSE_MOST_S: Final = 360.0

Recent = Mapping[SeriesKey, Sequence[RecentRun]]


def bounded(plan: Plan, now: datetime) -> tuple[Plan, datetime]:
    """Return the plan with the end of its window as its end, and when it may begin: now, or when the window opens.

    A plan with ``until`` has its end already.
    """
    if plan.window is None or plan.until is not None:
        return replace(plan, window=None), now
    begin, end = plan.window.around(now)
    return replace(plan, window=None, until=end), max(now, begin)


def left_s(until: datetime | None, phone_time_s: float | None, now: datetime) -> float | None:
    """Return the time that a device has from now on; None for no limit."""
    limits = [(until - now).total_seconds()] if until is not None else []
    limits += [phone_time_s] if phone_time_s is not None else []
    return max(0.0, min(limits)) if limits else None


def cut_to_time(
    plan: Plan,
    expansion: Expansion,
    now: datetime,
    *,
    recent_of: Callable[[Sequence[SeriesKey]], Recent],
    unit_of: Callable[[Case], str],
    reference_check: bool,
) -> Expansion:
    """Return what a plan has time for; the rest is skipped, each case with its reason.

    Args:
        plan: with its end.
        expansion: what it means on the devices.
        now: when it begins.
        recent_of: returns the last runs of some series.
        unit_of: what cases have in common that one process measures; empty for a case that is run alone.
        reference_check: whether the reference workload will bracket it, and takes its part of the time.
    """
    total_s = left_s(plan.until, plan.phone_time_s, now)
    if total_s is None:
        return expansion
    skips: dict[CaseKey, Skip] = {}
    usable_s = max(0.0, total_s - (CHECK_S * (2 + total_s // _CHECK_EVERY_S) if reference_check else 0.0))
    for queue in expansion.invocations.values():
        recent = recent_of(list(dict.fromkeys(item.case.series_key for item in queue)))
        reasons = left_out(
            queue,
            costs_s=costs_of(queue, recent, sustained_s=plan.sustained_s),
            recent=recent,
            rules=plan.importance,
            left_s=usable_s,
            now=now,
            unit_of=unit_of,
        )
        skips |= {key: Skip(reason_code=OUT_OF_TIME, reason=reason) for key, reason in reasons.items()}
    return without(expansion, skips)


def importance_of(rules: Sequence[ImportanceRule], case: Case) -> float:
    """Return how much a case matters: the value of the first rule that fits it; 1 when none does."""
    return next((rule.value for rule in rules if rule.fits(case)), 1.0)


def left_out(
    queue: Sequence[Invocation],
    *,
    costs_s: Mapping[CaseKey, float],
    recent: Recent,
    rules: Sequence[ImportanceRule],
    left_s: float,
    now: datetime,
    unit_of: Callable[[Case], str] = lambda case: "",
) -> dict[CaseKey, str]:
    """Return the cases of one device that don't fit into its time, each with the reason as a sentence.

    A case's rank is its importance times the days since its last run of any outcome but a skip; equal ones are ordered
    by their importance, then by their keys. They are taken in that order as long as they fit; one that doesn't is left
    out whole, so that its last run is older the next night, and smaller ones behind it are still tried. When not even
    one fits, the first is kept.

    Args:
        queue: all that the device is to run.
        costs_s: what each case takes with all its invocations, as :func:`costs_of` returns it.
        recent: the last runs of its series, in any order.
        rules: the plan's importance.
        left_s: the device's time.
        now: when the campaign begins.
        unit_of: what the cases have in common that one process measures; empty for a case that is run alone.
    """
    units: dict[str, list[Case]] = {}
    for key, case in {item.case.case_key: item.case for item in queue}.items():
        units.setdefault(unit_of(case) or key, []).append(case)
    # One process measures a whole unit.
    unit_costs = {name: max(costs_s[case.case_key] for case in unit) for name, unit in units.items()}
    if sum(unit_costs.values()) <= left_s:
        return {}

    def rank(name: str) -> tuple[float, float, str]:
        found = [
            (importance_of(rules, case), _days_since(recent.get(case.series_key, ()), now)) for case in units[name]
        ]
        return (-max(value * days for value, days in found), -max(value for value, _ in found), name)

    kept_s, reasons = 0.0, dict[CaseKey, str]()
    ranked = sorted(units, key=rank)
    nothing_fits = left_s > 0 and min(unit_costs.values()) > left_s
    for name in ranked:
        # What was never run is only estimated to take long, and would never be known: it is begun, and cut if needed.
        if kept_s + unit_costs[name] <= left_s or (nothing_fits and name == ranked[0]):
            kept_s += unit_costs[name]
            continue
        for case in units[name]:
            days = _days_since(recent.get(case.series_key, ()), now)
            last = "it was never run" if days >= NEVER_DAYS else f"its last run is {days:.1f} days old"
            reasons[case.case_key] = (
                f"it would take about {format_duration(unit_costs[name])}, and {format_duration(left_s)} in all went "
                "to cases that are more important or longer not measured; "
                f"its importance is {importance_of(rules, case):g}, {last}"
            )
    return reasons


def usual_s(recent: Recent) -> dict[tuple[SeriesKey, Pass], float]:
    """Return what a run of each series and pass takes: the median of the last ones."""
    medians: dict[tuple[SeriesKey, Pass], float] = {}
    for series_key, runs in recent.items():
        for run_pass in {run.run_pass for run in runs}:
            own = sorted((run for run in runs if run.run_pass is run_pass), key=lambda run: run.started_at)
            medians[series_key, run_pass] = statistics.median(run.duration_s for run in own[-_LAST:])
    return medians


def costs_of(queue: Sequence[Invocation], recent: Recent, *, sustained_s: float = 0.0) -> dict[CaseKey, float]:
    """Return the seconds that each case takes with all its invocations, the pauses between them included.

    What was never run is estimated from its settings, scaled as the known cases are.
    """
    medians, pause_s = usual_s(recent), usual_pause_s(recent)
    known = [
        (medians[key] + pause_s) / least_duration_s(item)
        for item in queue
        if item.run_pass is not Pass.SUSTAINED and (key := (item.case.series_key, item.run_pass)) in medians
    ]
    factor = statistics.median(known) if known else _USUAL_FACTOR
    costs: dict[CaseKey, float] = {}
    for item in queue:
        median_s = medians.get((item.case.series_key, item.run_pass))
        cost_s = least_duration_s(item, sustained_s=sustained_s)
        # One invocation of the pass ``sustained`` stands for all that fit into its time.
        if item.run_pass is not Pass.SUSTAINED:
            cost_s = median_s + pause_s if median_s is not None else cost_s * factor
        costs[item.case.case_key] = costs.get(item.case.case_key, 0.0) + cost_s
    return costs


def usual_pause_s(recent: Recent) -> float:
    """Return the median time between two runs of a device on its last day; 0 when nothing is known.

    A few long ones, of an outage or of a hot phone, don't make all runs seem long. ``recent`` must hold all series that
    the device measured in turns: those of others would count as pause.
    """
    runs = [run for own in recent.values() for run in own]
    if not runs:
        return 0.0
    newest = max(run.started_at for run in runs)
    last_day = sorted(
        (run for run in runs if newest - run.started_at < timedelta(days=1)), key=lambda run: run.started_at
    )
    pauses = [
        (after.started_at - before.started_at).total_seconds() - before.duration_s
        for before, after in itertools.pairwise(last_day)
        if before.campaign == after.campaign
    ]
    own = [pause_s for pause_s in pauses if 0 <= pause_s <= _PAUSE_MOST_S]
    return statistics.median(own) if own else 0.0


def _days_since(runs: Sequence[RecentRun], now: datetime) -> float:
    if not runs:
        return NEVER_DAYS
    return max(0.0, (now - max(run.started_at for run in runs)) / timedelta(days=1))
