"""The wired program and the devices that it reaches: servers, attached phones, this computer."""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from orchestrator.bootstrap import virtual_lab
from orchestrator.bootstrap.adapters import Adapters
from orchestrator.bootstrap.builds import BuildChoice
from orchestrator.bootstrap.settings import Settings
from orchestrator.clock import Deadline
from orchestrator.errors import (
    AdbUnavailableError,
    DeviceBusyError,
    DeviceError,
    DeviceUnusableError,
    HostStorageError,
    NoDeviceError,
    UsageError,
    nearest,
)
from orchestrator.planning.selection import Choice, check_names, choose, missed
from orchestrator.predicates import Labels
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.case import CampaignId, Serial
from orchestrator.records.device import HOST_SERIAL, DeviceFacts, told_apart
from orchestrator.records.plan import DeviceSelection

if TYPE_CHECKING:
    from orchestrator.config.profiles import KeptInventory
    from orchestrator.devices.adb_server import AdbServer, OwnServer
    from orchestrator.devices.discovery import KnownPhones
    from orchestrator.devices.link import PushSlots
    from orchestrator.plugins import DeviceSource
    from orchestrator.ports import Device, Observer, Seen
    from orchestrator.store.opening import Store

#: How long a phone may take to be listed once its port has power.
_BACK_S: Final = 15.0
_BACK_POLL_S: Final = 0.3
#: How often a phone that another process uses is looked at.
_USE_POLL_S: Final = 0.5


