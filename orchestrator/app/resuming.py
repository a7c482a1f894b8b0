"""Resuming a campaign that was cut off, or closing it: what is left of it is abandoned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from orchestrator.app.measuring import MeasuredCampaign, measure, open_cases, reopen
from orchestrator.app.phones import restore_phones
from orchestrator.app.status import run_by_others
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
    """Resume a campaign that was cut off: the one that is named, else the newest open one that has
    runs.

    Returns its campaign as measured; None when none is named and none is open.

    Raises UsageError when the one that is named isn't open, when those that are open are others' to
    resume, when a process is at it now, or when its files have gone.
    """
    campaign = (
        find_campaign(workspace.store, prefix, only_open=True) if prefix else _chosen(workspace)
    )
    if campaign is None:
        return None
    workspace.hold_campaign(campaign.campaign_id, campaign.name)
    cases = open_cases(workspace, campaign)
    restore_left(
        workspace,
        {item.case.serial for item in campaign.invocations} - {case.serial for case in cases},
    )
    return measure(workspace, reopen(workspace, campaign, cases))


def restore_left(workspace: Workspace, serials: Collection[Serial]) -> None:
    """Restore those phones that a killed process left changed; nothing is open on them, so nobody
    else would.
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
    """Return the open campaign to resume when none is named: the newest of a plan that has runs,
    else the newest of a plan; None when none is open.

    A trace is left to whoever names it: it answered somebody who was waiting. Raises UsageError
    when all others that are open are somebody else's.
    """
    listed = workspace.store.campaigns(only_open=True)
    if not listed:
        return None
    # What a job left open on another computer is resumed by who names it.
    others = run_by_others(workspace, listed, trusts_jobs=False)
    free, reasons, by_name = list[Campaign](), list[str](), list[str]()
    for item in listed:
        identity = item.campaign_id
        if holder := workspace.campaigns.live_holder(identity):
            reasons.append(f"{identity} is run by {holder}")
        elif (other := others.get(identity)) is not None:
            reasons.append(f"{identity} is {other.reason}")
            by_name += [f"{identity} ({other.reason})"] if other.may_be_gone else []
        elif kind := _kind_of(_whole(workspace, identity)):
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
    told = {
        item.campaign_id: f"{item.campaign_id} ({item.name}, {stored}"
        f"{f' of {planned}' if stored < planned else ''} runs stored)"
        for item in free
        for stored, planned, _ in [progress.get(item.campaign_id, Progress())]
    }
    # The store lists the newest first.
    chosen = next(
        (item for item in free if progress.get(item.campaign_id, Progress()).stored), free[0]
    )
    text = f"resumes campaign {told.pop(chosen.campaign_id)}"
    if further := [*told.values(), *by_name]:
        text += f"; 'benchfarm run --resume ID' resumes another one: {', '.join(further)}"
    keys = {"campaign_id": chosen.campaign_id, "campaign": chosen.name}
    workspace.observer.on_event(Notice(event="campaign-resumed", text=text, keys=keys))
    return _whole(workspace, chosen.campaign_id)


def _whole(workspace: Workspace, campaign_id: CampaignId) -> Campaign:
    campaign = workspace.store.campaign(campaign_id)
    assert campaign is not None, "it has just been listed"
    return campaign


def _kind_of(campaign: Campaign) -> str:
    """Return what a campaign is that isn't a plan's measurement, empty for one that is."""
    found = {item.run_pass for item in campaign.invocations}
    return shown(next(iter(found))).alone if len(found) == 1 else ""


def close(
    settings: Settings, words: Sequence[str], observer: Observer
) -> list[tuple[Campaign, int]]:
    """Give up what is left of some open campaigns, all or none of them; phones left changed are
    restored, and ``observer`` hears of those that can't be.

    ``words`` are their ids or the beginnings of these. Returns each with how many invocations are
    abandoned. Raises UsageError for a campaign that isn't open, or that somebody runs or will run.
    """
    with Workspace(settings, makes_store=False, observer=observer) as workspace:
        chosen = [find_campaign(workspace.store, word, only_open=True) for word in words]
        campaigns = list({item.campaign_id: item for item in chosen}.values())
        check_no_names(campaigns, words)
        check_left_alone(workspace, campaigns)
        closed = {
            item.campaign_id: close_campaign(
                item, workspace.store, workspace.tools, workspace.clock
            )
            for item in campaigns
        }
        restore_left(
            workspace, {item.case.serial for campaign in campaigns for item in campaign.invocations}
        )
    return [(item, closed[item.campaign_id]) for item in campaigns]


def close_cancelled(workspace: Workspace, campaign_ids: Iterable[CampaignId]) -> int:
    """Close those campaigns that were begun and are open yet, of jobs that nobody does any more;
    return how many.
    """
    stored = [workspace.store.campaign(campaign_id) for campaign_id in campaign_ids]
    begun = [item for item in stored if item is not None and not item.status.is_over]
    for campaign in begun:
        close_campaign(campaign, workspace.store, workspace.tools, workspace.clock)
    return len(begun)


def check_no_names(campaigns: Iterable[Campaign], words: Sequence[str]) -> None:
    """Raise UsageError for a campaign that a word means by its name, where nothing can be undone."""
    for item in campaigns:
        if item.name in words:
            raise UsageError(
                f"{item.name} is a name, which several campaigns may have",
                hint=f"name it by its id, which can't mean another one: {item.campaign_id}",
            )


def check_left_alone(workspace: Workspace, campaigns: Sequence[Campaign]) -> None:
    """Raise UsageError for a campaign that a process, another computer or a farm's worker is at, or
    will be.

    Those that aren't can be begun by nobody until the workspace is closed.
    """
    for campaign in campaigns:
        workspace.hold_campaign(campaign.campaign_id, campaign.name)
    others = run_by_others(workspace, campaigns)
    for campaign in campaigns:
        if (other := others.get(campaign.campaign_id)) is not None:
            named = f"campaign {campaign.campaign_id} ({campaign.name})"
            raise UsageError(f"{named} is {other.reason}", hint=other.cure)
