"""Resuming an interrupted campaign, or closing it: its remaining runs are abandoned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.analysis.measured import judge_cases
from orchestrator.analysis.rounds import StopReason, progress_by_case
from orchestrator.app.attached import Needs, OpenedDevices, open_devices
from orchestrator.app.measuring import MeasuredCampaign, measure
from orchestrator.app.phones import restore_phones
from orchestrator.app.preparing import Prepared
from orchestrator.app.status import other_runners
from orchestrator.app.stored import find_campaign, read_campaign
from orchestrator.app.workspace import Workspace
from orchestrator.engine.campaign import close_campaign
from orchestrator.engine.decisions import open_work_by_serial
from orchestrator.engine.device_campaign import campaign_runs, why_not_restored
from orchestrator.errors import BenchfarmError, DeviceBusyError, UsageError
from orchestrator.files import sha256_of
from orchestrator.passes import is_reference_run, pass_of, stored_pass
from orchestrator.programs import program
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.case import FIGURE_PASS, Build, CampaignId, Case, Serial
from orchestrator.records.device import HOST_SERIAL
from orchestrator.records.plan import DeviceSelection


def resume(workspace: Workspace, prefix: str = "") -> MeasuredCampaign | None:
    """Resume an interrupted campaign: the named one, by default the newest open one that has runs.

    Returns its campaign as measured; None when none is named and none is open.

    Raises UsageError when the named campaign isn't open, when other computers or workers run all
    open ones, when a process measures it now, or when its files are missing.
    """
    passed_over: tuple[str, ...] = ()
    if prefix:
        campaign = find_campaign(workspace.store, prefix, only_open=True)
    elif listed := workspace.store.campaigns(only_open=True):
        campaign, passed_over = _chosen(workspace, listed)
    else:
        return None
    workspace.hold_campaign(campaign)
    cases = open_cases(workspace, campaign)
    restore_changed(
        workspace,
        campaign.serials - {case.serial for case in cases},
    )
    measured = measure(workspace, reopen(workspace, campaign, cases))
    return replace(measured, passed_over=passed_over)


def restore_changed(workspace: Workspace, serials: Collection[Serial]) -> None:
    """Restore the phones that a killed process left changed and that have no open runs, which would
    restore them.
    """
    for item in restore_phones(
        workspace, sorted(set(serials) & set(workspace.conditioner.unrestored()))
    ):
        # The process that uses a busy one restores it.
        if item.error is not None and not isinstance(item.error, DeviceBusyError):
            text = f"{item.name} {why_not_restored(item.name, item.error)}"
            keys = {"device": item.name}
            workspace.notice("resume", text, level="warning", keys=keys)


def _chosen(workspace: Workspace, listed: Sequence[Campaign]) -> tuple[Campaign, tuple[str, ...]]:
    """Return the open campaign to resume by default: the newest of a plan that has runs, else the
    newest of a plan; and those that lack a pass here, with the reason.

    A trace is resumed only by name: its user was waiting for it. Raises UsageError when others run
    all other open campaigns.
    """
    # A campaign that a job left open on another computer is resumed only by name.
    runners = other_runners(workspace, listed, trusts_jobs=False)
    free, reasons, by_name = list[Campaign](), list[str](), list[str]()
    passed_over: list[str] = []
    for item in listed:
        identity, is_by_name = item.campaign_id, False
        if holder := workspace.campaigns.live_holder(identity):
            reason = f"run by {holder}"
        elif (other := runners.get(identity)) is not None:
            reason, is_by_name = other.reason, other.may_be_gone
        elif kind := _special_kind(campaign := read_campaign(workspace.store, identity)):
            reason, is_by_name = kind, True
        elif lack := _obstacle(campaign):
            reason = f"not resumable here: {lack}"
            passed_over.append(f"{identity} ({item.name}) isn't resumed: {lack}")
        else:
            free.append(item)
            continue
        reasons.append(f"{identity} is {reason}")
        by_name += [f"{identity} ({reason})"] if is_by_name else []
    for text in passed_over:
        workspace.notice("resume", text, level="warning")
    if not free:
        raise UsageError(
            f"no campaign in {workspace.store.name} can be resumed here: {'; '.join(reasons)}",
            hint="'benchfarm run --resume ID' resumes one by name"
            if by_name
            else "'benchfarm results list' lists them",
        )
    progress = workspace.store.progress(only_open=True)
    titles = {
        name: f"{name} ({item.name}, {progress[name].text(is_over=False)} runs stored)"
        for item in free
        for name in [item.campaign_id]
    }
    # The store lists the newest first, and the first of equals is chosen.
    chosen = max(free, key=lambda item: progress[item.campaign_id].stored > 0)
    text = f"resumes campaign {titles.pop(chosen.campaign_id)}"
    if further := [*titles.values(), *by_name]:
        text += f"; 'benchfarm run --resume ID' resumes another one: {', '.join(further)}"
    keys = {"campaign_id": chosen.campaign_id, "campaign": chosen.name}
    workspace.notice("campaign-resumed", text, keys=keys)
    return read_campaign(workspace.store, chosen.campaign_id), tuple(passed_over)


def _check_own(campaign: Campaign) -> None:
    """Raise UsageError for a campaign whose import was cut off."""
    if (origin := campaign.terms.origin) is not None:
        raise UsageError(
            f"the import of campaign {campaign.campaign_id} ({campaign.name}) was cut off",
            hint=f"import {origin.file} again, which completes it",
        )


def _check_resumable(campaign: Campaign) -> None:
    """Raise UsageError for a cut off import, and where one of the passes isn't installed."""
    _check_own(campaign)
    for name in {item.run_pass for item in campaign.invocations}:
        pass_of(name)


