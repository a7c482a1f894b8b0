"""The devices that this computer reaches: which are attached, which of them a selection means, and
opening these.
"""

from __future__ import annotations

import contextlib
import enum
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.app.plugin_kinds import DeviceSource
from orchestrator.app.virtual_phones import phones_of
from orchestrator.app.workspace import Workspace
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.discovery import (
    SEVERAL,
    NetworkPhones,
    choose_transports,
    connect_known,
    list_devices,
)
from orchestrator.devices.phone import AdbDevice
from orchestrator.engine.events import DeviceNote, FileMoving
from orchestrator.errors import (
    AdbUnavailableError,
    BenchfarmError,
    DeviceBusyError,
    DeviceError,
    DeviceUnusableError,
    HostStorageError,
    NoDeviceError,
    UsageError,
    nearest,
)
from orchestrator.files import safe_name
from orchestrator.installation import every
from orchestrator.planning.selection import Choice, check_names, choose, unmeasurable_matches
from orchestrator.ports import Device, ListedPhone
from orchestrator.processes import map_in_threads
from orchestrator.records import frozen
from orchestrator.records.case import Serial
from orchestrator.records.device import (
    HOST_SERIAL,
    DeviceFacts,
    DeviceKind,
    Labels,
    phone_differences,
)
from orchestrator.records.plan import DeviceSelection
from orchestrator.settings import Settings

#: How long a phone may take to be listed once its port has power.
_BACK_S: Final = 15.0
_BACK_POLL_S: Final = 0.3
#: How often a phone that another process uses is polled.
_USE_POLL_S: Final = 0.5


class Needs(enum.Enum):
    """The phones without which a use case doesn't begin, of those that a selection names."""

    #: All of them: its user waits for the answer.
    EACH = enum.auto()
    #: One of them: a plan measures on the phones that are there.
    ONE = enum.auto()
    #: One of them, or this computer alone: what was begun is measured as far as it can be.
    ONE_OR_HOST = enum.auto()


@frozen
class Attached:
    """A phone as one adb server sees it, or a device as its source does."""

    #: None for a device of a source.
    server: AdbServer | None = None
    source: DeviceSource | None = None
    seen: ListedPhone
    #: Another process uses it.
    is_busy: bool = False

    @property
    def via(self) -> str:
        """How it is reached: an adb server's address, or a source's name."""
        return (
            self.source.title
            if self.source is not None
            else str(getattr(self.server, "address", ""))
        )

    def fits(self, serials: Sequence[str]) -> bool:
        """Whether one of these names the phone: its serial number or the server's name for it."""
        return self.seen.serial in serials or self.seen.address in serials

    def unusable(self, reason: str, advice: str) -> Attached:
        """Return the same phone, marked as unusable."""
        return replace(self, seen=replace(self.seen, usable=False, reason=reason, advice=advice))


@frozen
class OpenedDevices:
    """The opened devices of a selection, and those that couldn't be opened."""

    #: The selected devices that can be used, with their facts.
    devices: tuple[tuple[Device, DeviceFacts], ...] = ()
    #: Attached phones that can't be used -> why.
    left_out: Mapping[str, str] = field(default_factory=dict)
    #: Selected phones that can't be used, or aren't attached -> why.
    missing: Mapping[str, str] = field(default_factory=dict)
    #: Which of the usable phones were taken, and why not the others.
    choice: Choice = field(default_factory=lambda: Choice(chosen=()))

    @property
    def facts(self) -> list[DeviceFacts]:
        """The facts of the devices."""
        return [facts for _, facts in self.devices]

    @property
    def lacks_devices(self) -> bool:
        """Whether the selection means more devices than these."""
        return bool(self.missing or self.choice.lacking)


def _in_lab(workspace: Workspace, server: AdbServer) -> Sequence[ListedPhone]:
    """Return the phones of the virtual phones' server; first connect those that it doesn't know: a
    restarted server has forgotten all.
    """
    with contextlib.suppress(DeviceError, UsageError):
        # A booting phone refuses the connection; it is reported as missing then.
        list(connect_known(server, [phone.address for phone in phones_of(workspace.settings)]))
    return list_devices(server, cache=workspace.known_phones)


