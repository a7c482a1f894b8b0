"""Checks of this host before it measures, each finding with its next step.

Nothing is changed and no phone is disturbed: phones are only listed.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator import __version__
from orchestrator.app.attached import attached_devices
from orchestrator.app.phones import HIDDEN_SAMSUNG, adb_servers
from orchestrator.app.status import other_runners, queue_beside, queue_source
from orchestrator.app.workspace import Workspace
from orchestrator.errors import BenchfarmError, DeviceError, StoreError
from orchestrator.records import frozen
from orchestrator.units import counted, format_bytes

#: Below this the next run may not be kept.
_LEAST_BYTES: Final = 10**9


@frozen
class HostCheck:
    """The result of one check."""

    #: What was checked: ``store``, ``disk``, ``clock``, ``adb``, ``phones`` ...
    check: str
    #: ``ok``, ``warning`` (will do for now) or ``problem`` (measuring fails, or already failed).
    level: str
    text: str
    #: What to do; empty when there is nothing to do.
    next_step: str = ""


def ok(check: str, text: str) -> HostCheck:
    """Return a check without a fault."""
    return HostCheck(check=check, level="ok", text=text)


def warning(check: str, text: str, next_step: str) -> HostCheck:
    """Return a check whose fault doesn't stop measuring yet."""
    return HostCheck(check=check, level="warning", text=text, next_step=next_step)


def problem(check: str, text: str, next_step: str) -> HostCheck:
    """Return a check because of which measuring fails."""
    return HostCheck(check=check, level="problem", text=text, next_step=next_step)


def farm_findings(workspace: Workspace, *, must_be_there: bool) -> list[HostCheck]:
    """Return the findings of the farm whose queue is in the store's database.

    None without a farm, unless it ``must_be_there``.
    """
    try:
        with ExitStack() as stack:
            if not must_be_there and queue_beside(workspace.settings, stack) is None:
                return []
        return list(queue_source().findings(workspace))
    except StoreError as error:
        return [_failed("queue", error)]


def host_findings(workspace: Workspace) -> list[HostCheck]:
    """Return the findings of this host."""
    checks: dict[str, Callable[[Workspace], Iterable[HostCheck]]] = {
        "store": _store,
        "disk": _disk,
        "adb": _adb,
        "phones": _phones,
        "sources": _sources,
        "devices.yaml": _inventory,
        "quarantine": _quarantine,
        "journals": _journals,
        "campaigns": _campaigns,
    }
    return run_checks([(name, partial(check, workspace)) for name, check in checks.items()])


def run_checks(checks: Sequence[tuple[str, Callable[[], Iterable[HostCheck]]]]) -> list[HostCheck]:
    """Return the findings of all checks. A check that fails is a problem of its own; the others
    run.
    """
    findings: list[HostCheck] = []
    for name, check in checks:
        try:
            findings += check()
        except BenchfarmError as error:
            findings.append(_failed(name, error))
    return findings


def _failed(name: str, error: BenchfarmError) -> HostCheck:
    step = error.hint or "fix that, then run 'benchfarm doctor' again"
    return problem(name, str(error), step)


def _store(workspace: Workspace) -> list[HostCheck]:
    campaigns = workspace.store.campaign_count()
    path = workspace.settings.store_file
    size = f" ({format_bytes(path.stat().st_size)})" if path is not None and path.is_file() else ""
    text = (
        f"benchfarm {__version__}: {counted(campaigns, 'campaign')} in {workspace.store.name}{size}"
    )
    return [ok("store", text), *_future(workspace)]


