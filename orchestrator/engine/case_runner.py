"""One device's invocations: place files, prepare, run, read, judge, store."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from orchestrator.analysis.outcome import Ending, skipped
from orchestrator.analysis.rounds import is_hopeless
from orchestrator.clock import Deadline
from orchestrator.engine.events import DeviceNote, InvocationStarted, Measuring, RunStored
from orchestrator.engine.invocation import (
    Context,
    Placer,
    RunRecords,
    covered,
    parity_basis,
    with_basis,
)
from orchestrator.engine.open_work import slim
from orchestrator.errors import (
    BenchfarmError,
    DeviceBusyError,
    DeviceChangedError,
    DeviceError,
    DeviceTimeoutError,
    DeviceUnfitError,
    DeviceUnusableError,
    HostStorageError,
    InterruptedByUserError,
    LinkLostError,
    StoreError,
    may_return,
)
from orchestrator.passes import is_reference_run, pass_of
from orchestrator.planning.expansion import UnusedThreads
from orchestrator.planning.time_budget import RemainingTime
from orchestrator.ports import Device, Fitness
from orchestrator.records.campaign import Invocation
from orchestrator.records.case import FIGURE_PASS, CaseKey, Pass, RunKey
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.plan import FitLimits, PlanTerms
from orchestrator.records.run import (
    FAILED_BEFORE,
    OUT_OF_TIME,
    THREADS_UNUSED,
    Outcome,
    RawOutput,
    RunRecord,
)
from orchestrator.units import format_duration

#: A case and what of a pass it runs: beside one load it may fail, and not beside others.
_Key = tuple[CaseKey, Pass, str]


class CaseFailures:
    """The endings of one device's cases in this process; a resume tries failed cases again."""

    def __init__(self, terms: PlanTerms) -> None:
        self._terms = terms
        self._endings: dict[_Key, list[tuple[Outcome, str]]] = {}
        self._hopeless: dict[_Key, tuple[str, str]] = {}

    def _key(self, key: RunKey) -> _Key:
        case_key, run_pass, number = key
        return case_key, run_pass, pass_of(run_pass).variant(number, self._terms)

    def ending(self, key: RunKey) -> tuple[str, str] | None:
        """Return the code and reason of a case that is abandoned, or None."""
        return self._hopeless.get(self._key(key))

    def learn(self, run: RunRecord) -> None:
        """Take note of how a run ended; abandon a case that keeps failing."""
        key = self._key(run.key)
        endings = self._endings.setdefault(key, [])
        endings.append((run.outcome, run.reason_code))
        if is_hopeless(endings):
            self._hopeless[key] = (run.reason_code, run.reason)


#: How often one invocation is tried when the connection to the device fails.
ATTEMPTS: Final = 3
#: A device state is read again when it is older.
RECENT_S: Final = 1.0
#: How long a device may take to return after a lost connection or a reboot.
READY_S: Final = 120.0
#: Between these steps it is checked whether the campaign was cancelled.
_READY_STEP_S: Final = 30.0
#: After this many failed waits in a row, a device is paused.
UNFIT_MAX: Final = 2
#: Any state is fit.
_NO_LIMITS: Final = FitLimits(
    battery_min=0, battery_heat_max=math.inf, thermal_status_max=6, wait=0.0
)


