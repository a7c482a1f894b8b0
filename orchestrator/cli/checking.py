"""``benchfarm device check``: everything that benchfarm relies on, tried on attached phones."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator import __version__
from orchestrator.app.checks import check_file
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.result import CommandResult, table, to_json
from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.checking import CheckResult, PhoneCheck, check_phone
from orchestrator.errors import DeviceError, UsageError
from orchestrator.files import check_writable, write_file
from orchestrator.ports import Device
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import DeviceSelection
from orchestrator.report.escapes import one_line

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
            if not isinstance(device, AdbDevice):
                raise UsageError("only phones are checked", hint="benchfarm doctor checks this computer")
            path = out or check_file(settings, facts.serial)
            check_writable(path)
            with farm.lease.acquire(facts.serial):
                checks = list(check_phone(device, farm.conditioner, app=app))
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
    assert isinstance(device, AdbDevice)
    text = to_json(
        {
            "benchfarm": __version__,
            "host": f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
            "adb_server": device.server.version(),
            "phone": {
                "title": facts.title,
                "is_virtual": facts.is_virtual,
                "fingerprint": facts.fingerprint,
                "soc": facts.soc,
                "abis": facts.abis,
                "gpu": facts.gpu,
                "gpu_driver": facts.gpu_driver,
                "is_rooted": facts.is_rooted,
                "has_one_stream": device.is_legacy,
                "properties": {name: value for name, value in facts.properties.items() if _TOLD_PROPERTIES.match(name)},
            },
            "checks": list(checks),
        }
    )
    for name in {str(facts.serial), device.transport}:
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