class Workspace(Adapters):
    """The wired program: store, tools, builds, and the devices that can be reached.

    A context manager.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        known: KnownPhones | None = None,
        store: Store | None = None,
        makes_store: bool = True,
        needs_store: bool = True,
        inventory: KeptInventory | None = None,
        observer: Observer | None = None,
    ) -> None:
        """``known``: phones that aren't asked who they are while their connection lasts, for
        whoever looks often.

        ``inventory``: one that outlives faults of its file, for whoever goes on for long.

        ``store``: one that others use too, instead of its own. ``makes_store``: whether one is made
        where there is none; who only reads doesn't. ``needs_store``: whether it is an error then
        that the one named isn't there.

        ``observer``: hears what use cases do, as they do it.
        """
        super().__init__(settings)
        self._lent_store = self._store = store
        self._makes_store, self._needs_store = makes_store, needs_store
        self._inventory = inventory
        self._known = known
        self.observer: Observer = observer or _Deaf()
        self.cancelled = threading.Event()
        #: Told how far a push is: serial number, file, bytes sent, bytes in all.
        self.on_push: Callable[[str, str, int, int], None] = (
            lambda serial, name, sent_bytes, size_bytes: None
        )
        #: Told what declared programs are needed and aren't on this computer; it may get them.
        self.on_missing: Callable[[Sequence[BuildSpec]], None] = lambda specs: None
        #: What is to be done before devices and store are closed.
        self.at_exit = contextlib.ExitStack()
        #: How long phones that others use are waited for, all together.
        self.wait = Deadline(0.0)
        #: Changes on this computer that were undone before phones were looked for, by serial
        #: number.
        self.powered_on: dict[Serial, list[str]] = {}
        self._opened: list[Device] = []
        self._held_campaigns: set[CampaignId] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.at_exit.close()
        self.lease.end_reservations()
        for device in self._opened:
            device.close()
        self.close_store()

    def note(self, serial: str, text: str) -> None:
        """Report something of a phone to the observer."""
        from orchestrator.engine.events import DeviceNote

        self.observer.on_event(DeviceNote(serial=Serial(serial), text=text, is_problem=True))

    @cached_property
    def builds(self) -> BuildChoice:
        """Which builds devices are measured with."""
        return BuildChoice(self.library, self.settings.cache_folder / "fake-binaries")

    @cached_property
    def push_slots(self) -> PushSlots:
        """How many files may be on their way to phones."""
        from orchestrator.devices.link import PushSlots

        return PushSlots(self.cancelled)

    @property
    def status_folder(self) -> Path:
        """Where the campaigns that this computer's processes run write down how they stand."""
        return self.settings.state_folder / "status"

    def hold_campaign(self, campaign_id: CampaignId, name: str) -> None:
        """Have a campaign for this process until the farm is closed.

        Raises UsageError naming the process that has it, HostStorageError.
        """
        if campaign_id not in self._held_campaigns:
            release = self.campaigns.take(campaign_id)
            if release is None:
                who = self.campaigns.live_holder(campaign_id) or "another process"
                raise UsageError(
                    f"campaign {campaign_id} ({name}) is run by {who} now",
                    hint="'benchfarm status --watch' shows its progress; stop that process first",
                )
            self._held_campaigns.add(campaign_id)
            self.at_exit.callback(release)

    def lab_server(self) -> AdbServer | None:
        """The adb server of the virtual lab, None when no lab is up."""
        server = virtual_lab.adb_server(self.settings)
        return server if server.answers() else None

    def _join_lab(self, server: AdbServer) -> None:
        """Connect the lab's phones that its server doesn't know: one that was restarted has
        forgotten all.
        """
        from orchestrator.devices.discovery import join

        with contextlib.suppress(DeviceError, UsageError):
            phones = virtual_lab.read_lab(self.settings.lab_folder).phones
            # One that is booting refuses; it is announced as missing then.
            list(join(server, [phone.address for phone in phones]))

    def _join_network(self, server: AdbServer) -> None:
        """Connect the remembered phones that a server doesn't know; report those that can't be."""
        from orchestrator.devices.discovery import NetworkPhones, join

        for address, error in join(server, NetworkPhones(self.settings.data_folder).addresses()):
            told = f"can't be connected: {error}; 'benchfarm device connect {address} --undo' forgets it"
            self.note(address, told)

    def plugged_server(self) -> AdbServer:
        """The adb server for real phones: the configured one, a running one, or our own.

        AdbUnavailableError.
        """
        server = self.running_plugged_server()
        if server is None:
            server = self.named_server() or self.own_server()
            server.revive()
            server.version()
        return server

    def own_server(self) -> OwnServer:
        """Our own adb server for real phones, whether it runs or not."""
        from orchestrator.devices.adb_server import OwnServer

        settings = self.settings
        return OwnServer(settings.state_folder, setting=settings.adb, environ=settings.environ)

    def named_server(self) -> AdbServer | None:
        """The adb server for real phones that the user names, whether it answers or not.

        Raises UsageError.
        """
        from orchestrator.devices.adb_server import AdbServer, configured_address

        address = configured_address(self.settings.adb_server, self.settings.environ)
        return None if address is None else AdbServer(address)

    def running_plugged_server(self) -> AdbServer | None:
        """The adb server for real phones if one runs; None is started."""
        from orchestrator.devices.adb_server import AdbServer

        named = self.named_server()
        candidates = [AdbServer(), self.own_server()] if named is None else [named]
        return next((server for server in candidates if server.answers()), None)

    def attached(self, *, serials: Sequence[str] = (), start_server: bool = True) -> list[Attached]:
        """Return all phones of all servers, usable or not; one phone seen by two servers is usable
        through one.

        When every one of ``serials`` is a virtual phone, no server for real phones is looked for.
        Without ``start_server`` none is started, and nothing is changed; else hubs' ports that a
        killed process left without power are on first. Raises AdbUnavailableError.
        """
        back = self._power_on() if start_server else set()
        found = self._attached(serials, start_server=start_server)
        deadline = self.clock.monotonic_s() + _BACK_S
        while (
            not back <= {item.seen.serial for item in found} and self.clock.monotonic_s() < deadline
        ):
            if self.clock.wait(_BACK_POLL_S, self.cancelled):
                break
            found = self._attached(serials, start_server=start_server)
        return found

    def _power_on(self) -> set[str]:
        """Power on what processes that are gone left off, and return whose ports they were."""
        from orchestrator.engine.events import DeviceNote

        back = set[str]()
        journal = self.conditioner.journal
        for serial in journal.serials():
            # Whoever holds a phone has its port off on purpose.
            try:
                if not journal.ports_off(serial):
                    continue
            except HostStorageError as error:
                # The other phones can be used.
                self.observer.on_event(DeviceNote(serial=serial, text=str(error), is_problem=True))
                continue
            with contextlib.suppress(DeviceBusyError), self.lease.acquire(serial):
                undone, why = self.conditioner.power_on(serial)
                self.powered_on[serial] = [*self.powered_on.get(serial, ()), *undone]
                back |= {serial} if undone else set()
                for text in [f"restored: {what}" for what in undone] + ([why] if why else []):
                    self.observer.on_event(DeviceNote(serial=serial, text=text, is_problem=True))
        return back

    def _attached(self, serials: Sequence[str], *, start_server: bool) -> list[Attached]:
        from orchestrator.devices.discovery import SEVERAL, judge_twins, list_devices

        lab = self.lab_server()
        listed: list[tuple[AdbServer, Seen]] = []
        if lab is not None:
            self._join_lab(lab)
            listed = [(lab, seen) for seen in list_devices(lab, known=self._known)]
        others: list[Attached] = []
        if not _holds(serials, listed):
            others = self._of_sources()
        if not _holds(serials, [*listed, *((None, item.seen) for item in others)]):
            try:
                plugged = self.plugged_server() if start_server else self.running_plugged_server()
            except AdbUnavailableError:
                # Neither a lab nor another source needs a server for real phones.
                if not listed and not others:
                    raise
                plugged = None
            if plugged is not None and start_server:
                self._join_network(plugged)
            if plugged is not None and (lab is None or str(plugged.address) != str(lab.address)):
                listed += [(plugged, seen) for seen in list_devices(plugged, known=self._known)]
        judged = judge_twins([seen for _, seen in listed])
        for seen in judged:
            if start_server and seen.reason.startswith(SEVERAL):
                # Remembered: with one of them away, the results of both would be taken for one
                # phone's.
                with contextlib.suppress(HostStorageError):
                    self.quarantine.put(Serial(seen.serial), seen.reason)
        attached = [
            Attached(server=server, seen=seen)
            for (server, _), seen in zip(listed, judged, strict=True)
        ]
        attached += others
        # A server lists phones in the order in which they came; people look for them by name.
        return sorted(attached, key=lambda item: (item.seen.serial, item.seen.address))

    def _of_sources(self) -> list[Attached]:
        """Return the devices that are reached by other ways than adb."""
        from orchestrator.plugins import DeviceSource, every

        found: list[Attached] = []
        for name, source in every("devices", DeviceSource).items():
            look = partial(source.attached, self.settings)
            try:
                seen = look() if self._known is None else self._known.of_source(name, look)
            except DeviceError as error:
                self.note(name, str(error))
            else:
                found += [Attached(source=source, seen=one) for one in seen]
        return found

    def open_devices(
        self, selection: DeviceSelection, *, despite_losses: bool = False, resumes: bool = False
    ) -> OpenedDevices:
        """Open every device that fits the selection and probe its facts, phones in parallel.

        This computer is meant by ``host`` and by the serial number ``host``. Attached phones that
        can't be used, or are lost while they are opened, are ``left_out``, unless phones are named;
        with ``despite_losses`` those that are lost, can't be used or aren't there are left out also
        then, as long as one can be used; what ``resumes`` measures this computer without them too.

        Phones that another process still uses after `wait` are left out too, and asked nothing.

        Raises:
            UsageError: a profile, pool or tag that is named is known of no device.
            NoDeviceError: nothing fits, or a serial number that was named isn't attached.
            DeviceBusyError: another process uses a phone that was named.
            DeviceUnusableError: a phone that was named can't be used; the message says why.
            DeviceError: a phone that was named was lost while it was opened.
        """
        self.check_names(selection)
        names_host = HOST_SERIAL in selection.serials
        phones = replace(
            selection, serials=tuple(item for item in selection.serials if item != HOST_SERIAL)
        )
        opened = OpenedDevices()
        if phones.serials or phones.profiles or phones.pools or phones.tags or phones.where:
            opened = self._open_phones(
                phones, required=True, despite_losses=despite_losses or resumes, resumes=resumes
            )
        elif not names_host:
            opened = self._open_phones(phones, required=not selection.host)
        if selection.host or names_host:
            host = self.host()
            opened = replace(opened, devices=(*opened.devices, (host, host.facts())))
        return opened

    def check_names(
        self,
        selection: DeviceSelection,
        devices: Iterable[DeviceFacts] = (),
        labels: Iterable[Labels] | None = None,
    ) -> None:
        """Raise UsageError for a profile, pool or tag that nothing has, nor any of these further
        devices. Only these labels count, without them those of this computer's inventory.
        """
        if selection.profiles or selection.pools or selection.tags:
            profiles = {*self.profiles, *(facts.profile for facts in devices)}
            if not profiles.issuperset(selection.profiles):
                profiles |= {facts.profile for facts in self.store.devices().values()}
            known = self.inventory.values() if labels is None else labels
            check_names(selection, profiles - {""}, known)

    def host(self) -> Device:
        """This computer as a device."""
        from orchestrator.devices.host import HostDevice

        host = HostDevice(self.settings.state_folder / "host")
        self._opened.append(host)
        return host

    def _open_phones(
        self,
        selection: DeviceSelection,
        *,
        required: bool,
        despite_losses: bool = False,
        resumes: bool = False,
    ) -> OpenedDevices:
        # This computer alone needs no server for phones, and none is started for it.
        attached = self.attached(serials=selection.serials, start_server=required)
        attached = [self._in_use(self.kept_out(item)) for item in attached]
        # "Any 2 of these four" wants two, not each of them.
        names_each = bool(selection.serials) and selection.any is None
        wanted = [
            item for item in attached if not selection.serials or item.fits(selection.serials)
        ]
        usable = [item for item in wanted if item.seen.usable]
        # What is open of a campaign on this computer can be measured without them.
        host_is_enough = resumes and selection.host
        if names_each and not resumes and not (despite_losses and usable):
            for serial in selection.serials:
                self.pick(serial, attached)
        opened, lost = self._open_each(usable)
        if lost and names_each and not despite_losses:
            raise next(iter(lost.values()))
        reasons = {
            serial: str(error).removeprefix(f"{error.serial}: ") for serial, error in lost.items()
        }
        unusable = [item.seen for item in wanted if not item.seen.usable]
        left_out = {seen.serial or seen.address: seen.reason for seen in unusable} | reasons
        here = {name for item in attached for name in (item.seen.serial, item.seen.address)}
        # What a phone that can't be asked is was told when it was measured last.
        known = self.store.devices() if selection.profiles or selection.where else {}
        missing = missed(selection, left_out, here, self.inventory, known)
        choice = choose(selection, [facts for _, facts in opened], self.inventory)
        fitting = tuple(
            (device, facts) for device, facts in opened if facts.serial in choice.chosen
        )
        if not fitting and required and not host_is_enough:
            if resumes:
                each = ", ".join(f"{serial}: {why}" for serial, why in missing.items())
                ways = dict.fromkeys(item.seen.advice for item in wanted if item.seen.advice)
                raise NoDeviceError(
                    f"none of the campaign's devices is usable now: {each}",
                    hint="; ".join(ways) or "see 'benchfarm devices'",
                )
            what = (
                "no attached phone fits the selection" if opened else "no usable phone is attached"
            )
            unfit = "".join(
                f"\n  {serial}: {reason}"
                for serial, reason in [*choice.unfit.items(), *reasons.items()]
            )
            raise NoDeviceError(what + unfit + _reasons(attached), hint="see 'benchfarm devices'")
        return OpenedDevices(devices=fitting, left_out=left_out, missing=missing, choice=choice)

    def _open_each(
        self, phones: Sequence[Attached]
    ) -> tuple[list[tuple[Device, DeviceFacts]], dict[str, DeviceError]]:
        """Open phones in parallel; one that is lost at that mustn't keep the others from being
        measured.
        """
        from orchestrator.devices.discovery import PHONES_AT_ONCE

        with ThreadPoolExecutor(max_workers=max(1, min(PHONES_AT_ONCE, len(phones)))) as pool:
            opening = {item.seen.serial: pool.submit(self.open_phone, item) for item in phones}
        opened: list[tuple[Device, DeviceFacts]] = []
        lost: dict[str, DeviceError] = {}
        before = self.store.devices() if phones else {}
        for serial, phone in opening.items():
            try:
                device, facts = phone.result()
                self.check_known(facts, before)
                opened.append((device, facts))
            except DeviceError as error:
                lost[serial] = error
        return opened, lost

    def check_known(self, facts: DeviceFacts, known: Mapping[Serial, DeviceFacts]) -> None:
        """Keep a phone out under whose serial number another one was measured, until somebody lets
        it in.

        Raises DeviceUnusableError.
        """
        before = known.get(facts.serial)
        differences = (
            told_apart(before, facts) if before is not None and not before.is_imported else ""
        )
        if not differences:
            self.quarantine.is_as_known(facts.serial)
        elif before is not None and not self.quarantine.is_released(facts.serial):
            reason = (
                f"several phones have this serial number: the results in the store are of a {before.title}, this is a"
                f" {facts.title} (not the same {differences})"
            )
            self.quarantine.put(facts.serial, reason)
            advice = (
                "if it may go on under this number (after a reset to factory settings, say): benchfarm device release "
                + shlex.quote(facts.serial)
            )
            raise DeviceUnusableError(reason, serial=facts.serial, hint=advice)

    def _in_use(self, item: Attached) -> Attached:
        """Return the phone as one that can't be used when another process still uses it after
        `wait`: opening it would disturb a run.
        """
        serial = Serial(item.seen.serial)
        holder = self.lease.live_holder(serial) if item.seen.usable else ""
        if holder and not self.wait.expired:
            self.note(serial, f"waits until it is free: in use by {holder}")
        while holder and not self.wait.expired:
            if self.wait.wait(_USE_POLL_S, self.cancelled):
                break
            holder = self.lease.live_holder(serial)
        advice = "--wait 10m waits for it in 'bench', 'run' and 'ab'; or choose another one"
        return (
            replace(item.unusable(f"in use by {holder}", advice), is_busy=True) if holder else item
        )

    def kept_out(self, item: Attached) -> Attached:
        """Return the phone as one that can't be used when it is in quarantine."""
        reason = self.quarantine.reason(Serial(item.seen.serial)) if item.seen.usable else ""
        advice = f"look at it, then 'benchfarm device release {shlex.quote(item.seen.serial)}'"
        return item.unusable(f"in quarantine: {reason}", advice) if reason else item

    def open_phone(self, attached: Attached) -> tuple[Device, DeviceFacts]:
        """Open one phone and probe its facts; raises DeviceError kinds."""
        seen = attached.seen
        if attached.server is None:
            assert attached.source is not None
            other = attached.source.open(self, seen)
            self._opened.append(other)
            return other, other.facts()
        from orchestrator.devices.phone import AdbDevice

        device = AdbDevice(attached.server, seen.address, seen=seen)
        device.match_profile = self.match_profile
        device.progress = lambda *step: self.on_push(seen.serial, *step)
        device.slots = self.push_slots
        self._opened.append(device)
        return device, device.facts()

    def pick(self, serial: str, found: Sequence[Attached]) -> Attached:
        """Return the phone that a serial number, or the server's name, means.

        Raises NoDeviceError and other kinds.
        """
        fitting = [item for item in found if item.fits((serial,))]
        if not fitting:
            names = [
                name
                for name in self.profiles
                if name.replace("-", "") == serial.lower().replace("-", "")
            ]
            hint = f"{serial} is a profile: --profile {names[0]}" if names else ""
            hint = (
                hint
                or nearest(serial, [item.seen.serial for item in found])
                or "'benchfarm devices' lists what is"
            )
            raise NoDeviceError("is not attached" + _reasons(found), serial=serial, hint=hint)
        usable = next((item for item in fitting if item.seen.usable), None)
        if usable is None:
            kind = DeviceBusyError if fitting[0].is_busy else DeviceUnusableError
            raise kind(fitting[0].seen.reason, serial=serial, hint=fitting[0].seen.advice)
        return usable


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A phone as one adb server sees it, or a device as its source does."""

    #: None for a device of a source.
    server: AdbServer | None = None
    source: DeviceSource | None = None
    seen: Seen
    #: Another process uses it.
    is_busy: bool = False

    @property
    def via(self) -> str:
        """Through what it is reached: an adb server's address, or what a source is called."""
        return (
            self.source.title
            if self.source is not None
            else str(getattr(self.server, "address", ""))
        )

    def fits(self, serials: Sequence[str]) -> bool:
        """Whether one of these names the phone: its serial number or the server's name for it."""
        return self.seen.serial in serials or self.seen.address in serials

    def unusable(self, reason: str, advice: str) -> Attached:
        """Return it as a phone that can't be used."""
        return replace(self, seen=replace(self.seen, usable=False, reason=reason, advice=advice))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDevices:
    """What came of opening the devices of a selection."""

    #: Those that it means and that can be used, with what they are.
    devices: tuple[tuple[Device, DeviceFacts], ...] = ()
    #: Attached phones that can't be used -> why.
    left_out: Mapping[str, str] = field(default_factory=dict)
    #: Phones that were meant and can't be used, or aren't there -> why.
    missing: Mapping[str, str] = field(default_factory=dict)
    #: Which of the usable phones were taken, and why not the others.
    choice: Choice = field(default_factory=lambda: Choice(chosen=()))

    @property
    def facts(self) -> list[DeviceFacts]:
        """What the devices are."""
        return [facts for _, facts in self.devices]


class _Deaf:
    """An observer that nobody listens to."""

    def on_event(self, event: object) -> None:
        """Let an event pass."""


def _reasons(attached: Sequence[Attached]) -> str:
    """Say of every phone that can't be used why: the one that is missed may be among them."""
    return "".join(
        f"\n  {item.seen.address}: {item.seen.reason}" for item in attached if not item.seen.usable
    )


def _holds(serials: Sequence[str], listed: Iterable[tuple[object, Seen]]) -> bool:
    """Whether phones are named, and all of them are listed."""
    return bool(serials) and set(serials) <= {seen.serial for _, seen in listed}
