"""Resuming an interrupted campaign, or closing it: its remaining runs are abandoned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from orchestrator.app.measuring import MeasuredCampaign, measure, open_cases, reopen
from orchestrator.app.phones import restore_phones
from orchestrator.app.status import other_runners
from orchestrator.app.stored import find_campaign
from orchestrator.app.workspace import Workspace
from orchestrator.engine.campaign import close_campaign
from orchestrator.engine.device_campaign import why_not_restored
from orchestrator.engine.events import Notice
from orchestrator.errors import DeviceBusyError, UsageError
from orchestrator.passes import shown
from orchestrator.ports import Observer
from orchestrator.records.campaign import Campaign, Progress
from orchestrator.records.case import CampaignId, Serial
from orchestrator.settings import Settings


def resume(workspace: Workspace, prefix: str = "") -> MeasuredCampaign | None:
    """Resume an interrupted campaign: the named one, by default the newest open one that has runs.

    Returns its campaign as measured; None when none is named and none is open.

    Raises UsageError when the named campaign isn't open, when other computers or workers run all
    open ones, when a process measures it now, or when its files are missing.
    """
    campaign = (
        find_campaign(workspace.store, prefix, only_open=True) if prefix else _chosen(workspace)
    )
    if campaign is None:
        return None
    workspace.hold_campaign(campaign.campaign_id, campaign.name)
    cases = open_cases(workspace, campaign)
    restore_changed(
        workspace,
        {item.case.serial for item in campaign.invocations} - {case.serial for case in cases},
    )
    return measure(workspace, reopen(workspace, campaign, cases))


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
            workspace.observer.on_event(
                Notice(event="resume", text=text, level="warning", keys=keys)
            )


def _chosen(workspace: Workspace) -> Campaign | None:
    """Return the open campaign to resume by default: the newest of a plan that has runs, else the
    newest of a plan; None when none is open.

    A trace is resumed only by name: its user was waiting for it. Raises UsageError when others run
    all other open campaigns.
    """
    listed = workspace.store.campaigns(only_open=True)
    if not listed:
        return None
    # A campaign that a job left open on another computer is resumed only by name.
    runners = other_runners(workspace, listed, trusts_jobs=False)
    free, reasons, by_name = list[Campaign](), list[str](), list[str]()
    for item in listed:
        identity = item.campaign_id
        if holder := workspace.campaigns.live_holder(identity):
            reasons.append(f"{identity} is run by {holder}")
        elif (other := runners.get(identity)) is not None:
            reasons.append(f"{identity} is {other.reason}")
            by_name += [f"{identity} ({other.reason})"] if other.may_be_gone else []
        elif kind := _special_kind(_read_campaign(workspace, identity)):
            reasons.append(f"{identity} is {kind}")
            by_name.append(f"{identity} ({kind})")
        else:
            free.append(item)
    if not free:
        raise UsageError(
            f"no campaign in {workspace.store.name} can be resumed here: {'; '.join(reasons)}",
            hint="'benchfarm run --resume ID' resumes one by name"
            if by_name
            else "'benchfarm results list' lists them",
        )
    progress = workspace.store.progress(only_open=True)
    titles = {
        item.campaign_id: f"{item.campaign_id} ({item.name}, {stored}"
        f"{f' of {planned}' if stored < planned else ''} runs stored)"
        for item in free
        for stored, planned, _ in [progress.get(item.campaign_id, Progress())]
    }
    # The store lists the newest first.
    chosen = next(
        (item for item in free if progress.get(item.campaign_id, Progress()).stored), free[0]
    )
    text = f"resumes campaign {titles.pop(chosen.campaign_id)}"
    if further := [*titles.values(), *by_name]:
        text += f"; 'benchfarm run --resume ID' resumes another one: {', '.join(further)}"
    keys = {"campaign_id": chosen.campaign_id, "campaign": chosen.name}
    workspace.observer.on_event(Notice(event="campaign-resumed", text=text, keys=keys))
    return _read_campaign(workspace, chosen.campaign_id)


def _read_campaign(workspace: Workspace, campaign_id: CampaignId) -> Campaign:
    campaign = workspace.store.campaign(campaign_id)
    assert campaign is not None, "it has just been listed"
    return campaign


def _special_kind(campaign: Campaign) -> str:
    """Return the title of a campaign that isn't a plan's measurement, empty for one that is."""
    passes = {item.run_pass for item in campaign.invocations}
    return shown(next(iter(passes))).alone if len(passes) == 1 else ""


def close(
    settings: Settings, words: Sequence[str], observer: Observer
) -> list[tuple[Campaign, int]]:
    """Abandon the remaining runs of some open campaigns, all or none of them. Phones left changed
    are restored; ``observer`` gets a notice of those that can't be.

    ``words`` are their ids or the beginnings of these. Returns each with the number of abandoned
    invocations. Raises UsageError for a campaign that isn't open, or that is run elsewhere or
    queued.
    """
    with Workspace(settings, makes_store=False, observer=observer) as workspace:
        chosen = [find_campaign(workspace.store, word, only_open=True) for word in words]
        campaigns = list({item.campaign_id: item for item in chosen}.values())
        check_no_names(campaigns, words)
        check_not_running(workspace, campaigns)
        closed = {
            item.campaign_id: close_campaign(
                item, workspace.store, workspace.tools, workspace.clock
            )
            for item in campaigns
        }
        restore_changed(
            workspace, {item.case.serial for campaign in campaigns for item in campaign.invocations}
        )
    return [(item, closed[item.campaign_id]) for item in campaigns]


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
        workspace.hold_campaign(campaign.campaign_id, campaign.name)
    runners = other_runners(workspace, campaigns)
    for campaign in campaigns:
        if (other := runners.get(campaign.campaign_id)) is not None:
            title = f"campaign {campaign.campaign_id} ({campaign.name})"
            raise UsageError(f"{title} is {other.reason}", hint=other.hint)
