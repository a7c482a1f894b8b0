"""``benchfarm run --resume``: going on with a campaign that was cut off."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from orchestrator.bootstrap import Farm, Settings, litert_build
from orchestrator.cli.board import Shown, read_boards
from orchestrator.cli.devices import put_back
from orchestrator.cli.farm_beside import owners_of
from orchestrator.cli.files import check_writable
from orchestrator.cli.joining import again
from orchestrator.cli.measuring import measure
from orchestrator.cli.progress import tell
from orchestrator.cli.result import CommandResult
from orchestrator.cli.running import runner_elsewhere, runner_here
from orchestrator.cli.stored import find_campaign
from orchestrator.engine.importing import end_cut_off
from orchestrator.engine.rounds import open_works, slim
from orchestrator.errors import DeviceBusyError, UsageError
from orchestrator.ports import Device
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import HOST_SERIAL, DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.plan import DeviceSelection
from orchestrator.records.workload import Build, Case, Model, Pass, ToolName

_Known = TypeVar("_Known", Model, Build)


def resume(settings: Settings, prefix: str, out: Path | None) -> CommandResult:
    """Go on with a campaign that was cut off.

    When none is named and none is open, nothing is left, and all is well.

    Raises UsageError when the one that is named isn't open, when those that are open are others' to go on with, when a
    process is at it now, or when its files have gone.
    """
    if out is not None:
        check_writable(out)
    with Farm(settings, makes_store=False) as farm:
        boards = read_boards(farm.board_folder)
        campaign = find_campaign(farm.store, prefix, only_open=True) if prefix else _newest_open(farm, boards)
        if campaign is None:
            text = f"nothing is left to go on with in {farm.store.name}"
            return CommandResult(text=text, data={"campaign_id": None})
        if shown := boards.get(campaign.campaign_id):
            raise UsageError(
                f"campaign {campaign.campaign_id} ({campaign.name}) is run by {runner_here(shown)} now",
                hint="'benchfarm status --watch' shows how it stands; stop that process before you go on with it",
            )
        if campaign.terms.pairing is not None:
            from orchestrator.cli.pairing import resume_pairs

            return resume_pairs(farm, campaign)
        works = open_works(campaign, map(slim, farm.store.runs(campaign_ids=[campaign.campaign_id])), farm.tools)
        busy = {serial for serial, work in works.items() if work.invocations}
        put_back_left(farm, works.keys() - busy)
        cases = [item.case for work in works.values() for item in work.invocations] + [
            item.case for item in campaign.invocations if item.run_pass is Pass.SENTINEL and item.case.serial in busy
        ]
        sharing = {serial for shard in campaign.terms.shards if busy & set(shard.serials) for serial in shard.serials}
        models, builds, devices = reopen(farm, campaign, cases, beside=sharing)
        return measure(farm, campaign, models, builds, devices, out, again(farm, campaign, devices))


def put_back_left(farm: Farm, serials: Collection[Serial]) -> None:
    """Put back those phones that a killed process left changed; nothing is open on them, so nobody else would."""
    for item in put_back(farm, sorted(set(serials) & set(farm.conditioner.unrestored()))):
        # Whoever uses a busy one now puts it back.
        if item.error is not None and not isinstance(item.error, DeviceBusyError):
            text = f"{item.error}; it isn't put back yet: 'benchfarm device restore {item.name}' tries again"
            tell(farm.settings.log_format, "resume", text, level="warning", device=item.name)


def _newest_open(farm: Farm, boards: Mapping[str, Shown]) -> Campaign | None:
    """Return the newest open campaign that measures what a plan asks for, and say which; None when nothing is open.

    Those that are run now are left to whoever does, and the farm's jobs to its workers. A search and a trace are left
    to whoever names them: they answered somebody who was waiting. Raises UsageError when nothing else is open.
    """
    others, running, queued = [], [], []
    end_cut_off(farm.store, farm.clock.now())
    known_open = farm.store.campaigns(only_open=True)
    if not known_open:
        return None
    owners = owners_of(farm.settings, [item.campaign_id for item in known_open])
    for known in known_open:
        if known.campaign_id in owners and owners[known.campaign_id].is_open:
            queued.append(known.campaign_id)
            continue
        if shown := boards.get(known.campaign_id):
            running.append(f"{known.campaign_id} by {runner_here(shown)}")
            continue
        if where := runner_elsewhere(farm.settings, known):
            others.append(f"{known.campaign_id} (on {where})")
            continue
        campaign = farm.store.campaign(known.campaign_id)
        assert campaign is not None
        kind = _kind_of(campaign)
        if not kind:
            begun = f"{campaign.created_at.astimezone():%Y-%m-%d %H:%M}"
            text = f"resumes campaign {campaign.campaign_id} ({campaign.name}, begun {begun})"
            tell(
                farm.settings.log_format,
                "campaign-resumed",
                text,
                campaign_id=campaign.campaign_id,
                campaign=campaign.name,
            )
            return campaign
        others.append(f"{campaign.campaign_id} ({kind})")
    named = f"; run now: {', '.join(running)}" if running else ""
    named += f"; left to the farm's workers: {', '.join(queued)}" if queued else ""
    named += f"; open, but resumed by name only: {', '.join(others)}" if others else ""
    way = "'benchfarm run --resume --campaign ID' goes on with one" if others else "'benchfarm results list' lists them"
    raise UsageError(f"there is no campaign that could be resumed in {farm.store.name}{named}", hint=way)


def _kind_of(campaign: Campaign) -> str:
    """Return what a campaign is that isn't a plan's measurement, empty for one that is."""
    if campaign.terms.search is not None:
        return "a search"
    passes = {item.run_pass for item in campaign.invocations}
    return "a trace" if passes == {Pass.TRACE} else ""


def reopen(
    farm: Farm, campaign: Campaign, cases: Sequence[Case], *, beside: Collection[Serial] = ()
) -> tuple[list[Model], list[Build], list[tuple[Device, DeviceFacts]]]:
    """Return what is needed to go on with some cases of a campaign, whose status is RUNNING again.

    ``beside`` are devices that are opened too, where they are there: they may take over from the cases' own.

    Raises:
        UsageError: a file has gone or changed.
        NoDeviceError: none of the cases' devices is there.
    """
    known_models, known_builds = farm.store.models(), farm.store.builds()
    models = [_with_file(known_models[sha256], campaign) for sha256 in {case.model_sha256 for case in cases}]
    builds = [_with_file(known_builds[sha256], campaign) for sha256 in {case.build_sha256 for case in cases}]
    for name, sha256 in {file for case in cases for file in case.files}:
        _unchanged_file(name, sha256, campaign)
    serials = {case.serial for case in cases} | set(beside)
    devices = _reachable(farm, serials) if serials else []
    farm.store.set_status(campaign.campaign_id, CampaignStatus.RUNNING, None)
    return models, builds, devices


def _with_file(known: _Known, campaign: Campaign) -> _Known:
    """Return a stored model or build with its file, which must be there and unchanged."""
    if isinstance(known, Build) and known.tool is ToolName.LITERT:
        installed = litert_build()
        if installed.sha256 != known.sha256:
            raise UsageError(f"{known.name} isn't installed any more, but {installed.name}", hint="install it again")
        return replace(known, path=installed.path)
    return replace(known, path=_unchanged_file(known.name, known.sha256, campaign))


def _unchanged_file(name: str, sha256: str, campaign: Campaign) -> Path:
    """Return where a campaign's file is; raises UsageError when it is gone or has another content."""
    path = Path(campaign.terms.files.get(sha256, ""))
    if not path.is_file():
        raise UsageError(f"{name}: its file {path} is gone", hint="put it back, then resume")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise UsageError(f"{name}: {path} has another content now", hint="put the old file back, then resume")
    return path


def _reachable(farm: Farm, serials: set[Serial]) -> list[tuple[Device, DeviceFacts]]:
    """Open those of a campaign's devices that are there; raises NoDeviceError when none is."""
    from orchestrator.errors import NoDeviceError

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
    farm.left_out |= kept_out
    return opened


def _kept_out(farm: Farm, serial: Serial) -> str:
    """Return why a phone isn't even asked anything; one that is measured by another command would be disturbed."""
    if reason := farm.quarantine.reason(serial):
        return f"in quarantine: {reason}"
    holder = farm.lease.live_holder(serial)
    return f"in use by {holder}" if holder else ""
