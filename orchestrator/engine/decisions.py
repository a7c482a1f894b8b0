"""A campaign's open work, whether an invocation is run now, and what follows an error: pure functions.

The open work follows from the plan and the stored runs: planned, added, sustained, reference.

The engine asks :func:`ending_without_run` before an invocation and again after its wait, with the
:class:`Situation` that a :class:`SituationTracker` derives from the device's runs. A cancelled
campaign and a lost device can end any step: they are errors, and :func:`response_to` says what
follows each.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.analysis.drift import checks, is_over
from orchestrator.analysis.quality import Ending, skipped
from orchestrator.analysis.rounds import is_hopeless, next_round
from orchestrator.analysis.samples import without_output
from orchestrator.clock import Clock, Deadline
from orchestrator.delegates import shared_case
from orchestrator.errors import (
    RETURNING,
    BenchfarmError,
    DeviceBusyError,
    DeviceError,
    DeviceUnauthorizedError,
    DeviceUnfitError,
    DeviceUnusableError,
    HostStorageError,
    InterruptedByUserError,
    StoreError,
)
from orchestrator.passes import is_reference_run, is_sustained, pass_of, stored_pass
from orchestrator.planning.time_budget import (
    CHECK_S,
    Recent,
    busy_s,
    estimate,
    time_limit_s,
    usual_durations_s,
)
from orchestrator.ports import Fitness, Tool, session_of
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.case import (
    FIGURE_PASS,
    Case,
    CaseKey,
    Pass,
    RunKey,
    Serial,
    SeriesKey,
    ToolName,
    grouped,
)
from orchestrator.records.device import DeviceState
from orchestrator.records.run import (
    FAILED_BEFORE,
    NOT_BEGUN,
    OUT_OF_TIME,
    THREADS_UNUSED,
    DelegateTruth,
    Outcome,
    RunRecord,
)
from orchestrator.units import counted, format_duration

#: How often an invocation is tried when the connection to its device fails.
TRIES_MAX: Final = 3
#: How long a device may take to return after a lost connection or a reboot, before the next try.
READY_S: Final = 120.0
#: After this many failed waits in a row, a device is paused.
UNFIT_MAX: Final = 2
#: After this many returns with nothing measured in between, a device is put in quarantine.
RETURNS_MAX: Final = 3
#: How long to wait for a device that another command uses, maybe only for a short check.
LEASE_WAIT_S: Final = 5.0


class Response(enum.Enum):
    """What follows an error. Unless it is stored, its invocation stays open: it says nothing of the
    case.
    """

    #: All devices stop: nothing can be stored, or the user cancelled.
    STOP_ALL = "stop all"
    #: The device is restored, and tried again after a pause while others work.
    PAUSE = "pause"
    #: The device is waited for while others work; after RETURNS_MAX returns without a
    #: run it is put in quarantine.
    WAIT = "wait"
    #: The invocation is tried again, TRIES_MAX times in all; then the device is waited for.
    TRY_AGAIN = "try again"
    #: The error is the invocation's result.
    STORE = "store"
    #: The device's part of the campaign ends; the other devices continue.
    LEAVE = "leave"


def response_to(error: BaseException) -> Response:
    """Return the response to an error; docs/reference/failures.md has it for users."""
    match error:
        case StoreError() | HostStorageError() | InterruptedByUserError():
            return Response.STOP_ALL
        case DeviceUnfitError():
            return Response.PAUSE
        case DeviceUnauthorizedError():
            return Response.WAIT
        case DeviceUnusableError() | DeviceBusyError():
            return Response.LEAVE
        case DeviceError() if isinstance(error, RETURNING):
            return Response.TRY_AGAIN
        case BenchfarmError():
            return Response.STORE
        case _:
            return Response.LEAVE


@frozen
class Situation:
    """All that decides whether an invocation is run now."""

    #: Why another thread count has its figure; empty where none has.
    unused: str = ""
    #: Of the device after the wait for it; None before.
    fitness: Fitness | None = None
    #: The seconds that it takes with its partner in a pair; that stay for the reference workload;
    #: and that the device has.
    needed_s: float = 0.0
    reserve_s: float = 0.0
    remaining_s: float = math.inf
    #: How its case's earlier runs ended, which leave no hope; empty where there is hope.
    failure: str = ""


def ending_without_run(situation: Situation) -> Ending | None:
    """Return how an invocation ends that isn't run now; None for one that is run.

    An unfit one stays open.
    """
    fitness = situation.fitness
    if situation.unused:
        return skipped(THREADS_UNUSED, situation.unused)
    if fitness is not None and fitness.reason:
        reason = f"not fit after {format_duration(fitness.waited_s)}: {fitness.reason}"
        code = fitness.code or "unfit"
        return Ending(outcome=Outcome.UNFIT, reason_code=code, reason=reason)
    if situation.remaining_s < situation.needed_s + situation.reserve_s:
        needed, remaining = map(format_duration, (situation.needed_s, situation.remaining_s))
        return skipped(OUT_OF_TIME, f"about {needed} are needed, and {remaining} are left")
    if situation.failure:
        return skipped(FAILED_BEFORE, f"the same case ended before with {situation.failure}")
    return None


#: A case with its pass and variant: it may fail under one load and not under others.
_Key = tuple[CaseKey, Pass, str]


class SituationTracker:
    """Knows the situation of a device's next invocation: from its runs in a campaign, and the time
    that is left.

    Failures count in this process only: a resume tries failed cases again.
    """

    def __init__(
        self,
        campaign: Campaign,
        serial: Serial,
        runs: Sequence[RunRecord],
        clock: Clock,
        recent_of: Callable[[Sequence[SeriesKey]], Recent],
    ) -> None:
        """``runs`` are the device's runs of this campaign so far; ``recent_of`` returns the last
        runs of some series.
        """
        terms = campaign.terms
        self._campaign = campaign
        self._endings: dict[_Key, list[tuple[Outcome, str]]] = {}
        self._failures: dict[_Key, str] = {}
        #: Without the thread count -> the case whose delegate ran all operators.
        self._measured: dict[CaseKey, Case] = {}
        # A comparison or search of thread counts needs each of them.
        self._needs_each_count = terms.every_thread_count or terms.pairing is not None
        has_reference = any(map(is_reference_run, campaign.invocations))
        self._reserve_s = CHECK_S if has_reference else 0.0
        #: Runs on while the device is offline.
        self._deadline: Deadline | None = None
        self._durations_s: dict[tuple[SeriesKey, Pass], float] = {}
        budget_s = None if terms.budget is None else max(0.0, terms.budget - busy_s(terms, runs))
        seconds = time_limit_s(terms.until, budget_s, clock.now())
        if seconds is not None:
            self._deadline = Deadline(seconds, clock)
            series = dict.fromkeys(
                item.case.series_key for item in campaign.invocations if item.case.serial == serial
            )
            self._durations_s = usual_durations_s(recent_of(list(series)))
        for run in runs:
            self._add_figure(run)

    @property
    def remaining_s(self) -> float:
        """The seconds that are left for runs; infinite without a limit."""
        return math.inf if self._deadline is None else self._deadline.remaining_s

    def situation(self, item: Invocation, *partner: Invocation) -> Situation:
        """Return an invocation's present situation; ``partner`` is the other half of its pair."""
        terms = self._campaign.terms
        estimates = (estimate(each, terms, self._durations_s) for each in (item, *partner))
        return Situation(
            unused=self._unused(item),
            needed_s=sum(each.needed_s() for each in estimates),
            reserve_s=self._reserve_s,
            remaining_s=self.remaining_s,
            failure=self._failures.get(self._key(item.key), ""),
        )

    def add_run(self, run: RunRecord) -> None:
        """Add a run of this process; called in the order in which runs are stored."""
        self._add_figure(run)
        key = self._key(run.key)
        endings = self._endings.setdefault(key, [])
        endings.append((run.outcome, run.reason_code))
        # A curve ends by a rule of its own, also in its next attempt.
        if not is_sustained(run) and key not in self._failures and is_hopeless(endings):
            self._failures[key] = f"{run.reason_code}: {run.reason}"

    def _add_figure(self, run: RunRecord) -> None:
        if run.duration_s:
            self._durations_s[run.case.series_key, run.run_pass] = run.duration_s
        report = run.report if run.outcome is Outcome.COMPLETED else None
        is_whole = report is not None and report.delegate.truth is DelegateTruth.FULL
        if is_whole and (key := shared_case(run.case)) is not None:
            self._measured.setdefault(key, run.case)

    def _key(self, key: RunKey) -> _Key:
        case_key, run_pass, number = key
        return case_key, run_pass, pass_of(run_pass).variant(number, self._campaign.terms)

    def _unused(self, item: Invocation) -> str:
        """Return why another thread count has an invocation's figure; empty where none has."""
        key = None if self._needs_each_count else shared_case(item.case)
        measured = self._measured.get(key) if key is not None else None
        if measured is None or measured.threads == item.case.threads or self._is_only_check(item):
            return ""
        count = counted(measured.threads, "thread")
        return f"threads unused: all operators ran on the {item.case.delegate.value}; the figure is that of {count}"

    def _is_only_check(self, item: Invocation) -> bool:
        """Whether no other thread count has its outputs compared in this campaign."""
        return pass_of(item.run_pass).compares_outputs and not any(
            other.run_pass is item.run_pass
            and other.case.outputs_key == item.case.outputs_key
            and other.key != item.key
            for other in self._campaign.invocations
        )


