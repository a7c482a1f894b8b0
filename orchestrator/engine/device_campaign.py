"""One device's campaign: lease, prepare, run, read, judge, store, and restore; the one way to
measure a device.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.analysis.drift import ATTEMPT_NUMBERS, Attempt, attempts
from orchestrator.clock import Deadline
from orchestrator.engine.case_runner import CaseFailures, CaseRunner
from orchestrator.engine.events import (
    DeviceFinished,
    DeviceNote,
    RoundAdded,
)
from orchestrator.engine.invocation import Context
from orchestrator.engine.open_work import OpenWork, done_count, following, open_work, slim
from orchestrator.engine.reference_check import ReferenceCheck
from orchestrator.errors import (
    BenchfarmError,
    DeviceBusyError,
    DeviceError,
    DeviceSetAsideError,
    DeviceUnfitError,
    HostStorageError,
    InterruptedByUserError,
    StoreError,
    may_return,
)
from orchestrator.frozen import frozen
from orchestrator.passes import goes_on, is_around_others
from orchestrator.planning.time_budget import TimeLeft
from orchestrator.ports import Device, session_of
from orchestrator.records.campaign import Invocation
from orchestrator.records.case import Serial
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import Outcome, RunRecord

#: After this many returns with nothing measured in between, a device is kept out.
RETURNS_MAX: Final = 3
#: How long a device that somebody else uses is waited for: a check of it takes a moment.
_LEASE_WAIT_S: Final = 5.0
#: How often a waiting thread checks whether all was cancelled.
_POLL_S: Final = 0.5

#: Nothing could be kept of any device, or nobody wants it any more.
ENDS_ALL: Final = (StoreError, HostStorageError, InterruptedByUserError)


class WorkingDevices:
    """The devices of one process that work now: as long as there are any, a lost or unfit one is
    waited for.
    """

    def __init__(self, serials: Sequence[Serial] = ()) -> None:
        self._serials = set(serials)
        self._changed = threading.Condition()

    def __bool__(self) -> bool:
        """Whether any device works."""
        return bool(self._serials)

    def add(self, serial: Serial) -> None:
        """Note that a device works."""
        with self._changed:
            self._serials.add(serial)

    def remove(self, serial: Serial) -> None:
        """Note that a device doesn't work any more: it is lost, unfit or done."""
        with self._changed:
            self._serials.discard(serial)
            self._changed.notify_all()

    def work_for(self, seconds: float, cancelled: threading.Event) -> bool:
        """Wait this long; False as soon as no device works any more or all is cancelled."""
        deadline = Deadline(seconds)
        with self._changed:
            while self._serials and not cancelled.is_set():
                if deadline.expired:
                    return True
                self._changed.wait(min(_POLL_S, deadline.remaining_s))
        return False


@frozen
class DeviceResult:
    """How a device's campaign ended."""

    #: Why the device was abandoned; empty when it wasn't.
    lost: str = ""
    #: What ended it and isn't the device's fault.
    fault: Exception | None = None


