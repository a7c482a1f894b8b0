"""``benchfarm results close``, ``remove``, ``hide`` and ``unhide``: what is of no use any more or isn't to be seen."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from orchestrator.app import closing
from orchestrator.app.stored import find_campaigns
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.result import CommandResult
from orchestrator.cli.terminal import say
from orchestrator.errors import StoreError, UsageError
from orchestrator.ports import Store
from orchestrator.records.campaign import Campaign
from orchestrator.records.identity import CampaignId
from orchestrator.report.escapes import one_line


def close(settings: Settings, words: Sequence[str]) -> CommandResult:
    """Give up what is left of some open campaigns; raises as the use case."""
    closed = closing.close(settings, words)
    lines = [
        f"{item.campaign_id} ({item.name}): closed"
        + (f"; {count} invocations that were left are given up" if count else "")
        for item, count in closed
    ]
    data = [{"campaign_id": item.campaign_id, "given_up": count} for item, count in closed]
    return CommandResult(text="\n".join(map(one_line, lines)), data=data)


def remove(settings: Settings, words: Sequence[str], *, is_sure: bool) -> CommandResult:
    """Delete some campaigns with their runs and raw output, all or none of them.

    Raises UsageError for a campaign that isn't there, that somebody runs or will run, and without a confirmation.
    """
    with Farm(settings, makes_store=False) as farm:
        found = _named(farm.store, words)
        closing.check_left_alone(farm, [campaign for campaign in found.values() if campaign is not None])
        progress = farm.store.progress()
        stored = {campaign_id: progress.get(campaign_id, (0, 0))[0] for campaign_id in found}
        lines = [one_line(f"{_title(key, found[key])}: {count} runs") for key, count in stored.items()]
        if not is_sure:
            _confirm(lines)
        for campaign_id in found:
            farm.store.remove_campaign(campaign_id)
    return CommandResult(
        text="\n".join(f"removed {line}" for line in lines),
        data=[{"campaign_id": campaign_id, "runs": count} for campaign_id, count in stored.items()],
    )


def hide(settings: Settings, words: Sequence[str], *, is_hidden: bool) -> CommandResult:
    """Leave some campaigns out of lists, tables, reports of the newest and the history, or take them in again.

    Raises UsageError for a campaign that isn't there.
    """
    with Farm(settings, makes_store=False) as farm:
        found = _named(farm.store, words)
        for campaign_id in found:
            farm.store.hide_campaign(campaign_id, is_hidden=is_hidden)
    said = "hidden" if is_hidden else "shown again"
    return CommandResult(
        text="\n".join(one_line(f"{said}: {_title(*item)}") for item in found.items()),
        data=[{"campaign_id": campaign_id, "hidden": is_hidden} for campaign_id in found],
    )


def _named(store: Store, words: Sequence[str]) -> dict[CampaignId, Campaign | None]:
    """Return the campaigns that some words mean; None in the place of one that can't be read, named by its whole id."""
    found: dict[CampaignId, Campaign | None] = {}
    for word in words:
        try:
            found |= {campaign.campaign_id: campaign for campaign in find_campaigns(store, word)}
        except (StoreError, UsageError):
            if word not in store.progress():
                raise
            found[CampaignId(word)] = None
    return found


def _title(campaign_id: CampaignId, campaign: Campaign | None) -> str:
    if campaign is None:
        return f"{campaign_id} (can't be read)"
    return f"{campaign_id} ({campaign.name}, begun {campaign.created_at.astimezone():%Y-%m-%d %H:%M})"


def _confirm(lines: Sequence[str]) -> None:
    """Ask whoever sits there; raises UsageError for any other answer than yes, and where nobody does."""
    hint = "'benchfarm results hide' only leaves them out of lists"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("removing a campaign can't be undone: give --yes", hint=hint)
    say("\n".join(lines), err=True)
    say("Remove these campaigns with all their runs and logs? This can't be undone. [y/N] ", err=True, end="")
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("nothing was removed", hint=hint)
