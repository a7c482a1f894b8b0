"""What keeps this host from measuring tonight, each with what to do about it.

Nothing is changed and no phone is disturbed: phones are only listed.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator import __version__
from orchestrator.app.phones import HIDDEN_SAMSUNG, check_file
from orchestrator.app.status import extension, owners_of, queue_beside, runner_elsewhere
from orchestrator.bootstrap import Workspace
from orchestrator.errors import BenchfarmError, DeviceError, StoreError
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from orchestrator.devices.adb_server import AdbServer

#: A night's raw output takes less; below the smaller one the next run may not be kept.
_LITTLE_BYTES: Final = 5 * 10**9
_LEAST_BYTES: Final = 10**9
#: Bits of a mode: of the group and of everybody else.
_OTHERS_ALL: Final = 0o077
_OTHERS_WRITE: Final = 0o022
_OTHERS_ENTER: Final = 0o011


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    #: What was looked at: ``store``, ``disk``, ``clock``, ``adb``, ``phones`` ...
    check: str
    #: ``ok``, ``warning`` (will do for now) or ``problem`` (measuring fails, or already failed).
    level: str
    text: str
    #: What to do; empty when there is nothing to do.
    next_step: str = ""


def ok(check: str, text: str) -> Finding:
    """Return that a check found nothing."""
    return Finding(check=check, level="ok", text=text)


def warning(check: str, text: str, next_step: str) -> Finding:
    """Return what should be looked at."""
    return Finding(check=check, level="warning", text=text, next_step=next_step)


def problem(check: str, text: str, next_step: str) -> Finding:
    """Return what keeps nights from going well."""
    return Finding(check=check, level="problem", text=text, next_step=next_step)


def of_farm(workspace: Workspace, *, must_be_there: bool) -> list[Finding]:
    """Return what the checks of the farm found whose queue is beside the store.

    Nothing where there is none, unless it ``must_be_there``.
    """
    try:
        with ExitStack() as stack:
            if not must_be_there and queue_beside(workspace.settings, stack) is None:
                return []
        found: list[Finding] = extension("doctor").of_farm(workspace)
    except StoreError as error:
        return [problem("queue", str(error), error.hint or "mend that, then ask again")]
    return found


def of_host(workspace: Workspace) -> list[Finding]:
    """Return what the checks of this host found."""
    checks: dict[str, Callable[[Workspace], Iterable[Finding]]] = {
        "versions": _versions,
        "store": _store,
        "disk": _disk,
        "access": _access,
        "adb": _adb,
        "phones": _phones,
        "sources": _sources,
        "devices.yaml": _inventory,
        "quarantine": _quarantine,
        "journals": _journals,
        "leases": _leases,
        "campaigns": _campaigns,
    }
    return run_checks([(name, partial(check, workspace)) for name, check in checks.items()])


def run_checks(checks: Sequence[tuple[str, Callable[[], Iterable[Finding]]]]) -> list[Finding]:
    """Return what all checks found; one that can't be made is a problem of its own, and the others
    are made.
    """
    found: list[Finding] = []
    for name, check in checks:
        try:
            found += check()
        except BenchfarmError as error:
            found.append(problem(name, str(error), error.hint or "mend that, then ask again"))
    return found


def _versions(workspace: Workspace) -> list[Finding]:
    return [
        ok(
            "versions",
            f"benchfarm {__version__}, Python {platform.python_version()}, {platform.platform()}",
        )
    ]


def _store(workspace: Workspace) -> list[Finding]:
    campaigns = workspace.store.campaign_count()
    found = []
    path = workspace.settings.store_file
    if path is None:
        found.append(ok("store", f"{campaigns} campaigns, in a database server"))
    elif not path.is_file():
        found.append(ok("store", f"nothing is stored yet in {path}"))
    else:
        size = path.stat().st_size
        found.append(ok("store", f"{campaigns} campaigns in {path} ({format_bytes(size)})"))
    return found + _future(workspace)


def _future(workspace: Workspace) -> list[Finding]:
    """Find a clock that was set back: what was stored before is newer than now."""
    newest = max(workspace.store.campaigns(), key=lambda item: item.created_at, default=None)
    now = workspace.clock.now()
    if newest is None or newest.created_at <= now + timedelta(minutes=2):
        return [ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC, later than all that is stored")]
    text = f"it is {now:%Y-%m-%d %H:%M} UTC here, and campaign {newest.campaign_id} began {newest.created_at:%H:%M} UTC"
    return [
        problem("clock", f"{text} on {newest.created_at:%Y-%m-%d}", "set this host's clock (NTP)")
    ]


def _disk(workspace: Workspace) -> list[Finding]:
    folders = {
        "data": workspace.settings.data_folder,
        "cache": workspace.settings.cache_folder,
        "state": workspace.settings.state_folder,
    }
    found, seen = [], set()
    for name, folder in folders.items():
        there = next((item for item in (folder, *folder.parents) if item.exists()), Path("/"))
        device = there.stat().st_dev
        if not os.access(there, os.W_OK):
            found.append(
                problem(
                    "disk",
                    f"{there} ({name}) can't be written",
                    "change its permissions, or $BENCHFARM_HOME",
                )
            )
        if device in seen:
            continue
        seen.add(device)
        free = shutil.disk_usage(there).free
        text = f"{format_bytes(free)} free at {there} ({name})"
        step = "free some space: 'benchfarm store prune', 'benchfarm farm clean', old reports"
        if free < _LEAST_BYTES:
            found.append(problem("disk", text, step))
        elif free < _LITTLE_BYTES:
            found.append(warning("disk", text, step))
        else:
            found.append(ok("disk", text))
    return found


def _access(workspace: Workspace) -> list[Finding]:
    """Find what other accounts of this computer may read or change: figures, raw output, programs
    that are run.
    """
    settings = workspace.settings
    places = (
        settings.data_folder,
        settings.cache_folder,
        settings.state_folder,
        settings.store_file,
    )
    found = []
    for path in dict.fromkeys(
        place.resolve() for place in places if place is not None and place.exists()
    ):
        is_behind_others = any(not parent.stat().st_mode & _OTHERS_ENTER for parent in path.parents)
        mode = 0 if is_behind_others else path.stat().st_mode & _OTHERS_ALL
        if mode:
            what = "change" if mode & _OTHERS_WRITE else "read"
            step = f"chmod go-rwx {shlex.quote(str(path))}"
            found.append(
                warning("access", f"other accounts of this computer may {what} {path}", step)
            )
    return found or [ok("access", "no other account of this computer can read what is stored")]


def _adb(workspace: Workspace) -> list[Finding]:
    servers = [
        (name, server)
        for name, server in (
            ("virtual lab", workspace.lab_server()),
            ("phones", workspace.running_plugged_server()),
        )
        if server is not None
    ]
    found = [
        ok("adb", f"server for {name} at {server.address}, protocol version {server.version()}")
        for name, server in servers
    ]
    named = workspace.named_server()
    if named is not None and str(named.address) not in {
        str(server.address) for _, server in servers
    }:
        # None is started in its place: no plugged phone is measured. Virtual ones have a server of
        # their own.
        found.append(_unanswered(named, warning if workspace.lab_server() is not None else problem))
    return found or [
        warning(
            "adb",
            "no adb server runs",
            "none is needed before the first phone; 'benchfarm devices' starts one",
        )
    ]


def _unanswered(server: AdbServer, level: Callable[[str, str, str], Finding]) -> Finding:
    try:
        server.version()
    except DeviceError as error:
        return level(
            "adb", str(error), error.hint or "restart it: it doesn't answer as an adb server does"
        )
    return ok("adb", f"server for phones at {server.address} answers again")


def _phones(workspace: Workspace) -> list[Finding]:
    attached = workspace.attached(start_server=False)
    if not attached and workspace.named_server() is not None and not workspace.servers():
        # Of the server that is named the other check tells; what is plugged in nobody can say.
        return []
    if not attached:
        step = f"plug one in and allow USB debugging; 'benchfarm devices'; {HIDDEN_SAMSUNG}"
        return [warning("phones", "no phone is attached", step)]
    found = [
        problem(
            "phones",
            f"{item.seen.serial or item.seen.address}: {item.seen.reason}",
            item.seen.advice or "look at it",
        )
        for item in attached
        if not item.seen.usable
    ]
    usable = [item.seen.serial for item in attached if item.seen.usable]
    lab = workspace.lab_server()
    real = [
        item
        for item in attached
        if item.seen.usable and (lab is None or item.via != str(lab.address))
    ]
    unchecked = [
        item.seen.serial
        for item in real
        if not check_file(workspace.settings, item.seen.serial).is_file()
    ]
    if unchecked:
        step = f"benchfarm device check -s {shlex.quote(','.join(unchecked))}"
        found.append(warning("phones", f"never checked: {', '.join(unchecked)}", step))
    return [ok("phones", f"{len(usable)} usable: {', '.join(usable)}"), *found] if usable else found


def _sources(workspace: Workspace) -> list[Finding]:
    """Find what this computer lacks for devices that adb doesn't reach."""
    from orchestrator.plugins import DeviceSource, every

    sources = every("devices", DeviceSource).items()
    told = [(name, *source.lacking(workspace.settings)) for name, source in sources]
    return [warning(name, text, step) for name, text, step in told if text]