def _obstacle(campaign: Campaign) -> str:
    """Return why a campaign can't be resumed here; empty where it can."""
    try:
        _check_resumable(campaign)
    except BenchfarmError as error:
        return str(error)
    return ""


def _special_kind(campaign: Campaign) -> str:
    """Return the title of a campaign that isn't a plan's measurement, empty for one that is."""
    passes = {item.run_pass for item in campaign.invocations}
    return stored_pass(next(iter(passes))).campaign_title if len(passes) == 1 else ""


def close(workspace: Workspace, words: Sequence[str]) -> list[tuple[Campaign, int]]:
    """Abandon the remaining runs of some open campaigns, all or none of them. Phones left changed
    are restored; the observer gets a notice of those that can't be.

    ``words`` are their ids or the beginnings of these. Returns each with the number of abandoned
    invocations. Raises UsageError for a campaign that isn't open, or that is run elsewhere or
    queued.
    """
    chosen = [find_campaign(workspace.store, word, only_open=True) for word in words]
    campaigns = list({item.campaign_id: item for item in chosen}.values())
    check_no_names(campaigns, words)
    check_not_running(workspace, campaigns)
    for item in campaigns:
        _check_own(item)
    closed = [
        (item, close_campaign(item, workspace.store, workspace.tools, workspace.clock))
        for item in campaigns
    ]
    restore_changed(workspace, {serial for item in campaigns for serial in item.serials})
    return closed


def close_cancelled(workspace: Workspace, campaign_ids: Iterable[CampaignId]) -> int:
    """Close the open campaigns of cancelled jobs; return how many."""
    stored = [workspace.store.campaign(campaign_id) for campaign_id in campaign_ids]
    unfinished = [item for item in stored if item is not None and not item.status.is_over]
    for campaign in unfinished:
        close_campaign(campaign, workspace.store, workspace.tools, workspace.clock)
    return len(unfinished)


def check_no_names(campaigns: Iterable[Campaign], words: Sequence[str]) -> None:
    """Raise UsageError for a campaign given by name, for commands that can't be undone."""
    for item in campaigns:
        if item.name in words:
            raise UsageError(
                f"{item.name} is a name, which several campaigns may have",
                hint=f"give its id, which is unique: {item.campaign_id}",
            )


def check_not_running(workspace: Workspace, campaigns: Sequence[Campaign]) -> None:
    """Raise UsageError for a campaign that a process, another computer or a farm's worker runs or
    will run.

    No other process can start these campaigns until the workspace is closed.
    """
    for campaign in campaigns:
        workspace.hold_campaign(campaign)
    runners = other_runners(workspace, campaigns)
    for campaign in campaigns:
        if (other := runners.get(campaign.campaign_id)) is not None:
            title = f"campaign {campaign.campaign_id} ({campaign.name})"
            raise UsageError(f"{title} is {other.reason}", hint=other.hint)


