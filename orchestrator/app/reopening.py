"""What a stored campaign needs to be resumed: its files, unchanged, and its devices."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from orchestrator.bootstrap import Farm, OpenedDevices
from orchestrator.errors import NoDeviceError, UsageError
from orchestrator.programs import program
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import HOST_SERIAL
from orchestrator.records.identity import Serial
from orchestrator.records.plan import DeviceSelection
from orchestrator.records.workload import Build, Case, Model

_Known = TypeVar("_Known", Model, Build)


def reopen(
    farm: Farm, campaign: Campaign, cases: Sequence[Case], *, beside: Collection[Serial] = ()
) -> tuple[list[Model], list[Build], OpenedDevices]:
    """Return what is needed to resume some cases of a campaign, whose status is RUNNING again.

    ``beside`` are devices that are opened too, where they are there: they may take over from the cases' own.

    Raises:
        UsageError: a file has gone or changed.
        NoDeviceError: none of the cases' devices is there.
    """
    known_models, known_builds = farm.store.models(), farm.store.builds()
    models = [_with_file(known_models[sha256], campaign) for sha256 in {case.model_sha256 for case in cases}]
    on_host = {case.build_sha256 for case in cases if case.serial == HOST_SERIAL}
    builds = [
        _with_file(known_builds[sha256], campaign, is_on_host=sha256 in on_host)
        for sha256 in {case.build_sha256 for case in cases}
    ]
    for name, sha256 in {file for case in cases for file in case.files}:
        _unchanged_file(name, sha256, campaign)
    serials = {case.serial for case in cases} | set(beside)
    opened = _reachable(farm, serials) if serials else OpenedDevices()
    farm.store.set_status(campaign.campaign_id, CampaignStatus.RUNNING, None)
    return models, builds, opened


def _with_file(known: _Known, campaign: Campaign, *, is_on_host: bool = False) -> _Known:
    """Return a stored model or build with its file, which must be there and unchanged."""
    if is_on_host and isinstance(known, Build) and (find := program(known.tool).installed) is not None:
        installed = find(campaign.terms.files.get(known.sha256, ""))
        if installed.sha256 != known.sha256:
            raise UsageError(f"{known.name} isn't installed any more, but {installed.name}", hint="install it again")
        return replace(known, path=installed.path)
    if (
        isinstance(known, Build)
        and program(known.tool).on_device is not None
        and known.sha256 not in campaign.terms.files
    ):
        # It is on the phone, which is asked when a run is prepared.
        return known
    return replace(known, path=_unchanged_file(known.name, known.sha256, campaign))


def _unchanged_file(name: str, sha256: str, campaign: Campaign) -> Path:
    """Return where a campaign's file is; raises UsageError when it is gone or has another content."""
    path = Path(campaign.terms.files.get(sha256, ""))
    if not path.is_file():
        raise UsageError(f"{name}: its file {path} is gone", hint="restore the file, then resume")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise UsageError(f"{name}: {path} has another content now", hint="put the old file back, then resume")
    return path


def _reachable(farm: Farm, serials: set[Serial]) -> OpenedDevices:
    """Open those of a campaign's devices that are there; raises NoDeviceError when none is."""
    phones = serials - {HOST_SERIAL}
    attached = farm.attached(serials=sorted(phones)) if phones else []
    kept_out: dict[str, str] = {serial: reason for serial in phones if (reason := _kept_out(farm, serial))}
    seen = {item.seen.serial for item in attached if item.seen.usable} - kept_out.keys()
    selection = DeviceSelection(serials=tuple(sorted(phones & seen)), host=HOST_SERIAL in serials)
    if not selection.serials and not selection.host:
        reasons = "".join(f"\n  {serial}: {reason}" for serial, reason in sorted(kept_out.items()))
        raise NoDeviceError(
            f"none of the campaign's devices is usable now: {', '.join(sorted(serials))}{reasons}",
            hint="'benchfarm device release SERIAL' ends a quarantine"
            if any(map(farm.quarantine.reason, phones))
            else "",
        )
    opened = farm.open_devices(selection, despite_losses=True)
    return replace(opened, left_out={**opened.left_out, **kept_out})


def _kept_out(farm: Farm, serial: Serial) -> str:
    """Return why a phone isn't even asked anything; one that is measured by another command would be disturbed."""
    if reason := farm.quarantine.reason(serial):
        return f"in quarantine: {reason}"
    holder = farm.lease.live_holder(serial)
    return f"in use by {holder}" if holder else ""