def _join_network(workspace: Workspace, server: AdbServer) -> None:
    """Connect the remembered phones that a server doesn't know; report those that can't be."""
    for address, error in connect_known(
        server, NetworkPhones(workspace.settings.data_folder).addresses()
    ):
        text = (
            f"can't be connected: {error}; 'benchfarm device connect {address} --undo' forgets it"
        )
        workspace.note(address, text)


def attached_devices(
    workspace: Workspace,
    selection: DeviceSelection = DeviceSelection(),  # noqa: B008 - frozen
    *,
    start_server: bool = True,
) -> list[Attached]:
    """Return all phones of all servers, usable or not; one phone seen by two servers is usable
    through one.

    When every phone that the selection names is a virtual one, or it means virtual ones only and a
    lab is up, no server for real phones is searched. Without ``start_server`` none is started, and
    nothing is changed; else hubs' ports that a killed process left without power are on first.
    Raises AdbUnavailableError.
    """
    restored_serials = _power_on(workspace) if start_server else set()
    attached = _listed(workspace, selection, start_server=start_server)
    deadline = workspace.clock.monotonic_s() + _BACK_S
    while (
        not _means_virtual(selection)
        and not restored_serials <= {item.seen.serial for item in attached}
        and workspace.clock.monotonic_s() < deadline
        and not workspace.clock.wait(_BACK_POLL_S, workspace.cancelled)
    ):
        attached = _listed(workspace, selection, start_server=start_server)
    return attached


def _means_virtual(selection: DeviceSelection) -> bool:
    return "virtual" in selection.where and not selection.serials


def _power_on(workspace: Workspace) -> set[str]:
    """Power on the ports that ended processes left off; return the serial numbers of their phones."""
    restored = set[str]()
    journal = workspace.conditioner.journal
    for serial in journal.serials():
        # The process that holds a phone has switched its port off on purpose.
        try:
            if not journal.ports_off(serial):
                continue
        except HostStorageError as error:
            # The other phones can be used.
            workspace.note(serial, str(error))
            continue
        with contextlib.suppress(DeviceBusyError), workspace.lease.acquire(serial):
            undone, why = workspace.conditioner.power_on(serial)
            workspace.powered_on[serial] += undone
            restored |= {serial} if undone else set()
            for text in [f"restored: {change}" for change in undone] + ([why] if why else []):
                workspace.note(serial, text)
    return restored


def _listed(
    workspace: Workspace, selection: DeviceSelection, *, start_server: bool
) -> list[Attached]:
    lab = workspace.virtual_server(revive=start_server)
    listed: list[Attached] = []
    if lab is not None:
        listed = [Attached(server=lab, seen=phone) for phone in _in_lab(workspace, lab)]
    source_devices: list[Attached] = []
    is_lab_enough = _means_virtual(selection) and bool(listed)
    if not (is_lab_enough or _holds(selection.serials, listed)):
        source_devices = _source_devices(workspace)
        here = [*listed, *source_devices]
        if not _holds(selection.serials, here):
            plugged = _plugged_server(workspace, start_server=start_server, needs_one=not here)
            if plugged is not None and start_server:
                _join_network(workspace, plugged)
            if plugged is not None and (lab is None or str(plugged.address) != str(lab.address)):
                listed += [
                    Attached(server=plugged, seen=phone)
                    for phone in list_devices(plugged, cache=workspace.known_phones)
                ]
    judged = choose_transports([item.seen for item in listed])
    for phone in judged:
        if start_server and phone.reason.startswith(SEVERAL):
            # Kept: with one of them offline, the results of both would look like one phone's.
            with contextlib.suppress(HostStorageError):
                workspace.quarantine.put(Serial(phone.serial), phone.reason)
    attached = [replace(item, seen=phone) for item, phone in zip(listed, judged, strict=True)]
    # A server lists phones in the order of their connection; people search by name.
    return sorted(
        [*attached, *source_devices], key=lambda item: (item.seen.serial, item.seen.address)
    )


def _plugged_server(
    workspace: Workspace, *, start_server: bool, needs_one: bool
) -> AdbServer | None:
    """Return the adb server for real phones; None where there is none, and none is needed: neither
    a lab nor another source needs one.
    """
    try:
        return workspace.plugged_server() if start_server else workspace.running_plugged_server()
    except AdbUnavailableError as error:
        if needs_one:
            raise
        if workspace.named_server() is not None:
            workspace.note("adb", str(error))
        return None


