"""The phones of this computer: which are attached and usable, checks, restoring, quarantine, adb
servers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from orchestrator.app.attached import (
    Attached,
    attached_devices,
    check_file,
    check_identity,
    open_devices,
    open_phone,
    pick,
    with_quarantine,
    with_stored_gpu,
)
from orchestrator.app.workspace import Workspace
from orchestrator.devices.adb_server import find_adb
from orchestrator.devices.check import check_phone
from orchestrator.devices.discovery import NetworkPhones, full_address
from orchestrator.devices.phone import AdbDevice
from orchestrator.errors import (
    AdbUnavailableError,
    BenchfarmError,
    DeviceBusyError,
    DeviceError,
    DeviceStorageError,
    DeviceUnusableError,
    UsageError,
)
from orchestrator.files import check_writable
from orchestrator.ports import CheckedDevice, PhoneCheck
from orchestrator.processes import map_in_threads
from orchestrator.records import frozen
from orchestrator.records.answers import DoneAnswer
from orchestrator.records.case import Serial
from orchestrator.records.device import HOST_SERIAL, DeviceFacts
from orchestrator.records.plan import DeviceSelection
from orchestrator.tables.devices import FACTS
from orchestrator.tables.escapes import one_line
from orchestrator.tables.renderers import as_text
from orchestrator.tables.table import DATA, NESTED, Column, Form, Kind, Table

#: Digits that a phone shows to be paired.
_PAIRING_DIGITS: Final = 6
#: A phone with it turned on doesn't show at all.
HIDDEN_SAMSUNG: Final = "a Samsung phone that doesn't show: turn off Auto Blocker in its settings (Security and privacy)"


@frozen
class Restored:
    """The outcome of restoring one phone."""

    #: The requested name, or the serial number.
    name: str
    #: The restored settings, by serial number; empty when they could not be.
    restored: Mapping[str, Sequence[str]] = field(default_factory=dict)
    error: DeviceError | None = None
    notes: Sequence[str] = ()


def restore_phones(
    workspace: Workspace, serials: Sequence[str] | None, *, take: bool = False
) -> list[Restored]:
    """Restore some devices in parallel, and return the outcomes in their order.

    None: the devices of this computer's journal, and attached phones by their own files. An adb
    server is started only for named phones.
    """
    names = (
        list(workspace.conditioner.unrestored())
        if serials is None
        else list(dict.fromkeys(serials))
    )
    phones = [serial for serial in names if serial != HOST_SERIAL]
    listed: Sequence[Attached] | AdbUnavailableError = []
    if phones or serials is None:
        try:
            listed = attached_devices(
                workspace,
                DeviceSelection(serials=() if serials is None else tuple(phones)),
                start_server=bool(phones),
            )
        except AdbUnavailableError as error:
            listed = error
    results = map_in_threads(
        lambda serial: _restore_phone(workspace, serial, listed, take=take), names
    )
    if serials is None and not isinstance(listed, AdbUnavailableError):
        further = [item for item in listed if item.seen.usable and item.seen.serial not in names]
        results += filter(
            None, map_in_threads(lambda item: _restore_by_file(workspace, item), further)
        )
    return results


def _restore_by_file(workspace: Workspace, item: Attached) -> Restored | None:
    """Restore a phone by its own file; None where nothing is changed. A phone in use is skipped."""
    serial = Serial(item.seen.serial)
    if holder := workspace.lease.live_holder(serial):
        return Restored(name=serial, notes=(f"left alone: in use by {holder}",))
    try:
        if not workspace.conditioner.pending(open_phone(workspace, item)[0]):
            return None
    except DeviceStorageError as error:
        return Restored(name=serial, error=error)
    except BenchfarmError:
        return None
    result = _restore_phone(workspace, serial, [item])
    if isinstance(result.error, DeviceBusyError):
        return Restored(name=serial, notes=(f"left alone: {result.error.reason}",))
    return result


def _restore_phone(
    workspace: Workspace,
    name: str,
    listed: Sequence[Attached] | AdbUnavailableError,
    *,
    take: bool = False,
) -> Restored:
    notes: list[str] = []
    try:
        attached: Attached | None = None
        if name != HOST_SERIAL:
            if isinstance(listed, AdbUnavailableError):
                raise listed
            attached = pick(workspace, name, listed)
        serial = Serial(HOST_SERIAL if attached is None else attached.seen.serial)
        with workspace.lease.acquire(serial):
            device = workspace.host() if attached is None else open_phone(workspace, attached)[0]
            undone = list(workspace.conditioner.restore(device, on_note=notes.append, take=take))
    except DeviceError as error:
        undone = workspace.powered_on.get(Serial(name), [])
        if undone and not workspace.conditioner.journal.pending(Serial(name)):
            return Restored(
                name=name,
                restored={Serial(name): undone},
                notes=[*notes, f"not checked: {error.reason}"],
            )
        return Restored(name=name, error=error, notes=notes)
    return Restored(
        name=name, restored={serial: workspace.powered_on.get(serial, []) + undone}, notes=notes
    )


class DeviceList(list["ListedDevice"]):
    """Attached phones, printed as a table."""

    def __str__(self) -> str:
        return as_text(listed_table(self))

    def to_html(self, notes: Sequence[str] = ()) -> str:
        """Return the phones for a notebook, and below them the reasons of those that can't be used."""
        from orchestrator.tables.html import notebook_html

        table = listed_table(self)
        reasons = [f"{item.address}: {item.reason}" for item in self if item.reason]
        return notebook_html(table, table.caption, [*reasons, *notes])

    def _repr_html_(self) -> str:
        return self.to_html()


