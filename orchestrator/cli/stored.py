"""What is in the store: campaigns, runs, raw output, reading it again, exports and imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.app import bundling, importing, sessions
from orchestrator.app.bundling import FORMATS, ExportRequest
from orchestrator.app.importing import Imported, ImportRequest
from orchestrator.app.progress import describe_run
from orchestrator.app.run_logs import log_text
from orchestrator.app.sessions import SessionRequest
from orchestrator.app.stored import find_campaigns, find_run, reparse_campaigns
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.files import format_of
from orchestrator.cli.result import CommandResult, table
from orchestrator.config.faults import not_one_of
from orchestrator.errors import UsageError
from orchestrator.files import write_file
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.run import Outcome
from orchestrator.report.escapes import one_line

#: Attachments that are protocol buffers: shown only when they are asked for by name.
_BINARY_SUFFIXES = (".pb",)


#: Lines of a list where no limit is given; JSON has all then.
_SHOWN = 30


def campaigns(
    settings: Settings, *, with_hidden: bool = False, name: str = "", status: str = "", limit: int | None = None
) -> CommandResult:
    """List campaigns, newest first: those with these letters in their name, and of this status.

    At most ``limit`` (0: all); where none is given, the text has the newest and says how many more there are.
    """
    if status and status not in list(CampaignStatus):
        raise UsageError(f"--status: {not_one_of(status, CampaignStatus)}")
    with Farm(settings, makes_store=False) as farm:
        rows = []
        found: list[dict[str, object]] = []
        progress, hidden = farm.store.progress(), farm.store.hidden_campaigns()
        for campaign in farm.store.campaigns(with_hidden=with_hidden):
            if name.lower() not in campaign.name.lower() or status not in {"", campaign.status.value}:
                continue
            # More runs than were planned: options and Flex builds that were found to be measured too.
            done, total = progress[campaign.campaign_id]
            when = f"{campaign.created_at.astimezone():%Y-%m-%d %H:%M}"
            called = f"{campaign.name} (imported)" if campaign.terms.origin else campaign.name
            called += " (hidden)" if campaign.campaign_id in hidden else ""
            rows.append((campaign.campaign_id, called, when, campaign.status.value, f"{done}/{max(done, total)}"))
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
    elif (name or status) and not rows:
        nothing = "no campaign fits"
    shown = (_SHOWN if limit is None else limit) or len(rows)
    more = f"\n{len(rows) - shown} older campaigns: --limit 0 lists all" if shown < len(rows) else ""
    text = (
        table(("campaign", "name", "started", "status", "runs"), rows[:shown], right=(4,)) + more if rows else nothing
    )
    return CommandResult(text=text, data=found[: limit or None])


def runs(
    settings: Settings,
    prefix: str,
    *,
    serial: str = "",
    delegate: str = "",
    outcome: str = "",
    limit: int | None = None,
) -> CommandResult:
    """List the runs of a campaign, or of a farm's submission, in the order in which they were stored.

    Those of one phone, delegate and outcome where these are given, and of them the last ``limit`` (0: all).
    """
    if outcome and outcome not in list(Outcome):
        raise UsageError(f"--outcome: {not_one_of(outcome, Outcome)}")
    with Farm(settings, makes_store=False) as farm:
        chosen = [campaign.campaign_id for campaign in find_campaigns(farm.store, prefix)]
        stored = [
            run
            for run in farm.store.runs(campaign_ids=chosen)
            if serial.lower() in {"", run.case.serial.lower()}
            and delegate.lower() in {"", run.case.delegate}
            and outcome in {"", run.outcome}
        ]
    shown = (10 * _SHOWN if limit is None else limit) or len(stored)
    lines = [
        f"{run.run_id[:12]}  {one_line(run.case.serial)}  {one_line(describe_run(run))}" for run in stored[-shown:]
    ]
    if shown < len(stored):
        lines.insert(0, f"{len(stored) - shown} earlier runs: --limit 0 lists all")
    nothing = "no run fits" if serial or delegate or outcome else "this campaign has no runs yet"
    return CommandResult(text="\n".join(lines) or nothing, data=stored[-limit:] if limit else stored)


def issue(settings: Settings, prefix: str, out: Path | None) -> CommandResult:
    """Write one run as a text for an issue tracker, without anything private."""
    from orchestrator.app.run_logs import issue_of

    with Farm(settings, makes_store=False) as farm:
        run = find_run(farm.store, prefix)
        text = issue_of(farm, run)
    if out is not None:
        write_file(out, text.encode())
        return CommandResult(text=str(out), data={"path": out, "run_id": run.run_id})
    return CommandResult(text=text.rstrip("\n"), data={"run_id": run.run_id, "markdown": text})


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
    with Farm(settings, makes_store=False) as farm:
        review = reparse_campaigns(farm, prefixes)
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


def export(settings: Settings, request: ExportRequest) -> CommandResult:
    """Write campaigns, or some of their runs; a format that isn't named is known by the ending of the file."""
    request = replace(request, form=format_of(request.form, request.out, FORMATS, default="bundle"))
    done = bundling.export(settings, request)
    names = [str(path) for path in done.files]
    text = names[0] if len(names) == 1 else f"{request.target}: {len(names)} files"
    data: dict[str, object] = {"format": request.form, "files": names}
    if (contents := done.contents) is not None:
        virtual = f", {contents.virtual_runs} of them virtual" if contents.virtual_runs else ""
        signed = f", signed by {done.signer}" if done.signer else ""
        text = f"{text}: {contents.runs} runs of {contents.campaigns} campaigns{virtual}{signed}"
        data["contents"] = contents
    return CommandResult(text=text, data=data)


