"""``benchfarm results``: stored campaigns and runs, their raw output, and reading it again."""

from __future__ import annotations

from typing import Annotated, Final

from orchestrator.app.progress import describe_run
from orchestrator.app.run_logs import log_text
from orchestrator.app.stored import find_campaigns, find_run, reparse_campaigns
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.frame import Campaigns, Out, arg, command, opt
from orchestrator.cli.result import CommandResult, table
from orchestrator.config.faults import not_one_of
from orchestrator.errors import UsageError
from orchestrator.files import write_file
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.run import Outcome
from orchestrator.report.escapes import one_line

#: Attachments that are protocol buffers: shown only when they are asked for by name.
_BINARY_SUFFIXES: Final = (".pb",)
#: Lines of a list where no limit is given; JSON has all then.
_SHOWN: Final = 30
_Limit = Annotated[int | None, opt("--limit", "At most N, 0 for all (default: what fits a screen).", min=0)]
_Run = Annotated[str, arg("Run id or its beginning, from 'benchfarm results runs'.")]


@command("results list")
def campaigns(
    settings: Settings,
    *,
    hidden: Annotated[bool, opt("--hidden", "List hidden campaigns too.")] = False,
    name: Annotated[str, opt("--name", "Only campaigns with this in their name.")] = "",
    status: Annotated[str, opt("--status", "Only running, finished, interrupted ... ones.")] = "",
    limit: _Limit = None,
) -> CommandResult:
    """List stored campaigns, newest first.

    Example: benchfarm results list --name nightly --limit 5
    """
    if status and status not in list(CampaignStatus):
        raise UsageError(f"--status: {not_one_of(status, CampaignStatus)}")
    with Farm(settings, makes_store=False) as farm:
        progress, out_of_lists = farm.store.progress(), farm.store.hidden_campaigns()
        found = [
            item
            for item in farm.store.campaigns(with_hidden=hidden)
            if name.lower() in item.name.lower() and status in {"", item.status.value}
        ]
        nothing = f"nothing is stored yet in {farm.store.name}"
    if out_of_lists and not hidden:
        nothing = f"all {len(out_of_lists)} campaigns are hidden: 'benchfarm results list --hidden' lists them"
    elif name or status:
        nothing = "no campaign fits"
    shown = (_SHOWN if limit is None else limit) or len(found)

    def row(item: Campaign) -> tuple[str, ...]:
        # More runs than were planned: options and Flex builds that were found to be measured too.
        done, planned = progress[item.campaign_id]
        marks = (" (imported)" if item.terms.origin else "") + (" (hidden)" if item.campaign_id in out_of_lists else "")
        when = f"{item.created_at.astimezone():%Y-%m-%d %H:%M}"
        return item.campaign_id, item.name + marks, when, item.status.value, f"{done}/{max(done, planned)}"

    text = table(("campaign", "name", "started", "status", "runs"), [row(item) for item in found[:shown]], right=(4,))
    text += f"\n{len(found) - shown} older campaigns: --limit 0 lists all" if shown < len(found) else ""
    data = [
        {
            "campaign_id": item.campaign_id,
            "name": item.name,
            "created_at": item.created_at,
            "status": item.status,
            "stored": progress[item.campaign_id][0],
            "planned": progress[item.campaign_id][1],
            "host": item.host,
            "origin": item.terms.origin,
            "hidden": item.campaign_id in out_of_lists,
        }
        for item in found[: limit or None]
    ]
    return CommandResult(text=text if found else nothing, data=data)


@command("results runs")
def runs(
    settings: Settings,
    campaign: Annotated[str, arg("Campaign id or its beginning (default: the newest).")] = "",
    *,
    device: Annotated[str, opt("--device -s", "Only runs of this phone.")] = "",
    delegate: Annotated[str, opt("--delegate -d", "Only runs of this delegate.")] = "",
    outcome: Annotated[str, opt("--outcome", "Only completed, failed, timed-out ... ones.")] = "",
    limit: _Limit = None,
) -> CommandResult:
    """List the runs of a campaign.

    Example: benchfarm results runs newest --outcome failed
    """
    if outcome and outcome not in list(Outcome):
        raise UsageError(f"--outcome: {not_one_of(outcome, Outcome)}")
    with Farm(settings, makes_store=False) as farm:
        chosen = [item.campaign_id for item in find_campaigns(farm.store, campaign)]
        found = [
            run
            for run in farm.store.runs(campaign_ids=chosen)
            if device.lower() in {"", run.case.serial.lower()}
            and delegate.lower() in {"", run.case.delegate}
            and outcome in {"", run.outcome}
        ]
    shown = (10 * _SHOWN if limit is None else limit) or len(found)
    lines = [f"{run.run_id[:12]}  {one_line(run.case.serial)}  {one_line(describe_run(run))}" for run in found[-shown:]]
    if shown < len(found):
        lines.insert(0, f"{len(found) - shown} earlier runs: --limit 0 lists all")
    nothing = "no run fits" if device or delegate or outcome else "this campaign has no runs yet"
    return CommandResult(text="\n".join(lines) or nothing, data=found[-limit:] if limit else found)


@command("results issue")
def issue(settings: Settings, run_id: _Run, out: Out = None) -> CommandResult:
    """Write a run as a text for a program's issue tracker.

    Example: benchfarm results issue RUN --out issue.md

    Device, program, command, evidence and output; serial numbers, paths, addresses and names are left out.
    """
    from orchestrator.app.run_logs import issue_of

    with Farm(settings, makes_store=False) as farm:
        run = find_run(farm.store, run_id)
        text = issue_of(farm, run)
    if out is not None:
        write_file(out, text.encode())
        return CommandResult(text=str(out), data={"path": out, "run_id": run.run_id})
    return CommandResult(text=text.rstrip("\n"), data={"run_id": run.run_id, "markdown": text})


@command("results log")
def log(
    settings: Settings,
    run_id: _Run,
    attachment: Annotated[str, opt("--attachment -a", "Name of one attachment (default: all text).")] = "",
    out: Out = None,
) -> CommandResult:
    """Show the output of a run, as it was stored.

    Example: benchfarm results log RUN
    """
    with Farm(settings, makes_store=False) as farm:
        run = find_run(farm.store, run_id)
        found = farm.store.attachments(run.run_id)
    if attachment:
        found = tuple(item for item in found if item.name == attachment)
        if not found:
            raise UsageError(f"run {run.run_id} has no attachment {attachment!r}")
    if out is not None:
        if len(found) != 1:
            names = ", ".join(item.name for item in found)
            raise UsageError("--out takes one attachment; choose it with --attachment", hint=f"there are: {names}")
        write_file(out, found[0].data)
        return CommandResult(text=str(out), data={"path": out, "size_bytes": len(found[0].data)})
    shown = tuple(item for item in found if attachment or not item.name.endswith(_BINARY_SUFFIXES))
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


@command("results reparse")
def reparse(settings: Settings, campaigns: Campaigns = ()) -> CommandResult:
    """Parse stored output again, and update the verdicts.

    Example: benchfarm results reparse

    Default: all campaigns.
    """
    with Farm(settings, makes_store=False) as farm:
        review = reparse_campaigns(farm, campaigns)
    text = f"{review.reviewed} runs read again, {len(review.changed)} changed"
    if review.pruned:
        text += f"; {review.pruned} stay as they are, their raw output was deleted"
    changed = [run.run_id for run in review.changed]
    return CommandResult(text=text, data={"reviewed": review.reviewed, "changed": changed, "pruned": review.pruned})
