"""One device's campaign: lease, prepare, run, read, judge, store, and restore."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from orchestrator.analysis.drift import ATTEMPT_NUMBERS, attempts, is_over
from orchestrator.clock import Deadline
from orchestrator.engine.case_runner import CaseRunner
from orchestrator.engine.decisions import (
    LEASE_WAIT_S,
    RETURNS_MAX,
    OpenWork,
    Response,
    SituationTracker,
    done_count,
    next_sustained,
    open_work,
    response_to,
    slim,
)
from orchestrator.engine.events import (
    DeviceFinished,
    DeviceNote,
    RoundAdded,
)
from orchestrator.engine.invocation import CampaignContext
from orchestrator.errors import (
    BenchfarmError,
    DeviceBusyError,
    DeviceError,
    DeviceSetAsideError,
)
from orchestrator.passes import is_reference_run, is_sustained
from orchestrator.ports import Device, session_of
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.case import Serial
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import RunRecord

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: How often a waiting thread checks whether all was cancelled.
_POLL_S: Final = 0.5


class WorkingDevices:
    """The devices that measure now: a lost or unfit device is waited for while there are any."""

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
        """Note that a device stopped working: it is lost, unfit or done."""
        with self._changed:
            self._serials.discard(serial)
            self._changed.notify_all()

    def wait_while_working(self, seconds: float, cancelled: threading.Event) -> bool:
        """Wait this long; return False as soon as no device works or all is cancelled."""
        deadline = Deadline(seconds)
        with self._changed:
            while self._serials and not cancelled.is_set():
                if deadline.expired:
                    return True
                self._changed.wait(min(_POLL_S, deadline.remaining_s))
        return False


@frozen
class DeviceResult:
    """The end of a device's campaign."""

    #: Why the device was abandoned; empty when it wasn't.
    reason: str = ""
    #: The error that ended it and isn't the device's fault.
    fault: Exception | None = None
    #: Whether somebody else uses the device.
    is_busy: bool = False