class DeviceCampaign:
    """All that is open of a campaign on one device, from the lease to the restored device.

    What is open follows from the stored runs alone, so a resume needs no further state.
    """

    def __init__(
        self,
        device: Device,
        facts: DeviceFacts,
        context: Context,
        others: WorkingDevices | None = None,
    ) -> None:
        """``others`` are the process's devices; a device that is measured alone isn't waited for
        when it is lost.
        """
        self._device = device
        self._facts = facts
        self._serial = facts.serial
        self._campaign = context.campaign
        self._context = context
        self._others = others or WorkingDevices()
        #: What was abandoned on the device, also after it was away.
        self._failures = CaseFailures(self._campaign.terms)
        self._marks = [
            item
            for item in self._campaign.invocations
            if is_around_others(item) and item.case.serial == self._serial
        ]
        #: The device's runs of this campaign, as they are stored: all decisions are made from them.
        self._runs: list[RunRecord] = []
        self._is_read = False
        #: Goes on while the device is away.
        self._time: TimeLeft | None = None

    def run(self) -> DeviceResult:
        """Measure what is open under the device's lease; whatever happens, the device is restored
        before it is freed.

        A device that is lost is waited for while others work, and resumes. Raises
        InterruptedByUserError, StoreError and HostStorageError; all else ends this device's part
        and is returned.
        """
        result = DeviceResult()
        try:
            result = self._guarded(self._under_lease)
        finally:
            self._others.remove(self._serial)
            told = self._guarded(lambda: self._tell_finished(result.lost))
        return result if result.lost else told

    def _guarded(self, step: Callable[[], None]) -> DeviceResult:
        """Do a step; what it raises ends this device's part only, unless nothing could be kept of
        any device.
        """
        try:
            step()
        except ENDS_ALL:
            raise
        except Exception as error:  # noqa: BLE001 - the others go on; a fault of ours is returned
            return self._result_of(error)
        return DeviceResult()

    def _under_lease(self) -> None:
        with self._context.lease.acquire(self._serial, wait_s=_LEASE_WAIT_S):
            try:
                self._until_done()
            finally:
                self._restore()

    def _until_done(self) -> None:
        """Measure until nothing is open; a device that was lost and comes back resumes where it
        was.
        """
        fruitless, done_before = 0, -1
        while True:
            # Read under the lease: nobody else adds to it now.
            self._begin()
            try:
                self._measure()
            except DeviceUnfitError as error:
                if not self._is_asked_again(error):
                    raise
            except DeviceError as error:
                done = done_count(self._campaign, self._runs, self._serial)
                fruitless = fruitless + 1 if done == done_before else 0
                done_before = done
                if fruitless >= RETURNS_MAX:
                    self._keep_out(
                        f"it was lost {fruitless + 1} times with nothing measured in between: {error}"
                    )
                    raise
                if not may_return(error) or not self._is_back(error):
                    raise
            else:
                return

    def _begin(self) -> None:
        """Read what is stored of the device."""
        self._runs = runs_of(self._context, serials=[self._serial])
        self._is_read = True
        #: Of an A/B comparison: the counts that were last reported.
        self._told = ""

    def _measure(self) -> None:
        """Run what is open: the plan's invocations, what the stopping rule adds, sustained curves.

        Raises what CaseRunner.run_all raises, and DeviceUnusableError for a device that was set
        aside.
        """
        work = self._open_work()
        if not work.invocations:
            return
        context = self._context
        if self._time is None:
            self._time = TimeLeft(
                self._campaign, self._runs, context.clock, self._serial, context.store.recent_runs
            )
        runner = CaseRunner(
            self._device, self._facts, context, self._runs, self._failures, self._time
        )
        check = (
            ReferenceCheck(self._device, self._context, runner, self._runs, self._marks[0])
            if self._marks
            else None
        )

        def between() -> None:
            if check is not None and not runner.time.is_over:
                check.between()

        if check is not None and not runner.time.is_over:
            check.begin()
        # Until nothing is open: an invocation that was unfit is tried again.
        while (work := self._open_work()).planned or work.added:
            if not work.planned:
                self._tell_added(work.added)
            runner.run_all(work.planned or work.added, between=between)
        for marker in work.sustained:
            if lacking := runner.time.lacks(marker):
                runner.leave_out(following(marker, self._runs), lacking)
            elif not runner.is_needless(following(marker, self._runs)):
                between()
                run_sustained(
                    runner, marker, self._runs, sustained_s=self._campaign.terms.sustained
                )
        if check is not None and (not runner.time.is_over or self._open_work().reference_check):
            check.end()

    def _open_work(self) -> OpenWork:
        return open_work(self._campaign, self._runs, self._serial, self._context.tools)

    def _tell_added(self, added: Sequence[Invocation]) -> None:
        if self._campaign.terms.pairing is None:
            self._context.observer.on_event(_round_of(self._serial, added))
            return
        from orchestrator.analysis.pairing import PairProgress

        pairs = PairProgress(self._campaign, self._serial, self._runs)
        counts = repr(pairs.counts())
        text = pairs.plan_text(lambda case: session_of(self._context.tools, case))
        if text and counts != self._told:
            self._told = counts
            self._note(text)

    def _is_back(self, error: DeviceError) -> bool:
        """Wait for the device, which was lost, as long as others work: it costs nothing then."""
        context = self._context
        if context.cancelled.is_set():
            return False
        text = f"lost: {_text(self._device, error)}; its remaining runs resume when it reconnects"
        self._note(text, is_problem=True, is_away=True)
        self._others.remove(self._serial)
        is_back = context.rescuer.rescue(
            self._device,
            keep_waiting=lambda: bool(self._others),
            may_reboot=self._campaign.terms.reboot,
            on_note=self._note,
            cancelled=context.cancelled,
        )
        if is_back:
            self._others.add(self._serial)
            self._note("is back", is_away=False)
        return is_back

    def _is_asked_again(self, error: DeviceUnfitError) -> bool:
        """Leave the device, which isn't fit, alone for a while, restored.

        False when no other works any more.
        """
        self._others.remove(self._serial)
        if not self._others.work_for(0.0, self._context.cancelled):
            return False
        text = f"{_text(self._device, error)}; it is asked again while others work"
        self._note(text, is_problem=True, is_away=True)
        self._restore()
        if not self._others.work_for(self._context.unfit_pause_s, self._context.cancelled):
            return False
        self._others.add(self._serial)
        self._note("is asked again", is_away=False)
        return True

    def _result_of(self, error: Exception) -> DeviceResult:
        """Return why the device's part has ended; an error that isn't the device's is reported."""
        # One that is busy, unfit or away may do tomorrow. One whose reference workload moved
        # measures something else than before.
        if isinstance(error, DeviceSetAsideError):
            self._keep_out(_text(self._device, error))
        if isinstance(error, DeviceError):
            return DeviceResult(lost=_text(self._device, error))
        is_ours = not isinstance(error, BenchfarmError)
        reason = (
            f"a fault in benchfarm itself: {type(error).__name__}: {error}"
            if is_ours
            else str(error)
        )
        self._note(f"is abandoned: {reason}", is_problem=True)
        return DeviceResult(lost=reason, fault=error)

    def _tell_finished(self, reason: str) -> None:
        if not self._is_read:
            self._begin()
        left = len(self._open_work().invocations)
        self._context.observer.on_event(
            DeviceFinished(serial=self._serial, left=left, reason=reason)
        )

    def _keep_out(self, reason: str) -> None:
        self._context.quarantine.put(self._serial, reason)
        self._note(
            f"is in quarantine; 'benchfarm device release {shlex.quote(self._serial)}' ends it",
            is_problem=True,
        )

    def _restore(self) -> None:
        """Undo what was changed; what can't be undone now is named."""
        conditioner = self._context.conditioner
        try:
            conditioner.restore(
                self._device, on_note=lambda text: self._note(text, is_problem=True)
            )
        except BenchfarmError as error:
            if self._serial in conditioner.unrestored():
                self._note(why_not_restored(self._serial, error), is_problem=True)
            elif not isinstance(error, DeviceBusyError):
                # Nothing of ours is changed there; the next command that uses the phone ends what
                # still runs.
                text = f"could not be released ({error}); its note there expires by itself"
                self._note(text, is_problem=True)

    def _note(self, text: str, *, is_problem: bool = False, is_away: bool | None = None) -> None:
        self._context.observer.on_event(
            DeviceNote(serial=self._serial, text=text, is_problem=is_problem, is_away=is_away)
        )