def _inventory(workspace: Workspace) -> list[Finding]:
    """Read what phones are for; faults of the file are a problem of the check itself."""
    return (
        [ok("devices.yaml", f"says what {len(workspace.inventory)} phones are for")]
        if workspace.inventory
        else []
    )


def _quarantine(workspace: Workspace) -> list[Finding]:
    found = [
        problem(
            "quarantine",
            f"{serial}: {workspace.quarantine.reason(serial)}",
            f"look at it, then 'benchfarm device release {shlex.quote(serial)}'",
        )
        for serial in workspace.quarantine.serials()
    ]
    return found or [ok("quarantine", "no phone is kept out")]


def _journals(workspace: Workspace) -> list[Finding]:
    """Find phones that a process of ours left changed: held ones are being measured, and changed on
    purpose.
    """
    left = [
        serial
        for serial in workspace.conditioner.unrestored()
        if not workspace.lease.live_holder(serial)
    ]
    found = [
        problem(
            "journals",
            f"{serial} was left changed by a process that is gone",
            f"benchfarm device restore {shlex.quote(serial)}",
        )
        for serial in left
    ]
    return found or [ok("journals", "no phone waits to be restored")]


def _leases(workspace: Workspace) -> list[Finding]:
    found = [
        ok("leases", f"{serial}: {holder}")
        for serial, holder in workspace.lease.live_holders().items()
    ]
    return found or [ok("leases", "no phone is in use")]


def _campaigns(workspace: Workspace) -> list[Finding]:
    progress = workspace.store.progress(only_open=True)
    found = []
    known_open = workspace.store.campaigns(only_open=True)
    owners = owners_of(workspace.settings, [item.campaign_id for item in known_open])
    for campaign in known_open:
        owner = owners.get(campaign.campaign_id)
        if owner is not None and owner.is_open:
            # The farm's workers resume it.
            continue
        if workspace.campaigns.live_holder(campaign.campaign_id) or (
            owner is None and runner_elsewhere(workspace.settings, campaign)
        ):
            continue
        stored, planned = progress.get(campaign.campaign_id, (0, 0))
        text = f"{campaign.campaign_id} ({campaign.name}) is open: {stored} of {planned} planned invocations stored"
        name = campaign.campaign_id
        step = f"'benchfarm run --resume {name}' resumes it, 'benchfarm results close {name}' gives it up"
        found.append(warning("campaigns", text, step))
    most = 10
    further = (
        [warning("campaigns", f"{len(found) - most} more are open", "benchfarm status")]
        if len(found) > most
        else []
    )
    return [*found[:most], *further] or [ok("campaigns", "none is open without a process at it")]