class DeviceCampaign:
    """The open work of a campaign on one device, from the lease to the restored device.

    Open work follows from the stored runs alone, so a resume needs no further state.
    """

    def __init__(
        self,
        device: Device,
        facts: DeviceFacts,
        context: CampaignContext,
        working: WorkingDevices | None = None,
    ) -> None:
        """``working`` are all devices that are measured; a lost device is waited for only while
        others work.
        """
        self._device = device
        self._facts = facts
        self._serial = facts.serial
        self._campaign = context.campaign
        self._context = context
        self._working = working or WorkingDevices()
        #: What its runs say of those that follow; kept while it is offline.
        self._tracker: SituationTracker | None = None
        reference_items = filter(is_reference_run, self._campaign.invocations)
        #: The reference workload; None for none.
        self._reference = next(
            (item for item in reference_items if item.case.serial == self._serial), None
        )
        #: The device's stored runs of this campaign: all decisions are made from them.
        self._runs: list[RunRecord] = []
        self._is_read = False

    def run(self) -> DeviceResult:
        """Measure the open work under the device's lease; the device is always restored before its
        lease is released.

        A lost device is waited for while others work, and resumes. Raises InterruptedByUserError,
        StoreError and HostStorageError; any other error ends this device's part and is returned.
        """
        result = DeviceResult()
        try:
            result = self._guarded(self._measure_under_lease)
        finally:
            self._working.remove(self._serial)
            final_result = self._guarded(lambda: self._report_finished(result.reason))
        return result if result.reason else final_result

    def _guarded(self, step: Callable[[], None]) -> DeviceResult:
        """Do a step; an error ends only this device's part, unless all devices stop for it."""
        try:
            step()
        except Exception as error:
            # The others go on; a fault of ours is returned.
            if response_to(error) is Response.STOP_ALL:
                raise
            return self._error_result(error)
        return DeviceResult()

    def _measure_under_lease(self) -> None:
        with self._context.lease.acquire(self._serial, wait_s=LEASE_WAIT_S):
            try:
                self._measure_until_done()
            finally:
                self._restore()

    def _measure_until_done(self) -> None:
        """Measure until nothing is open; a lost device that returns resumes where it was."""
        failed_returns, done_before = 0, -1
        while True:
            # Read under the lease: no other process adds runs now.
            self._read_runs()
            try:
                return self._measure()
            except DeviceError as error:
                response = response_to(error)
                if response is Response.PAUSE and self._pause_unfit(error):
                    continue
                if response not in (Response.WAIT, Response.TRY_AGAIN):
                    raise
                done = done_count(self._campaign, self._runs, self._serial)
                failed_returns = failed_returns + 1 if done == done_before else 0
                done_before = done
                if failed_returns >= RETURNS_MAX:
                    self._quarantine(
                        f"it was lost {failed_returns + 1} times with nothing measured in between: {error}"
                    )
                    raise
                if not self._wait_for_return(error):
                    raise

    def _read_runs(self) -> None:
        """Read the device's stored runs."""
        self._runs = campaign_runs(self._context.store, self._campaign, serials=[self._serial])
        self._is_read = True
        #: In an A/B comparison, the counts that were last reported.
        self._reported_counts = ""

    def _measure(self) -> None:
        """Run the open work: the plan's invocations, those that the stopping rule adds, sustained
        curves.

        Raises as CaseRunner.run_all, and DeviceUnusableError for a device that is in quarantine.
        """
        work = self._open_work()
        if not work.invocations:
            return
        context = self._context
        if self._tracker is None:
            self._tracker = SituationTracker(
                self._campaign, self._serial, self._runs, context.clock, context.store.recent_runs
            )
        tracker = self._tracker
        runner = CaseRunner(self._device, self._facts, context, self._runs, tracker)
        check = None
        if self._reference is not None:
            from orchestrator.engine.reference_check import ReferenceCheck

            check = ReferenceCheck(self._device, context, runner, self._runs, self._reference)

        def between() -> None:
            if check is not None and tracker.remaining_s:
                check.between()

        if check is not None and tracker.remaining_s:
            check.begin()
        # Until nothing is open: an unfit invocation is tried again.
        while (work := self._open_work()).planned or work.added:
            if not work.planned:
                self._report_added(work.added)
            runner.run_all(work.planned or work.added, between=between)
        for marker in work.sustained:
            if not runner.skips(next_sustained(marker, self._runs)):
                between()
                run_sustained(
                    runner, marker, self._runs, sustained_s=self._campaign.terms.sustained
                )
        if check is not None and (tracker.remaining_s or self._open_work().reference_check):
            check.end()

    def _open_work(self) -> OpenWork:
        return open_work(self._campaign, self._runs, self._serial, self._context.tools)

    def _report_added(self, added: Sequence[Invocation]) -> None:
        if self._campaign.terms.pairing is None:
            numbers = [item.number for item in added]
            event = RoundAdded(
                serial=self._serial,
                number=min(numbers),
                last=max(numbers),
                cases=len({item.case.case_key for item in added}),
                run_pass=added[0].run_pass,
            )
            self._context.observer.on_event(event)
            return
        from orchestrator.analysis.pairing import PairProgress

        pairs = PairProgress(self._campaign, self._serial, self._runs)
        counts = repr(pairs.counts())
        text = pairs.plan_text(lambda case: session_of(self._context.tools, case))
        if text and counts != self._reported_counts:
            self._reported_counts = counts
            self._note(text)

    def _wait_for_return(self, error: DeviceError) -> bool:
        """Wait for the lost device while others work, when waiting costs nothing."""
        context = self._context
        if context.cancelled.is_set():
            return False
        text = f"lost: {error.reason}; its remaining runs resume when it reconnects"
        self._note(text, is_problem=True, is_away=True)
        self._working.remove(self._serial)
        is_back = context.rescuer.rescue(
            self._device,
            keep_waiting=lambda: bool(self._working),
            may_reboot=self._campaign.terms.reboot,
            on_note=self._note,
            cancelled=context.cancelled,
        )
        if is_back:
            self._working.add(self._serial)
            self._note("is back", is_away=False)
        return is_back

    def _pause_unfit(self, error: DeviceError) -> bool:
        """Restore the unfit device and pause it for a while; return False when no other works."""
        self._working.remove(self._serial)
        if not self._working.wait_while_working(0.0, self._context.cancelled):
            return False
        text = f"{error.reason}; it is tried again while others work"
        self._note(text, is_problem=True, is_away=True)
        self._restore()
        if not self._working.wait_while_working(
            self._context.unfit_pause_s, self._context.cancelled
        ):
            return False
        self._working.add(self._serial)
        self._note("is tried again", is_away=False)
        return True

    def _error_result(self, error: Exception) -> DeviceResult:
        """Return the result for an error; report it if it isn't the device's."""
        # A busy, unfit or offline device may work tomorrow. A device whose reference workload moved
        # would measure something else than before.
        if isinstance(error, DeviceSetAsideError):
            self._quarantine(error.reason)
        if isinstance(error, DeviceError):
            is_busy = isinstance(error, DeviceBusyError)
            return DeviceResult(reason=error.reason, is_busy=is_busy)
        is_bug = not isinstance(error, BenchfarmError)
        reason = (
            f"a fault in benchfarm itself: {type(error).__name__}: {error}"
            if is_bug
            else str(error)
        )
        self._note(f"is abandoned: {reason}", is_problem=True)
        return DeviceResult(reason=reason, fault=error)

    def _report_finished(self, reason: str) -> None:
        if not self._is_read:
            self._read_runs()
        open_count = len(self._open_work().invocations)
        self._context.observer.on_event(
            DeviceFinished(serial=self._serial, left=open_count, reason=reason)
        )

    def _quarantine(self, reason: str) -> None:
        self._context.quarantine.put(self._serial, reason)
        self._note(
            f"is in quarantine; 'benchfarm device release {shlex.quote(self._serial)}' ends it",
            is_problem=True,
        )

    def _restore(self) -> None:
        """Undo the changes on the device; report those that can't be undone now."""
        conditioner = self._context.conditioner
        try:
            conditioner.restore(
                self._device, on_note=lambda text: self._note(text, is_problem=True)
            )
        except BenchfarmError as error:
            if self._serial in conditioner.unrestored():
                self._note(why_not_restored(self._serial, error), is_problem=True)
            elif not isinstance(error, DeviceBusyError):
                # No setting is changed there; the next command that uses the phone ends processes
                # that still run.
                text = f"could not be released ({error}); its lease there expires by itself"
                self._note(text, is_problem=True)

    def _note(self, text: str, *, is_problem: bool = False, is_away: bool | None = None) -> None:
        self._context.observer.on_event(
            DeviceNote(serial=self._serial, text=text, is_problem=is_problem, is_away=is_away)
        )


