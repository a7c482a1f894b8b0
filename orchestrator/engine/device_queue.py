"""One device's part of a campaign, and what equal phones share of it: assignments are stored before they hold."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from orchestrator.analysis.pairing import PairProgress
from orchestrator.analysis.sustained import ATTEMPT_NUMBERS, Attempt, attempts
from orchestrator.engine.case_runner import CaseFailures, CaseRunner
from orchestrator.engine.events import DeviceNote, InvocationStarted, Measuring, PairsSoFar, RoundAdded, RunStored
from orchestrator.engine.reference_check import ReferenceCheck
from orchestrator.engine.rounds import OpenWork, done_count, following, open_work, slim
from orchestrator.engine.workload import Arrival, Services, Workload
from orchestrator.errors import InterruptedByUserError
from orchestrator.planning.assignment import Assignment, Present, RunKey, assign, key_of
from orchestrator.ports import Device, Observer
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: How often a phone that waits for the others' last invocations checks whether all was cancelled.
_POLL_S: Final = 0.5


class Assigner:
    """The campaign as it is stored, and what equal phones share of it; for all devices' threads."""

    def __init__(
        self, campaign: Campaign, store: Store, runs: Iterable[RunRecord], *, cancelled: threading.Event
    ) -> None:
        """``runs`` are the campaign's stored ones."""
        self.campaign = campaign
        self._store = store
        self._cancelled = cancelled
        self._changed = threading.Condition()
        #: What is stored, as far as it was asked for: of all that phones share, and of lost devices.
        self._stored = _keys(runs) if campaign.terms.shards else set()
        self._running: dict[Serial, Invocation] = {}
        #: Shared invocations that are neither stored nor run.
        self._open = self._shared()

    def join(
        self, arrival: Arrival, known: Iterable[DeviceFacts], lost: Serial | None = None, runs: Iterable[RunRecord] = ()
    ) -> None:
        """Give a device that comes its work; ``known`` are the campaign's other devices.

        ``lost`` is the device whose place it takes, ``runs`` are that one's. Raises StoreError, nothing changed.
        """
        come = Present(facts=arrival.facts, invocations=arrival.invocations, instead_of=lost)
        others = [Present(facts=facts) for facts in known if facts.serial != arrival.facts.serial]
        with self._changed:
            self._stored |= _keys(runs)
            self._assign([*others, come], arrival=arrival)

    def has_shared(self, serial: Serial) -> bool:
        """Whether a phone, or one that it shares with, has shared invocations open."""
        with self._changed:
            return any(self._open.get(other) for other in self._group(serial))

    def begin(self, serial: Serial) -> Invocation | None:
        """Return the shared invocation that a phone is to run next; :meth:`end` must follow.

        None when its group has nothing left. While another phone's last invocation runs it waits, because that phone
        may be lost. Raises InterruptedByUserError, StoreError.
        """
        with self._changed:
            while group := self._group(serial):
                if self._cancelled.is_set():
                    raise InterruptedByUserError
                if not self._open.get(serial) and any(self._open.get(other) for other in group):
                    self._assign(idle=[serial])
                if own := self._open.get(serial):
                    self._running[serial] = own.pop(0)
                    return self._running[serial]
                if not any(other in self._running for other in group):
                    break
                self._changed.wait(_POLL_S)
            return None

    def end(self, serial: Serial, *, is_done: bool) -> None:
        """Take back what a phone was given: when it isn't done it is open again, for this phone or another."""
        with self._changed:
            item = self._running.pop(serial)
            if is_done:
                self._stored.add(key_of(item))
            else:
                self._open.setdefault(serial, []).append(item)
            self._changed.notify_all()

    def _assign(
        self, devices: Sequence[Present] = (), *, idle: Sequence[Serial] = (), arrival: Arrival | None = None
    ) -> None:
        """Ask the rule, and store its answer before it holds."""
        terms = self.campaign.terms
        before = Assignment(invocations=self.campaign.invocations, shards=terms.shards, replaced=terms.replaced)
        now = assign(before, devices, self._settled(), idle=idle)
        terms = replace(terms, shards=now.shards, replaced=now.replaced)
        amended = replace(self.campaign, invocations=now.invocations, terms=terms)
        if arrival is not None:
            amended = arrival.added_to(amended, is_sharing=bool(now.group_of(arrival.facts.serial)))
        if amended != self.campaign:
            self._store.amend_campaign(
                amended,
                devices=[arrival.facts] if arrival is not None else [],
                models=list(arrival.models) if arrival is not None else [],
                builds=list(arrival.builds) if arrival is not None else [],
            )
            self.campaign = amended
            self._open = self._shared()

    def _group(self, serial: Serial) -> tuple[Serial, ...]:
        return Assignment(shards=self.campaign.terms.shards).group_of(serial)

    def _settled(self) -> set[RunKey]:
        return self._stored | {key_of(item) for item in self._running.values()}

    def _shared(self) -> dict[Serial, list[Invocation]]:
        settled, found = self._settled(), dict[Serial, list[Invocation]]()
        for item in self.campaign.invocations:
            if item.case.shard and key_of(item) not in settled:
                found.setdefault(item.case.serial, []).append(item)
        return found


