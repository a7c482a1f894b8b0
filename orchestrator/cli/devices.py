"""``benchfarm devices``, ``restore`` and ``adb``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from orchestrator.bootstrap import Attached, Farm, Settings
from orchestrator.cli.checking import unchecked_hint
from orchestrator.cli.result import CommandResult, one_line, table
from orchestrator.devices.discovery import PHONES_AT_ONCE
from orchestrator.errors import AdbUnavailableError, BenchfarmError, DeviceBusyError, DeviceError, UsageError
from orchestrator.records.device import HOST_SERIAL, DeviceFacts
from orchestrator.records.identity import Serial

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def list_attached(settings: Settings) -> CommandResult:
    """List what is attached; for what can't be used, the reason and what to do.

    Raises PlanError for faults of devices.yaml, without which no phone can be opened; AdbUnavailableError.
    """
    with Farm(settings) as farm:
        _ = farm.inventory
        attached = farm.attached()
        usable = [item for item in attached if item.seen.usable]
        opened = _all_at_once(lambda item: _facts(farm, item), usable)
        facts = {item.seen.address: known for item, known in zip(usable, opened, strict=True)}
        # What is known of them is shown all the same.
        judged = [farm.kept_out(item) for item in attached]
    rows, data, notes = [], [], []
    for item in judged:
        seen, known = item.seen, facts.get(item.seen.address)
        found = known if isinstance(known, DeviceFacts) else None
        is_ready = found is not None and seen.usable
        problem = "" if is_ready else known if isinstance(known, str) else seen.reason
        rows.append(
            (
                found.serial if found else seen.serial or seen.address,
                found.title if found else seen.model,
                f"Android {found.os_version}" if found else "",
                found.soc if found else "",
                found.profile if found else "",
                "ready" if is_ready else "kept out" if found else seen.state,
            )
        )
        if problem:
            notes.append(f"{seen.address}: {problem}{f' ({seen.advice})' if seen.advice else ''}")
        elif found and (offer := unchecked_hint(settings, found)):
            notes.append(offer)
        data.append(
            {
                "serial": found.serial if found else seen.serial,
                "address": seen.address,
                "state": seen.state,
                "usable": is_ready,
                "reason": problem,
                "hint": seen.advice,
                "facts": found,
                "adb_server": str(item.server.address),
            }
        )
    if not rows:
        text = "no phone is attached\n  plug one in, allow USB debugging on it, or start virtual ones: benchfarm lab up"
        return CommandResult(text=text, data=[])
    text = table(("serial", "phone", "system", "SoC", "profile", "state"), rows)
    return CommandResult(text="\n".join([text, *notes]), data=data)


def _facts(farm: Farm, attached: Attached) -> DeviceFacts | str:
    """Return a phone's facts, or why they can't be had."""
    try:
        return farm.open_phone(attached)[1]
    except BenchfarmError as error:
        return str(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """What came of putting one phone back."""

    #: As it was asked for, or its serial number.
    name: str
    #: What was undone, by serial number; empty when it could not be.
    restored: Mapping[str, Sequence[str]] = field(default_factory=dict)
    error: DeviceError | None = None
    notes: Sequence[str] = ()


def restore(settings: Settings, serials: tuple[str, ...], *, take: bool = False) -> CommandResult:
    """Undo what is still open in the journals of these phones, or of all; one that is away does not hold the rest."""
    if take and not serials:
        raise UsageError("--take needs the phones' serial numbers", hint="benchfarm device restore --take SERIAL")
    with Farm(settings) as farm:
        results = put_back(farm, serials, take=take) if serials else _put_back_all(farm)
    restored = {serial: list(undone) for item in results for serial, undone in item.restored.items()}
    notes = {item.name: list(item.notes) for item in results}
    failed = {item.name: str(item.error).removeprefix(f"{item.name}: ") for item in results if item.error is not None}
    lines = [f"{serial}: {', '.join(undone) or 'nothing to put back'}" for serial, undone in restored.items()]
    lines += [one_line(f"{serial}: {note}") for serial, told in notes.items() for note in told]
    lines += [f"{serial}: not restored: {reason}" for serial, reason in failed.items()]
    return CommandResult(
        text="\n".join(lines) or "nothing to put back",
        data={"restored": restored, "failed": failed, "notes": notes},
        exit_code=DeviceError.exit_code if failed else 0,
    )


def put_back(farm: Farm, serials: Sequence[str], *, take: bool = False) -> list[PutBack]:
    """Undo what is open on some devices, on all at once, and return what came of it in their order."""
    listed = _listed(farm, serials)
    return _all_at_once(lambda serial: _put_back(farm, serial, listed, take=take), list(dict.fromkeys(serials)))


def _put_back_all(farm: Farm) -> list[PutBack]:
    """Undo what this computer's journal tells, and on attached phones what their own files tell."""
    own = list(farm.conditioner.unrestored())
    listed = _listed(farm, own, with_others=True)
    results = _all_at_once(lambda serial: _put_back(farm, serial, listed), own)
    if not isinstance(listed, AdbUnavailableError):
        others = [item for item in listed if item.seen.usable and item.seen.serial not in own]
        results += filter(None, _all_at_once(lambda item: _put_back_found(farm, item), others))
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