def campaign_runs(
    store: Store, campaign: Campaign, *, serials: Sequence[Serial] = ()
) -> list[RunRecord]:
    """Return a campaign's :func:`slim` runs, of some devices or of all."""
    return [*map(slim, store.runs(campaign_ids=[campaign.campaign_id], serials=serials))]


def run_sustained(
    runner: CaseRunner, marker: Invocation, runs: Sequence[RunRecord], *, sustained_s: float
) -> None:
    """Measure a case's curve from its start, also where an earlier attempt was cut off.

    ``runs`` are the device's runs of this campaign and grow as they are stored. Raises as
    CaseRunner.run_all.
    """

    def curve_runs() -> list[RunRecord]:
        return [
            run for run in runs if is_sustained(run) and run.case.case_key == marker.case.case_key
        ]

    attempt = max((item.number for item in attempts(curve_runs())), default=-1) + 1
    invocation = replace(marker, number=attempt * ATTEMPT_NUMBERS)
    # The first begins at rest; a failed wait leaves it open, and too many abandon the device.
    while not runner.run_one(invocation).is_final:
        pass
    while not is_over(curve_runs(), sustained_s):
        invocation = replace(invocation, number=invocation.number + 1)
        runner.run_one(invocation, at_rest=False)


def why_not_restored(serial: str, error: Exception) -> str:
    """Return the message for a device that couldn't be restored, with the command to retry."""
    command = f"'benchfarm device restore {shlex.quote(serial)}' tries again"
    return f"could not be restored ({error}); {command}"
