"""``benchfarm devices``, ``device check``, ``device restore`` and ``adb``."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator import __version__
from orchestrator.app.listing import check_file, list_devices, unchecked_hint
from orchestrator.app.restoring import restore_all, restore_phones
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.result import CommandResult, table, to_json
from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.checking import CheckResult, PhoneCheck, check_phone
from orchestrator.devices.iphone import IPhoneDevice
from orchestrator.devices.iphone_checking import check_iphone
from orchestrator.errors import AdbUnavailableError, BenchfarmError, DeviceError, UsageError
from orchestrator.files import check_writable, write_file
from orchestrator.ports import Device
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.plan import DeviceSelection
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
                found.system if found else "",
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
        results = restore_phones(farm, serials, take=take) if serials else restore_all(farm)
    restored = {serial: list(undone) for item in results for serial, undone in item.restored.items()}
    notes = {item.name: list(item.notes) for item in results}
    failed = {item.name: str(item.error).removeprefix(f"{item.name}: ") for item in results if item.error is not None}
    lines = [f"{serial}: {', '.join(undone) or 'nothing to restore'}" for serial, undone in restored.items()]
    lines += [one_line(f"{serial}: {note}") for serial, told in notes.items() for note in told]
    lines += [f"{serial}: not restored: {reason}" for serial, reason in failed.items()]
    return CommandResult(
        text="\n".join(lines) or "nothing to restore",
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
    from orchestrator.devices.server_process import find_adb

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


#: Facts that a bug report needs. Serial numbers stay out of it.
_TOLD_PROPERTIES = re.compile(r"ro\.(build|product|soc|board|hardware|vendor\.build|boot\.hardware)\b")


def check(settings: Settings, serials: Sequence[str], *, apk: Path | None, out: Path | None) -> CommandResult:
    """Check the named phones, or all that are attached and free; raises UsageError, DeviceError kinds.

    Exit code 3 when a check fails on one of them; what works another way or is missing isn't a failure.
    """
    app = None
    if apk is not None:
        from orchestrator.artifacts.apk import inspect_apk

        app = (inspect_apk(apk).package, apk)
    if out is not None and len(serials) != 1:
        raise UsageError("--out needs one phone", hint="name it with -s SERIAL")
    results, texts, failed = [], [], False
    with Farm(settings, makes_store=False) as farm:
        for device, facts in farm.open_devices(DeviceSelection(serials=tuple(serials))).devices:
            if not isinstance(device, AdbDevice | IPhoneDevice):
                raise UsageError("only phones are checked", hint="benchfarm doctor checks this computer")
            path = out or check_file(settings, facts.serial)
            check_writable(path)
            with farm.lease.acquire(facts.serial):
                checks = list(
                    check_phone(device, farm.conditioner, app=app)
                    if isinstance(device, AdbDevice)
                    else check_iphone(device)
                )
            report = _report(device, facts, checks)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, to_json(report) + "\n")
            failed = failed or any(item.result is CheckResult.FAILS for item in checks)
            results.append({"serial": facts.serial, "file": path, "is_virtual": facts.is_virtual, "checks": checks})
            texts.append(_text(facts, checks, path))
    return CommandResult(
        text="\n\n".join(texts), data={"phones": results}, exit_code=DeviceError.exit_code if failed else 0
    )


def _report(device: Device, facts: DeviceFacts, checks: Sequence[PhoneCheck]) -> dict[str, object]:
    """Return what goes into the file: no serial number, no settings, no log."""
    adb = device if isinstance(device, AdbDevice) else None
    text = to_json(
        {
            "benchfarm": __version__,
            "host": f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
            "adb_server": adb.server.version() if adb else None,
            "phone": {
                "title": facts.title,
                "is_virtual": facts.is_virtual,
                "fingerprint": facts.fingerprint,
                "soc": facts.soc,
                "abis": facts.abis,
                "gpu": facts.gpu,
                "gpu_driver": facts.gpu_driver,
                "is_rooted": facts.is_rooted,
                "has_one_stream": adb.is_legacy if adb else False,
                "properties": {name: value for name, value in facts.properties.items() if _TOLD_PROPERTIES.match(name)},
            },
            "checks": list(checks),
        }
    )
    for name in {str(facts.serial), adb.transport if adb else str(facts.serial)}:
        text = text.replace(json.dumps(name, ensure_ascii=False)[1:-1], "SERIAL")
    report = json.loads(text)
    assert isinstance(report, dict)
    return report


def _text(facts: DeviceFacts, checks: Sequence[PhoneCheck], path: Path) -> str:
    order = (CheckResult.FAILS, CheckResult.MISSING, CheckResult.ANOTHER_WAY)
    rows = [
        (item.name, item.result.value, item.cost or item.seen)
        for result in order
        for item in checks
        if item.result is result
    ]
    works = [item for item in checks if item.result is CheckResult.WORKS]
    seen = {item.name: item.seen for item in works}
    took_s = sum(item.took_s for item in checks)
    lines = [one_line(f"{facts.serial} ({facts.title}): {len(checks)} checks in {took_s:.0f} s, {len(works)} work")]
    lines += [
        one_line(f"  {name}: {seen[name]}") for name in ("end of a run", "push and pull", "quiet mode") if name in seen
    ]
    if rows:
        lines.append(table(("check", "result", "what it costs"), rows))
    lines.append(f"to attach to a bug report: {path}")
    return "\n".join(lines)