def _source_devices(workspace: Workspace) -> list[Attached]:
    """Return the devices that aren't reached by adb."""
    devices: list[Attached] = []
    for name, source in every("devices", DeviceSource).items():
        list_source = partial(source.attached, workspace.settings)
        try:
            phones = (
                list_source()
                if workspace.known_phones is None
                else workspace.known_phones.of_source(name, list_source)
            )
        except DeviceError as error:
            workspace.note(name, str(error))
        else:
            devices += [Attached(source=source, seen=phone) for phone in phones]
    return devices


def open_devices(
    workspace: Workspace, selection: DeviceSelection, needs: Needs = Needs.EACH
) -> OpenedDevices:
    """Open every device that fits the selection and probe its facts, phones in parallel.

    This computer is meant by ``host`` and by the serial number ``host``. Attached phones that
    can't be used, or are lost while they are opened, are ``left_out``, as far as what ``needs`` the
    devices can do without them.

    Phones that another process still uses after `wait` are left out too, and asked nothing.

    Raises:
        UsageError: a profile, pool or tag that is named is known of no device.
        NoDeviceError: nothing fits, or a serial number that was named isn't attached.
        DeviceBusyError: another process uses a phone that was named.
        DeviceUnusableError: a phone that was named can't be used; the message says why.
        DeviceError: a phone that was named was lost while it was opened.
    """
    check_selection(workspace, selection)
    serials = tuple(serial for serial in selection.serials if serial != HOST_SERIAL)
    names_host = serials != selection.serials
    phones = replace(selection, serials=serials)
    opened = OpenedDevices()
    if phones.names_phones or not names_host:
        opened = _open_phones(workspace, phones, needs)
    if selection.host or names_host:
        host = workspace.host()
        opened = replace(opened, devices=(*opened.devices, (host, host.facts())))
    return opened


def check_selection(
    workspace: Workspace,
    selection: DeviceSelection,
    devices: Iterable[DeviceFacts] = (),
    labels: Iterable[Labels] | None = None,
) -> None:
    """Raise UsageError for a profile, pool or tag that nothing has, nor any of these further
    devices. Only these labels count, without them those of this computer's inventory.
    """
    if selection.profiles or selection.pools or selection.tags:
        profiles = {*workspace.profiles, *(facts.profile for facts in devices)}
        if not profiles.issuperset(selection.profiles):
            profiles |= {facts.profile for facts in workspace.store.devices().values()}
        label_sets = workspace.inventory.values() if labels is None else labels
        check_names(selection, profiles - {""}, label_sets)


def _open_phones(workspace: Workspace, selection: DeviceSelection, needs: Needs) -> OpenedDevices:
    # This computer alone needs no server for phones, and none is started for it.
    needs_phones = selection.names_phones or not selection.host
    attached = [
        _in_use(workspace, with_quarantine(workspace, item))
        for item in attached_devices(workspace, selection, start_server=needs_phones)
    ]
    selected = [item for item in attached if not selection.serials or item.fits(selection.serials)]
    usable = [item for item in selected if item.seen.usable]
    # "Any 2 of these four" wants two, not each of them.
    names_each = bool(selection.serials) and selection.any is None
    needs_each = names_each and (needs is Needs.EACH or (needs is Needs.ONE and not usable))
    for serial in selection.serials if needs_each else ():
        pick(workspace, serial, attached)
    opened, errors = _open_each(workspace, usable)
    if errors and needs_each:
        raise next(iter(errors.values()))
    reasons = {serial: error.reason for serial, error in errors.items()}
    unusable = [item.seen for item in selected if not item.seen.usable]
    left_out = {phone.name: phone.reason for phone in unusable} | reasons
    attached_names = {name for item in attached for name in (item.seen.serial, item.seen.address)}
    # A phone that can't be asked still has the facts of its last measurement.
    stored = workspace.store.devices() if selection.profiles or selection.where else {}
    missing = unmeasurable_matches(selection, left_out, attached_names, workspace.inventory, stored)
    choice = choose(selection, [facts for _, facts in opened], workspace.inventory)
    fitting = tuple((device, facts) for device, facts in opened if facts.serial in choice.chosen)
    is_host_enough = needs is Needs.ONE_OR_HOST and selection.host
    if not fitting and needs_phones and not is_host_enough:
        problem = (
            "no attached phone fits the selection" if opened else "no usable phone is attached"
        )
        notes = [(item.seen.name, item.seen.reason) for item in attached]
        notes += [*choice.unfit.items(), *missing.items(), *reasons.items()]
        each = "".join(f"\n  {serial}: {why}" for serial, why in dict(notes).items() if why)
        raise NoDeviceError(problem + each, hint="see 'benchfarm devices'")
    return OpenedDevices(devices=fitting, left_out=left_out, missing=missing, choice=choice)


