"""A campaign's time: what it is spent on when it doesn't reach for all, and when it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from orchestrator.analysis.night import Recent, costs_of, cut, usual_pause_s, usual_s
from orchestrator.clock import Clock, Deadline
from orchestrator.engine.rounds import session_of
from orchestrator.planning import Expansion, Skip, least_duration_s, without
from orchestrator.ports import Store, Tool
from orchestrator.records.campaign import Campaign, Invocation, Terms
from orchestrator.records.identity import CaseKey, Serial, SeriesKey
from orchestrator.records.night import OUT_OF_TIME, RecentRun
from orchestrator.records.plan import Plan
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Case, Pass, ToolName
from orchestrator.units import format_duration

#: Three times the reference workload, with its start and the probes around it.
_CHECK_S: Final = 15.0
#: A device that measures is asked so often how it is.
_CHECK_EVERY_S: Final = 900.0
#: What is left is thought over again each time that this share of it is done.
_LOOK_EVERY: Final = 1 / 50
#: So many cases are named when the time gets short.
_NAMED: Final = 5


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
    store: Store,
    tools: Mapping[ToolName, Tool],
    plan: Plan,
    expansion: Expansion,
    now: datetime,
    *,
    reference_check: bool,
) -> Expansion:
    """Return what a plan has time for, and the pauses reckoned with; the rest is skipped, each case with its reason.

    ``reference_check``: the reference workload will bracket it, and takes its part of the time. Raises StoreError.
    """
    total_s = left_s(plan.until, plan.phone_time_s, now)
    if total_s is None:
        return expansion
    skips: dict[CaseKey, Skip] = {}
    pauses_s: dict[Serial, float] = {}
    usable_s = max(0.0, total_s - (_CHECK_S * (2 + total_s // _CHECK_EVERY_S) if reference_check else 0.0))
    for serial, queue in expansion.invocations.items():
        recent = store.recent_runs(list(dict.fromkeys(item.case.series_key for item in queue)))
        pause_s = pauses_s[serial] = usual_pause_s(recent)
        chosen = cut(
            queue,
            costs_s=costs_of(queue, recent, lambda item: least_duration_s(item, sustained_s=plan.sustained_s), pause_s),
            recent=recent,
            rules=plan.importance,
            left_s=usable_s,
            now=now,
            unit_of=lambda case: session_of(tools, case),
        )
        skips |= {key: Skip(reason_code=OUT_OF_TIME, reason=reason) for key, reason in chosen.left_out.items()}
    return replace(without(expansion, skips), pauses_s=pauses_s)


class TimeWithoutEnd:
    """The time of a campaign that has no limit: there is some for everything, in the order in which it is planned."""

    is_over: Final = False

    def learn(self, run: RunRecord) -> None:
        """Nothing depends on how long a run took."""

    def keep_for(self, later: Sequence[Invocation]) -> None:
        """Nothing needs to be kept."""

    def by_importance(
        self, queue: Sequence[Invocation], on_note: Callable[[str], None] = lambda text: None
    ) -> Iterator[Invocation]:
        """Yield a queue in its order."""
        return iter(queue)

    def lacks(self, invocation: Invocation) -> str:
        """Return that nothing is lacking."""
        return ""


class TimeLeft:
    """What one device has left of a campaign's time, from now on by a clock that nobody sets."""

    def __init__(
        self,
        campaign: Campaign,
        runs: Sequence[RunRecord],
        clock: Clock,
        recent: Recent,
        unit_of: Callable[[Case], str] = lambda case: "",
        *,
        pause_s: float | None = None,
    ) -> None:
        """``runs`` are the device's of this campaign so far; the campaign has an end or a most time.

        ``recent`` are the last runs of its series, of any campaign; ``unit_of`` says what one process measures.
        ``pause_s`` is the time between two runs before this campaign, as the cut to its time knew it: what the runs of
        series that were left out took would be pause between those of ``recent``, which tell it otherwise.
        """
        terms = campaign.terms
        self._campaign = campaign
        self._unit_of = unit_of
        #: What cases took before this campaign; of those that it has filled with its own runs, these.
        self._before = {
            series_key: [run for run in found if run.started_at < campaign.created_at] or found
            for series_key, found in recent.items()
        }
        self._pause_before_s = usual_pause_s(self._before) if pause_s is None else pause_s
        #: What they take in this campaign.
        self._own: dict[SeriesKey, list[RecentRun]] = {}
        #: What the last run of a series took, in one pass.
        self._taken_s = usual_s(recent)
        for run in runs:
            self.learn(run)
        self._reserve_s = _CHECK_S if any(item.run_pass is Pass.REFERENCE for item in campaign.invocations) else 0.0
        #: Sustained measurements that come after all else, and the time that is kept for those there is time for.
        self._later: Sequence[Invocation] = ()
        self._later_s = 0.0
        #: Case -> why it goes last, those that matter least at the end; and those that somebody was told of.
        self._goes_last: Mapping[CaseKey, str] = {}
        self._told: set[CaseKey] = set()
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
        if not run.duration_s:
            return
        self._taken_s[run.case.series_key, run.run_pass] = run.duration_s
        self._own.setdefault(run.case.series_key, []).append(
            RecentRun(run_pass=run.run_pass, started_at=run.started_at, duration_s=run.duration_s, outcome=run.outcome)
        )

    def keep_for(self, later: Sequence[Invocation]) -> None:
        """Know which sustained measurements follow: time is kept for those that matter more than what is before."""
        self._later, self._later_s = later, 0.0

    def by_importance(
        self, queue: Sequence[Invocation], on_note: Callable[[str], None] = lambda text: None
    ) -> Iterator[Invocation]:
        """Yield a queue in its order as long as all of it fits; what matters least goes last when it doesn't.

        Nothing is left out here: an estimate may be wrong, and when time is left in the end, it is for what went last.
        ``on_note`` is told which cases go last.
        """
        rest = list(enumerate(queue))
        look_at = len(rest)
        while rest:
            if len(rest) <= look_at:
                look_at = len(rest) - max(1, int(len(rest) * _LOOK_EVERY))
                self._think_over([item for _, item in rest], on_note)
                places = {key: place for place, key in enumerate(self._goes_last)}
                rest.sort(key=lambda entry: (places.get(entry[1].case.case_key, -1), entry[0]))
            yield rest.pop(0)[1]

    def lacks(self, invocation: Invocation) -> str:
        """Return why an invocation would end too late, empty when there is time for it."""
        taken_s = self._taken_s.get((invocation.case.series_key, invocation.run_pass))
        needed_s = self._least_s(invocation)
        kept_s = self._reserve_s
        if invocation.run_pass is not Pass.SUSTAINED:
            needed_s = needed_s if taken_s is None else taken_s
            kept_s += self._later_s
        if self._deadline.remaining_s >= needed_s + kept_s:
            return ""
        ends = f"which ends {self._end:%Y-%m-%d %H:%M} UTC" if self._is_window and self._end else "that was given"
        why = self._goes_last.get(invocation.case.case_key, "")
        return (
            f"about {format_duration(needed_s)} are needed, and {format_duration(self._deadline.remaining_s)} "
            f"are left of the time {ends}{'; the case went last: ' if why else ''}{why}"
        )

    def _least_s(self, invocation: Invocation) -> float:
        return least_duration_s(invocation, sustained_s=self._campaign.terms.sustained_s)

    def _now_taken(self) -> Recent:
        """Return what tells how long a run takes: this campaign's runs of a series and pass where it has some."""
        found: dict[SeriesKey, Sequence[RecentRun]] = dict(self._before)
        for series_key, own in self._own.items():
            passes = {run.run_pass for run in own}
            found[series_key] = [*own, *(run for run in found.get(series_key, ()) if run.run_pass not in passes)]
        return found

    def _think_over(self, rest: Sequence[Invocation], on_note: Callable[[str], None]) -> None:
        """Rank what is left as it was ranked before the campaign, by what its runs take now."""
        usable_s = max(0.0, self._deadline.remaining_s - self._reserve_s)
        is_known = sum(len(runs) for runs in self._own.values()) > 1
        pause_s = usual_pause_s(self._own) if is_known else self._pause_before_s
        queue = (*rest, *self._later)
        chosen = cut(
            queue,
            costs_s=costs_of(queue, self._now_taken(), self._least_s, pause_s),
            recent=self._before,
            rules=self._campaign.terms.importance,
            left_s=usable_s,
            now=self._campaign.created_at,
            unit_of=self._unit_of,
        )
        self._goes_last = chosen.left_out
        kept_s = sum(self._least_s(item) for item in self._later if item.case.case_key not in chosen.left_out)
        self._later_s = kept_s if chosen.kept_s <= usable_s else 0.0
        if not usable_s:
            # Nothing begins any more: what is left says for itself why, one by one.
            return
        cases = {item.case.case_key: item.case for item in rest if item.case.case_key in chosen.left_out}
        if new := [case for key, case in cases.items() if key not in self._told]:
            self._told |= cases.keys()
            named = [f"{case.model_name} ({case.configuration})" for case in new[:_NAMED]]
            more = f", and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
            on_note(
                f"about {format_duration(chosen.wanted_s)} are wanted, and {format_duration(usable_s)} are left; "
                f"what matters least goes last: {', '.join(named)}{more}"
            )


#: The time of any campaign, as one device has it.
CampaignTime = TimeLeft | TimeWithoutEnd


def time_left(
    campaign: Campaign,
    runs: Sequence[RunRecord],
    clock: Clock,
    store: Store,
    serial: Serial,
    tools: Mapping[ToolName, Tool],
) -> CampaignTime:
    """Return what a device has left of a campaign's time; raises StoreError."""
    terms = campaign.terms
    if terms.until is None and terms.phone_time_s is None:
        return TimeWithoutEnd()
    series = dict.fromkeys(item.case.series_key for item in campaign.invocations if item.case.serial == serial)
    recent = store.recent_runs(list(series))
    pause_s = terms.pauses_s.get(serial)
    return TimeLeft(campaign, runs, clock, recent, lambda case: session_of(tools, case), pause_s=pause_s)


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
