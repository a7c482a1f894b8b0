"""Phones that come while a campaign runs: heard of from the adb servers, looked at once, and made ready to join."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

from orchestrator.bootstrap import Attached, Farm
from orchestrator.cli.beginning import Beginning, identify, named_paths, prepare
from orchestrator.cli.host_files import NamedFile, host_files
from orchestrator.cli.result import one_line
from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.discovery import look_at
from orchestrator.devices.server import AdbServer
from orchestrator.devices.tracking import watch_devices
from orchestrator.engine.events import DeviceNote
from orchestrator.engine.joining import Arrival
from orchestrator.errors import BenchfarmError, DeviceError
from orchestrator.planning.selection import choose
from orchestrator.ports import Device, Observer
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.plan import Plan
from orchestrator.records.workload import Model

#: After a server has gone, and while a phone is there but can't be used yet.
_AGAIN_S: Final = 2.0
#: So often a phone that can't be used yet is looked at.
_LOOKS_MAX: Final = 60


class PluggedIn:
    """The Arrivals port over the adb servers' own word."""

    def __init__(
        self,
        farm: Farm,
        campaign: Campaign,
        devices: Sequence[tuple[Device, DeviceFacts]],
        *,
        plan: Plan | None,
        models: Sequence[Model] = (),
        named: Mapping[str, NamedFile] | None = None,
    ) -> None:
        """``devices`` are those that the campaign begins with; without a plan only phones that have work may join."""
        self._farm = farm
        self._campaign = campaign
        self._plan = plan
        self._models = list(models)
        self._named = named or {}
        self._observer: Observer | None = None
        self._stopped = threading.Event()
        self._heard: queue.SimpleQueue[tuple[AdbServer, str]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._present = {facts.serial: facts for _, facts in devices}
        #: Where phones are that were looked at: one that measures isn't asked again who it is.
        self._addresses = {device.transport for device, _ in devices if isinstance(device, AdbDevice)}
        self._planned = {item.case.serial for item in campaign.invocations}
        self._ready: list[Arrival] = []
        self._spares = list(farm.spares)

    @contextlib.contextmanager
    def listening(self, observer: Observer) -> Generator[None]:
        """Hear of phones while the context lasts, where the campaign lets them join; tell the observer of them."""
        self._observer = observer
        if self._campaign.terms.joins:
            for server in self._farm.servers():
                threading.Thread(target=self._watch, args=(server,), name="phones", daemon=True).start()
            threading.Thread(target=self._look, name="newcomers", daemon=True).start()
        try:
            yield
        finally:
            self._stopped.set()

    def take(self) -> Sequence[Arrival]:
        """See Arrivals.take."""
        with self._lock:
            ready, self._ready = self._ready, []
        return ready

    def spare_for(self, serial: Serial, is_free: Callable[[Serial], bool]) -> Arrival | None:
        """See Arrivals.spare_for: the first that the plan would have taken, had the lost one not been there."""
        plan = self._plan
        if plan is None:
            return None
        while True:
            with self._lock:
                others = {known: facts for known, facts in self._present.items() if known != serial}
                spares = {facts.serial: (device, facts) for device, facts in self._spares if is_free(facts.serial)}
                every = [*others.values(), *(facts for _, facts in spares.values())]
                choice = choose(plan.devices, every, self._farm.inventory, kept=others)
                found = next((spares[item] for item in choice.chosen if item in spares), None)
                if found is None:
                    return None
                self._spares = [item for item in self._spares if item[1].serial != found[1].serial]
            arrival = self._arrival(*found)
            if arrival is not None:
                with self._lock:
                    self._present = {
                        **{known: facts for known, facts in self._present.items() if known != serial},
                        arrival.facts.serial: arrival.facts,
                    }
                return arrival

    def _watch(self, server: AdbServer) -> None:
        while not self._stopped.is_set():
            try:
                for change in watch_devices(server, stopped=self._stopped):
                    if change.state != "absent":
                        self._heard.put((server, change.address))
            except DeviceError:
                # It is started again by whoever needs a phone; this only listens.
                self._stopped.wait(_AGAIN_S)

    def _look(self) -> None:
        looked: dict[tuple[str, str], int] = {}
        while not self._stopped.is_set():
            try:
                server, address = self._heard.get(timeout=_AGAIN_S)
            except queue.Empty:
                continue
            try:
                is_final = self._consider(server, address)
            except BenchfarmError as error:
                self._note(address, f"doesn't join: {error}")
                is_final = True
            key = (str(server.address), address)
            looked[key] = looked.get(key, 0) + 1
            if not is_final and looked[key] < _LOOKS_MAX:
                timer = threading.Timer(_AGAIN_S, self._heard.put, ((server, address),))
                timer.daemon = True
                timer.start()

    def _consider(self, server: AdbServer, address: str) -> bool:
        """Look at one phone that came; False when it is worth another look a moment later."""
        if self._is_known(address):
            return True
        seen = look_at(server, address)
        if seen is None or self._is_known(seen.serial):
            return True
        if not seen.usable:
            return bool(seen.state not in {"device", "connecting", "authorizing", "offline", "unauthorized"})
        if reason := self._farm.quarantine.reason(Serial(seen.serial)):
            self._note(seen.serial, f"doesn't join: in quarantine: {reason}")
            return True
        device, facts = self._farm.open_phone(Attached(server=server, seen=seen))
        if facts.serial in self._planned:
            self._offer(Arrival(device=device, facts=facts))
            return True
        if self._plan is None or (self._plan.devices.serials and not self._names(seen.serial, address)):
            return True
        with self._lock:
            present = dict(self._present)
        choice = choose(self._plan.devices, [*present.values(), facts], self._farm.inventory, kept=present)
        if facts.serial in choice.spare:
            with self._lock:
                self._spares.append((device, facts))
            self._note(facts.serial, f"isn't needed: {choice.spare[facts.serial]}")
        if facts.serial in choice.chosen:
            self._offer(self._arrival(device, facts))
        return True

    def _note(self, name: str, text: str) -> None:
        if self._observer is not None:
            self._observer.on_event(DeviceNote(serial=Serial(name), text=one_line(text)))

    def _is_known(self, name: str) -> bool:
        with self._lock:
            return (
                name in self._addresses
                or name in self._present
                or any(facts.serial == name for _, facts in self._spares)
            )

    def _names(self, serial: str, address: str) -> bool:
        assert self._plan is not None, "only asked with a plan"
        return serial in self._plan.devices.serials or address in self._plan.devices.serials

    def _offer(self, arrival: Arrival | None) -> None:
        if arrival is None:
            return
        with self._lock:
            self._present[arrival.facts.serial] = arrival.facts
            if isinstance(arrival.device, AdbDevice):
                self._addresses.add(arrival.device.transport)
            self._ready.append(arrival)

    def _arrival(self, device: Device, facts: DeviceFacts) -> Arrival | None:
        """Return what the plan means on a phone, None (and a note) when it can't be measured there."""
        assert self._plan is not None, "without a plan nothing is expanded"
        try:
            beginning: Beginning = prepare(self._farm, self._plan, [(device, facts)], self._models, self._named)
        except BenchfarmError as error:
            self._note(facts.serial, f"doesn't join: {error}")
            return None
        builds = (*beginning.builds, *beginning.twins)
        twins = self._farm.builds.with_flex(beginning.builds)
        return Arrival(
            device=device,
            facts=facts,
            invocations=beginning.invocations,
            skipped=beginning.expansion.skipped,
            pauses_s=beginning.expansion.pauses_s,
            models=beginning.models,
            builds=builds,
            flex_builds=twins,
            known_flags={build.sha256: self._farm.flag_book.names(build) for build in builds},
            files=beginning.files | named_paths(self._named),
        )


def again(farm: Farm, campaign: Campaign, devices: Sequence[tuple[Device, DeviceFacts]]) -> PluggedIn:
    """Return what tells a campaign that is resumed of phones; without its plan only its own phones may come."""
    from orchestrator.config.plan import parse_plan

    plan, models, named = None, [], {}
    if campaign.terms.joins and campaign.terms.plan_folder:
        try:
            plan = parse_plan(campaign.plan_text, folder=Path(campaign.terms.plan_folder), label=campaign.name)
            models, named = identify(plan), host_files(plan)
            if {model.sha256 for model in models} - campaign.terms.files.keys():
                plan = None
        except BenchfarmError:
            # Its own phones are measured with what was stored; new ones would be another plan's.
            plan = None
    return PluggedIn(farm, campaign, devices, plan=plan, models=models, named=named)