def _round_of(serial: Serial, added: Sequence[Invocation]) -> RoundAdded:
    numbers = [item.number for item in added]
    return RoundAdded(
        serial=serial,
        number=min(numbers),
        last=max(numbers),
        cases=len({item.case.case_key for item in added}),
        run_pass=added[0].run_pass,
    )


def runs_of(context: Context, *, serials: Sequence[Serial] = ()) -> list[RunRecord]:
    """Return the campaign's runs, of some devices or of all, as decisions need them."""
    return [
        slim(run)
        for run in context.store.runs(campaign_ids=[context.campaign.campaign_id], serials=serials)
    ]


def run_sustained(
    runner: CaseRunner, marker: Invocation, runs: Sequence[RunRecord], *, sustained_s: float
) -> None:
    """Measure a case's curve; what an earlier attempt left is cut, and the curve restarted.

    ``runs`` are the device's of this campaign and grow as they are stored. Raises what
    CaseRunner.run_all raises.
    """

    def last() -> Attempt | None:
        found = attempts(
            [run for run in runs if goes_on(run) and run.case.case_key == marker.case.case_key]
        )
        return found[-1] if found else None

    before = last()
    invocation = replace(
        marker, number=0 if before is None else (before.number + 1) * ATTEMPT_NUMBERS
    )
    # The first begins at rest; a wait in vain leaves it open, and too many of them abandon the
    # device.
    while runner.run_one(invocation).outcome is Outcome.UNFIT:
        pass
    while (now := last()) is None or not now.is_over(sustained_s):
        invocation = replace(invocation, number=invocation.number + 1)
        runner.run_one(invocation, at_rest=False)


def why_not_restored(serial: str, error: Exception) -> str:
    """Return that a device couldn't be restored, and what does it later."""
    again = f"'benchfarm device restore {shlex.quote(serial)}' tries again"
    return f"could not be restored ({error}); {again}"


def _text(device: Device, error: DeviceError) -> str:
    return str(error).removeprefix(f"{device.serial}: ")