def _open_each(
    workspace: Workspace, phones: Sequence[Attached]
) -> tuple[list[tuple[Device, DeviceFacts]], dict[str, DeviceError]]:
    """Open phones in parallel. One that is lost meanwhile doesn't stop the others."""
    before = workspace.store.devices() if phones else {}

    def opened(item: Attached) -> tuple[Device, DeviceFacts] | DeviceError:
        try:
            device, facts = open_phone(workspace, item)
            check_identity(workspace, facts, before)
        except DeviceError as error:
            return error
        return device, with_stored_gpu(facts, before)

    results = map_in_threads(opened, phones)
    errors = {
        item.seen.serial: result
        for item, result in zip(phones, results, strict=True)
        if isinstance(result, DeviceError)
    }
    return [result for result in results if not isinstance(result, DeviceError)], errors


def check_identity(
    workspace: Workspace, facts: DeviceFacts, stored: Mapping[Serial, DeviceFacts]
) -> None:
    """Quarantine a phone if another phone was measured under its serial number, until it is
    released.

    Raises DeviceUnusableError.
    """
    before = stored.get(facts.serial)
    differences = (
        phone_differences(before, facts) if before is not None and not before.is_imported else ""
    )
    if not differences:
        workspace.quarantine.confirm_identity(facts.serial)
    elif before is not None and not workspace.quarantine.is_released(facts.serial):
        reason = (
            f"several phones have this serial number: the results in the store are of a {before.title}, this is a"
            f" {facts.title} (not the same {differences})"
        )
        workspace.quarantine.put(facts.serial, reason)
        advice = (
            "if it may go on under this number (after a reset to factory settings, say): benchfarm device release "
            + shlex.quote(facts.serial)
        )
        raise DeviceUnusableError(reason, serial=facts.serial, hint=advice)


def _in_use(workspace: Workspace, item: Attached) -> Attached:
    """Return the phone as one that can't be used when another process still uses it after
    `wait`: opening it would disturb a run.
    """
    serial = Serial(item.seen.serial)
    holder = workspace.lease.live_holder(serial) if item.seen.usable else ""
    if holder and not workspace.wait.expired:
        workspace.note(serial, f"waits until it is free: in use by {holder}")
    while holder and not workspace.wait.expired:
        if workspace.wait.wait(_USE_POLL_S, workspace.cancelled):
            break
        holder = workspace.lease.live_holder(serial)
    advice = "--wait 10m waits for it in 'bench', 'run' and 'ab'; or choose another one"
    return replace(item.unusable(f"in use by {holder}", advice), is_busy=True) if holder else item


def with_quarantine(workspace: Workspace, item: Attached) -> Attached:
    """Return the phone as one that can't be used when it is in quarantine."""
    reason = workspace.quarantine.reason(Serial(item.seen.serial)) if item.seen.usable else ""
    advice = f"check the phone, then 'benchfarm device release {shlex.quote(item.seen.serial)}'"
    return item.unusable(f"in quarantine: {reason}", advice) if reason else item


