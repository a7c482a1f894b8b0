"""``benchfarm results`` and ``store``: stored results listed, parsed again, hidden, removed, pruned
and copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument, Option

from orchestrator.cli.campaigns import reporting_workspace
from orchestrator.cli.commands import DryRun, Out, Texts, command, workspace_of
from orchestrator.cli.output import CommandResult, Streamed, room, tables_result
from orchestrator.errors import StoreError, UsageError, check_word, nearest
from orchestrator.files import write_file
from orchestrator.records import frozen
from orchestrator.records.case import CampaignId, DelegateName
from orchestrator.settings import Settings
from orchestrator.tables.escapes import one_line
from orchestrator.tables.renderers import as_text
from orchestrator.tables.table import fields_of
from orchestrator.units import counted, format_bytes

if TYPE_CHECKING:
    from orchestrator.app.workspace import Workspace
    from orchestrator.records.campaign import Campaign
    from orchestrator.records.run import RunRecord
    from orchestrator.store.opening import Store

#: Attachments that are protocol buffers: shown only by name.
_BINARY_SUFFIXES: Final = (".pb",)
#: Lines of a list by default; JSON has all then.
_SHOWN: Final = 30
#: Runs held at once for a list without a limit.
_AT_ONCE: Final = 200
_Limit = Annotated[
    int | None, Option("--limit", help="At most N, 0 for all (default: what fits a screen).", min=0)
]


@command("results list", has_table=True)
def campaigns(
    settings: Settings,
    *,
    hidden: Annotated[bool, Option("--all", help="Include hidden campaigns.")] = False,
    name: Annotated[str, Option("--name", help="Only campaigns with this in their name.")] = "",
    status: Annotated[
        str,
        Option(
            "--status", help="Only campaigns of this status: running, finished, interrupted ..."
        ),
    ] = "",
    limit: _Limit = None,
) -> CommandResult:
    """List stored campaigns, newest first.

    Example: benchfarm results list --name nightly --limit 5
    """
    from orchestrator.app.status import running_here, state_of
    from orchestrator.records.campaign import CUT_OFF, ELSEWHERE, CampaignStatus
    from orchestrator.tables.runs import StoredCampaign, campaigns_table

    states = (*CampaignStatus, CUT_OFF, ELSEWHERE)
    if status:
        check_word("--status", status, states)
    with workspace_of(settings) as workspace:
        listed = workspace.store.campaigns(with_hidden=hidden)
        # Read after the campaigns: a removed one is left out, a new one isn't listed.
        progress, out_of_lists = workspace.store.progress(), workspace.store.hidden_campaigns()
        here = running_here(workspace.status_folder, workspace.campaigns)
        matching = [
            (item, state)
            for item in listed
            if item.campaign_id in progress
            and name.lower() in item.name.lower()
            and (state := state_of(workspace, item, here.get(item.campaign_id)))
            and status in {"", state}
        ]
        nothing = f"nothing is stored yet in {workspace.store.name}"
    if listed or out_of_lists:
        nothing = "no campaign matches"
    rows = [
        StoredCampaign(item, progress[item.campaign_id], item.campaign_id in out_of_lists, state)
        for item, state in matching
    ]
    table = campaigns_table(rows[: limit or None])
    further = "{count} older campaigns: --limit 0 lists all"
    max_rows = _SHOWN if limit is None else None
    return tables_result(replace(table, nothing=nothing, most=max_rows, further=further))


@frozen
class RunSelection:
    """Which runs are listed, as options."""

    device: Annotated[str, Option("--serial", "-s", help="Only runs of this phone.")] = ""
    delegate: Annotated[str, Option("--delegate", "-d", help="Only runs of this delegate.")] = ""
    outcome: Annotated[
        str, Option("--status", help="Only runs of this status: completed, failed, timed-out ...")
    ] = ""

    def fits(self, run: RunRecord) -> bool:
        """Whether a run is one of these."""
        return (
            self.device.lower() in {"", run.case.serial.lower()}
            and self.delegate.lower() in {"", run.case.delegate}
            and self.outcome in {"", run.outcome}
        )


@command("results runs", has_table=True)
def runs(
    settings: Settings,
    campaign: Annotated[
        str, Argument(help="Campaign id, its beginning, or a name (default: the newest).")
    ] = "",
    *,
    selection: RunSelection,
    limit: _Limit = None,
) -> CommandResult:
    """List the runs of a campaign.

    Example: benchfarm results runs newest --status failed
    """
    from orchestrator.app.stored import find_campaigns, listed_runs
    from orchestrator.records.run import Outcome
    from orchestrator.tables.runs import runs_table

    if selection.outcome:
        check_word("--status", selection.outcome, Outcome)
    delegate, serial = selection.delegate.lower(), selection.device.lower()
    # A plugin's have a dot.
    if delegate and "." not in delegate:
        check_word("--delegate", delegate, DelegateName)
    with workspace_of(settings) as workspace:
        chosen = [item.campaign_id for item in find_campaigns(workspace.store, campaign)]
        serials = [*workspace.store.devices()]
    if serial and serial not in map(str.lower, serials):
        raise UsageError(
            f"--serial: no phone {selection.device!r} is stored",
            hint=nearest(selection.device, serials)
            or "'benchfarm results runs' without it shows each run's phone",
        )

    def fitting() -> Iterator[RunRecord]:
        # Read while they are printed: a large campaign's runs aren't held in memory.
        with workspace_of(settings) as workspace:
            yield from filter(selection.fits, workspace.store.runs(campaign_ids=chosen))

    def lines() -> Iterator[str]:
        max_lines, count = 10 * _SHOWN if limit is None else limit, 0
        buffer: deque[RunRecord] = deque(maxlen=max_lines or None)
        for run in fitting():
            count += 1
            buffer.append(run)
            if not max_lines and len(buffer) == _AT_ONCE:
                yield from as_text(listed_runs(buffer), room()).split("\n")
                buffer.clear()
        if max_lines and count > max_lines:
            yield f"{count - max_lines} earlier runs: --limit 0 lists all"
        if buffer:
            yield from as_text(listed_runs(buffer), room()).split("\n")
        if not count:
            yield f"campaign {', '.join(chosen)} has no matching run"

    def chosen_runs() -> Iterable[RunRecord]:
        return deque(fitting(), maxlen=limit) if limit else fitting()

    return CommandResult(
        text="",
        lines=lines(),
        data=Streamed(chosen_runs),
        tables=[runs_table(Streamed(chosen_runs))],
    )


@command("results log")
def log(
    settings: Settings,
    run_id: Annotated[
        str, Argument(help="Run id or its beginning, from 'benchfarm results runs', or newest.")
    ],
    attachment: Annotated[
        str, Option("--attachment", "-a", help="Name of one attachment (default: all text).")
    ] = "",
    issue: Annotated[
        bool, Option("--issue", help="Write a text for the program's issue tracker, in Markdown.")
    ] = False,
    out: Out = None,
) -> CommandResult:
    """Show the output of a run, as it was stored.

    Example: benchfarm results log newest

    Example: benchfarm results log RUN --attachment stdout

    Example: benchfarm results log RUN --issue --out issue.md

    'benchfarm parse' reads one attachment, not this whole page.

    The text for an issue has device, program, command, evidence and output, without serial numbers,
    paths, addresses and names.
    """
    from orchestrator.app.stored import find_run, log_text

    if issue and attachment:
        raise UsageError("--issue chooses its own text; leave out --attachment")
    with workspace_of(settings) as workspace:
        run = find_run(workspace.store, run_id)
        if issue:
            return _issue(workspace, run, out)
        attachments = workspace.store.attachments(run.run_id)
    if attachment:
        attachments = tuple(item for item in attachments if item.name == attachment)
        if not attachments:
            raise UsageError(f"run {run.run_id} has no attachment {attachment!r}")
    if out is not None:
        if len(attachments) != 1:
            names = ", ".join(item.name for item in attachments)
            raise UsageError(
                "--out takes one attachment; choose it with --attachment",
                hint=f"there are: {names}",
            )
        write_file(out, attachments[0].data)
        return CommandResult(
            text=str(out), data={"path": out, "size_bytes": len(attachments[0].data)}
        )
    texts = tuple(
        item for item in attachments if attachment or not item.name.endswith(_BINARY_SUFFIXES)
    )
    return CommandResult(
        text=log_text(run, texts),
        data={
            **fields_of(run, "run_id", "command", "exit_code"),
            **fields_of(run.case, "tool", "delegate"),
            "attachments": {item.name: item.data.decode("utf-8", "replace") for item in texts},
        },
    )


def _issue(workspace: Workspace, run: RunRecord, out: Path | None) -> CommandResult:
    from orchestrator.app.stored import issue_report

    text = issue_report(workspace, run)
    if out is None:
        return CommandResult(text=text.rstrip("\n"), data={"run_id": run.run_id, "markdown": text})
    write_file(out, text.encode())
    return CommandResult(text=str(out), data={"path": out, "run_id": run.run_id})


@command("results reparse")
def reparse(
    settings: Settings,
    campaigns: Annotated[
        Texts, Argument(help="Campaign id, its beginning, or a name (default: all campaigns).")
    ] = None,
) -> CommandResult:
    """Parse stored output again, and update the verdicts.

    Example: benchfarm results reparse
    """
    from orchestrator.app.stored import reparse_campaigns

    with workspace_of(settings) as workspace:
        review = reparse_campaigns(workspace, campaigns or ())
    text = f"{counted(review.reviewed, 'run')} parsed again, {len(review.changed)} changed"
    if review.pruned:
        text += f"; {review.pruned} unchanged, because their raw output was deleted"
    if review.unread:
        text += f"; {review.unread} unchanged, because their pass or program isn't installed"
    return CommandResult(text=text, data=review)


_ById = Annotated[
    list[str], Argument(help="Campaigns, by id or its beginning.", metavar="CAMPAIGN...")
]


@command("store prune")
def prune(
    settings: Settings,
    *,
    older_than: Annotated[
        str, Option("--older-than", help="Only campaigns older than this, for example 90d.")
    ],
    dry_run: DryRun = False,
    compact: Annotated[
        bool, Option("--compact", help="Shrink the store's file afterwards.")
    ] = False,
) -> CommandResult:
    """Delete the raw output of old campaigns. Figures and verdicts stay.

    Example: benchfarm store prune --older-than 90d --dry-run
    """
    from orchestrator.app import stored

    pruned = stored.prune(settings, older_than=older_than, is_trial=dry_run, compact=compact)
    runs = f"{counted(pruned.runs, 'run')} in {counted(pruned.campaigns, 'campaign')}"
    freed = f"{format_bytes(pruned.freed_bytes)} of the database"
    deleted = "would be deleted" if dry_run else "deleted"
    text = f"raw output of {runs}, {freed}: {deleted}; their figures, verdicts and states stay"
    return CommandResult(text=text, data={"trial": dry_run, **asdict(pruned)})


@command("store backup")
def backup(
    settings: Settings,
    path: Annotated[Path, Argument(help="File of the copy. It must not exist.", metavar="OUT")],
) -> CommandResult:
    """Copy the store, even while in use, and verify the copy.

    Example: benchfarm store backup copy.db
    """
    from orchestrator.app import stored

    store = stored.backup(settings, path)
    return CommandResult(
        text=f"{path}: a complete copy; to restore it, copy it to {store}",
        data={"path": path, "store": store},
    )


@command("store usage", has_table=True)
def usage(settings: Settings) -> CommandResult:
    """Show what takes space on this disk, and what frees it.

    Example: benchfarm store usage
    """
    from orchestrator.app.stored import disk_usage

    return tables_result(disk_usage(settings))


@command("results close")
def close(
    settings: Settings,
    campaigns: Annotated[
        list[str],
        Argument(help="Open campaigns, by id or its beginning.", metavar="CAMPAIGN..."),
    ],
) -> CommandResult:
    """Abandon the rest of interrupted campaigns. What was measured stays.

    Example: benchfarm results close CAMPAIGN
    """
    from orchestrator.app import resuming

    with reporting_workspace(settings, makes_store=False) as workspace:
        closed = resuming.close(workspace, campaigns)
    lines = [
        f"{item.campaign_id} ({item.name}): closed"
        + (f", {counted(count, 'invocation')} abandoned" if count else "")
        for item, count in closed
    ]
    data = [{"campaign_id": item.campaign_id, "abandoned": count} for item, count in closed]
    return CommandResult(text="\n".join(map(one_line, lines)), data=data)


@command("results remove")
def remove(
    settings: Settings,
    campaigns: _ById,
    *,
    yes: Annotated[bool, Option("--yes", "-y", help="Confirm: this can't be undone.")] = False,
) -> CommandResult:
    """Delete campaigns with all their runs and logs.

    Example: benchfarm results remove CAMPAIGN --yes

    This can't be undone. A campaign that is being measured is refused.
    """
    from orchestrator.app import resuming

    if not yes:
        raise UsageError(
            "removing a campaign can't be undone: give --yes",
            hint="'benchfarm results hide' only removes them from lists",
        )
    with workspace_of(settings) as workspace:
        # All or none of them.
        chosen = _chosen(workspace.store, campaigns)
        resuming.check_no_names(filter(None, chosen.values()), campaigns)
        resuming.check_not_running(
            workspace, [campaign for campaign in chosen.values() if campaign is not None]
        )
        progress = workspace.store.progress()
        counts = {key: progress[key].stored for key in chosen}
        lines = [
            one_line(f"{_title(key, chosen[key])}: {counted(count, 'run')}")
            for key, count in counts.items()
        ]
        for campaign_id in chosen:
            workspace.store.remove_campaign(campaign_id)
    return CommandResult(
        text="\n".join(f"removed {line}" for line in lines),
        data=[{"campaign_id": campaign_id, "runs": count} for campaign_id, count in counts.items()],
    )


@command("results hide")
def hide(
    settings: Settings,
    campaigns: _ById,
    *,
    undo: Annotated[bool, Option("--undo", help="Show hidden campaigns again.")] = False,
) -> CommandResult:
    """Leave campaigns out of lists, tables and the history.

    Example: benchfarm results hide CAMPAIGN

    A command that names a hidden campaign still shows it.
    """
    with workspace_of(settings) as workspace:
        chosen = _chosen(workspace.store, campaigns)
        for campaign_id in chosen:
            workspace.store.hide_campaign(campaign_id, is_hidden=not undo)
    state = "shown again" if undo else "hidden"
    return CommandResult(
        text="\n".join(one_line(f"{state}: {_title(*item)}") for item in chosen.items()),
        data=[{"campaign_id": campaign_id, "hidden": not undo} for campaign_id in chosen],
    )


def _chosen(store: Store, words: Sequence[str]) -> dict[CampaignId, Campaign | None]:
    """Return the campaigns of some words by their ids.

    None replaces a campaign that can't be read, given by its full id.
    """
    from orchestrator.app.stored import find_campaigns

    chosen: dict[CampaignId, Campaign | None] = {}
    for word in words:
        try:
            chosen |= {campaign.campaign_id: campaign for campaign in find_campaigns(store, word)}
        except (StoreError, UsageError):
            if word not in store.progress():
                raise
            chosen[CampaignId(word)] = None
    return chosen


def _title(campaign_id: CampaignId, campaign: Campaign | None) -> str:
    if campaign is None:
        return f"{campaign_id} (can't be read)"
    return f"{campaign_id} ({campaign.name}, started {campaign.created_at.astimezone():%Y-%m-%d %H:%M})"
