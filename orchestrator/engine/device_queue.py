"""One device's part of a campaign, from the first look at the reference workload to the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.analysis.pairing import PairProgress
from orchestrator.analysis.sustained import ATTEMPT_NUMBERS, Attempt, attempts
from orchestrator.engine.assigning import Assigner
from orchestrator.engine.case_runner import CaseFailures, CaseRunner, Ledger
from orchestrator.engine.events import DeviceNote, InvocationStarted, Measuring, PairsSoFar, RoundAdded, RunStored
from orchestrator.engine.night import TimeLeft
from orchestrator.engine.reference_check import ReferenceCheck
from orchestrator.engine.rounds import OpenWork, done_count, following, open_work, slim
from orchestrator.engine.workload import Services, Workload
from orchestrator.planning.assignment import key_of
from orchestrator.planning.order import UnusedThreads
from orchestrator.ports import Device, Observer
from orchestrator.records.campaign import Invocation
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass


class DeviceQueue:
    """Runs all that a campaign still wants of one device."""

    def __init__(
        self,
        device: Device,
        facts: DeviceFacts,
        workload: Workload,
        services: Services,
        assigner: Assigner,
        *,
        failures: CaseFailures,
    ) -> None:
        """``assigner`` has the campaign as it is now, ``failures`` are those that the device's cases had before."""
        self._assigner = assigner
        self._serial = facts.serial
        self._workload = workload
        campaign = workload.campaign
        #: The device's runs of this campaign, as they are stored: all decisions are made from them.
        self._runs = runs_of(services, workload, serials=[facts.serial])
        #: Of an A/B comparison, and what was last told of its plan.
        self._pairs = PairProgress(campaign, facts.serial, self._runs) if campaign.terms.pairing is not None else None
        self._told = ""
        if self._pairs is not None:
            services = replace(services, observer=_Sides(services.observer, self._pairs))
        self._services = services
        self._unused = UnusedThreads(self._runs)
        # Who compares or searches thread counts wants each of them.
        terms = campaign.terms
        is_one = not (terms.every_thread_count or terms.pairing is not None or terms.search is not None)
        self._time = TimeLeft(campaign, self._runs, services.clock, services.store, facts.serial)
        self._runner = CaseRunner(
            device,
            facts,
            workload,
            services,
            ledger=Ledger(
                on_stored=self._learn,
                is_stored=self._has_stored,
                unused=self._unused.reason if is_one else lambda case: "",
            ),
            time=self._time,
            failures=failures,
        )
        marks = [
            item
            for item in campaign.invocations
            if item.run_pass is Pass.REFERENCE and item.case.serial == facts.serial
        ]
        self._reference_check = (
            ReferenceCheck(device, workload, services, self._runner, self._runs, marks[0]) if marks else None
        )

    def run(self) -> None:
        """Run what is open: the plan's invocations, what the stopping rule adds, sustained curves.

        Raises what CaseRunner.run_all raises, and DeviceUnusableError for a device that was set aside.
        """
        work = self.open_work()
        if not work.invocations and not self._assigner.has_shared(self._serial):
            return
        self._runner.place_ahead((*work.reference_check, *work.planned))
        if self._reference_check is not None and not self._time.is_over:
            self._reference_check.begin()
        self._run_shared()
        # Until nothing is open: an invocation that was unfit is tried again.
        while (work := self.open_work()).planned or work.added:
            if work.planned:
                self._runner.run_all(work.planned, between=self._between)
                continue
            self._tell(work.added)
            self._runner.run_all(work.added, between=self._between)
        self._run_sustained(work.sustained)
        if self._reference_check is not None and (not self._time.is_over or self.open_work().reference_check):
            self._reference_check.end()

    def _run_sustained(self, markers: Sequence[Invocation]) -> None:
        for marker in markers:
            if lacking := self._time.lacks(marker):
                self._runner.leave_out(following(marker, self._runs), lacking)
                continue
            if self._runner.is_needless(following(marker, self._runs)):
                continue
            self._between()
            run_sustained(self._runner, marker, self._runs, sustained_s=self._workload.campaign.terms.sustained_s)

    def _run_shared(self) -> None:
        while (item := self._assigner.begin(self._serial)) is not None:
            try:
                self._runner.run_all((item,), between=self._between)
            finally:
                self._assigner.end(self._serial, is_done=self._has_stored(item))

    def _has_stored(self, item: Invocation) -> bool:
        return any(key_of(run) == key_of(item) and run.outcome is not Outcome.UNFIT for run in self._runs)

    def open_work(self) -> OpenWork:
        """Return what is still to be run."""
        return open_work(self._assigner.campaign, self._runs, self._serial, self._services.tools)

    def left(self) -> int:
        """Return how many invocations aren't stored at the least."""
        return len(self.open_work().invocations)

    def done(self) -> int:
        """Return how much is measured: of a sustained measurement the whole, of the reference workload nothing."""
        return done_count(self._workload.campaign, self._runs, self._serial)

    def _learn(self, run: RunRecord) -> None:
        self._runs.append(slim(run))
        self._time.learn(run)
        self._unused.learn(run)

    def _tell(self, added: Sequence[Invocation]) -> None:
        if self._pairs is None:
            self._services.observer.on_event(_round_of(self._serial, added))
            return
        counts = repr(self._pairs.counts())
        if counts != self._told:
            self._told = counts
            self._services.observer.on_event(DeviceNote(serial=self._serial, text=self._pairs.plan_text()))

    def _between(self) -> None:
        if self._reference_check is not None and not self._time.is_over:
            self._reference_check.between()


