"""What is in the store: campaigns, runs, raw output; and reading it again."""

from __future__ import annotations

from pathlib import Path

from orchestrator.app.progress import describe_run
from orchestrator.app.stored import find_campaigns, find_run, named_campaigns
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.result import CommandResult, table
from orchestrator.cli.run_log import log_text
from orchestrator.errors import UsageError
from orchestrator.files import write_file
from orchestrator.report.escapes import one_line

#: Attachments that are protocol buffers: shown only when they are asked for by name.
_BINARY_SUFFIXES = (".pb",)


def campaigns(settings: Settings, *, with_hidden: bool = False) -> CommandResult:
    """List campaigns, newest first."""
    with Farm(settings, makes_store=False) as farm:
        rows = []
        found: list[dict[str, object]] = []
        progress, hidden = farm.store.progress(), farm.store.hidden_campaigns()
        for campaign in farm.store.campaigns(with_hidden=with_hidden):
            # More runs than were planned: options and Flex builds that were found to be measured too.
            done, total = progress[campaign.campaign_id]
            when = f"{campaign.created_at.astimezone():%Y-%m-%d %H:%M}"
            name = f"{campaign.name} (imported)" if campaign.terms.origin else campaign.name
            name += " (hidden)" if campaign.campaign_id in hidden else ""
            rows.append((campaign.campaign_id, name, when, campaign.status.value, f"{done}/{max(done, total)}"))
            found.append(
                {
                    "campaign_id": campaign.campaign_id,
                    "name": campaign.name,
                    "created_at": campaign.created_at,
                    "status": campaign.status,
                    "stored": done,
                    "planned": total,
                    "host": campaign.host,
                    "origin": campaign.terms.origin,
                    "hidden": campaign.campaign_id in hidden,
                }
            )
        left_out = 0 if with_hidden else len(hidden)
        nothing = f"nothing is stored yet in {farm.store.name}"
    if left_out and not rows:
        nothing = f"all {left_out} campaigns are hidden: 'benchfarm results list --hidden' lists them"
    text = table(("campaign", "name", "started", "status", "runs"), rows, right=(4,)) if rows else nothing
    return CommandResult(text=text, data=found)


def runs(settings: Settings, prefix: str) -> CommandResult:
    """List the runs of a campaign, or of a farm's submission, in the order in which they were stored."""
    with Farm(settings, makes_store=False) as farm:
        chosen = [campaign.campaign_id for campaign in find_campaigns(farm.store, prefix)]
        stored = list(farm.store.runs(campaign_ids=chosen))
    lines = [f"{run.run_id[:12]}  {one_line(run.case.serial)}  {one_line(describe_run(run))}" for run in stored]
    return CommandResult(text="\n".join(lines) or "this campaign has no runs yet", data=stored)


def log(settings: Settings, prefix: str, name: str, out: Path | None) -> CommandResult:
    """Show or write one run's raw output."""
    with Farm(settings, makes_store=False) as farm:
        run = find_run(farm.store, prefix)
        attachments = farm.store.attachments(run.run_id)
    if name:
        attachments = tuple(item for item in attachments if item.name == name)
        if not attachments:
            raise UsageError(f"run {run.run_id} has no attachment {name!r}")
    if out is not None:
        if len(attachments) != 1:
            names = ", ".join(item.name for item in attachments)
            raise UsageError("--out takes one attachment; choose it with --attachment", hint=f"there are: {names}")
        write_file(out, attachments[0].data)
        return CommandResult(text=str(out), data={"path": out, "size_bytes": len(attachments[0].data)})
    shown = tuple(item for item in attachments if name or not item.name.endswith(_BINARY_SUFFIXES))
    return CommandResult(
        text=log_text(run, shown),
        data={
            "run_id": run.run_id,
            "command": run.command,
            "exit_code": run.exit_code,
            "tool": run.case.tool,
            "delegate": run.case.delegate,
            "attachments": {item.name: item.data.decode("utf-8", "replace") for item in shown},
        },
    )


def reparse(settings: Settings, prefixes: tuple[str, ...]) -> CommandResult:
    """Read stored raw output again."""
    from orchestrator.engine.review import reparse as read_again

    with Farm(settings, makes_store=False) as farm:
        chosen = tuple(campaign.campaign_id for campaign in named_campaigns(farm.store, prefixes))
        review = read_again(farm.store, farm.tools, campaign_ids=chosen)
    text = f"{review.reviewed} runs read again, {len(review.changed)} changed"
    if review.pruned:
        text += f"; {review.pruned} stay as they are, their raw output was deleted"
    return CommandResult(
        text=text,
        data={
            "reviewed": review.reviewed,
            "changed": [run.run_id for run in review.changed],
            "pruned": review.pruned,
        },
    )