def open_cases(workspace: Workspace, campaign: Campaign) -> list[Case]:
    """Return the cases of a stored campaign's open runs, with those that a later round may measure
    and the reference workload of their devices; raises UsageError where one of its passes isn't
    installed.
    """
    _check_resumable(campaign)
    runs = campaign_runs(workspace.store, campaign)
    works = open_work_by_serial(campaign, runs, workspace.tools)
    cases = [item.case for work in works.values() for item in work.invocations]
    busy = {case.serial for case in cases}
    further = [item.case for item in campaign.invocations if is_reference_run(item)]
    timed = [item.case for item in campaign.invocations if item.run_pass is FIGURE_PASS]
    if campaign.terms.pairing is not None:
        further += timed
    elif campaign.terms.stopping is not None:
        files = campaign.terms.files
        gone = {case for case in timed if not Path(files.get(case.model_sha256, "")).is_file()}
        progress = progress_by_case(campaign, judge_cases(runs, [campaign])) if gone else {}
        # A later round rarely measures one that has enough, which keeps no other from its runs.
        further += [
            case
            for case in timed
            if case not in gone
            or progress[case.case_key].reason in {StopReason.PLANNED, StopReason.OPEN}
        ]
    return [*cases, *(case for case in further if case.serial in busy)]


def reopen(
    workspace: Workspace,
    campaign: Campaign,
    cases: Sequence[Case],
    opened: OpenedDevices | None = None,
) -> Prepared:
    """Return a stored campaign prepared to run some of its cases, with status RUNNING.

    The cases' devices are opened unless they are given.

    Raises:
        UsageError: a file has gone or changed.
        NoDeviceError: none of the cases' devices can be used; it says why of each.
    """
    known_models, known_builds = workspace.store.models(), workspace.store.builds()
    models = [
        replace(model, path=_unchanged_file(model.name, model.sha256, campaign))
        for model in (known_models[sha256] for sha256 in {case.model_sha256 for case in cases})
    ]
    on_host = {case.build_sha256 for case in cases if case.serial == HOST_SERIAL}
    builds = [
        _with_file(known_builds[sha256], campaign, is_on_host=sha256 in on_host)
        for sha256 in {case.build_sha256 for case in cases}
    ]
    for name, sha256 in {file for case in cases for file in case.files}:
        _unchanged_file(name, sha256, campaign)
    if opened is None:
        serials = {case.serial for case in cases}
        selection = DeviceSelection(
            serials=tuple(sorted(serials - {HOST_SERIAL})), host=HOST_SERIAL in serials
        )
        opened = (
            open_devices(workspace, selection, Needs.ONE_OR_HOST) if serials else OpenedDevices()
        )
    workspace.store.set_status(campaign.campaign_id, CampaignStatus.RUNNING, None)
    return Prepared(campaign=campaign, models=models, builds=builds, opened=opened)


def _with_file(build: Build, campaign: Campaign, *, is_on_host: bool) -> Build:
    """Return a stored build with its file, which must be there and unchanged."""
    spec = program(build.tool)
    if is_on_host and spec.installed is not None:
        installed = spec.installed(campaign.terms.files.get(build.sha256, ""))
        if installed.sha256 != build.sha256:
            raise UsageError(
                f"{build.name} isn't installed any more, but {installed.name}",
                hint="install it again",
            )
        return replace(build, path=installed.path)
    if spec.on_device is not None and build.sha256 not in campaign.terms.files:
        # It is on the phone, and is checked when a run is prepared.
        return build
    return replace(build, path=_unchanged_file(build.name, build.sha256, campaign))


def _unchanged_file(name: str, sha256: str, campaign: Campaign) -> Path:
    """Return the path of a campaign's file.

    Raises UsageError when it is gone or has another content.
    """
    path = Path(campaign.terms.files.get(sha256, ""))
    if not path.is_file():
        raise UsageError(f"{name}: its file {path} is gone", hint="restore the file, then resume")
    if sha256_of(path) != sha256:
        raise UsageError(
            f"{name}: {path} has another content now", hint="restore the old file, then resume"
        )
    return path