@frozen
class OpenWork:
    """The open work of a device."""

    #: Invocations of the plan that aren't stored, in their order.
    planned: tuple[Invocation, ...]
    #: The next round beyond the plan; there may be more after it.
    added: tuple[Invocation, ...]
    #: Cases whose sustained measurement isn't whole.
    sustained: tuple[Invocation, ...]
    #: The reference workload, when nothing bracketed the last runs.
    reference_check: tuple[Invocation, ...]

    @property
    def invocations(self) -> tuple[Invocation, ...]:
        """All of it; more may follow."""
        return (*self.planned, *self.added, *self.sustained, *self.reference_check)


def open_work(
    campaign: Campaign, runs: Sequence[RunRecord], serial: Serial, tools: Mapping[ToolName, Tool]
) -> OpenWork:
    """Return the open work of a device; ``runs`` are its runs of this campaign."""
    invocations = tuple(item for item in campaign.invocations if item.case.serial == serial)
    # The work of other devices changes nothing here, and costs time.
    campaign = replace(campaign, invocations=invocations)
    done = {run.key for run in runs if run.is_final}
    planned = tuple(
        item
        for item in invocations
        if not stored_pass(item.run_pass).is_open_ended and item.key not in done
    )
    terms = campaign.terms
    added: tuple[Invocation, ...] = ()
    if terms.pairing is not None:
        from orchestrator.analysis.pairing import PairProgress

        added = tuple(PairProgress(campaign, serial, runs).added()) if not planned else ()
    elif terms.stopping is not None and not any(item.run_pass is FIGURE_PASS for item in planned):
        added = tuple(next_round(campaign, runs, serial, lambda case: session_of(tools, case)))
    return OpenWork(
        planned=planned,
        added=added,
        sustained=_open_sustained(invocations, runs, terms.sustained),
        reference_check=_open_reference(invocations, runs),
    )