@frozen
class ListedDevice:
    """A phone as an adb server sees it."""

    serial: str
    #: The server's name for it.
    address: str
    #: The phone's own name of its model, empty where it can't be asked.
    model: str
    #: The server's state: ``device``, ``offline``, ``unauthorized`` ...
    state: str
    usable: bool
    #: Why it can't be used, and what to do; empty for a usable phone.
    reason: str
    hint: str
    #: None for a phone that can't be asked.
    facts: DeviceFacts | None
    adb_server: str


def _state(item: ListedDevice) -> str:
    return "ready" if item.usable else "kept out" if item.facts else item.state


_LISTED: Final[Sequence[Column[ListedDevice]]] = (
    Column("serial", value=lambda row: row.serial),
    Column("address", value=lambda row: row.address, forms=DATA),
    Column("phone", value=lambda item: item.facts.title if item.facts else item.model),
    *(column.of(lambda item: item.facts, forms=column.forms - {Form.JSON}) for column in FACTS),
    Column("facts", value=lambda row: row.facts, kind=Kind.RECORD, forms=NESTED),
    Column("state", value=lambda row: row.state, shown=_state),
    Column("usable", value=lambda row: row.usable, kind=Kind.FLAG, forms=DATA),
    Column("reason", value=lambda row: row.reason, forms=DATA),
    Column("hint", value=lambda row: row.hint, forms=DATA),
    Column("adb_server", value=lambda row: row.adb_server, forms=DATA),
)


def listed_table(listed: Sequence[ListedDevice]) -> Table[ListedDevice]:
    """Return the attached phones as a table."""
    return Table(
        name="devices",
        caption="Attached phones",
        columns=_LISTED,
        rows=listed,
        nothing="no phone is attached\n  plug one in, allow USB debugging on it, or start virtual ones: "
        f"benchfarm virtual up\n  {HIDDEN_SAMSUNG}",
    )


def connect_phone(workspace: Workspace, address: str) -> DoneAnswer:
    """Connect a phone by its address, and remember it.

    Raises UsageError, DeviceError, AdbUnavailableError, HostStorageError.
    """
    full = full_address(address)
    workspace.plugged_server().connect_tcp(full)
    NetworkPhones(workspace.settings.data_folder).add(full)
    text = f"{full} is connected; from now on benchfarm reconnects it when it is missing"
    return DoneAnswer(text=text, data={"address": full})


def disconnect_phone(workspace: Workspace, address: str) -> DoneAnswer:
    """Disconnect a phone and forget its address; raises as :func:`connect_phone`."""
    full = full_address(address)
    was_known = NetworkPhones(workspace.settings.data_folder).remove(full)
    if (server := workspace.running_plugged_server()) is not None:
        server.disconnect(full)
    text = f"{full} is disconnected" if was_known else f"{full} wasn't remembered"
    return DoneAnswer(text=text, data={"address": full, "was_remembered": was_known})


def pair_phone(workspace: Workspace, address: str, code: str) -> DoneAnswer:
    """Pair this computer with a phone that shows a code; raises as :func:`connect_phone`."""
    if not (code.isascii() and code.isdigit() and len(code) == _PAIRING_DIGITS):
        raise UsageError(f"{code!r} isn't a pairing code", hint="the phone shows six digits")
    full = full_address(address)
    workspace.plugged_server().pair(full, code)
    text = (
        f"paired with {full}; now: benchfarm device connect HOST:PORT, with the address under "
        "'Wireless debugging', whose port differs"
    )
    return DoneAnswer(text=text, data={"address": full})