class _Sides:
    """Passes events on with the side that they are of, and with how the sides compare so far."""

    def __init__(self, observer: Observer, pairs: PairProgress) -> None:
        self._observer = observer
        self._pairs = pairs

    def on_event(self, event: object) -> None:
        """See Observer.on_event."""
        match event:
            case InvocationStarted(invocation=invocation) | Measuring(invocation=invocation):
                event = replace(event, side=self._pairs.side_of(invocation.case.case_key))
            case RunStored(run=run):
                self._pairs.learn(run)
                found = self._pairs.so_far(run)
                so_far = None
                if found is not None and found.ratio is not None:
                    so_far = PairsSoFar(pairs=found.counts[0], ratio=found.ratio, low=found.low, high=found.high)
                event = replace(event, side=self._pairs.side_of(run.case.case_key), so_far=so_far)
        self._observer.on_event(event)


def _round_of(serial: Serial, added: Sequence[Invocation]) -> RoundAdded:
    numbers = [item.number for item in added]
    return RoundAdded(
        serial=serial,
        number=min(numbers),
        last=max(numbers),
        cases=len({item.case.case_key for item in added}),
        run_pass=added[0].run_pass,
    )


def runs_of(services: Services, workload: Workload, *, serials: Sequence[Serial] = ()) -> list[RunRecord]:
    """Return the campaign's runs, of some devices or of all, as decisions need them."""
    return [slim(run) for run in services.store.runs(campaign_ids=[workload.campaign.campaign_id], serials=serials)]


def run_sustained(runner: CaseRunner, marker: Invocation, runs: Sequence[RunRecord], *, sustained_s: float) -> None:
    """Measure a case's curve; what an earlier attempt left is cut, and the curve restarted.

    ``runs`` are the device's of this campaign and grow as they are stored. Raises what CaseRunner.run_all raises.
    """
    found = attempts(_own(marker, runs))
    if found and found[-1].is_over(sustained_s):
        return
    number = found[-1].number + 1 if found else 0
    invocation = replace(marker, number=number * ATTEMPT_NUMBERS)
    # The first begins at rest; a wait in vain leaves it open, and too many of them give the device up.
    while runner.run_one(invocation).outcome is Outcome.UNFIT:
        pass
    while not _attempt(marker, runs, number).is_over(sustained_s):
        invocation = replace(invocation, number=invocation.number + 1)
        runner.run_one(invocation, at_rest=False)


def _attempt(marker: Invocation, runs: Sequence[RunRecord], number: int) -> Attempt:
    return next(attempt for attempt in attempts(_own(marker, runs)) if attempt.number == number)


def _own(marker: Invocation, runs: Sequence[RunRecord]) -> list[RunRecord]:
    key = marker.case.case_key
    return [run for run in runs if run.run_pass is Pass.SUSTAINED and run.case.case_key == key]
