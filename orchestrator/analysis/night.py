"""Which cases a night has time for: the stalest and most important first, by what their last runs took. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from orchestrator.records.campaign import Invocation
from orchestrator.records.identity import CaseKey, SeriesKey
from orchestrator.records.night import ImportanceRule, RecentRun
from orchestrator.records.workload import Case, Pass
from orchestrator.units import format_duration

#: The last runs of a series and pass whose median says how long the next one takes.
_LAST: Final = 8
#: What was never run counts as that old.
NEVER_DAYS: Final = 10_000.0
#: A run takes about so many times the least that its settings ask for, where nothing is known of the device.
_USUAL_FACTOR: Final = 1.5
#: Between two runs a phone is probed, cooled, given files; a longer pause is time in which nobody ran it.
_PAUSE_MOST_S: Final = 360.0

Recent = Mapping[SeriesKey, Sequence[RecentRun]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What one device's time comes to."""

    #: What all of it would take.
    wanted_s: float
    #: What is kept takes.
    kept_s: float
    #: Case -> why it is left out, as a sentence.
    left_out: Mapping[CaseKey, str] = field(default_factory=dict)


def importance_of(rules: Sequence[ImportanceRule], case: Case) -> float:
    """Return how much a case matters: the first rule that speaks of it says so; 1 when none does."""
    return next((rule.value for rule in rules if rule.fits(case)), 1.0)


def cut(
    queue: Sequence[Invocation],
    *,
    costs_s: Mapping[CaseKey, float],
    recent: Recent,
    rules: Sequence[ImportanceRule],
    left_s: float,
    now: datetime,
    unit_of: Callable[[Case], str] = lambda case: "",
) -> Cut:
    """Choose the cases of one device that fit into its time.

    A case's rank is its importance times the days since its last run of any outcome but a skip; equal ones are ordered
    by their importance, then by their keys. They are taken in that order as long as they fit; one that doesn't is left
    out whole, so that its last run is older the next night, and smaller ones behind it are still tried. When not even
    one fits, the first is kept. What is left out is told in that order too.

    Args:
        queue: all that the device is to run.
        costs_s: what each case takes with all its invocations, as :func:`costs_of` returns it.
        recent: the last runs of its series, any order: how long cases weren't measured.
        rules: the plan's importance.
        left_s: the device's time.
        now: when the night begins.
        unit_of: what the cases have in common that one process measures; empty for a case that is run alone.
    """
    units: dict[str, list[Case]] = {}
    cases = {item.case.case_key: item.case for item in queue}
    for key, case in cases.items():
        units.setdefault(unit_of(case) or key, []).append(case)
    # One process measures a whole unit.
    unit_costs = {name: max(costs_s[case.case_key] for case in unit) for name, unit in units.items()}
    wanted_s = sum(unit_costs.values())
    if wanted_s <= left_s:
        return Cut(wanted_s=wanted_s, kept_s=wanted_s)

    def rank(name: str) -> tuple[float, float, str]:
        found = [
            (importance_of(rules, case), _days_since(recent.get(case.series_key, ()), now)) for case in units[name]
        ]
        return (-max(value * days for value, days in found), -max(value for value, _ in found), name)

    kept_s, left_out = 0.0, {}
    ranked = sorted(units, key=rank)
    nothing_fits = left_s > 0 and min(unit_costs.values()) > left_s
    for name in ranked:
        # What was never run is only thought to take long, and would never be known: it is begun, and cut when it must.
        if kept_s + unit_costs[name] <= left_s or (nothing_fits and name == ranked[0]):
            kept_s += unit_costs[name]
            continue
        for case in units[name]:
            left_out[case.case_key] = _reason(
                unit_costs[name], left_s, importance_of(rules, case), recent.get(case.series_key, ()), now
            )
    return Cut(wanted_s=wanted_s, kept_s=kept_s, left_out=left_out)


def usual_s(recent: Recent) -> dict[tuple[SeriesKey, Pass], float]:
    """Return what a run of each series and pass takes: the median of the last ones."""
    medians: dict[tuple[SeriesKey, Pass], float] = {}
    for series_key, runs in recent.items():
        for run_pass in {run.run_pass for run in runs}:
            own = sorted((run for run in runs if run.run_pass is run_pass), key=lambda run: run.started_at)
            medians[series_key, run_pass] = statistics.median(run.duration_s for run in own[-_LAST:])
    return medians


def costs_of(
    queue: Sequence[Invocation], recent: Recent, least_s: Callable[[Invocation], float], pause_s: float
) -> dict[CaseKey, float]:
    """Return what each case takes with all its invocations, and with what the device does between them, in seconds.

    ``least_s`` says what an invocation takes at the least by its settings, ``pause_s`` is the time between two runs.
    """
    medians = usual_s(recent)
    known = [
        (medians[key] + pause_s) / least
        for item in queue
        if item.run_pass is not Pass.SUSTAINED
        and (key := (item.case.series_key, item.run_pass)) in medians
        and (least := least_s(item)) > 0
    ]
    factor = statistics.median(known) if known else _USUAL_FACTOR
    costs: dict[CaseKey, float] = {}
    for item in queue:
        median_s = medians.get((item.case.series_key, item.run_pass))
        if item.run_pass is Pass.SUSTAINED:
            # One invocation of the plan stands for all that fit into its time.
            cost_s = least_s(item)
        else:
            cost_s = median_s + pause_s if median_s is not None else least_s(item) * factor
        costs[item.case.case_key] = costs.get(item.case.case_key, 0.0) + cost_s
    return costs


def usual_pause_s(recent: Recent) -> float:
    """Return the median time between two runs of a device on its last day; 0 when nothing is known.

    A few long ones, of an outage or of a hot phone, don't make all runs seem long: what was thought to take too long
    stays left out, and what was thought too short is thought over as it runs.
    ``recent`` must hold all series that the device measured in turns: those of others would count as pause.
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
    newest = max(run.started_at for run in runs)
    return max(0.0, (now - newest) / timedelta(days=1))


def _reason(cost_s: float, left_s: float, importance: float, runs: Sequence[RecentRun], now: datetime) -> str:
    days = _days_since(runs, now)
    last = "it was never run" if days >= NEVER_DAYS else f"its last run is {days:.1f} days old"
    return (
        f"it would take about {format_duration(cost_s)}, and {format_duration(left_s)} in all went to cases that are "
        f"more important or longer not measured; its importance is {importance:g}, {last}"
    )