def done_count(campaign: Campaign, runs: Sequence[RunRecord], serial: Serial) -> int:
    """Return the number of invocations that a device has done; ``runs`` are its runs of this
    campaign.

    A sustained measurement counts once it is whole; the reference workload never counts.
    """
    stored = sum(run.is_final and not stored_pass(run.run_pass).is_open_ended for run in runs)
    markers = [
        item for item in campaign.invocations if item.case.serial == serial and is_sustained(item)
    ]
    return stored + len(markers) - len(_open_sustained(markers, runs, campaign.terms.sustained))


def open_work_by_serial(
    campaign: Campaign, runs: Iterable[RunRecord], tools: Mapping[ToolName, Tool]
) -> dict[Serial, OpenWork]:
    """Return the open work of each of a campaign's devices; its ``runs`` may be :func:`slim`."""
    planned = grouped(campaign.invocations, lambda item: item.case.serial)
    stored = grouped(runs, lambda run: run.case.serial)
    return {
        serial: open_work(
            replace(campaign, invocations=tuple(planned[serial])), stored[serial], serial, tools
        )
        for serial in dict.fromkeys([*planned, *stored])
    }


def next_sustained(marker: Invocation, runs: Iterable[RunRecord]) -> Invocation:
    """Return the invocation that a sustained measurement would resume; ``runs`` are the device's."""
    case_runs = [run for run in runs if run.case.case_key == marker.case.case_key]
    numbers = [run.invocation for run in case_runs if is_sustained(run)]
    return replace(marker, number=max(numbers, default=marker.number - 1) + 1)


def slim(run: RunRecord) -> RunRecord:
    """Return a run with only what decisions need, a sixth of its size: a campaign's runs stay in
    memory until its end.

    Of the device's states the battery's temperature stays, and the mean clock between them.
    """
    run = without_output(run)
    report = run.report
    if report is not None:
        report = replace(
            report,
            operators=(),
            operator_types=(),
            profile_blocks=(),
            delegate=replace(report.delegate, lines=(), cpu_operators=()),
        )
    return replace(
        run,
        command="",
        report=report,
        state_before=_battery_state(run.state_before) if is_reference_run(run) else None,
        state_after=_battery_state(run.state_after),
    )


def _battery_state(state: DeviceState | None) -> DeviceState | None:
    return None if state is None else DeviceState(at=state.at, battery_heat_c=state.battery_heat_c)


def _open_sustained(
    invocations: Sequence[Invocation], runs: Sequence[RunRecord], sustained_s: float
) -> tuple[Invocation, ...]:
    by_case = grouped(filter(is_sustained, runs), lambda run: run.case.case_key)
    return tuple(
        item
        for item in invocations
        if is_sustained(item) and not is_over(by_case[item.case.case_key], sustained_s)
    )


def _open_reference(
    invocations: Sequence[Invocation], runs: Sequence[RunRecord]
) -> tuple[Invocation, ...]:
    reference_items = [item for item in invocations if is_reference_run(item)]
    if not reference_items:
        return ()
    other_runs = [run for run in runs if not is_reference_run(run) and run.is_final]
    # A run that wasn't begun needs no bracket.
    start_times = [run.started_at for run in other_runs if run.reason_code not in NOT_BEGUN]
    if other_runs and not start_times:
        return ()
    check_ends = [check.ended_at for check in checks(runs) if check.is_whole]
    is_bracketed = bool(check_ends) and (not start_times or max(check_ends) >= max(start_times))
    return () if is_bracketed else tuple(reference_items[:1])
