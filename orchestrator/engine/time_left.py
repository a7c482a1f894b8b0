"""What one device has left of a campaign's time while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.clock import Clock, Deadline
from orchestrator.planning.expansion import least_duration_s
from orchestrator.planning.time_budget import CHECK_S, left_s, usual_s
from orchestrator.records.campaign import Campaign, Invocation, Terms
from orchestrator.records.identity import Serial, SeriesKey
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass
from orchestrator.units import format_duration

if TYPE_CHECKING:
    from orchestrator.store.opening import Store


class TimeLeft:
    """What one device has left of a campaign's time, by a clock that nobody sets; without a limit there is no end."""

    def __init__(
        self, campaign: Campaign, runs: Sequence[RunRecord], clock: Clock, store: Store, serial: Serial
    ) -> None:
        """``runs`` are the device's of this campaign so far. Raises StoreError."""
        terms = campaign.terms
        self._sustained_s = terms.sustained_s
        self._deadline: Deadline | None = None
        #: What the last run of a series took, in one pass.
        self._taken_s: dict[tuple[SeriesKey, Pass], float] = {}
        self._reserve_s = CHECK_S if any(item.run_pass is Pass.REFERENCE for item in campaign.invocations) else 0.0
        budget_s = None if terms.budget_s is None else max(0.0, terms.budget_s - busy_s(terms, runs))
        seconds = left_s(terms.until, budget_s, clock.now())
        if seconds is None:
            return
        self._deadline = Deadline(seconds, clock)
        #: The end of the campaign, where that is nearer than the end of the device's own time.
        self._end = terms.until if budget_s is None or seconds < budget_s else None
        series = dict.fromkeys(item.case.series_key for item in campaign.invocations if item.case.serial == serial)
        self._taken_s = usual_s(store.recent_runs(list(series)))
        for run in runs:
            self.learn(run)

    @property
    def is_over(self) -> bool:
        """Whether nothing may begin any more."""
        return self._deadline is not None and self._deadline.expired

    def learn(self, run: RunRecord) -> None:
        """Take note of how long a run took."""
        if run.duration_s:
            self._taken_s[run.case.series_key, run.run_pass] = run.duration_s

    def lacks(self, invocation: Invocation) -> str:
        """Return why an invocation would end too late, empty when there is time for it."""
        if self._deadline is None:
            return ""
        needed_s = least_duration_s(invocation, sustained_s=self._sustained_s)
        if invocation.run_pass is not Pass.SUSTAINED:
            needed_s = self._taken_s.get((invocation.case.series_key, invocation.run_pass), needed_s)
        if self._deadline.remaining_s >= needed_s + self._reserve_s:
            return ""
        ends = f"which ends {self._end:%Y-%m-%d %H:%M} UTC" if self._end is not None else "that was given"
        left = format_duration(self._deadline.remaining_s)
        return f"about {format_duration(needed_s)} are needed, and {left} are left of the time {ends}"


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
