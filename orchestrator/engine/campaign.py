"""A campaign: every device through its queue, each under its lease, all of it stored, all phones restored."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace

from orchestrator.analysis.rounds import savings
from orchestrator.engine.case_runner import CaseFailures
from orchestrator.engine.device_queue import Assigner, DeviceQueue, runs_of
from orchestrator.engine.events import CampaignEnded, CampaignStarted, DeviceJoined
from orchestrator.engine.reference_check import keep_doubts
from orchestrator.engine.rounds import OpenWork, open_works
from orchestrator.engine.turns import Turns
from orchestrator.engine.workload import Arrival, Arrivals, Services, Workload
from orchestrator.errors import InterruptedByUserError
from orchestrator.ports import Device
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass

_Stored = tuple[Sequence[RunRecord], Mapping[Serial, OpenWork]]


class DevicePool:
    """Gives each device of a campaign its work, also to those that come while it runs."""

    def __init__(
        self,
        workload: Workload,
        devices: Sequence[DeviceFacts],
        services: Services,
        arrivals: Arrivals | None,
        runs: Sequence[RunRecord],
        lost: MutableMapping[Serial, str],
    ) -> None:
        """``runs`` are the campaign's stored ones."""
        #: Devices that aren't there or were abandoned, with the reason; one that comes is none of them any more.
        self.lost = lost
        self._workload = workload
        self._services = services
        self._arrivals = arrivals
        self._assigner = Assigner(workload.campaign, services.store, runs, cancelled=services.cancelled)
        self._lock = threading.Lock()
        #: What each device that works, or has worked, is.
        self._facts = {facts.serial: facts for facts in devices}
        #: Spare devices that are to begin, with the lost one whose place each takes.
        self._waiting: list[tuple[Arrival, Serial | None]] = []
        #: Devices that have come and haven't begun: with the campaign's others then, and the lost one that it replaces.
        self._joining: dict[Serial, tuple[Arrival, Sequence[DeviceFacts], Serial | None]] = {}
        #: What devices that have joined work with.
        self._workloads: dict[Serial, Workload] = {}
        #: What was abandoned on each, also after it was away.
        self._failures: dict[Serial, CaseFailures] = {}
        #: Lost devices, with the spare ones that were last chosen for them.
        self._chosen: dict[Serial, Serial] = {}

    @property
    def campaign(self) -> Campaign:
        """The campaign as it is now."""
        return self._assigner.campaign

    @property
    def has_spares(self) -> bool:
        """Whether a spare device may take the place of one that is lost."""
        return self._arrivals is not None and self.campaign.terms.replaces_lost

    def has_work_for(self, serial: Serial, works: Mapping[Serial, OpenWork]) -> bool:
        """Whether a device has open work of its own, or of what it shares."""
        own = works.get(serial)
        return bool(own and own.invocations) or self._assigner.has_shared(serial)

    def begin(self, device: Device) -> DeviceQueue:
        """Return the work of a device; what one that has come is to measure is stored first. Called under its lease."""
        serial = device.serial
        workload = self._workloads.get(serial, self._workload)
        joins = self._joining.pop(serial, None)
        if joins is not None:
            arrival, known, replaced = joins
            runs = () if replaced is None else runs_of(self._services, self._workload, serials=[replaced])
            self._assigner.join(arrival, known, replaced, runs)
            workload = self._workloads[serial] = self._workload.with_arrival(self.campaign, arrival)
            self.lost.pop(serial, None)
        queue = DeviceQueue(
            device,
            self._facts[serial],
            workload,
            self._services,
            self._assigner,
            failures=self._failures.setdefault(serial, CaseFailures()),
        )
        if joins is not None:
            joined = DeviceJoined(serial=serial, left=queue.left(), instead_of=joins[2] or "")
            self._services.observer.on_event(joined)
        return queue

    def newcomers(self) -> list[Device]:
        """Return the devices that have come since."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            if self._arrivals is not None:
                waiting += [(arrival, None) for arrival in self._arrivals.take()]
            new = [item for item in waiting if item[0].facts.serial not in self._facts]
            known = tuple(self._facts.values())
            for arrival, replaced in new:
                self._facts[arrival.facts.serial] = arrival.facts
                self._joining[arrival.facts.serial] = (arrival, known, replaced)
        return [arrival.device for arrival, _ in new]

    def replace_lost(self, serial: Serial, is_free: Callable[[Serial], bool]) -> Serial | None:
        """Have a spare device that is free measure what a lost one was to, and return it; None for none now.

        Asked again for the same one: the device that was returned is lost too, before it began.
        """
        gone = self._chosen.get(serial, serial)
        spare = self._arrivals.spare_for(gone, is_free) if self._arrivals is not None and self.has_spares else None
        if spare is None:
            return None
        with self._lock:
            self._chosen[serial] = spare.facts.serial
            self._waiting.append((spare, serial))
        return spare.facts.serial


def run_on_devices(
    workload: Workload,
    devices: Sequence[tuple[Device, DeviceFacts]],
    services: Services,
    turns: Turns,
    arrivals: Arrivals | None = None,
) -> CampaignEnded:
    """Run every invocation that isn't stored yet, on the devices that are there.

    A device that is lost is waited for while others work, and ends its own queue only. Whatever happens, each
    device is restored as it was before its lease is released, and the campaign's status says how far it came.
    ``arrivals`` tells of devices that come meanwhile, and of those that may stand in for lost ones.

    Raises:
        InterruptedByUserError: Ctrl-C; the status is INTERRUPTED.
        StoreError, HostStorageError: a run couldn't be kept.
    """
    campaign = workload.campaign
    runs, works = _stored(services, workload)
    lost: dict[Serial, str] = {
        serial: "not attached, or not usable"
        for serial, work in works.items()
        if work.invocations and serial not in {device.serial for device, _ in devices}
    }
    services.observer.on_event(
        CampaignStarted(
            campaign=campaign,
            devices=tuple(facts for _, facts in devices),
            total=max(len(campaign.invocations), _done(runs)),
            done=_done(runs),
            stored=Counter(run.case.serial for run in runs),
            left={serial: len(work.invocations) for serial, work in works.items()},
        )
    )
    pool = DevicePool(workload, [facts for _, facts in devices], services, arrivals, runs, lost)
    status = CampaignStatus.INTERRUPTED
    at_end = None
    try:
        with_work = [device for device, facts in devices if pool.has_work_for(facts.serial, works)]
        faults = turns.run(with_work, pool)
        workload = replace(workload, campaign=pool.campaign)
        if services.cancelled.is_set():
            raise InterruptedByUserError
        at_end = _stored(services, workload)
        if not _left(at_end[1]):
            status = CampaignStatus.FINISHED
    except KeyboardInterrupt:
        raise InterruptedByUserError from None
    finally:
        for serial, other in pool.campaign.terms.replaced.items():
            if serial in lost:
                lost[Serial(serial)] += f"; {other} takes its place"
        result = _end(services, replace(workload, campaign=pool.campaign), status, lost, at_end)
    return replace(result, fault=faults[0] if faults else None)


def _stored(services: Services, workload: Workload) -> _Stored:
    """Return a campaign's runs, and what they leave open on each device."""
    runs = runs_of(services, workload)
    return runs, open_works(workload.campaign, runs, services.tools)


def _end(
    services: Services, workload: Workload, status: CampaignStatus, lost: Mapping[Serial, str], stored: _Stored | None
) -> CampaignEnded:
    """``stored`` is what was read when all devices were through; None where they weren't."""
    campaign, finished_at = workload.campaign, services.clock.now()
    # Also of a check that was stored right before a crash.
    if any(item.run_pass is Pass.REFERENCE for item in campaign.invocations) and keep_doubts(
        services.store, campaign.campaign_id
    ):
        stored = None
    services.store.set_status(campaign.campaign_id, status, finished_at)
    runs, works = stored or _stored(services, workload)
    ended = replace(campaign, status=status, finished_at=finished_at)
    result = CampaignEnded(
        campaign=ended, stored=_done(runs), left=_left(works), lost=lost, savings=savings(campaign, runs)
    )
    services.observer.on_event(result)
    return result


def _done(runs: Iterable[RunRecord]) -> int:
    """Return how many invocations are stored; unfit ones wait for another try."""
    return sum(run.outcome is not Outcome.UNFIT for run in runs)


def _left(works: Mapping[Serial, OpenWork]) -> int:
    """Return how many aren't, at least."""
    return sum(len(work.invocations) for work in works.values())
