"""``benchfarm devices``, ``restore`` and ``adb``."""

from __future__ import annotations

from orchestrator.app.checks import unchecked_hint
from orchestrator.app.listing import list_devices
from orchestrator.app.restoring import put_back, put_back_all
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.result import CommandResult, table
from orchestrator.errors import AdbUnavailableError, BenchfarmError, DeviceError, UsageError
from orchestrator.records.identity import Serial
from orchestrator.report.escapes import one_line


def list_attached(settings: Settings) -> CommandResult:
    """List what is attached; for what can't be used, the reason and what to do.

    Raises PlanError for faults of devices.yaml, without which no phone can be opened; AdbUnavailableError.
    """
    with Farm(settings) as farm:
        listed = list_devices(farm)
    rows, notes = [], []
    for item in listed:
        found = item.facts
        rows.append(
            (
                item.serial,
                found.title if found else item.model,
                f"Android {found.os_version}" if found else "",
                found.soc if found else "",
                found.profile if found else "",
                "ready" if item.usable else "kept out" if found else item.state,
            )
        )
        if item.reason:
            notes.append(f"{item.address}: {item.reason}{f' ({item.hint})' if item.hint else ''}")
        elif found and (offer := unchecked_hint(settings, found)):
            notes.append(offer)
    if not rows:
        text = "no phone is attached\n  plug one in, allow USB debugging on it, or start virtual ones: benchfarm lab up"
        return CommandResult(text=text, data=[])
    text = table(("serial", "phone", "system", "SoC", "profile", "state"), rows)
    return CommandResult(text="\n".join([text, *notes]), data=listed)


def restore(settings: Settings, serials: tuple[str, ...], *, take: bool = False) -> CommandResult:
    """Undo what is still open in the journals of these phones, or of all; one that is away does not hold the rest."""
    if take and not serials:
        raise UsageError("--take needs the phones' serial numbers", hint="benchfarm device restore --take SERIAL")
    with Farm(settings) as farm:
        results = put_back(farm, serials, take=take) if serials else put_back_all(farm)
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