def _keys(runs: Iterable[RunRecord]) -> set[RunKey]:
    return {key_of(run) for run in runs if run.outcome is not Outcome.UNFIT}


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
        #: Of an A/B comparison, and the plan that was last reported.
        self._pairs = PairProgress(campaign, facts.serial, self._runs) if campaign.terms.pairing is not None else None
        self._told = ""
        if self._pairs is not None:
            services = replace(services, observer=_Sides(services.observer, self._pairs))
        self._services = services
        self._runner = CaseRunner(device, facts, workload, services, self._runs, failures)
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
        if self._reference_check is not None and not self._runner.time.is_over:
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
        if self._reference_check is not None and (not self._runner.time.is_over or self.open_work().reference_check):
            self._reference_check.end()

    def _run_sustained(self, markers: Sequence[Invocation]) -> None:
        for marker in markers:
            if lacking := self._runner.time.lacks(marker):
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
                self._assigner.end(self._serial, is_done=self._runner.has_stored(item))

    def open_work(self) -> OpenWork:
        """Return what is still to be run."""
        return open_work(self._assigner.campaign, self._runs, self._serial, self._services.tools)

    def left(self) -> int:
        """Return how many invocations aren't stored, at least."""
        return len(self.open_work().invocations)

    def done(self) -> int:
        """Return how much is measured: of a sustained measurement the whole, of the reference workload nothing."""
        return done_count(self._workload.campaign, self._runs, self._serial)

    def _tell(self, added: Sequence[Invocation]) -> None:
        if self._pairs is None:
            self._services.observer.on_event(_round_of(self._serial, added))
            return
        counts = repr(self._pairs.counts())
        if counts != self._told:
            self._told = counts
            self._services.observer.on_event(DeviceNote(serial=self._serial, text=self._pairs.plan_text()))

    def _between(self) -> None:
        if self._reference_check is not None and not self._runner.time.is_over:
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

    def last() -> Attempt | None:
        found = attempts([run for run in runs if run.case.case_key == marker.case.case_key])
        return found[-1] if found else None

    before = last()
    if before is not None and before.is_over(sustained_s):
        return
    invocation = replace(marker, number=0 if before is None else (before.number + 1) * ATTEMPT_NUMBERS)
    # The first begins at rest; a wait in vain leaves it open, and too many of them abandon the device.
    while runner.run_one(invocation).outcome is Outcome.UNFIT:
        pass
    while (now := last()) is None or not now.is_over(sustained_s):
        invocation = replace(invocation, number=invocation.number + 1)
        runner.run_one(invocation, at_rest=False)