def show_key(settings: Settings, path: Path | None) -> CommandResult:
    """Show the public key that bundles are signed with, this computer's own where no other is named."""
    public = bundling.signing_key(settings, path).public
    return CommandResult(text=public.text, data={"public_key": public.text, "fingerprint": public.fingerprint})


def take_in(settings: Settings, path: Path, trust: Sequence[str] = ()) -> CommandResult:
    """Store what a bundle holds; the exit code is 1 when runs had to be left out."""
    done = bundling.take_in(settings, path, trust)
    new = f"{len(done.new_campaigns)} of {len(done.campaigns)} campaigns are new: {', '.join(done.campaigns)}"
    lines = [f"{done.new_runs} runs taken in, {done.known_runs} were there already; {new}"]
    told = f"imported from {path.name}, sha256 {done.origin.sha256}, {done.origin.signature}"
    lines.append(f"read again from their raw output; {told}")
    if done.other_runs:
        why = "the store holds others in their place, or they are of a campaign of its own"
        lines.append(f"{len(done.other_runs)} runs were left out: {why}")
    return CommandResult(text="\n".join(lines), data=done, exit_code=1 if done.other_runs else 0)


def import_files(settings: Settings, request: ImportRequest, out: Path | None) -> CommandResult:
    """Import results of benchmark apps that somebody else started; raises UsageError kinds, storing nothing."""
    with Farm(settings) as farm:
        return told(importing.import_files(farm, request, out))


def import_sessions(settings: Settings, request: SessionRequest, out: Path | None) -> CommandResult:
    """Import session folders and leaderboard files; raises UsageError kinds, storing nothing."""
    with Farm(settings) as farm:
        done = [told(one) for one in sessions.import_sessions(farm, request, out)]
    if len(done) == 1:
        return done[0]
    return CommandResult(
        text="\n\n".join(one.text for one in done),
        data={"imports": [one.data for one in done]},
        exit_code=max(one.exit_code for one in done),
    )


def told(done: Imported) -> CommandResult:
    """Return what an import did, with the table and the report of what is new."""
    from orchestrator.report.tables import render_text_table

    result = done.result
    lines = [render_text_table(done.shown).rstrip("\n"), ""] if done.shown is not None else []
    known = f", {result.known} were there already" if result.known else ""
    lines += [f"{len(result.runs)} runs imported{known}", *done.notes]
    data: dict[str, object] = {"campaign_id": None, "imported": len(result.runs)}
    data |= {"known": result.known, "notes": list(done.notes)}
    if result.campaign is not None:
        lines.append(f"report: {done.report}")
        data |= {"campaign_id": result.campaign.campaign_id, "report": done.report, "runs": result.runs}
        data |= {"without_result": done.without_result}
    return CommandResult(text="\n".join(lines), data=data, exit_code=int(bool(done.without_result or done.left_out)))
