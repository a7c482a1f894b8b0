"""``benchfarm devices``, ``restore`` and ``adb``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from orchestrator.bootstrap import Attached, Farm, Settings
from orchestrator.cli.result import CommandResult, one_line, table
from orchestrator.errors import AdbUnavailableError, BenchfarmError, DeviceBusyError, DeviceError, UsageError
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.plan import DeviceSelection


def list_attached(settings: Settings) -> CommandResult:
    """List what is attached; for what can't be used, the reason and what to do."""
    with Farm(settings) as farm:
        attached = farm.attached()
        facts = {item.seen.address: _facts(farm, item) for item in attached if item.seen.usable}
    rows, data, notes = [], [], []
    for item in attached:
        seen, known = item.seen, facts.get(item.seen.address)
        problem = seen.reason if known is None or isinstance(known, str) else ""
        if isinstance(known, str):
            problem = known
        found = known if isinstance(known, DeviceFacts) else None
        rows.append(
            (
                found.serial if found else seen.serial or seen.address,
                found.title if found else seen.model,
                f"Android {found.os_version}" if found else "",
                found.soc if found else "",
                found.profile if found else "",
                "ready" if found else seen.state,
            )
        )
        if problem:
            notes.append(f"{seen.address}: {problem}{f' ({seen.advice})' if seen.advice else ''}")
        data.append(
            {
                "serial": found.serial if found else seen.serial,
                "address": seen.address,
                "state": seen.state,
                "usable": found is not None,
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


def restore(settings: Settings, serials: tuple[str, ...], *, take: bool = False) -> CommandResult:
    """Undo what is still open in the journals of these phones, or of all; one that is away does not hold the rest."""
    if take and not serials:
        raise UsageError("--take needs the phones' serial numbers", hint="benchfarm restore --take SERIAL")
    restored: dict[str, list[str]] = {}
    failed: dict[str, str] = {}
    notes: dict[str, list[str]] = {}
    with Farm(settings) as farm:
        own = set(farm.conditioner.unrestored())
        for serial in serials or _changed(farm):
            told = notes.setdefault(serial, [])
            try:
                restored |= put_back(farm, serial, on_note=told.append, take=take)
            except DeviceError as error:
                if isinstance(error, DeviceBusyError) and not serials and serial not in own:
                    told.append("left alone: " + str(error).removeprefix(f"{serial}: "))
                    continue
                failed[serial] = str(error).removeprefix(f"{serial}: ")
    lines = [f"{serial}: {', '.join(undone) or 'nothing to put back'}" for serial, undone in restored.items()]
    lines += [one_line(f"{serial}: {note}") for serial, told in notes.items() for note in told]
    lines += [f"{serial}: not restored: {reason}" for serial, reason in failed.items()]
    return CommandResult(
        text="\n".join(lines) or "nothing to put back",
        data={"restored": restored, "failed": failed, "notes": notes},
        exit_code=DeviceError.exit_code if failed else 0,
    )


def put_back(
    farm: Farm, serial: str, *, on_note: Callable[[str], None] = lambda text: None, take: bool = False
) -> dict[str, list[str]]:
    """Undo what is open on a phone; return what that was, by serial number. Raises DeviceError kinds."""
    restored = {}
    for device, facts in farm.open_devices(DeviceSelection(serials=(serial,)), despite_quarantine=True):
        with farm.lease.acquire(facts.serial):
            restored[str(facts.serial)] = list(farm.conditioner.restore(device, on_note=on_note, take=take))
    return restored


def release(settings: Settings, serial: str) -> CommandResult:
    """End a phone's quarantine."""
    with Farm(settings) as farm:
        reason = farm.quarantine.release(Serial(serial))
    text = f"{serial}: released; it was in quarantine: {reason}" if reason else f"{serial} isn't in quarantine"
    return CommandResult(text=one_line(text), data={"serial": serial, "released": bool(reason), "reason": reason})


def _changed(farm: Farm) -> tuple[str, ...]:
    """Return the phones with open changes: by this computer's journal, or by the phone's own file."""
    serials = dict.fromkeys(map(str, farm.conditioner.unrestored()))
    with contextlib.suppress(AdbUnavailableError):
        for item in farm.attached(start_server=False):
            if item.seen.usable and item.seen.serial not in serials:
                with contextlib.suppress(BenchfarmError):
                    device, facts = farm.open_phone(item)
                    if farm.conditioner.pending(device):
                        serials[facts.serial] = None
    return tuple(serials)


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
