"""``benchfarm devices``, ``device``, ``adb`` and ``doctor``: attached phones, work on one, and what
a host lacks.
"""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from orchestrator import __version__
from orchestrator.app import resolution
from orchestrator.app.doctor import Finding, of_host, problem
from orchestrator.app.measuring import bench_plan
from orchestrator.app.options import Listed, Texts, arg, opt
from orchestrator.app.phones import (
    adb_servers,
    audit_phone,
    check_phones,
    connect_phone,
    disconnect_phone,
    list_devices,
    listed_table,
    pair_phone,
    release_phone,
    restore_phones,
    stop_adb,
    unchecked_hint,
)
from orchestrator.app.time_limits import waiting
from orchestrator.bootstrap import Settings, Workspace
from orchestrator.cli.frame import Wait, command
from orchestrator.cli.progress import workspace_telling
from orchestrator.cli.result import CommandResult, shown, to_json
from orchestrator.devices.phone import AdbDevice
from orchestrator.errors import DeviceError, StoreError, UsageError
from orchestrator.files import write_file
from orchestrator.ports import CheckResult, Device, PhoneCheck
from orchestrator.records.answers import DoneAnswer
from orchestrator.records.case import USUAL_DELEGATE
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import Plan
from orchestrator.tables import text
from orchestrator.tables.column import DATA, EVERYWHERE, Column, Form, Kind
from orchestrator.tables.escapes import one_line
from orchestrator.tables.table import Table


@command("devices", has_table=True)
def list_attached(settings: Settings) -> CommandResult:
    """List attached phones, and why one can't be used.

    Example: benchfarm devices
    """
    with workspace_telling(settings) as workspace:
        listed = list_devices(workspace)
    notes = []
    for item in listed:
        if item.reason:
            notes.append(f"{item.address}: {item.reason}{f' ({item.hint})' if item.hint else ''}")
        elif item.facts and (offer := unchecked_hint(settings, item.facts)):
            notes.append(offer)
    table = listed_table(listed)
    exit_code = 0 if all(item.usable for item in listed) else DeviceError.exit_code
    return shown(table, *notes, exit_code=exit_code)


@command("device restore")
def restore(
    settings: Settings,
    serials: Annotated[Texts, arg("Serial numbers (default: all with open changes).")] = (),
    *,
    take: Annotated[
        bool, opt("--take", "Include phones leased by another computer whose process is dead.")
    ] = False,
) -> CommandResult:
    """Restore phones that an interrupted run left changed.

    Example: benchfarm device restore SERIAL

    Also for phones that this computer changed earlier and that are attached again.
    """
    if take and not serials:
        raise UsageError(
            "--take needs the phones' serial numbers", hint="benchfarm device restore --take SERIAL"
        )
    with Workspace(settings) as workspace:
        results = restore_phones(workspace, serials or None, take=take)
    restored = {
        serial: list(undone) for item in results for serial, undone in item.restored.items()
    }
    notes = {item.name: list(item.notes) for item in results}
    errors = [(item.name, item.error) for item in results if item.error is not None]
    failed = {name: str(error).removeprefix(f"{name}: ") for name, error in errors}
    lines = [
        f"{serial}: {', '.join(undone) or 'nothing to restore'}"
        for serial, undone in restored.items()
    ]
    lines += [one_line(f"{serial}: {note}") for serial, told in notes.items() for note in told]
    lines += [
        f"{name}: not restored: {failed[name]}{f'; {error.hint}' if error.hint else ''}"
        for name, error in errors
    ]
    return CommandResult(
        text="\n".join(lines) or "nothing to restore",
        data={"restored": restored, "failed": failed, "notes": notes},
        exit_code=DeviceError.exit_code if failed else 0,
    )


@command("device connect")
def connect(
    settings: Settings, address: Annotated[str, arg("HOST[:PORT] that the phone shows.")]
) -> DoneAnswer:
    """Connect a phone by Wi-Fi, and remember it.

    Example: benchfarm device connect 192.168.1.20:40123
    """
    with Workspace(settings, makes_store=False) as workspace:
        return connect_phone(workspace, address)


@command("device disconnect")
def disconnect(
    settings: Settings, address: Annotated[str, arg("HOST[:PORT] that was connected.")]
) -> DoneAnswer:
    """Disconnect a phone, and forget its address.

    Example: benchfarm device disconnect 192.168.1.20:40123
    """
    with Workspace(settings, makes_store=False) as workspace:
        return disconnect_phone(workspace, address)


@command("device pair")
def pair(
    settings: Settings,
    address: Annotated[str, arg("HOST:PORT under 'Pair device with pairing code'.")],
    code: Annotated[str, arg("The six digits beside it.")],
) -> DoneAnswer:
    """Pair this computer with a phone by Wi-Fi, once.

    Example: benchfarm device pair 192.168.1.20:37123 123456
    """
    with Workspace(settings, makes_store=False) as workspace:
        return pair_phone(workspace, address, code)


