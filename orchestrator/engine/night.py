"""A campaign's time: what it is spent on when it doesn't reach for all, and when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from orchestrator.analysis.night import cut, usual_s
from orchestrator.clock import Clock, Deadline
from orchestrator.engine.rounds import session_of
from orchestrator.planning import Expansion, Skip, least_duration_s, without
from orchestrator.ports import Store, Tool
from orchestrator.records.campaign import Campaign, Invocation, Terms
from orchestrator.records.identity import CaseKey, Serial, SeriesKey
from orchestrator.records.night import OUT_OF_TIME
from orchestrator.records.plan import Plan
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass, ToolName
from orchestrator.units import format_duration

#: Three times the reference workload, with its start and the probes around it.
_CHECK_S: Final = 15.0
#: A device that measures is asked so often how it is.
_CHECK_EVERY_S: Final = 900.0


def bounded(plan: Plan, now: datetime) -> tuple[Plan, datetime]:
    """Return the plan with the end of its window as its end, and when it may begin: now, or when the window opens.

    What says ``until`` has chosen its end already.
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
    store: Store, tools: Mapping[ToolName, Tool], plan: Plan, expansion: Expansion, now: datetime, *, sentinel: bool
) -> Expansion:
    """Return what a plan has time for; the rest is skipped, each case with its reason.

    ``sentinel``: the reference workload will bracket it, and takes its part of the time. Raises StoreError.
    """
    total_s = left_s(plan.until, plan.phone_time_s, now)
    if total_s is None:
        return expansion
    skips: dict[CaseKey, Skip] = {}
    usable_s = max(0.0, total_s - (_CHECK_S * (2 + total_s // _CHECK_EVERY_S) if sentinel else 0.0))
    for queue in expansion.invocations.values():
        recent = store.recent_runs(list(dict.fromkeys(item.case.series_key for item in queue)))
        chosen = cut(
            queue,
            recent=recent,
            rules=plan.importance,
            left_s=usable_s,
            now=now,
            least_s=lambda item: least_duration_s(item, sustained_s=plan.sustained_s),
            unit_of=lambda case: session_of(tools, case),
        )
        skips |= {key: Skip(reason_code=OUT_OF_TIME, reason=reason) for key, reason in chosen.left_out.items()}
    return without(expansion, skips)


class TimeLeft:
    """What one device has left of a campaign's time, from now on by a clock that nobody sets."""

    def __init__(
        self, campaign: Campaign, runs: Sequence[RunRecord], clock: Clock, usual: Mapping[tuple[SeriesKey, Pass], float]
    ) -> None:
        """``runs`` are the device's of this campaign so far; the campaign has an end or a most time.

        ``usual`` is what runs of a series and pass take, as far as that is known.
        """
        terms = campaign.terms
        self._sustained_s = terms.sustained_s
        #: What the last run of a series took, in one pass.
        self._taken_s = dict(usual)
        for run in runs:
            self.learn(run)
        self._reserve_s = _CHECK_S if any(item.run_pass is Pass.SENTINEL for item in campaign.invocations) else 0.0
        self._end = terms.until
        phone_time_s = None if terms.phone_time_s is None else max(0.0, terms.phone_time_s - busy_s(terms, runs))
        seconds = left_s(terms.until, phone_time_s, clock.now())
        assert seconds is not None, "only made for a campaign whose time is limited"
        self._is_window = terms.until is not None and seconds < (phone_time_s or float("inf"))
        self._deadline = Deadline(seconds, clock)

    @property
    def is_over(self) -> bool:
        """Whether nothing may begin any more."""
        return self._deadline.expired

    def learn(self, run: RunRecord) -> None:
        """Take note of how long a run took."""
        if run.duration_s:
            self._taken_s[run.case.series_key, run.run_pass] = run.duration_s

    def lacks(self, invocation: Invocation) -> str:
        """Return why an invocation would end too late, empty when there is time for it."""
        taken_s = self._taken_s.get((invocation.case.series_key, invocation.run_pass))
        needed_s = least_duration_s(invocation, sustained_s=self._sustained_s)
        if taken_s is not None and invocation.run_pass is not Pass.SUSTAINED:
            needed_s = taken_s
        if self._deadline.remaining_s >= needed_s + self._reserve_s:
            return ""
        ends = f"which ends {self._end:%Y-%m-%d %H:%M} UTC" if self._is_window and self._end else "that was given"
        return (
            f"about {format_duration(needed_s)} are needed, and {format_duration(self._deadline.remaining_s)} "
            f"are left of the time {ends}"
        )


def time_left(
    campaign: Campaign, runs: Sequence[RunRecord], clock: Clock, store: Store, serial: Serial
) -> TimeLeft | None:
    """Return what a device has left of a campaign's time, None without a limit; raises StoreError."""
    terms = campaign.terms
    if terms.until is None and terms.phone_time_s is None:
        return None
    series = dict.fromkeys(item.case.series_key for item in campaign.invocations if item.case.serial == serial)
    return TimeLeft(campaign, runs, clock, usual_s(store.recent_runs(list(series))))


def busy_s(terms: Terms, runs: Sequence[RunRecord]) -> float:
    """Return the seconds that a device was busy with its runs, the waits between them included.

    A pause longer than the campaign waits for a phone is time in which nobody ran it, and counts as nothing.
    """
    total_s, ended_at = 0.0, None
    for run in sorted(runs, key=lambda run: run.started_at):
        if run.outcome is Outcome.SKIPPED:
            continue
        pause_s = 0.0 if ended_at is None else (run.started_at - ended_at).total_seconds()
        end = run.started_at + timedelta(seconds=run.duration_s)
        if ended_at is None or end > ended_at:
            total_s += run.duration_s + (pause_s if 0 < pause_s <= terms.limits.wait_s + 60.0 else 0.0)
            ended_at = end
    return total_s