def _put_back_found(farm: Farm, item: Attached) -> PutBack | None:
    """Undo what is open on a phone by its own file, None when nothing is; one that somebody uses is left alone."""
    serial = Serial(item.seen.serial)
    if holder := farm.lease.live_holder(serial):
        return PutBack(name=serial, notes=(f"left alone: in use by {holder}",))
    try:
        if not farm.conditioner.pending(farm.open_phone(item)[0]):
            return None
    except BenchfarmError:
        return None
    result = _put_back(farm, serial, [item])
    if isinstance(result.error, DeviceBusyError):
        return PutBack(name=serial, notes=("left alone: " + str(result.error).removeprefix(f"{serial}: "),))
    return result


def _put_back(
    farm: Farm, name: str, listed: Sequence[Attached] | AdbUnavailableError, *, take: bool = False
) -> PutBack:
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
        return PutBack(name=name, error=error, notes=notes)
    return PutBack(name=name, restored={serial: undone}, notes=notes)


def _all_at_once(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return what came of each item, in their order: one phone that hangs mustn't hold the others up."""
    with ThreadPoolExecutor(max_workers=max(1, min(PHONES_AT_ONCE, len(items)))) as pool:
        return list(pool.map(work, items))


def release(settings: Settings, serial: str) -> CommandResult:
    """End a phone's quarantine."""
    with Farm(settings) as farm:
        reason = farm.quarantine.release(Serial(serial))
    text = f"{serial}: released; it was in quarantine: {reason}" if reason else f"{serial} isn't in quarantine"
    return CommandResult(text=one_line(text), data={"serial": serial, "released": bool(reason), "reason": reason})


def adb_status(settings: Settings) -> CommandResult:
    """Say which adb servers answer, and which binary would be started."""
    from orchestrator.devices.binary import find_adb

    with Farm(settings) as farm:
        rows, data = [], []
        for what, find in (("real phones", farm.running_plugged_server), ("virtual lab", farm.lab_server)):
            server = find()
            if server is None:
                rows.append((what, "not running", "", ""))
                continue
            try:
                version = str(server.version())
            except BenchfarmError as error:
                version = f"doesn't answer: {error}"
            whose = "benchfarm's own" if server.is_ours else "somebody else's"
            rows.append((what, str(server.address), version, whose))
            data.append({"for": what, "address": str(server.address), "version": version, "ours": server.is_ours})
    try:
        binary = str(find_adb(settings.adb, search_path=settings.environ.get("PATH")))
    except AdbUnavailableError as error:
        binary = str(error)
    text = f"{table(('server for', 'address', 'version', 'whose'), rows)}\nadb binary: {binary}"
    return CommandResult(text=text, data={"servers": data, "binary": binary})


def adb_stop(settings: Settings) -> CommandResult:
    """Stop our own server for real phones, if it runs."""
    from orchestrator.devices.server import AdbServer

    server = AdbServer.adopt(settings.state_folder)
    if server is not None:
        server.stop()
    text = f"stopped the adb server at {server.address}" if server else "benchfarm has no adb server running"
    return CommandResult(text=text, data={"stopped": server is not None})
