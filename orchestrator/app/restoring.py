"""Putting phones back as they were before somebody measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from orchestrator.bootstrap import Attached, Farm
from orchestrator.devices.discovery import PHONES_AT_ONCE
from orchestrator.errors import AdbUnavailableError, BenchfarmError, DeviceBusyError, DeviceError
from orchestrator.records.device import HOST_SERIAL
from orchestrator.records.identity import Serial

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What came of putting one phone back."""

    #: As it was asked for, or its serial number.
    name: str
    #: What was undone, by serial number; empty when it could not be.
    restored: Mapping[str, Sequence[str]] = field(default_factory=dict)
    error: DeviceError | None = None
    notes: Sequence[str] = ()


def restore_phones(farm: Farm, serials: Sequence[str], *, take: bool = False) -> list[Restored]:
    """Undo what is open on some devices, on all at once, and return what came of it in their order."""
    listed = _listed(farm, serials)
    return all_at_once(lambda serial: _restore_phone(farm, serial, listed, take=take), list(dict.fromkeys(serials)))


def restore_all(farm: Farm) -> list[Restored]:
    """Undo what this computer's journal tells, and on attached phones what their own files tell."""
    own = list(farm.conditioner.unrestored())
    listed = _listed(farm, own, with_others=True)
    results = all_at_once(lambda serial: _restore_phone(farm, serial, listed), own)
    if not isinstance(listed, AdbUnavailableError):
        others = [item for item in listed if item.seen.usable and item.seen.serial not in own]
        results += filter(None, all_at_once(lambda item: _restore_found(farm, item), others))
    return results


def _listed(
    farm: Farm, serials: Sequence[str], *, with_others: bool = False
) -> Sequence[Attached] | AdbUnavailableError:
    """Return the phones that are attached, or why nobody can say; a server is started for phones that are named."""
    phones = [serial for serial in serials if serial != HOST_SERIAL]
    if not phones and not with_others:
        return []
    try:
        return farm.attached(serials=() if with_others else phones, start_server=bool(phones))
    except AdbUnavailableError as error:
        return error


def _restore_found(farm: Farm, item: Attached) -> Restored | None:
    """Undo what is open on a phone by its own file, None when nothing is; one that somebody uses is left alone."""
    serial = Serial(item.seen.serial)
    if holder := farm.lease.live_holder(serial):
        return Restored(name=serial, notes=(f"left alone: in use by {holder}",))
    try:
        if not farm.conditioner.pending(farm.open_phone(item)[0]):
            return None
    except BenchfarmError:
        return None
    result = _restore_phone(farm, serial, [item])
    if isinstance(result.error, DeviceBusyError):
        return Restored(name=serial, notes=("left alone: " + str(result.error).removeprefix(f"{serial}: "),))
    return result


def _restore_phone(
    farm: Farm, name: str, listed: Sequence[Attached] | AdbUnavailableError, *, take: bool = False
) -> Restored:
    notes: list[str] = []
    try:
        attached: Attached | None = None
        if name != HOST_SERIAL:
            if isinstance(listed, AdbUnavailableError):
                raise listed
            attached = farm.pick(name, listed)
        serial = Serial(HOST_SERIAL if attached is None else attached.seen.serial)
        with farm.lease.acquire(serial):
            device = farm.host() if attached is None else farm.open_phone(attached)[0]
            undone = list(farm.conditioner.restore(device, on_note=notes.append, take=take))
    except DeviceError as error:
        undone = farm.powered_on.get(Serial(name), [])
        if undone and Serial(name) not in farm.conditioner.unrestored():
            return Restored(
                name=name,
                restored={Serial(name): undone},
                notes=[*notes, f"not looked at: {str(error).removeprefix(f'{name}: ')}"],
            )
        return Restored(name=name, error=error, notes=notes)
    return Restored(name=name, restored={serial: farm.powered_on.get(serial, []) + undone}, notes=notes)


def all_at_once(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return what came of each item, in their order: one phone that hangs mustn't hold the others up."""
    with ThreadPoolExecutor(max_workers=max(1, min(PHONES_AT_ONCE, len(items)))) as pool:
        return list(pool.map(work, items))