@command("device release")
def release(
    settings: Settings, serial: Annotated[str, arg("Serial number of the phone.")]
) -> DoneAnswer:
    """Release a phone from quarantine.

    Example: benchfarm device release SERIAL
    """
    return release_phone(settings, serial)


@command("adb", has_table=True)
def adb(
    settings: Settings,
    action: Annotated[
        str, arg("status, or stop: end the server that benchfarm started.")
    ] = "status",
) -> CommandResult | DoneAnswer:
    """Show or stop the adb server that benchfarm started.

    Example: benchfarm adb

    Example: benchfarm adb stop
    """
    if action not in {"status", "stop"}:
        raise UsageError(f"there is no action {action!r}", hint="status or stop")
    if action == "stop":
        return stop_adb(settings)
    with Workspace(settings) as workspace:
        servers, binary = adb_servers(workspace)
    running = {item["for"]: item for item in servers}
    rows = [running.get(what, {"for": what}) for what in ("real phones", "virtual lab")]
    listed = Table(name="servers", caption="adb servers", columns=_SERVERS, rows=rows)
    return shown(listed, f"adb binary: {binary}", facts={"binary": binary})


_SERVERS: Sequence[Column[Mapping[str, Any]]] = (
    Column("for", "server for", lambda item: item["for"]),
    Column("address", "address", lambda item: item.get("address", "not running")),
    Column("version", "version", lambda item: item.get("version")),
    Column(
        "ours",
        "whose",
        lambda item: item.get("ours"),
        Kind.FLAG,
        shown=lambda item: _WHOSE[item.get("ours")],
    ),
)
_WHOSE: Mapping[bool | None, str] = {True: "benchfarm's own", False: "somebody else's", None: ""}


#: Facts that a bug report needs. Serial numbers stay out of it.
_TOLD_PROPERTIES = re.compile(
    r"ro\.(build|product|soc|board|hardware|vendor\.build|boot\.hardware)\b"
)


@command("device aa")
def equal_sides(
    settings: Settings,
    serials: Annotated[
        Listed, opt("--serial -s", "Serial number (default: all attached phones).")
    ] = (),
    *,
    model: Annotated[
        Path | None, opt("--model -m", "Model to measure (default: a sample model).")
    ] = None,
    delegates: Annotated[str, opt("--delegate -d", "Delegate to measure.")] = USUAL_DELEGATE.value,
    sessions: Annotated[int, opt("--sessions", "Sessions, each a campaign.", min=1)] = 4,
    processes: Annotated[int, opt("--invocations -n", "Processes per session.", min=2)] = 12,
    wait: Wait = "",
) -> CommandResult:
    """Measure equal sides: which changes a phone can show.

    Example: benchfarm device aa -s SERIAL

    Sessions of earlier days count as well: run it weekly. 'benchfarm device check' prints what is
    known.
    """
    plan = bench_plan(
        {
            "models": [str(model or resolution.sample_model())],
            "devices": list(serials),
            "delegates": delegates,
            "invocations": processes,
        }
    )
    with workspace_telling(settings) as workspace:
        workspace.wait = waiting(wait)
        return equal_sides_of(workspace, plan, sessions=sessions)


def equal_sides_of(workspace: Workspace, plan: Plan, *, sessions: int = 4) -> CommandResult:
    """Measure equal sides, and return what the phones can resolve."""
    resolution.measure_equal_sides(workspace, plan, sessions=sessions)
    wanted = plan.devices.serials
    facts = [
        known
        for serial, known in workspace.store.devices().items()
        if serial in wanted or not wanted
    ]
    found = resolution.known_resolutions(workspace, facts)
    parts = [
        part
        for item in found
        for part in (one_line(item.text), resolution.resolution_table(item), "")
    ]
    return replace(shown(*parts[:-1], facts={"resolutions": found}), is_kept=True)