def list_devices(workspace: Workspace) -> DeviceList:
    """Return the attached phones, by serial number.

    Raises PlanError for faults of devices.yaml, without which no phone can be opened;
    AdbUnavailableError.
    """
    _ = workspace.inventory
    attached = attached_devices(workspace)
    stored = workspace.store.devices() if any(item.seen.usable for item in attached) else {}
    return DeviceList(
        map_in_threads(lambda item: _listed_device(workspace, item, stored), attached)
    )


def _listed_device(
    workspace: Workspace, item: Attached, stored: Mapping[Serial, DeviceFacts]
) -> ListedDevice:
    answer = _facts(workspace, item, stored) if item.seen.usable else None
    # Quarantined phones are listed with their facts, too.
    phone = with_quarantine(workspace, item).seen
    facts = answer if isinstance(answer, DeviceFacts) else None
    is_usable = facts is not None and phone.usable
    return ListedDevice(
        serial=facts.serial if facts else phone.name,
        address=phone.address,
        model=phone.model,
        state=phone.state,
        usable=is_usable,
        reason="" if is_usable else answer if isinstance(answer, str) else phone.reason,
        hint=phone.advice,
        facts=facts,
        adb_server=item.via,
    )


def _facts(
    workspace: Workspace, attached: Attached, stored: Mapping[Serial, DeviceFacts]
) -> DeviceFacts | str:
    """Return a phone's facts, or why they can't be read. Another phone with a stored serial number
    is quarantined.
    """
    try:
        facts = with_stored_gpu(open_phone(workspace, attached)[1], stored)
        with contextlib.suppress(DeviceUnusableError):
            check_identity(workspace, facts, stored)
        return facts
    except BenchfarmError as error:
        return str(error)


def check_phones(
    workspace: Workspace, serials: Sequence[str], out: Path | None
) -> Iterator[tuple[AdbDevice | CheckedDevice, DeviceFacts, Sequence[PhoneCheck], Path]]:
    """Check the named phones, or all that are attached and free.

    Yields each phone, its facts, its checks, and the writable path of its report (``out`` if
    given). Raises UsageError, DeviceError kinds.
    """
    for device, facts in open_devices(workspace, DeviceSelection(serials=tuple(serials))).devices:
        if not isinstance(device, AdbDevice | CheckedDevice):
            raise UsageError(f"{facts.serial} has no checks")
        path = out or check_file(workspace.settings, facts.serial)
        check_writable(path, makes_folder=out is None)
        with workspace.lease.acquire(facts.serial):
            checks = list(
                check_phone(device, workspace.conditioner)
                if isinstance(device, AdbDevice)
                else device.checks()
            )
        yield device, facts, checks, path


def release_phone(workspace: Workspace, serial: str) -> DoneAnswer:
    """End a phone's quarantine."""
    reason = workspace.quarantine.release(Serial(serial))
    text = (
        f"{serial}: released; it was in quarantine: {reason}"
        if reason
        else f"{serial} isn't in quarantine"
    )
    return DoneAnswer(
        text=one_line(text), data={"serial": serial, "released": bool(reason), "reason": reason}
    )


def adb_servers(workspace: Workspace) -> tuple[list[dict[str, object]], str]:
    """Return the running adb servers, as JSON has them, and the adb binary to start, or why there
    is none.

    A server is ``for`` real or virtual phones; ``version`` is its answer, or its error.
    """
    servers: list[dict[str, object]] = []
    for purpose, find in (
        ("real phones", workspace.running_plugged_server),
        ("virtual phones", workspace.virtual_server),
    ):
        if (server := find()) is None:
            continue
        try:
            version = str(server.version())
        except BenchfarmError as error:
            version = f"doesn't answer: {error}"
        servers.append(
            {
                "for": purpose,
                "address": str(server.address),
                "version": version,
                "ours": server.is_ours,
            }
        )
    try:
        binary = str(find_adb(workspace.settings.adb, workspace.settings.environ))
    except AdbUnavailableError as error:
        binary = str(error)
    return servers, binary


def stop_adb(workspace: Workspace) -> DoneAnswer:
    """Stop our own server for real phones, if it runs."""
    server = workspace.own_server()
    was_running = server.stop()
    text = (
        f"stopped the adb server at {server.address}"
        if was_running
        else "benchfarm has no adb server running"
    )
    return DoneAnswer(text=text, data={"stopped": was_running})


def pending_on(
    workspace: Workspace, serial: str
) -> tuple[DeviceFacts, Sequence[str], Sequence[str]]:
    """Return a phone's facts, its pending undo steps, and its differences from its state before the
    first change that isn't undone.
    """
    ((device, facts),) = open_devices(workspace, DeviceSelection(serials=(serial,))).devices
    with workspace.lease.acquire(facts.serial):
        pending = workspace.conditioner.pending(device)
        return facts, pending, workspace.conditioner.audit(device)