def open_phone(workspace: Workspace, attached: Attached) -> tuple[Device, DeviceFacts]:
    """Open one phone and probe its facts; raises DeviceError kinds."""
    phone = attached.seen
    if attached.server is None:
        assert attached.source is not None
        other = attached.source.open(workspace, phone)
        workspace.opened.append(other)
        return other, other.facts()
    device = AdbDevice(attached.server, phone.address, listed=phone)
    device.match_profile = workspace.match_profile
    serial = Serial(phone.serial)
    device.progress = lambda name, sent_bytes, size_bytes: workspace.phone_observer.on_event(
        FileMoving(serial=serial, name=name, sent_bytes=sent_bytes, size_bytes=size_bytes)
    )
    device.on_offline = lambda text, is_away: workspace.phone_observer.on_event(
        DeviceNote(serial=serial, text=text, is_problem=is_away, is_away=is_away)
    )
    device.pushes_cancelled = workspace.cancelled
    workspace.opened.append(device)
    facts = device.facts()
    if device.compositor_hangs:
        text = "its compositor doesn't answer; its GPU is taken from the store, if this system is stored"
        workspace.note(facts.serial, text)
    return device, facts


def with_stored_gpu(facts: DeviceFacts, stored: Mapping[Serial, DeviceFacts]) -> DeviceFacts:
    """Return a phone's facts with the stored GPU of the same system where its compositor didn't
    report one: else it would be another system than the one whose outputs were checked.
    """
    before = stored.get(facts.serial)
    if facts.gpu_driver or before is None or not facts.fingerprint:
        return facts
    is_same = before.fingerprint == facts.fingerprint
    return replace(facts, gpu=before.gpu, gpu_driver=before.gpu_driver) if is_same else facts


def pick(workspace: Workspace, serial: str, attached: Sequence[Attached]) -> Attached:
    """Return the phone that a serial number, or the server's name, means.

    Raises NoDeviceError and other kinds.
    """
    fitting = [item for item in attached if item.fits((serial,))]
    if not fitting:
        names = [
            name
            for name in workspace.profiles
            if name.replace("-", "") == serial.lower().replace("-", "")
        ]
        hint = f"{serial} is a profile: --profile {names[0]}" if names else ""
        if not hint and not _is_recorded(workspace, Serial(serial)):
            hint = nearest(serial, [item.seen.serial for item in attached])
            hint = hint and f"no such phone is known here; {hint}"
        hint = hint or "'benchfarm devices' lists attached phones"
        raise NoDeviceError("is not attached" + _reasons(attached), serial=serial, hint=hint)
    usable = next((item for item in fitting if item.seen.usable), None)
    if usable is None:
        kind = DeviceBusyError if fitting[0].is_busy else DeviceUnusableError
        raise kind(fitting[0].seen.reason, serial=serial, hint=fitting[0].seen.advice)
    return usable


def _is_recorded(workspace: Workspace, serial: Serial) -> bool:
    """Whether a phone was measured, changed or labelled here: its serial number isn't misspelt.
    True where that can't be read.
    """
    with contextlib.suppress(BenchfarmError):
        return (
            serial in workspace.conditioner.unrestored()
            or serial in workspace.inventory
            or serial in workspace.store.devices()
        )
    return True


def _reasons(attached: Sequence[Attached]) -> str:
    """Return the reason of each unusable phone, a line each: the missing one may be among them."""
    return "".join(
        f"\n  {item.seen.address}: {item.seen.reason}" for item in attached if not item.seen.usable
    )


def _holds(serials: Sequence[str], listed: Iterable[Attached]) -> bool:
    """Whether phones are named, and all of them are listed."""
    return bool(serials) and set(serials) <= {item.seen.serial for item in listed}


def check_file(settings: Settings, serial: str) -> Path:
    """Return the path of the report of a phone's last check."""
    return settings.data_folder / "checks" / f"{safe_name(serial)}.json"


def unchecked_hint(settings: Settings, facts: DeviceFacts) -> str:
    """Return an offer to check a phone that wasn't checked since its last system update; empty when
    it was.

    A virtual phone needs none, nor does this computer.
    """
    if facts.is_virtual or facts.kind is not DeviceKind.ANDROID:
        return ""
    try:
        report = json.loads(check_file(settings, facts.serial).read_text("utf-8"))
        if report["phone"]["fingerprint"] == facts.fingerprint:
            return ""
    except (OSError, ValueError, TypeError, KeyError):
        pass
    return f"{facts.serial} was never checked with its system: benchfarm device check -s {shlex.quote(facts.serial)}"