def _future(workspace: Workspace) -> list[HostCheck]:
    """Find a clock that was set back: what was stored before is newer than now."""
    newest = max(workspace.store.campaigns(), key=lambda item: item.created_at, default=None)
    now = workspace.clock.now()
    if newest is None or newest.created_at <= now + timedelta(minutes=2):
        return [ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC, later than all that is stored")]
    text = f"it is {now:%Y-%m-%d %H:%M} UTC here, and campaign {newest.campaign_id} began {newest.created_at:%H:%M} UTC"
    return [
        problem("clock", f"{text} on {newest.created_at:%Y-%m-%d}", "set this host's clock (NTP)")
    ]


def _disk(workspace: Workspace) -> list[HostCheck]:
    findings = {}
    for folder in workspace.settings.folders:
        there = next((item for item in (folder, *folder.parents) if item.exists()), Path("/"))
        free = shutil.disk_usage(there).free
        text = f"{format_bytes(free)} free at {there}"
        step = "free some space: 'benchfarm store prune', 'benchfarm farm clean', old reports"
        if not os.access(there, os.W_OK):
            step = "change its permissions, or $BENCHFARM_HOME"
            findings[there] = problem("disk", f"{there} can't be written", step)
        elif free < _LEAST_BYTES:
            findings[there] = problem("disk", text, step)
        else:
            findings[there] = ok("disk", text)
    return list(findings.values())


def _adb(workspace: Workspace) -> list[HostCheck]:
    servers, _ = adb_servers(workspace)
    findings = [
        ok("adb", f"server for {item['for']} at {item['address']}, version {item['version']}")
        for item in servers
    ]
    configured = workspace.named_server()
    if configured is not None and str(configured.address) not in {
        item["address"] for item in servers
    }:
        # No other server is started in its place: no plugged phone is measured.
        try:
            configured.version()
        except DeviceError as error:
            findings.append(problem("adb", str(error), error.hint or "restart it"))
    step = "none is needed before the first phone; 'benchfarm devices' starts one"
    return findings or [warning("adb", "no adb server runs", step)]


def _phones(workspace: Workspace) -> list[HostCheck]:
    attached = attached_devices(workspace, start_server=False)
    servers = workspace.virtual_server(), workspace.running_plugged_server()
    if not attached and workspace.named_server() is not None and not any(servers):
        # The check of adb reports the configured server. What is plugged in is unknown.
        return []
    if not attached:
        step = f"plug one in and allow USB debugging; 'benchfarm devices'; {HIDDEN_SAMSUNG}"
        return [warning("phones", "no phone is attached", step)]
    problems = [
        problem(
            "phones",
            f"{item.seen.name}: {item.seen.reason}",
            item.seen.advice or "check the phone",
        )
        for item in attached
        if not item.seen.usable
    ]
    # Another check reports the phones in quarantine.
    kept_out = workspace.quarantine.reasons()
    usable = [
        item.seen.serial
        for item in attached
        if item.seen.usable and item.seen.serial not in kept_out
    ]
    return (
        [ok("phones", f"{len(usable)} usable: {', '.join(usable)}"), *problems]
        if usable
        else problems
    )


def _sources(workspace: Workspace) -> list[HostCheck]:
    """Find what this computer lacks for devices that adb doesn't reach."""
    from orchestrator.app.plugin_kinds import DeviceSource
    from orchestrator.installation import every

    sources = every("devices", DeviceSource).items()
    reports = [(name, *source.lacking(workspace.settings)) for name, source in sources]
    return [warning(name, text, step) for name, text, step in reports if text]


def _inventory(workspace: Workspace) -> list[HostCheck]:
    """Read the inventory; a fault of the file is a problem of the check itself."""
    return [ok("devices.yaml", f"{counted(len(workspace.inventory), 'phone')} named in it")]


def _quarantine(workspace: Workspace) -> list[HostCheck]:
    problems = [
        problem(
            "quarantine",
            f"{serial}: {reason}",
            f"check the phone, then 'benchfarm device release {shlex.quote(serial)}'",
        )
        for serial, reason in workspace.quarantine.reasons().items()
    ]
    return problems or [ok("quarantine", "no phone is in quarantine")]


def _journals(workspace: Workspace) -> list[HostCheck]:
    problems = [
        problem(
            "journals",
            f"{serial} was left changed by a process that ended",
            f"benchfarm device restore {shlex.quote(serial)}",
        )
        for serial in workspace.unrestored_phones()
    ]
    return problems or [ok("journals", "no phone waits to be restored")]


def _campaigns(workspace: Workspace) -> list[HostCheck]:
    progress = workspace.store.progress(only_open=True)
    known_open = workspace.store.campaigns(only_open=True)
    runners = other_runners(workspace, known_open)
    warnings = []
    for campaign in known_open:
        name = campaign.campaign_id
        if name in runners or workspace.campaigns.live_holder(name):
            continue
        runs = progress[name].text(is_over=False)
        text = f"{name} ({campaign.name}) is open: {runs} runs stored"
        step = f"'benchfarm run --resume {name}' resumes it, 'benchfarm results close {name}' abandons the rest"
        warnings.append(warning("campaigns", text, step))
    return warnings or [ok("campaigns", "no open campaign is without a process")]
