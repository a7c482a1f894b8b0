"""Phones that come while a campaign runs: found in the adb servers' and usbmuxd's lists, and made ready to join."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.app.beginning import Beginning, host_files, identify, named_paths, prepare
from orchestrator.bootstrap import Attached, Farm, OpenedDevices
from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.discovery import look_at, parse_devices
from orchestrator.devices.server import AdbServer
from orchestrator.devices.usbmux import Usbmux
from orchestrator.engine.events import DeviceNote
from orchestrator.engine.workload import Arrival
from orchestrator.errors import AdbUnavailableError, BenchfarmError, DeviceError
from orchestrator.planning.expansion import HostFiles
from orchestrator.planning.selection import choose
from orchestrator.ports import Device, Observer
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.plan import Plan
from orchestrator.records.workload import Model
from orchestrator.report.escapes import one_line

#: How often the servers' lists are read; no phone is asked anything for it.
_POLL_S: Final = 1.0
#: A phone that can't be used yet is looked at again after this, each time later, up to the longest.
_AGAIN_S: Final = 2.0
_LATER_S: Final = 30.0
#: How often iPhones are listed: a process of a second each time.
_IPHONES_S: Final = 10.0

#: An adb server's address, or usbmuxd's, and its name for a phone.
_Key = tuple[str, str]
#: A phone's server, its state there, and the connection's number.
_Connection = tuple[AdbServer | Usbmux, str, int | None]


@dataclass(slots=True, kw_only=True)
class _Visitor:
    """A phone that came and that may join."""

    server: AdbServer | Usbmux
    address: str
    #: When it is looked at, on the monotonic clock, and how long after that it is looked at again.
    due_s: float = 0.0
    wait_s: float = _AGAIN_S
    #: What was said of it last.
    said: str = ""


class PluggedIn:
    """The Arrivals of a campaign: phones that are plugged in while it runs, and its spare ones."""

    def __init__(
        self,
        farm: Farm,
        campaign: Campaign,
        opened: OpenedDevices,
        *,
        plan: Plan | None,
        models: Sequence[Model] = (),
        named: Mapping[str, HostFiles] | None = None,
    ) -> None:
        """``opened`` is what the campaign begins with; without a plan only phones that have work may join."""
        self._farm = farm
        self._left_out = opened.left_out
        self._campaign = campaign
        self._plan = plan
        self._models = list(models)
        self._named = named or {}
        self._observer: Observer | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._present = {facts.serial: facts for facts in opened.facts}
        self._planned = {item.case.serial for item in campaign.invocations}
        #: The serial number at each place, as far as it was read on the current connection.
        self._serials: dict[_Key, str] = {
            (str(item.server.address), item.seen.address): item.seen.serial
            for item in opened.listed
            if item.seen.serial
        }
        self._ready: list[Arrival] = []
        self._spares = list(opened.spares)
        #: Serial numbers of phones that take part, are spare or aren't meant, and where the opened ones are: one that
        #: measures isn't asked for its serial number again.
        self._known: set[str] = {*self._present, *opened.choice.unfit, *(facts.serial for _, facts in self._spares)}
        self._known |= {device.transport for device, _ in opened.devices if isinstance(device, AdbDevice)}

    @contextlib.contextmanager
    def listening(self, observer: Observer) -> Generator[None]:
        """Look for phones while the context lasts, where the campaign lets them join; report them to the observer."""
        self._observer = observer
        if self._campaign.terms.joins:
            threading.Thread(target=self._listen, name="newcomers", daemon=True).start()
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
            try:
                arrival = self._arrival(*found)
            except BenchfarmError as error:
                self._note(found[1].serial, f"doesn't join: {error}")
                self._known.discard(found[1].serial)
                continue
            with self._lock:
                self._present = {
                    **{known: facts for known, facts in self._present.items() if known != serial},
                    arrival.facts.serial: arrival.facts,
                }
            return arrival

    def _listen(self) -> None:
        servers = self._farm.servers()
        iphones, iphones_s = self._farm.iphones(), time.monotonic()
        #: What each place held at the last look, and the phones there that may still join.
        held: dict[_Key, _Connection] = {}
        visitors: dict[_Key, _Visitor] = {}
        while not self._stopped.wait(_POLL_S):
            if iphones_s + _IPHONES_S < time.monotonic():
                iphones, iphones_s = self._farm.iphones(), time.monotonic()
            found: dict[_Key, _Connection] = {
                (str(item.server.address), item.seen.serial): (item.server, "device", None) for item in iphones
            }
            for server in servers:
                name = str(server.address)
                try:
                    listed = parse_devices(server.device_list())
                except DeviceError:
                    # It is started again by whoever needs a phone; this only listens.
                    found |= {key: connection for key, connection in held.items() if key[0] == name}
                else:
                    found |= {(name, item.address): (server, item.state, item.transport_id) for item in listed}
            for key in [key for key, connection in held.items() if connection[1:] != found.get(key, ())[1:]]:
                # What comes there next may be another phone.
                visitors.pop(key, None)
                self._serials.pop(key, None)
                del held[key]
            visitors |= {key: _Visitor(server=found[key][0], address=key[1]) for key in found if key not in held}
            held = found
            for key in [key for key, visitor in visitors.items() if visitor.due_s <= time.monotonic()]:
                if self._is_settled(visitors[key]):
                    del visitors[key]

    def _is_settled(self, visitor: _Visitor) -> bool:
        """Look at a phone that came; False when it is worth another look later."""
        try:
            is_settled = self._consider(visitor)
        except BenchfarmError as error:
            self._tell(visitor, f"doesn't join: {error}")
            # A server that doesn't answer may do so later without telling of its phones again.
            is_settled = not (error.transient or isinstance(error, AdbUnavailableError))
        visitor.due_s = time.monotonic() + visitor.wait_s
        visitor.wait_s = min(_LATER_S, visitor.wait_s * 1.5)
        return is_settled

    def _consider(self, visitor: _Visitor) -> bool:
        """Look at one phone that came; False when it is worth another look later."""
        server, address = visitor.server, visitor.address
        key = (str(server.address), address)
        if address in self._known:
            return True
        # The serial number of one that was there from the beginning is known.
        serial = self._serials.get(key, "")
        if serial and not self._may_join(serial, address):
            return True
        # Before it is asked anything: it may be measured.
        if self._is_in_use(visitor, serial or address):
            return False
        if isinstance(server, Usbmux):
            attached = next((item for item in self._farm.iphones() if item.seen.serial == address), None)
        else:
            found = look_at(server, address)
            attached = None if found is None else Attached(server=server, seen=found)
        if attached is None:
            return True
        seen = attached.seen
        if not seen.usable:
            return bool(seen.state not in {"device", "connecting", "authorizing", "offline", "unauthorized"})
        self._serials[key] = seen.serial
        if not self._may_join(seen.serial, address):
            return True
        if reason := self._farm.quarantine.reason(Serial(seen.serial)):
            self._tell(visitor, f"doesn't join: in quarantine: {reason}", name=seen.serial)
            return True
        if self._is_in_use(visitor, seen.serial):
            return False
        device, facts = self._farm.open_phone(attached)
        if facts.serial in self._planned:
            self._offer(Arrival(device=device, facts=facts))
            return True
        assert self._plan is not None, "without one only planned phones may join"
        with self._lock:
            present = dict(self._present)
        choice = choose(self._plan.devices, [*present.values(), facts], self._farm.inventory, kept=present)
        if facts.serial in choice.spare:
            with self._lock:
                self._spares.append((device, facts))
                self._known.add(facts.serial)
            self._note(facts.serial, f"isn't needed: {choice.spare[facts.serial]}")
        elif facts.serial in choice.chosen:
            self._offer(self._arrival(device, facts))
        else:
            self._known.add(facts.serial)
        return True

    def _is_in_use(self, visitor: _Visitor, serial: str) -> bool:
        holder = self._farm.lease.live_holder(Serial(serial))
        if holder and serial not in self._left_out:
            self._tell(visitor, f"doesn't join yet: in use by {holder}", name=serial)
        return bool(holder)

    def _may_join(self, serial: str, address: str) -> bool:
        """Whether a phone that isn't there yet may be meant, as far as that is known without asking it."""
        if serial in self._known:
            return False
        if serial in self._planned:
            return True
        named = self._plan.devices.serials if self._plan is not None else ()
        return self._plan is not None and (not named or serial in named or address in named)

    def _tell(self, visitor: _Visitor, text: str, *, name: str = "") -> None:
        """Tell of a phone that doesn't join, once as long as it is for the same reason."""
        if text != visitor.said:
            visitor.said = text
            self._note(name or visitor.address, text)

    def _note(self, name: str, text: str) -> None:
        if self._observer is not None:
            self._observer.on_event(DeviceNote(serial=Serial(name), text=one_line(text)))

    def _offer(self, arrival: Arrival) -> None:
        with self._lock:
            self._present[arrival.facts.serial] = arrival.facts
            self._known.add(arrival.facts.serial)
            if isinstance(arrival.device, AdbDevice):
                self._known.add(arrival.device.transport)
            self._ready.append(arrival)

    def _arrival(self, device: Device, facts: DeviceFacts) -> Arrival:
        """Return what the plan means on a phone; raises BenchfarmError kinds when it can't be measured there."""
        assert self._plan is not None, "without a plan nothing is expanded"
        beginning: Beginning = prepare(self._farm, self._plan, [(device, facts)], self._models, self._named)
        builds = (*beginning.builds, *beginning.twins)
        twins = self._farm.builds.with_flex(beginning.builds)
        return Arrival(
            device=device,
            facts=facts,
            invocations=beginning.invocations,
            skipped=beginning.expansion.skipped,
            models=beginning.models,
            builds=builds,
            flex_builds=twins,
            known_flags={build.sha256: self._farm.flag_book.names(build) for build in builds},
            files=beginning.files | named_paths(self._named),
        )


def again(farm: Farm, campaign: Campaign, opened: OpenedDevices) -> PluggedIn:
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
    return PluggedIn(farm, campaign, opened, plan=plan, models=models, named=named)
