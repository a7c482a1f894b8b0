"""Giving up what is left of campaigns that were interrupted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.app.board import read_boards
from orchestrator.app.farm_beside import owners_of
from orchestrator.app.resuming import restore_left
from orchestrator.app.running import runner_elsewhere, runner_here
from orchestrator.app.stored import find_campaign
from orchestrator.bootstrap import Farm, Settings
from orchestrator.engine.closing import close_campaign
from orchestrator.errors import UsageError
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.identity import CampaignId


def close(settings: Settings, words: Sequence[str]) -> list[tuple[Campaign, int]]:
    """Give up what is left of some open campaigns, all or none of them; phones left changed are restored.

    ``words`` are their ids or the beginnings of these. Returns each with how many invocations are abandoned. Raises
    UsageError for a campaign that isn't open, or that somebody runs or will run.
    """
    with Farm(settings, makes_store=False) as farm:
        chosen = [find_campaign(farm.store, word, only_open=True) for word in words]
        campaigns = list({item.campaign_id: item for item in chosen}.values())
        check_left_alone(farm, campaigns)
        closed = {item.campaign_id: close_campaign(item, farm.store, farm.tools, farm.clock) for item in campaigns}
        restore_left(farm, {item.case.serial for campaign in campaigns for item in campaign.invocations})
    return [(item, closed[item.campaign_id]) for item in campaigns]


def close_cancelled(farm: Farm, campaign_ids: Iterable[CampaignId]) -> int:
    """Close those campaigns that were begun and are open yet, of jobs that nobody does any more; return how many."""
    stored = [farm.store.campaign(campaign_id) for campaign_id in campaign_ids]
    begun = [item for item in stored if item is not None and item.status is not CampaignStatus.FINISHED]
    for campaign in begun:
        close_campaign(campaign, farm.store, farm.tools, farm.clock)
    return len(begun)


def check_left_alone(farm: Farm, campaigns: Sequence[Campaign]) -> None:
    """Raise UsageError for a campaign that a process, another computer or a farm's worker is at, or will be."""
    boards = read_boards(farm.board_folder)
    owners = owners_of(farm.settings, [item.campaign_id for item in campaigns])
    for campaign in campaigns:
        name = f"campaign {campaign.campaign_id} ({campaign.name})"
        owner = owners.get(campaign.campaign_id)
        if shown := boards.get(campaign.campaign_id):
            raise UsageError(f"{name} is run by {runner_here(shown)} now", hint="stop that process first")
        if owner is not None and owner.is_open:
            raise UsageError(
                f"{name} is a job of the farm that waits or runs",
                hint=f"'benchfarm farm cancel {owner.submission} --phone {owner.serial}' ends it and closes this",
            )
        # Of a job that is over its worker's computer is known to be over with it.
        if owner is None and (where := runner_elsewhere(farm.settings, campaign)):
            raise UsageError(f"{name} is run by {where}, as far as is known here", hint="close it on that computer")