@command("device check")
def check(
    settings: Settings,
    serials: Annotated[
        Listed, opt("--serial -s", "Serial number (default: all attached phones).")
    ] = (),
    *,
    apk: Annotated[Path | None, opt("--apk", "App to install and remove again.")] = None,
    out: Annotated[Path | None, opt("--out -o", "File for the report.")] = None,
) -> CommandResult:
    """Check on the phone everything that benchfarm relies on.

    Example: benchfarm device check -s 0A1B2C3D

    Prints what works, what works another way and what is missing, with what that costs. The phone
    is left as it was. One file, without the phone's serial number, is written to attach to a bug
    report. Exit code 3 when a check fails.
    """
    results, texts, failed = [], [], False
    with Workspace(settings, makes_store=False) as workspace:
        for device, facts, checks, path in check_phones(workspace, serials, apk=apk, out=out):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, to_json(_report(device, facts, checks)) + "\n")
            failed = failed or any(item.result is CheckResult.FAILS for item in checks)
            results.append(
                {
                    "serial": facts.serial,
                    "file": path,
                    "is_virtual": facts.is_virtual,
                    "checks": checks,
                }
            )
            known = resolution.known_resolutions(workspace, [facts])
            results[-1]["resolutions"] = known
            texts.append(_text(facts, checks, path))
            texts += [
                f"{one_line(item.text)}\n{text.render(resolution.resolution_table(item))}"
                for item in known
            ] or [f"what it can resolve isn't known: benchfarm device aa -s {facts.serial}"]
    return CommandResult(
        text="\n\n".join(texts),
        data={"phones": results},
        exit_code=DeviceError.exit_code if failed else 0,
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
                "properties": {
                    name: value
                    for name, value in facts.properties.items()
                    if _TOLD_PROPERTIES.match(name)
                },
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
    rows = [item for result in order for item in checks if item.result is result]
    works = [item for item in checks if item.result is CheckResult.WORKS]
    seen = {item.name: item.seen for item in works}
    took_s = sum(item.took_s for item in checks)
    lines = [
        one_line(
            f"{facts.serial} ({facts.title}): {len(checks)} checks in {took_s:.0f} s, {len(works)} work"
        )
    ]
    lines += [
        one_line(f"  {name}: {seen[name]}")
        for name in ("end of a run", "push and pull", "quiet mode")
        if name in seen
    ]
    if rows:
        lines.append(
            text.render(Table(name="checks", caption="Checks", columns=_CHECKS, rows=rows))
        )
    lines.append(f"to attach to a bug report: {path}")
    return "\n".join(lines)


@command("doctor", has_table=True)
def doctor(settings: Settings) -> CommandResult:
    """Check this computer, adb and the phones for problems.

    Example: benchfarm doctor
    """
    with Workspace(settings, makes_store=False) as workspace:
        return told(of_host(workspace))


def findings(
    settings: Settings, of_farm: Callable[[Workspace], list[Finding]], *, host: bool
) -> CommandResult:
    """Return what the checks of a farm found.

    With ``host`` of this host as well, also without a queue.
    """
    with Workspace(settings) as workspace:
        try:
            found = of_farm(workspace)
        except StoreError as error:
            found = [problem("queue", str(error), error.hint or "mend that, then ask again")]
        return told([*found, *(of_host(workspace) if host else [])])


def told(findings: Sequence[Finding]) -> CommandResult:
    """Return findings as a table with their next steps, the worst first.

    Exit code 1 with a problem.
    """
    order = ("problem", "warning", "ok")
    ranked = sorted(findings, key=lambda item: order.index(item.level))
    steps = [f"{item.check}: {item.next_step}" for item in ranked if item.next_step]
    notes = ["", "what to do:", *map(one_line, dict.fromkeys(steps))] if steps else []
    counts = {level: sum(item.level == level for item in ranked) for level in order}
    return shown(
        Table(name="findings", caption="What was checked", columns=_FOUND, rows=ranked),
        *notes,
        facts={"problems": counts["problem"], "warnings": counts["warning"]},
        exit_code=int(counts["problem"] > 0),
    )


_FOUND: Sequence[Column[Finding]] = (
    Column("level", "", lambda item: item.level),
    Column("check", "check", lambda item: item.check),
    Column("text", "found", lambda item: item.text),
    Column("next_step", "what to do", lambda item: item.next_step, forms=EVERYWHERE - {Form.TEXT}),
)
_CHECKS: Sequence[Column[PhoneCheck]] = (
    Column("name", "check", lambda item: item.name),
    Column("result", "result", lambda item: item.result),
    Column("seen", "", lambda item: item.seen, forms=DATA),
    Column(
        "cost", "what it costs", lambda item: item.cost, shown=lambda item: item.cost or item.seen
    ),
    Column("took_s", "", lambda item: item.took_s, Kind.NUMBER, forms=DATA),
)


_Serial = Annotated[str, arg("Serial number of the phone.")]


@command("device audit")
def audit(settings: Settings, serial: _Serial) -> CommandResult:
    """Compare a phone with its state before any change.

    Example: benchfarm device audit SERIAL

    Exit code 1 when something differs.
    """
    with Workspace(settings) as workspace:
        facts, pending, differences = audit_phone(workspace, serial)
    is_clean = not pending and not differences
    state = "as it was" if is_clean else "not as it was"
    lines = [f"{serial}{_virtual(facts.is_virtual)}: {state}"]
    lines += [f"  still to be undone: {one_line(item)}" for item in pending]
    lines += [f"  {one_line(item.text)}" for item in differences]
    if pending:
        lines.append(f"restore it with 'benchfarm device restore {shlex.quote(serial)}'")
    data = {
        "serial": serial,
        "clean": is_clean,
        "pending": pending,
        "differences": differences,
    }
    return CommandResult(text="\n".join(lines), data=data, exit_code=int(not is_clean))


def _virtual(is_virtual: bool) -> str:
    return " (virtual)" if is_virtual else ""
