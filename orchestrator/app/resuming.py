"""Resuming a campaign that was cut off, or closing it: what is left of it is abandoned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from orchestrator.app.measuring import MeasuredCampaign, measure, open_cases, reopen
from orchestrator.app.pairing import go_on
from orchestrator.app.phones import restore_phones
from orchestrator.app.status import owners_of, runner_elsewhere
from orchestrator.app.stored import find_campaign
from orchestrator.bootstrap import Settings, Workspace
from orchestrator.engine.campaign import close_campaign
from orchestrator.engine.device_campaign import why_not_restored
from orchestrator.engine.events import CampaignEnded, Notice
from orchestrator.errors import DeviceBusyError, UsageError
from orchestrator.passes import shown
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.case import CampaignId, Serial


def resume(workspace: Workspace, prefix: str = "") -> MeasuredCampaign | CampaignEnded | None:
    """Resume a campaign that was cut off: the one that is named, else the newest open one that has
    runs.

    Returns what came of it, of an A/B comparison its campaign's end; None when none is named and
    none is open.

    Raises UsageError when the one that is named isn't open, when those that are open are others' to
    resume, when a process is at it now, or when its files have gone.
    """
    campaign = (
        find_campaign(workspace.store, prefix, only_open=True) if prefix else _chosen(workspace)
    )
    if campaign is None:
        return None
    workspace.hold_campaign(campaign.campaign_id, campaign.name)
    if campaign.terms.pairing is not None:
        return go_on(workspace, campaign)
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
    """Return the open campaign to resume when none is named, and say which others are open.

    None when none is open.

    It is the newest that measures what a plan asks for, one that has runs before one that has none.
    Those that are run now are left to whoever does, and the farm's jobs to its workers. A search
    and a trace are left to whoever names them: they answered somebody who was waiting. Raises
    UsageError when nothing else is open.
    """
    known_open = workspace.store.campaigns(only_open=True)
    if not known_open:
        return None
    progress = workspace.store.progress(only_open=True)
    owners = owners_of(workspace.settings, [item.campaign_id for item in known_open])
    usual, others, running, queued = [], [], [], []
    for known in known_open:
        identity = known.campaign_id
        stored, planned = progress.get(identity, (0, 0))
        if identity in owners and owners[identity].is_open:
            queued.append(str(identity))
        elif holder := workspace.campaigns.live_holder(identity):
            running.append(f"{identity} by {holder}")
        elif where := runner_elsewhere(workspace.settings, known):
            others.append(f"{identity} (on {where})")
        elif kind := _kind_of(_whole(workspace, identity)):
            others.append(f"{identity} ({kind})")
        else:
            begun = f"{known.created_at.astimezone():%Y-%m-%d %H:%M}"
            usual.append(
                (
                    known,
                    stored,
                    f"{identity} ({known.name}, begun {begun}, {stored} of {planned} runs stored)",
                )
            )
    if not usual:
        named = f"; run now: {', '.join(running)}" if running else ""
        named += f"; left to the farm's workers: {', '.join(queued)}" if queued else ""
        named += f"; open, but resumed by name only: {', '.join(others)}" if others else ""
        way = (
            "'benchfarm run --resume ID' resumes one"
            if others
            else "'benchfarm results list' lists them"
        )
        raise UsageError(
            f"there is no campaign that could be resumed in {workspace.store.name}{named}", hint=way
        )
    # The store lists the newest first.
    chosen = next((item for item in usual if item[1]), usual[0])
    further = [item[2] for item in usual if item is not chosen] + others
    text = f"resumes campaign {chosen[2]}"
    text += (
        f"; 'benchfarm run --resume ID' resumes another one: {', '.join(further)}"
        if further
        else ""
    )
    keys = {"campaign_id": chosen[0].campaign_id, "campaign": chosen[0].name}
    workspace.observer.on_event(Notice(event="campaign-resumed", text=text, keys=keys))
    return _whole(workspace, chosen[0].campaign_id)


def _whole(workspace: Workspace, campaign_id: CampaignId) -> Campaign:
    campaign = workspace.store.campaign(campaign_id)
    assert campaign is not None, "it has just been listed"
    return campaign


def _kind_of(campaign: Campaign) -> str:
    """Return what a campaign is that isn't a plan's measurement, empty for one that is."""
    found = {item.run_pass for item in campaign.invocations}
    return shown(next(iter(found))).alone if len(found) == 1 else ""


def close(settings: Settings, words: Sequence[str]) -> list[tuple[Campaign, int]]:
    """Give up what is left of some open campaigns, all or none of them; phones left changed are
    restored.

    ``words`` are their ids or the beginnings of these. Returns each with how many invocations are
    abandoned. Raises UsageError for a campaign that isn't open, or that somebody runs or will run.
    """
    with Workspace(settings, makes_store=False) as workspace:
        chosen = [find_campaign(workspace.store, word, only_open=True) for word in words]
        campaigns = list({item.campaign_id: item for item in chosen}.values())
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
    begun = [
        item for item in stored if item is not None and item.status is not CampaignStatus.FINISHED
    ]
    for campaign in begun:
        close_campaign(campaign, workspace.store, workspace.tools, workspace.clock)
    return len(begun)


def check_left_alone(workspace: Workspace, campaigns: Sequence[Campaign]) -> None:
    """Raise UsageError for a campaign that a process, another computer or a farm's worker is at, or
    will be.

    Those that aren't can be begun by nobody until the farm is closed.
    """
    owners = owners_of(workspace.settings, [item.campaign_id for item in campaigns])
    for campaign in campaigns:
        name = f"campaign {campaign.campaign_id} ({campaign.name})"
        owner = owners.get(campaign.campaign_id)
        workspace.hold_campaign(campaign.campaign_id, campaign.name)
        if owner is not None and owner.is_open:
            raise UsageError(
                f"{name} is a job of the farm that waits or runs",
                hint=f"'benchfarm farm cancel {owner.submission} -s {owner.serial}' ends it and closes this",
            )
        # Of a job that is over its worker's computer is known to be over with it.
        if owner is None and (where := runner_elsewhere(workspace.settings, campaign)):
            raise UsageError(
                f"{name} is run by {where}, as far as is known here",
                hint="close it on that computer",
            )
