"""The devices of a running campaign: those that it began with, those that come, spare devices for lost ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence

from orchestrator.engine.assigning import Arrival, Arrivals, Assigner, workload_with
from orchestrator.engine.case_runner import CaseFailures
from orchestrator.engine.device_queue import DeviceQueue, runs_of
from orchestrator.engine.events import DeviceJoined
from orchestrator.engine.recovery import Work
from orchestrator.engine.rounds import OpenWork
from orchestrator.engine.workload import Services, Workload
from orchestrator.ports import Device
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.run import RunRecord


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
        """``runs`` are the campaign's stored ones; from ``lost`` go devices that weren't there and come."""
        self._lost = lost
        self._workload = workload
        self._services = services
        self._arrivals = arrivals
        self._assigner = Assigner(workload.campaign, services.store, runs, cancelled=services.cancelled)
        self._lock = threading.Lock()
        #: What each device that works, or has worked, is.
        self._facts = {facts.serial: facts for facts in devices}
        #: Devices that are to begin, with the lost one whose place each takes.
        self._waiting: list[tuple[Arrival, Serial | None]] = []
        #: What was abandoned on each, also after it was away.
        self._failures: dict[Serial, CaseFailures] = {}
        #: Lost devices, with the spare ones that were last chosen for them.
        self._chosen: dict[Serial, Serial] = {}

    @property
    def campaign(self) -> Campaign:
        """The campaign as it is now."""
        return self._assigner.campaign

    def has_work_for(self, serial: Serial, works: Mapping[Serial, OpenWork]) -> bool:
        """Whether a device has open work of its own, or of what it shares."""
        own = works.get(serial)
        return bool(own and own.invocations) or self._assigner.has_shared(serial)

    def work_of(self, device: Device, facts: DeviceFacts) -> Callable[[], Work]:
        """Return what makes the work of a device that the campaign began with."""
        return lambda: self._queue(device, facts, self._workload)

    def newcomers(self) -> list[tuple[Device, Callable[[], Work]]]:
        """Return the devices that have come since, each with what makes its work."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            if self._arrivals is not None:
                waiting += [(arrival, None) for arrival in self._arrivals.take()]
            new = [item for item in waiting if item[0].facts.serial not in self._facts]
            known = tuple(self._facts.values())
            self._facts |= {arrival.facts.serial: arrival.facts for arrival, _ in new}
        return [(arrival.device, self._work_of_newcomer(arrival, known, replaced)) for arrival, replaced in new]

    def replace_lost(self, serial: Serial, is_free: Callable[[Serial], bool]) -> Serial | None:
        """Have a spare device that is free measure what a lost one was to, and return it; None for none now.

        Asked again for the same one: the device that was returned is lost too, before it began.
        """
        if self._arrivals is None:
            return None
        gone = self._chosen.get(serial, serial)
        spare = self._arrivals.spare_for(gone, is_free)
        if spare is None:
            return None
        with self._lock:
            self._chosen[serial] = spare.facts.serial
            self._waiting.append((spare, serial))
        return spare.facts.serial

    def _queue(self, device: Device, facts: DeviceFacts, workload: Workload) -> DeviceQueue:
        return DeviceQueue(
            device,
            facts,
            workload,
            self._services,
            self._assigner,
            failures=self._failures.setdefault(facts.serial, CaseFailures()),
        )

    def _work_of_newcomer(
        self, arrival: Arrival, known: Sequence[DeviceFacts], replaced: Serial | None
    ) -> Callable[[], Work]:
        workload: Workload | None = None

        def begin() -> Work:
            # Called under the device's lease: what it is to measure is stored before it begins.
            nonlocal workload
            is_new = workload is None
            if workload is None:
                runs = () if replaced is None else runs_of(self._services, self._workload, serials=[replaced])
                self._assigner.join(arrival, known, replaced, runs)
                workload = workload_with(self._workload, self.campaign, arrival)
                self._lost.pop(arrival.facts.serial, None)
            queue = self._queue(arrival.device, arrival.facts, workload)
            if is_new:
                self._services.observer.on_event(
                    DeviceJoined(serial=arrival.facts.serial, left=queue.left(), instead_of=replaced or "")
                )
            return queue

        return begin
