"""``benchfarm store``, ``results close``, ``remove`` and ``hide``: what is deleted, hidden or copied."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.app import resuming, retention
from orchestrator.app.stored import find_campaigns
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.result import CommandResult
from orchestrator.cli.terminal import say
from orchestrator.errors import StoreError, UsageError
from orchestrator.ports import Store
from orchestrator.records.campaign import Campaign
from orchestrator.records.identity import CampaignId
from orchestrator.report.escapes import one_line
from orchestrator.units import format_bytes


def prune(settings: Settings, *, keep_raw: str, is_trial: bool, compact: bool) -> CommandResult:
    """Delete the raw output of campaigns begun before; figures, verdicts and states stay. Raises UsageError."""
    path, done = settings.store_file, retention.prune(settings, keep_raw=keep_raw, is_trial=is_trial, compact=compact)
    pruned = done.pruned
    what = "would be deleted" if is_trial else "deleted"
    counted = f"{pruned.runs} runs in {pruned.campaigns} campaigns"
    freed = f"{format_bytes(pruned.freed_bytes)} of the database"
    lines = [f"raw output of {counted} {what}, {freed}; their figures, verdicts and states stay"]
    if compact and not is_trial:
        lines.append(f"{path}: {format_bytes(done.bytes_before)} before, {format_bytes(done.bytes_after)} now")
    elif pruned.runs and not is_trial and path is not None:
        lines.append("later runs use that space; --compact gives it back to the disk")
    data = {
        "trial": is_trial,
        "campaigns": pruned.campaigns,
        "runs": pruned.runs,
        "freed_bytes": pruned.freed_bytes,
        "file_bytes_before": done.bytes_before,
        "file_bytes_after": done.bytes_after,
    }
    return CommandResult(text="\n".join(lines), data=data)


def backup(settings: Settings, out: Path) -> CommandResult:
    """Copy a store that may be in use, whole and checked; raises as the use case."""
    done = retention.backup(settings, out)
    size = format_bytes(done.size_bytes)
    return CommandResult(
        text=f"{out}: {size}, {done.campaigns} campaigns or more; restore it by putting it at {done.store}",
        data={"path": out, "size_bytes": done.size_bytes, "store": done.store},
    )


def close(settings: Settings, words: Sequence[str]) -> CommandResult:
    """Give up what is left of some open campaigns; raises as the use case."""
    closed = resuming.close(settings, words)
    lines = [
        f"{item.campaign_id} ({item.name}): closed"
        + (f"; {count} invocations that were left are abandoned" if count else "")
        for item, count in closed
    ]
    data = [{"campaign_id": item.campaign_id, "abandoned": count} for item, count in closed]
    return CommandResult(text="\n".join(map(one_line, lines)), data=data)


def remove(settings: Settings, words: Sequence[str], *, is_sure: bool) -> CommandResult:
    """Delete some campaigns with their runs and raw output, all or none of them.

    Raises UsageError for a campaign that isn't there, that somebody runs or will run, and without a confirmation.
    """
    with Farm(settings, makes_store=False) as farm:
        found = _named(farm.store, words)
        resuming.check_left_alone(farm, [campaign for campaign in found.values() if campaign is not None])
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