class CaseRunner:
    """Runs invocations on one device, one after the other."""

    def __init__(
        self,
        device: Device,
        facts: DeviceFacts,
        context: Context,
        runs: list[RunRecord],
        failures: CaseFailures,
        time: RemainingTime,
    ) -> None:
        """``runs`` are the device's runs of this campaign, to which new ones are added;
        ``failures`` are the endings of its cases so far.
        """
        self._device = device
        self._facts = facts
        self._context = context
        self._runs = runs
        self._failures = failures
        terms = context.campaign.terms
        #: The device's remaining time in the campaign.
        self.time = time
        # A comparison or search of thread counts needs each of them.
        needs_each_count = terms.every_thread_count or terms.pairing is not None
        self._unused = None if needs_each_count else UnusedThreads(runs)
        self._is_time_reported = False
        self._reported_unused: set[CaseKey] = set()
        self._placer = Placer(device, facts, context)
        self._records = RunRecords(facts, context.campaign, context.tools, context.clock)
        #: The number of invocations that were handled, and of all.
        self._position = 0
        self._total = 0
        #: Failed waits since the last run.
        self._unfit_in_row = 0
        #: When the device state was last read, and the state.
        self._last_state: tuple[float, DeviceState | None] = (0.0, None)
        #: Invocations that the process of another invocation has measured.
        self._covered: set[RunKey] = set()
        #: The raw output of the last process.
        self._last_raw: RawOutput | None = None
        #: The other side's invocation of the pair that begins; none in the middle of a pair.
        self._partner: list[Invocation] = []

    def has_stored(self, item: Invocation) -> bool:
        """Whether an invocation needn't be run again."""
        return any(run.key == item.key and run.outcome is not Outcome.UNFIT for run in self._runs)

    def run_all(
        self, invocations: Sequence[Invocation], *, between: Callable[[], None] = lambda: None
    ) -> None:
        """Run and store every invocation in this order; ``between`` is called before each.

        An invocation for which there is no time is stored as skipped. It ends its comparison in
        turns; other comparisons continue. Of the pairs beyond the plan only this one is stored.

        When the device isn't fit in time, the invocation is stored as unfit and stays open.

        Raises:
            InterruptedByUserError: cancelled; earlier runs are stored.
            DeviceError: the device is unreachable, can't be used, or was unfit too often; earlier
                runs are stored.
            StoreError, HostStorageError: a run couldn't be stored; no more are run.
        """
        self._total += len(invocations)
        queue = deque(invocations)
        while queue:
            self._check_cancelled()
            invocation = queue.popleft()
            self._position += 1
            if invocation.key in self._covered:
                continue
            if self.is_needless(invocation):
                continue
            remaining = self._queued_comparison(invocation, queue)
            # Half a pair has no use.
            self._partner = [item for item in remaining if item.number == invocation.number]
            if shortage := self.time.shortage(invocation, *self._partner):
                queue = deque(item for item in queue if item not in remaining)
                self._end_comparison(invocation, remaining, shortage)
                continue
            between()
            for run in self._run_invocation(invocation, invocations):
                self._store_run(run)
            if remaining and run.reason_code == OUT_OF_TIME:
                queue = deque(item for item in queue if item not in remaining)
                self._position += 1
                self._end_comparison(remaining[0], remaining[1:], run.reason)

    def run_one(self, invocation: Invocation, *, at_rest: bool = True) -> RunRecord:
        """Run and store one invocation; without ``at_rest`` it follows the last one directly.

        Raises as `run_all`.
        """
        self._check_cancelled()
        self._total += 1
        self._position += 1
        self._report_started(invocation)
        run = self._run_with_retries(invocation, at_rest=at_rest)
        self._store_run(run)
        return run

    def is_needless(self, invocation: Invocation) -> bool:
        """Whether another thread count has an invocation's figure, because its threads are unused;
        this is stored then.

        Raises StoreError.
        """
        pass_spec = pass_of(invocation.run_pass)
        if pass_spec.compares_outputs and self._is_only_check(invocation):
            return False
        reason = self._unused.reason(invocation.case) if self._unused is not None else ""
        if not reason:
            return False
        if invocation.case.case_key not in self._reported_unused:
            self._reported_unused.add(invocation.case.case_key)
            self.note(f"{invocation.case.model_name}, {invocation.case.configuration}: {reason}")
        self._store_run(self._records.not_run(invocation, skipped(THREADS_UNUSED, reason)))
        return True

    def _is_only_check(self, invocation: Invocation) -> bool:
        """Whether no other thread count has its outputs compared in this campaign."""
        return not any(
            item.run_pass is invocation.run_pass
            and item.case.outputs_key == invocation.case.outputs_key
            and item.key != invocation.key
            for item in self._context.campaign.invocations
        )

    def _queued_comparison(
        self, invocation: Invocation, queue: Iterable[Invocation]
    ) -> list[Invocation]:
        """Return the queued invocations of an invocation's comparison in turns; none for one
        outside a pair.
        """
        pairing = self._context.campaign.terms.pairing
        if pairing is None or invocation.run_pass is not FIGURE_PASS:
            return []
        keys = next((side for side in pairing.sides if invocation.case.case_key in side), ())
        return [
            item for item in queue if item.run_pass is FIGURE_PASS and item.case.case_key in keys
        ]

    def _end_comparison(
        self, invocation: Invocation, rest: Sequence[Invocation], reason: str
    ) -> None:
        """Skip an invocation and the planned rest of its comparison, which would stay open if it
        weren't stored. Which pairs would follow isn't known.

        Raises StoreError.
        """
        pairing = self._context.campaign.terms.pairing
        first = pairing.first_numbers if pairing is not None else ()
        planned = [item for item in rest if item.number in first and item.key not in self._covered]
        self._total -= len(rest) - len(planned)
        self.leave_out(invocation, reason)
        for item in planned:
            self._position += 1
            self.leave_out(item, reason)

    def leave_out(self, invocation: Invocation, reason: str) -> None:
        """Store an invocation as skipped for lack of time: it isn't open any more.

        Raises StoreError.
        """
        self._store_run(self._records.not_run(invocation, self._skipped_for_time(reason)))

    def _skipped_for_time(self, reason: str) -> Ending:
        if not self._is_time_reported:
            self._is_time_reported = True
            self.note(f"no time for the remaining runs: {reason}", is_problem=True)
        return skipped(OUT_OF_TIME, reason)

    def wait_until_fit(self, limits: FitLimits, *, recent: DeviceState | None = None) -> Fitness:
        """Wait until the device is fit by these limits; ``recent`` is its state if just read.

        Raises DeviceError kinds, and InterruptedByUserError.
        """
        fitness = self._context.conditioner.prepare(
            self._device,
            limits,
            quiet=self._context.campaign.terms.quiet,
            recent=recent,
            on_wait=lambda reason: self.note(f"waiting until it is fit: {reason}"),
            on_note=lambda text: self.note(text, is_problem=True),
            cancelled=self._context.cancelled,
        )
        self._check_cancelled()
        return fitness

    def _store_run(self, run: RunRecord) -> None:
        self._context.store.append_run(run)
        self._context.observer.on_event(
            RunStored(
                run=run,
                position=self._position,
                total=self._total,
                side=self._side_name(run.case.case_key),
            )
        )
        self._runs.append(slim(run))
        self.time.learn(run)
        if self._unused is not None:
            self._unused.learn(run)
        if run.outcome is not Outcome.UNFIT:
            self._unfit_in_row = 0 if run.outcome is not Outcome.SKIPPED else self._unfit_in_row
            return
        self._unfit_in_row += 1
        if self._unfit_in_row >= UNFIT_MAX:
            # Waiting before each of its invocations would take the whole night; they stay open for
            # a resume.
            raise DeviceUnfitError(run.reason, serial=self._facts.serial)

    def _report_started(self, invocation: Invocation) -> None:
        self._context.observer.on_event(
            InvocationStarted(
                invocation=invocation,
                position=self._position,
                total=self._total,
                side=self._side_name(invocation.case.case_key),
            )
        )

    def _run_invocation(
        self, invocation: Invocation, queue: Sequence[Invocation]
    ) -> Iterator[RunRecord]:
        """Run an invocation and yield its runs: its own last, so that a resume misses no other."""
        abandoned = self._failures.ending(invocation.key)
        if abandoned is not None:
            reason = f"the same case ended before with {abandoned[0]}: {abandoned[1]}"
            run = self._records.not_run(invocation, skipped(FAILED_BEFORE, reason))
        else:
            self._report_started(invocation)
            run = self._run_with_retries(invocation)
            self._failures.learn(run)
        for other in self._covered_runs(run, invocation, queue):
            self._failures.learn(other)
            self._covered.add(other.key)
            # If benchfarm was killed, some of these runs are stored already.
            if not self.has_stored(
                Invocation(case=other.case, run_pass=other.run_pass, number=other.invocation)
            ):
                yield other
        yield run

    def _covered_runs(
        self, run: RunRecord, invocation: Invocation, queue: Sequence[Invocation]
    ) -> Iterator[RunRecord]:
        """Yield the runs of the other cases that the same process measured; they share its raw
        output.
        """
        raw = self._last_raw
        if raw is None or run.report is None or run.outcome in (Outcome.ABORTED, Outcome.UNFIT):
            return
        for other in covered(self._context.tools[invocation.case.tool], invocation, queue):
            yield self._records.measured(other, raw, before=run.state_before, after=run.state_after)

    def _check_cancelled(self) -> None:
        if self._context.cancelled.is_set():
            raise InterruptedByUserError

    def _run_with_retries(self, invocation: Invocation, *, at_rest: bool = True) -> RunRecord:
        error: BenchfarmError | None = None
        started_at = self._context.clock.now()
        for attempt in range(1, ATTEMPTS + 1):
            self._check_cancelled()
            started_at = self._context.clock.now()
            try:
                run = self._run_once(invocation, started_at, at_rest=at_rest)
                has_figure = run.report is not None and run.report.inference_mean_us is not None
                may_lack_files = run.outcome is Outcome.FAILED and not has_figure
                # Somebody may have emptied the phone's temporary folder, or removed the app.
                if attempt == ATTEMPTS or not (
                    may_lack_files and self._placer.place_missing(run.case)
                ):
                    return run
                self.note(
                    f"benchfarm's files were removed from it, and were sent again (attempt {attempt} of"
                    f" {ATTEMPTS})",
                    is_problem=True,
                )
            except (
                StoreError,
                HostStorageError,
                InterruptedByUserError,
                DeviceUnusableError,
                DeviceBusyError,
            ):
                # None of them is the case's fault: it stays open.
                raise
            except BenchfarmError as caught:
                self._check_cancelled()
                error = caught
                if not _is_connection_lost(caught):
                    break
                text = str(caught).removeprefix(f"{self._facts.serial}: ")
                self.note(f"{text} (attempt {attempt} of {ATTEMPTS})", is_problem=True)
                # It may have been rebooted.
                self._placer.forget()
                self._last_state = (0.0, None)
                # A device that doesn't return is abandoned: a resume runs its open invocations.
                self._await_device()
        assert error is not None
        ending = Ending(
            outcome=Outcome.ABORTED if _is_connection_lost(error) else Outcome.FAILED,
            reason_code=error.code,
            reason=f"{error} ({error.hint})" if error.hint else str(error),
        )
        return self._records.not_run(invocation, ending, started_at=started_at)

    def _await_device(self) -> None:
        """Wait until the device is ready; raises InterruptedByUserError and DeviceError kinds."""
        deadline = Deadline(READY_S, self._context.clock)
        while True:
            self._check_cancelled()
            step = Deadline(min(_READY_STEP_S, deadline.remaining_s), self._context.clock)
            try:
                self._device.wait_until_ready(timeout_s=step.seconds)
            except (DeviceTimeoutError, LinkLostError) as error:
                if not step.expired:
                    raise
                if deadline.expired:
                    raise DeviceTimeoutError(
                        f"the device wasn't ready within {READY_S:g} s: {error}",
                        serial=self._facts.serial,
                    ) from error
            else:
                return

    def _run_once(
        self, invocation: Invocation, started_at: datetime, *, at_rest: bool
    ) -> RunRecord:
        pass_spec = pass_of(invocation.run_pass)
        case = pass_spec.as_run(invocation.case)
        tool = self._context.tools[case.tool]
        basis = parity_basis(invocation, self._context) if pass_spec.compares_outputs else None
        self._check_cancelled()
        if isinstance(basis, Ending):
            return self._records.not_run(invocation, basis, started_at=started_at)
        request = self._placer.request(
            replace(invocation, case=case), basis.inputs if basis is not None else ()
        )
        # Without a rest only the device state is read.
        limits = self._context.campaign.terms.limits if at_rest else _NO_LIMITS
        # The reference check needs the whole wait: a phone still hot would be set aside.
        is_timed = at_rest and not is_reference_run(invocation)
        if is_timed:
            limits = replace(limits, wait=min(limits.wait, self.time.remaining_s))
        fitness = self.wait_until_fit(limits, recent=self._recent_state())
        if fitness.reason and at_rest:
            reason = f"not fit after {format_duration(fitness.waited_s)}: {fitness.reason}"
            code = fitness.code or "unfit"
            ending = Ending(outcome=Outcome.UNFIT, reason_code=code, reason=reason)
            return self._records.not_run(
                invocation, ending, started_at=started_at, state=fitness.state
            )
        # The wait may have taken the time.
        if is_timed and (shortage := self.time.shortage(invocation, *self._partner)):
            ending = self._skipped_for_time(shortage)
            return self._records.not_run(
                invocation, ending, started_at=started_at, state=fitness.state
            )
        before = fitness.state or self._device.state()
        self._context.observer.on_event(
            Measuring(invocation=invocation, side=self._side_name(invocation.case.case_key))
        )
        raw = self._context.runner_of(pass_spec.name)(
            tool, self._device, request, cancelled=self._context.cancelled
        )
        self._check_cancelled()
        if basis is not None:
            raw = with_basis(raw, basis, self._facts)
        after = self._state_after(before)
        self._last_state = (self._context.clock.monotonic_s(), after)
        self._last_raw = raw
        return self._records.measured(
            invocation, raw, run_id=request.run_id, before=before, after=after
        )

    def _state_after(self, before: DeviceState) -> DeviceState | None:
        """Return the state after a run, None when the connection just failed: the run is whole.

        Raises DeviceChangedError when the device rebooted meanwhile.
        """
        try:
            after = self._device.state()
        except DeviceError as error:
            if not error.transient:
                raise
            return None
        if before.boot_id and after.boot_id and before.boot_id != after.boot_id:
            raise DeviceChangedError(
                "the device rebooted during the run", serial=self._facts.serial
            )
        return after

    def _side_name(self, key: CaseKey) -> str:
        pairing = self._context.campaign.terms.pairing
        return pairing.side_of(key) if pairing is not None else ""

    def _recent_state(self) -> DeviceState | None:
        """Return the state after the last run if nothing has happened since; a computer changes too
        quickly.
        """
        read_at_s, state = self._last_state
        age_s = self._context.clock.monotonic_s() - read_at_s
        return state if age_s < RECENT_S and self._device.kind is not DeviceKind.HOST else None

    def note(self, text: str, *, is_problem: bool = False) -> None:
        """Report a note about the device."""
        self._context.observer.on_event(
            DeviceNote(serial=self._facts.serial, text=text, is_problem=is_problem)
        )


def _is_connection_lost(error: BenchfarmError) -> bool:
    """Whether the connection failed: the error says nothing of the case."""
    return isinstance(error, DeviceError) and may_return(error)
