"""``benchfarm store``, and ``results close``, ``hide`` and ``remove``: what leaves the lists or the store."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from orchestrator.app import bundling, resuming, retention
from orchestrator.app.stored import find_campaigns
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.frame import Texts, arg, command, opt
from orchestrator.cli.result import CommandResult
from orchestrator.cli.terminal import say
from orchestrator.errors import StoreError, UsageError
from orchestrator.ports import Store
from orchestrator.records.campaign import Campaign
from orchestrator.records.identity import CampaignId
from orchestrator.report.escapes import one_line
from orchestrator.units import format_bytes

_Named = Annotated[Texts, arg("Campaigns, by id or its beginning.", metavar="CAMPAIGN...")]


@command("store prune")
def prune(
    settings: Settings,
    *,
    keep_raw: Annotated[str, opt("--keep-raw", "Keep raw output up to this age (90d).")],
    dry_run: Annotated[bool, opt("--dry-run", "Only list what would be deleted.")] = False,
    compact: Annotated[bool, opt("--compact", "Shrink the store's file afterwards.")] = False,
) -> CommandResult:
    """Delete the raw output of old campaigns. Figures and verdicts stay.

    Example: benchfarm store prune --keep-raw 90d --dry-run
    """
    path = settings.store_file
    pruned, before, after = retention.prune(settings, keep_raw=keep_raw, is_trial=dry_run, compact=compact)
    counted = f"{pruned.runs} runs in {pruned.campaigns} campaigns {'would be ' if dry_run else ''}deleted"
    freed = f"{format_bytes(pruned.freed_bytes)} of the database"
    lines = [f"raw output of {counted}, {freed}; their figures, verdicts and states stay"]
    if compact and not dry_run:
        lines.append(f"{path}: {format_bytes(before)} before, {format_bytes(after)} now")
    elif pruned.runs and not dry_run and path is not None:
        lines.append("later runs use that space; --compact gives it back to the disk")
    return CommandResult(
        text="\n".join(lines),
        data={
            "trial": dry_run,
            "campaigns": pruned.campaigns,
            "runs": pruned.runs,
            "freed_bytes": pruned.freed_bytes,
            "file_bytes_before": before,
            "file_bytes_after": after,
        },
    )


@command("store backup")
def backup(settings: Settings, out: Annotated[Path, arg("File of the copy. It must not exist.")]) -> CommandResult:
    """Copy a store, also one in use, and verify the copy.

    Example: benchfarm store backup copy.db
    """
    store, size, campaigns = retention.backup(settings, out)
    return CommandResult(
        text=f"{out}: {format_bytes(size)}, {campaigns} campaigns or more; restore it by putting it at {store}",
        data={"path": out, "size_bytes": size, "store": store},
    )


@command("store key")
def show_key(
    settings: Settings, key: Annotated[Path | None, opt("--key", "File of another key than this computer's.")] = None
) -> CommandResult:
    """Print the public key that signs bundles. Makes the key at first use.

    Example: benchfarm store key
    """
    public = bundling.signing_key(settings, key).public
    return CommandResult(text=public.text, data={"public_key": public.text, "fingerprint": public.fingerprint})


@command("results close")
def close(
    settings: Settings,
    campaigns: Annotated[Texts, arg("Open campaigns, by id or its beginning.", metavar="CAMPAIGN...")],
) -> CommandResult:
    """Abandon the rest of interrupted campaigns. What was measured stays.

    Example: benchfarm results close CAMPAIGN
    """
    closed = resuming.close(settings, campaigns)
    lines = [
        f"{item.campaign_id} ({item.name}): closed"
        + (f"; {count} invocations that were left are abandoned" if count else "")
        for item, count in closed
    ]
    data = [{"campaign_id": item.campaign_id, "abandoned": count} for item, count in closed]
    return CommandResult(text="\n".join(map(one_line, lines)), data=data)


@command("results remove")
def remove(
    settings: Settings, campaigns: _Named, *, yes: Annotated[bool, opt("--yes -y", "Remove without asking.")] = False
) -> CommandResult:
    """Delete campaigns with all their runs and logs.

    Example: benchfarm results remove CAMPAIGN --yes

    This can't be undone. A campaign that is being measured is refused.
    """
    with Farm(settings, makes_store=False) as farm:
        # All or none of them.
        found = _named(farm.store, campaigns)
        resuming.check_left_alone(farm, [campaign for campaign in found.values() if campaign is not None])
        progress = farm.store.progress()
        stored = {campaign_id: progress.get(campaign_id, (0, 0))[0] for campaign_id in found}
        lines = [one_line(f"{_title(key, found[key])}: {count} runs") for key, count in stored.items()]
        if not yes:
            _confirm(lines)
        for campaign_id in found:
            farm.store.remove_campaign(campaign_id)
    return CommandResult(
        text="\n".join(f"removed {line}" for line in lines),
        data=[{"campaign_id": campaign_id, "runs": count} for campaign_id, count in stored.items()],
    )


@command("results hide")
def hide(settings: Settings, campaigns: _Named) -> CommandResult:
    """Leave campaigns out of lists, tables and the history.

    Example: benchfarm results hide CAMPAIGN

    A command that names a hidden campaign still shows it.
    """
    return _hidden(settings, campaigns, is_hidden=True)


@command("results unhide")
def unhide(settings: Settings, campaigns: _Named) -> CommandResult:
    """Show hidden campaigns again.

    Example: benchfarm results unhide CAMPAIGN
    """
    return _hidden(settings, campaigns, is_hidden=False)


def _hidden(settings: Settings, words: Sequence[str], *, is_hidden: bool) -> CommandResult:
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
