"""``benchfarm devices``, ``device``, ``adb`` and ``doctor``: attached phones, work on one phone,
and checks of a host.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from typer import Argument, Context, Option

from orchestrator import __version__
from orchestrator.cli.campaigns import exit_code_of, reporting_workspace
from orchestrator.cli.commands import DryRun, Texts, Wait, command, refuse, workspace_of
from orchestrator.cli.output import CommandResult, tables_result, to_json
from orchestrator.errors import DeviceError, UsageError
from orchestrator.files import check_writable, write_file
from orchestrator.records import frozen
from orchestrator.records.answers import DoneAnswer
from orchestrator.records.case import USUAL_DELEGATE
from orchestrator.settings import Settings
from orchestrator.tables.escapes import one_line
from orchestrator.tables.renderers import as_text
from orchestrator.tables.table import EVERYWHERE, Column, Form, Kind, Table, fields_of
from orchestrator.units import split

if TYPE_CHECKING:
    from orchestrator.app.doctor import HostCheck
    from orchestrator.app.measuring import MeasuredCampaign
    from orchestrator.app.workspace import Workspace
    from orchestrator.ports import Device, PhoneCheck
    from orchestrator.records.device import DeviceFacts
    from orchestrator.records.plan import Plan


@command("devices", has_table=True)
def list_attached(settings: Settings) -> CommandResult:
    """List attached phones, and why one can't be used.

    Example: benchfarm devices
    """
    from orchestrator.app.attached import unchecked_hint
    from orchestrator.app.phones import list_devices, listed_table

    with reporting_workspace(settings) as workspace:
        listed = list_devices(workspace)
    notes = []
    for item in listed:
        if item.reason:
            notes.append(f"{item.address}: {item.reason}{f' ({item.hint})' if item.hint else ''}")
        elif item.facts and (offer := unchecked_hint(settings, item.facts)):
            notes.append(offer)
    table = listed_table(listed)
    exit_code = 0 if all(item.usable for item in listed) else DeviceError.exit_code
    return tables_result(table, *notes, exit_code=exit_code)


@command("device restore")
def restore(
    settings: Settings,
    serials: Annotated[
        Texts, Argument(help="Serial numbers (default: all with open changes).")
    ] = None,
    *,
    force: Annotated[
        bool, Option("--force", help="Include phones leased by a dead process of another computer.")
    ] = False,
    dry_run: DryRun = False,
) -> CommandResult:
    """Restore phones that an interrupted run left changed.

    Example: benchfarm device restore SERIAL

    Example: benchfarm device restore SERIAL --dry-run

    Includes phones that this computer changed earlier and that are attached again. A dry run
    compares each phone with its state before the change. Its exit code is 1 when something
    differs, 3 when a phone is unreachable.
    """
    from orchestrator.app.phones import restore_phones

    if force and not serials:
        raise UsageError(
            "--force needs the phones' serial numbers",
            hint="benchfarm device restore --force SERIAL",
        )
    if dry_run:
        return _pending(settings, serials or ())
    with workspace_of(settings) as workspace:
        results = restore_phones(workspace, serials or None, take=force)
    restored = {
        serial: list(undone) for item in results for serial, undone in item.restored.items()
    }
    notes = {item.name: list(item.notes) for item in results}
    errors = {item.name: item.error for item in results if item.error is not None}
    failed = {name: error.reason for name, error in errors.items()}
    lines = [
        f"{serial}: {'restored: ' + ', '.join(undone) if undone else 'nothing to restore'}"
        for serial, undone in restored.items()
    ]
    lines += [one_line(f"{serial}: {note}") for serial, texts in notes.items() for note in texts]
    lines += [_refusal(name, "not restored", error) for name, error in errors.items()]
    return CommandResult(
        text="\n".join(lines) or "nothing to restore",
        data={"restored": restored, "failed": failed, "notes": notes},
        exit_code=DeviceError.exit_code if failed else 0,
    )


@command("device connect")
def connect(
    settings: Settings,
    address: Annotated[str, Argument(help="HOST[:PORT] that the phone shows.")],
    *,
    undo: Annotated[bool, Option("--undo", help="Disconnect it, and forget its address.")] = False,
) -> DoneAnswer:
    """Connect a phone by Wi-Fi, and remember it.

    Example: benchfarm device connect 192.168.1.20:40123
    """
    from orchestrator.app.phones import connect_phone, disconnect_phone

    with workspace_of(settings) as workspace:
        return (disconnect_phone if undo else connect_phone)(workspace, address)


@command("device pair")
def pair(
    settings: Settings,
    address: Annotated[str, Argument(help="HOST:PORT under 'Pair device with pairing code'.")],
    code: Annotated[str, Argument(help="The six digits beside it.")],
) -> DoneAnswer:
    """Pair this computer with a phone by Wi-Fi, once.

    Example: benchfarm device pair 192.168.1.20:37123 123456
    """
    from orchestrator.app.phones import pair_phone

    with workspace_of(settings) as workspace:
        return pair_phone(workspace, address, code)


@command("device release")
def release(
    settings: Settings, serial: Annotated[str, Argument(help="Serial number of the phone.")]
) -> DoneAnswer:
    """Release a phone from quarantine.

    Example: benchfarm device release SERIAL
    """
    from orchestrator.app.phones import release_phone

    with workspace_of(settings) as workspace:
        return release_phone(workspace, serial)


@command("adb", has_table=True)
def adb(
    settings: Settings,
    action: Annotated[
        str, Argument(help="status; or stop, which ends the server that benchfarm started.")
    ] = "status",
) -> CommandResult | DoneAnswer:
    """Show or stop the adb server that benchfarm started.

    Example: benchfarm adb

    Example: benchfarm adb stop
    """
    from orchestrator.app.phones import adb_servers, stop_adb

    if action not in {"status", "stop"}:
        raise UsageError(f"there is no action {action!r}", hint="status or stop")
    with workspace_of(settings) as workspace:
        if action == "stop":
            return stop_adb(workspace)
        servers, binary = adb_servers(workspace)
    running = {item["for"]: item for item in servers}
    rows = [running.get(purpose, {"for": purpose}) for purpose in ("real phones", "virtual phones")]
    listed = Table(name="servers", caption="adb servers", columns=_SERVERS, rows=rows)
    return tables_result(listed, f"adb binary: {binary}", facts={"binary": binary})


_SERVERS: Sequence[Column[Mapping[str, Any]]] = (
    Column("for", "server for", lambda item: item["for"]),
    Column("address", value=lambda item: item.get("address", "not running")),
    Column("version", value=lambda item: item.get("version")),
    Column(
        "ours",
        "owner",
        lambda item: item.get("ours"),
        Kind.FLAG,
        shown=lambda item: _WHOSE[item.get("ours")],
    ),
)
_WHOSE: Mapping[bool | None, str] = {True: "benchfarm's own", False: "another program's", None: ""}


#: Facts that a bug report needs, without serial numbers.
_TOLD_FACTS = (
    "title",
    "is_virtual",
    "fingerprint",
    "soc",
    "abis",
    "gpu",
    "gpu_driver",
    "is_rooted",
)
_TOLD_PROPERTIES = re.compile(
    r"ro\.(build|product|soc|board|hardware|vendor\.build|boot\.hardware)\b"
)


#: Processes of a session of equal sides.
EQUAL_RUNS: Final = 12


def equal_sides_result(workspace: Workspace, plan: Plan) -> CommandResult:
    """Measure equal sides, and return the phones' resolutions; raises the fault that ended a
    device's part.
    """
    from orchestrator.app import pairing

    measured = pairing.measure_equal_sides(workspace, plan, sessions=4)
    resolutions = pairing.measured_resolutions(workspace, measured)
    parts = [
        part
        for item in resolutions
        for part in (one_line(item.text), pairing.resolution_table(item), "")
    ]
    problems = pairing.problems_of(measured)
    result = tables_result(
        *parts[:-1],
        *problems,
        facts={"resolutions": resolutions, "problems": problems},
        exit_code=exit_code_of(measured),
    )
    return replace(result, is_kept=True)


@frozen
class EqualSides:
    """What ``--sessions`` measures, as options."""

    sessions: Annotated[
        int,
        Option(
            "--sessions",
            help="Measure equal sides in N sessions: the smallest change that shows.",
            min=0,
        ),
    ] = 0
    model: Annotated[
        Path | None,
        Option("--model", "-m", help="Model to measure (default: a sample model)."),
    ] = None
    delegate: Annotated[str, Option("--delegate", "-d", help="Delegate to measure.")] = (
        USUAL_DELEGATE.value
    )
    runs: Annotated[int, Option("--runs", "-n", help="Processes per session.", min=2)] = EQUAL_RUNS
    wait: Wait = ""


@command("device check")
def check(
    settings: Settings,
    context: Context,
    serials: Annotated[
        Texts,
        Option("--serial", "-s", help="Serial number (default: all attached phones)."),
    ] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="File for the report.")] = None,
    *,
    equal: EqualSides,
) -> CommandResult:
    """Check on the phone everything that benchfarm relies on.

    Example: benchfarm device check -s 0A1B2C3D

    Example: benchfarm device check -s 0A1B2C3D --sessions 4

    Prints what works, what works by a fallback and what is missing, with the consequences. Every
    setting is restored. Writes one file to attach to a bug report, without the phone's serial
    number. The exit code is 3 when a check fails. With --sessions it first measures one
    configuration in several sessions. Earlier sessions count as well, so run it weekly.
    """
    from orchestrator.app import pairing
    from orchestrator.app.measuring import bench_plan
    from orchestrator.app.phones import check_phones
    from orchestrator.ports import CheckResult
    from orchestrator.records.device import HOST_SERIAL

    chosen = split(serials)
    if HOST_SERIAL in chosen:
        raise UsageError("only phones are checked", hint="benchfarm doctor checks this computer")
    if out is not None:
        if len(chosen) != 1:
            raise UsageError("--out needs one phone", hint="name it with -s SERIAL")
        check_writable(out)
    if not equal.sessions:
        refuse(context, {"model", "delegate", "runs", "wait"}, "without --sessions")
    results, texts, failed = [], [], False
    measured: Sequence[MeasuredCampaign] = ()
    with reporting_workspace(settings, equal.wait, makes_store=bool(equal.sessions)) as workspace:
        if equal.sessions:
            plan = bench_plan(
                {
                    "models": [str(equal.model or pairing.sample_model())],
                    "devices": chosen,
                    "delegates": equal.delegate,
                    "invocations": equal.runs,
                }
            )
            measured = pairing.measure_equal_sides(workspace, plan, sessions=equal.sessions)
        for device, facts, checks, path in check_phones(workspace, chosen, out):
            write_file(path, _report(device, facts, checks), makes_folder=out is None)
            failed = failed or any(item.result is CheckResult.FAILS for item in checks)
            resolutions = pairing.stored_resolutions(workspace, [facts])
            results.append(
                {
                    "serial": facts.serial,
                    "file": path,
                    "is_virtual": facts.is_virtual,
                    "checks": checks,
                    "resolutions": resolutions,
                }
            )
            texts.append(_text(facts, checks, path))
            texts += [
                f"{one_line(item.text)}\n{as_text(pairing.resolution_table(item))}"
                for item in resolutions
            ] or [
                f"its smallest visible change isn't measured yet: benchfarm device check --sessions 4 -s {facts.serial}"
            ]
        # Last: the store may be deleted during the checks.
        problems, exit_code = pairing.problems_of(measured), exit_code_of(measured)
    return CommandResult(
        text="\n\n".join([*texts, *problems]),
        data={"phones": results, "problems": problems},
        exit_code=DeviceError.exit_code if failed else exit_code,
    )


def _report(device: Device, facts: DeviceFacts, checks: Sequence[PhoneCheck]) -> str:
    """Return the content of the report file: no serial number, no settings, no log."""
    from orchestrator.devices.phone import AdbDevice

    adb = device if isinstance(device, AdbDevice) else None
    text = to_json(
        {
            "benchfarm": __version__,
            "host": f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
            "adb_server": adb.server.version() if adb else None,
            "phone": {
                **fields_of(facts, *_TOLD_FACTS),
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
    return f"{text}\n"


def _text(facts: DeviceFacts, checks: Sequence[PhoneCheck], path: Path) -> str:
    from orchestrator.ports import CheckResult

    order = (CheckResult.FAILS, CheckResult.MISSING, CheckResult.ANOTHER_WAY)
    rows = [item for result in order for item in checks if item.result is result]
    works = [item for item in checks if item.result is CheckResult.WORKS]
    details = {item.name: item.seen for item in works}
    took_s = sum(item.took_s for item in checks)
    lines = [
        one_line(
            f"{facts.serial} ({facts.title}): {len(checks)} checks in {took_s:.0f} s, {len(works)} work"
        )
    ]
    lines += [
        one_line(f"  {name}: {details[name]}")
        for name in ("push and pull", "quiet mode")
        if name in details
    ]
    if rows:
        lines.append(as_text(Table(name="checks", caption="Checks", columns=_CHECKS, rows=rows)))
    lines.append(f"to attach to a bug report: {path}")
    return "\n".join(lines)


@command("doctor", has_table=True)
def doctor(
    settings: Settings,
    *,
    farm: Annotated[
        bool, Option("--farm", help="Check only the farm: queue, clocks, hosts, phones.")
    ] = False,
) -> CommandResult:
    """Check this computer, adb, the phones and the farm.

    Example: benchfarm doctor
    """
    from orchestrator.app.doctor import farm_findings, host_findings

    with workspace_of(settings) as workspace:
        findings = [] if farm else host_findings(workspace)
        return findings_result([*farm_findings(workspace, must_be_there=farm), *findings])


def findings_result(findings: Sequence[HostCheck]) -> CommandResult:
    """Return findings as a table with their next steps, the worst first.

    Exit code 1 with a problem.
    """
    order = ("problem", "warning", "ok")
    ranked = sorted(findings, key=lambda item: order.index(item.level))
    steps = [f"{item.check}: {item.next_step}" for item in ranked if item.next_step]
    notes = ["", "what to do:", *map(one_line, dict.fromkeys(steps))] if steps else []
    counts = {level: sum(item.level == level for item in ranked) for level in order}
    return tables_result(
        Table(name="findings", caption="What was checked", columns=_FOUND, rows=ranked),
        *notes,
        facts={"problems": counts["problem"], "warnings": counts["warning"]},
        exit_code=int(counts["problem"] > 0),
    )


_FOUND: Sequence[Column[HostCheck]] = (
    Column("level", "", lambda row: row.level),
    Column("check", value=lambda row: row.check),
    Column("text", "found", lambda row: row.text, shown=lambda item: one_line(item.text)),
    Column("next_step", "what to do", lambda row: row.next_step, forms=EVERYWHERE - {Form.TEXT}),
)
_CHECKS: Sequence[Column[PhoneCheck]] = (
    Column("name", "check", lambda row: row.name),
    Column("result", value=lambda row: row.result),
    Column(
        "cost",
        "what it costs",
        lambda row: row.cost,
        shown=lambda item: one_line(item.cost or item.seen),
    ),
)


def _pending(settings: Settings, serials: Sequence[str]) -> CommandResult:
    """Compare phones with their state before any change."""
    from orchestrator.app.phones import pending_on

    lines: list[str] = []
    data: list[dict[str, Any]] = []
    with workspace_of(settings, needs_store=False) as workspace:
        for name in serials or workspace.conditioner.unrestored():
            try:
                facts, pending, differences = pending_on(workspace, name)
            except DeviceError as error:
                # The other phones are still compared.
                lines.append(_refusal(name, "not checked", error))
                data.append({"serial": name, "clean": None, "problem": error.reason})
                continue
            title = f"{facts.serial}{' (virtual)' if facts.is_virtual else ''}"
            is_clean = not pending and not differences
            lines.append(f"{title}: {'as it was' if is_clean else 'not as it was'}")
            lines += [f"  to be restored: {one_line(item)}" for item in pending]
            lines += [f"  {one_line(item)}" for item in differences]
            state = {"pending": pending, "differences": differences}
            data.append({"serial": facts.serial, "clean": is_clean, **state})
    cleans = [item["clean"] for item in data]
    return CommandResult(
        text="\n".join(lines) or "nothing to restore",
        data=data,
        exit_code=DeviceError.exit_code if None in cleans else int(False in cleans),
    )


def _refusal(name: str, outcome: str, error: DeviceError) -> str:
    """Return the line of a phone that couldn't be handled, with the error."""
    hint = f"; {error.hint}" if error.hint else ""
    return one_line(f"{name}: {outcome}: {error.reason}{hint}")
