"""One device's invocations: place files, prepare, run, read, judge, store."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from orchestrator.analysis.quality import Ending, skipped
from orchestrator.clock import Deadline
from orchestrator.engine.decisions import (
    READY_S,
    TRIES_MAX,
    UNFIT_MAX,
    Response,
    Situation,
    SituationTracker,
    ending_without_run,
    response_to,
    slim,
)
from orchestrator.engine.events import DeviceNote, InvocationStarted, Measuring, RunStored
from orchestrator.engine.invocation import (
    CampaignContext,
    FilePlacer,
    RunRecords,
    parity_basis,
    same_process,
    with_basis,
)
from orchestrator.errors import (
    BenchfarmError,
    DeviceChangedError,
    DeviceError,
    DeviceTimeoutError,
    DeviceUnfitError,
    InterruptedByUserError,
    LinkLostError,
)
from orchestrator.passes import is_reference_run, pass_of
from orchestrator.ports import Device, Fitness
from orchestrator.records.campaign import Invocation
from orchestrator.records.case import FIGURE_PASS, CaseKey, RunKey
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.plan import FitLimits
from orchestrator.records.run import (
    OUT_OF_TIME,
    THREADS_UNUSED,
    Outcome,
    RawOutput,
    RunRecord,
)

#: A device state is read again when it is older.
RECENT_S: Final = 1.0
#: Between these steps it is checked whether the campaign was cancelled.
_READY_STEP_S: Final = 30.0
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
        context: CampaignContext,
        runs: list[RunRecord],
        tracker: SituationTracker,
    ) -> None:
        """``runs`` are the device's runs of this campaign, to which new ones are added;
        ``tracker`` has them already.
        """
        self._device = device
        self._facts = facts
        self._context = context
        self._runs = runs
        self._tracker = tracker
        #: Texts about skipped invocations that were reported, each once.
        self._reported: set[object] = set()
        self._placer = FilePlacer(device, facts, context)
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
        self._partner: Sequence[Invocation] = ()

    def has_stored(self, key: RunKey) -> bool:
        """Whether an invocation needn't be run again."""
        return any(run.key == key and run.is_final for run in self._runs)

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
            remaining = self._queued_comparison(invocation, queue)
            # Half a pair has no use.
            partner = [item for item in remaining if item.number == invocation.number]
            run = self._skipped(invocation, partner)
            if run is None:
                between()
                *others, run = self._run_invocation(invocation, invocations)
                for other in others:
                    self._store_run(other)
            if run.reason_code == OUT_OF_TIME:
                queue = deque(item for item in queue if item not in remaining)
                self._end_comparison(run, remaining)
            else:
                self._store_run(run)

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

    def skips(self, invocation: Invocation) -> bool:
        """Store an invocation as skipped if it isn't run now; return whether that is so.

        Raises StoreError.
        """
        run = self._skipped(invocation)
        if run is not None:
            self._store_run(run)
        return run is not None

    def _skipped(
        self, invocation: Invocation, partner: Sequence[Invocation] = ()
    ) -> RunRecord | None:
        """Return the run of an invocation that isn't run now, None for one that is; ``partner`` is
        the other side's of the pair that begins.
        """
        self._partner = partner
        ending = ending_without_run(self._tracker.situation(invocation, *partner))
        return None if ending is None else self._not_run(invocation, ending)

    def _not_run(
        self,
        invocation: Invocation,
        ending: Ending,
        *,
        started_at: datetime | None = None,
        state: DeviceState | None = None,
    ) -> RunRecord:
        """Report why an invocation isn't run, once for each case or for all, and return its run."""
        case, code = invocation.case, ending.reason_code
        key = case.case_key if code == THREADS_UNUSED else code
        if key not in self._reported:
            self._reported.add(key)
            if code == THREADS_UNUSED:
                self.note(f"{case.model_name}, {case.configuration}: {ending.reason}")
            elif code == OUT_OF_TIME:
                self.note(f"no time for the remaining runs: {ending.reason}", is_problem=True)
        return self._records.not_run(invocation, ending, started_at=started_at, state=state)

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

    def _end_comparison(self, run: RunRecord, rest: Sequence[Invocation]) -> None:
        """Store a run for which there was no time, and skip the planned rest of its comparison,
        which would stay open if it weren't stored. Which pairs would follow isn't known.

        Raises StoreError.
        """
        pairing = self._context.campaign.terms.pairing
        first = pairing.first_numbers if pairing is not None else ()
        planned = [item for item in rest if item.number in first and item.key not in self._covered]
        self._total -= len(rest) - len(planned)
        self._store_run(run)
        for item in planned:
            self._position += 1
            self._store_run(self._records.not_run(item, skipped(OUT_OF_TIME, run.reason)))

    def wait_until_fit(self, limits: FitLimits, *, recent: DeviceState | None = None) -> Fitness:
        """Wait until the device is fit by these limits; ``recent`` is its state if just read.

        Raises DeviceError kinds, and InterruptedByUserError.
        """
        fitness = self._context.conditioner.prepare(
            self._device,
            replace(self._context.campaign.terms, limits=limits),
            recent=recent,
            on_note=lambda text, is_problem: self.note(text, is_problem=is_problem),
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
        self._tracker.add_run(run)
        if run.is_final:
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
        self._report_started(invocation)
        run = self._run_with_retries(invocation)
        for other in self._covered_runs(run, invocation, queue):
            self._covered.add(other.key)
            # If benchfarm was killed, some of these runs are stored already.
            if not self.has_stored(other.key):
                yield other
        yield run

    def _covered_runs(
        self, run: RunRecord, invocation: Invocation, queue: Sequence[Invocation]
    ) -> Iterator[RunRecord]:
        """Yield the runs of the other cases that the same process measured; they share its raw
        output.
        """
        raw = self._last_raw
        if raw is None or run.report is None or run.outcome is Outcome.ABORTED:
            return
        for other in same_process(self._context.tools, invocation, queue):
            yield self._records.measured(other, raw, before=run.state_before, after=run.state_after)

    def _check_cancelled(self) -> None:
        if self._context.cancelled.is_set():
            raise InterruptedByUserError

    def _run_with_retries(self, invocation: Invocation, *, at_rest: bool = True) -> RunRecord:
        for attempt in range(1, TRIES_MAX + 1):
            self._check_cancelled()
            tries, started_at = f"attempt {attempt} of {TRIES_MAX}", self._context.clock.now()
            try:
                run = self._run_once(invocation, started_at, at_rest=at_rest)
                has_figure = run.report is not None and run.report.inference_mean_us is not None
                may_lack_files = run.outcome is Outcome.FAILED and not has_figure
                # Somebody may have emptied the phone's temporary folder, or removed the app.
                if attempt == TRIES_MAX or not (
                    may_lack_files and self._placer.place_missing(run.case)
                ):
                    return run
                text = f"benchfarm's files were removed from it, and were sent again ({tries})"
                self.note(text, is_problem=True)
            except BenchfarmError as error:
                response = response_to(error)
                if response not in (Response.STORE, Response.TRY_AGAIN):
                    raise
                self._check_cancelled()
                is_result = response is Response.STORE
                ending = Ending(
                    outcome=Outcome.FAILED if is_result else Outcome.ABORTED,
                    reason_code=error.code,
                    reason=f"{error} ({error.hint})" if error.hint else str(error),
                )
                run = self._records.not_run(invocation, ending, started_at=started_at)
                if is_result:
                    return run
                self.note(f"{error.reason} ({tries})", is_problem=True)
                # A device that doesn't return is abandoned: a resume runs its open invocations.
                self._await_device()
        return run

    def _await_device(self) -> None:
        """Wait until the device is ready; it may have been rebooted.

        Raises InterruptedByUserError and DeviceError kinds.
        """
        self._placer.forget()
        self._last_state = (0.0, None)
        # Without time there is nothing to run on it.
        wait_s = min(READY_S, max(self._tracker.remaining_s, _READY_STEP_S))
        deadline = Deadline(wait_s, self._context.clock)
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
                        f"the device wasn't ready within {wait_s:g} s: {error}",
                        serial=self._facts.serial,
                    ) from error
            else:
                return

    def _run_once(
        self, invocation: Invocation, started_at: datetime, *, at_rest: bool
    ) -> RunRecord:
        pass_spec = pass_of(invocation.run_pass)
        case = pass_spec.as_run(invocation.case)
        if case.model_sha256 not in self._context.models:
            # Its case had enough runs when the campaign was resumed.
            reason = f"the file of {case.model_name} is gone"
            return self._not_run(invocation, skipped("model", reason), started_at=started_at)
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
        # The reference check needs the whole wait: a phone still hot would be put in quarantine.
        is_timed = at_rest and not is_reference_run(invocation)
        if is_timed:
            limits = replace(limits, wait=min(limits.wait, self._tracker.remaining_s))
        fitness = self.wait_until_fit(limits, recent=self._recent_state())
        # The wait may have taken the time.
        situation = self._tracker.situation(invocation, *self._partner) if is_timed else Situation()
        situation = replace(situation, fitness=fitness if at_rest else None)
        if (ending := ending_without_run(situation)) is not None:
            return self._not_run(invocation, ending, started_at=started_at, state=fitness.state)
        before = fitness.state or self._device.state()
        self._context.observer.on_event(
            Measuring(invocation=invocation, side=self._side_name(invocation.case.case_key))
        )
        request = replace(request, away_s=self._tracker.remaining_s)
        raw = self._context.runner_of(pass_spec.name)(tool, self._device, request)
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
