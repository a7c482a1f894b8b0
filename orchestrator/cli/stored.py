"""What is in the store: campaigns, runs, raw output; and reading it again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.files import write_file
from orchestrator.cli.progress import describe_run
from orchestrator.cli.result import CommandResult, one_line, table
from orchestrator.cli.run_log import log_text
from orchestrator.errors import UsageError
from orchestrator.ports import Store
from orchestrator.queueing.messages import campaign_id_of
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.identity import CampaignId, RunId
from orchestrator.records.run import RunRecord
from orchestrator.records.workload import Pass

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
        run = _find_run(farm.store, prefix)
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


def find_campaigns(store: Store, word: str) -> list[Campaign]:
    """Return the campaigns that a word means: one, or a farm's submission, whose phones have a campaign each.

    A word is as for find_campaign, or a submission's name. ``newest`` and ``previous`` mean whole submissions too.
    Raises UsageError.
    """
    if word == "previous":
        newest = find_campaigns(store, "newest")
        ids = {item.campaign_id for item in newest}
        others = [item for item in store.campaigns() if item.campaign_id not in ids]
        if not others:
            raise UsageError(
                f"there is no previous campaign in {store.name}", hint="'benchfarm results list' lists what is stored"
            )
        return _with_its_submission(store, _previous(store, newest, others))
    if word in {"", "newest"}:
        return _with_its_submission(store, find_campaign(store, word))
    jobs = [] if store.campaign(CampaignId(word)) is not None else _jobs_of(store, word)
    return jobs or [find_campaign(store, word)]


def _previous(store: Store, newest: Sequence[Campaign], others: Sequence[Campaign]) -> Campaign:
    """Return the newest of the others that has a case of these, one of the same name before one of another.

    Where none has a case in common it is the newest.
    """
    cases = {_what(item) for campaign in newest for item in campaign.invocations}
    for listed in sorted(others, key=lambda item: item.name != newest[0].name):
        campaign = store.campaign(listed.campaign_id)
        if campaign is not None and any(_what(item) in cases for item in campaign.invocations):
            return campaign
    return find_campaign(store, others[0].campaign_id)


def _what(item: Invocation) -> tuple[str, str, str, Pass]:
    """Return what two campaigns measured alike: the model by its name, the device, the configuration."""
    return item.case.model_name, item.case.serial, item.case.configuration, item.run_pass


def named_campaigns(store: Store, words: Iterable[str]) -> list[Campaign]:
    """Return the campaigns that some words mean, one after the other; raises UsageError (find_campaigns)."""
    return [campaign for word in words for campaign in find_campaigns(store, word)]


def _with_its_submission(store: Store, campaign: Campaign) -> list[Campaign]:
    """Return a campaign with those of the other phones of its submission; alone when it is of none."""
    serials = {item.case.serial for item in campaign.invocations}
    if len(serials) != 1:
        return [campaign]
    suffix = campaign_id_of("", *serials)
    submission = campaign.campaign_id.removesuffix(suffix)
    if submission == campaign.campaign_id:
        return [campaign]
    return _jobs_of(store, submission)


def _jobs_of(store: Store, submission: str) -> list[Campaign]:
    """Return the campaigns of a submission's phones, in the order of their serial numbers."""
    found = (store.campaign(campaign_id_of(submission, serial)) for serial in sorted(store.devices()))
    return [item for item in found if item is not None]


def find_campaign(store: Store, prefix: str, *, only_open: bool = False) -> Campaign:
    """Return the campaign that a word means; raises UsageError.

    A word is an id or the beginning of one, or ``newest`` (as the empty word).
    """
    prefix = "" if prefix == "newest" else prefix
    known = store.campaigns(only_open=only_open, with_hidden=bool(prefix), limit=None if prefix else 1)
    matching = [item for item in known if item.campaign_id.startswith(prefix)]
    matching = [item for item in matching if item.campaign_id == prefix] or matching
    if not matching:
        what = "campaign that could be resumed" if only_open else "campaign"
        named = f" {prefix!r}" if prefix else ""
        raise UsageError(f"there is no {what}{named} in {store.name}", hint="'benchfarm results list' lists them")
    if prefix and len(matching) > 1:
        raise UsageError(
            f"{prefix!r} fits {_listed([item.campaign_id for item in matching])}", hint="give more letters"
        )
    found = store.campaign(matching[0].campaign_id)
    assert found is not None
    return found


def _find_run(store: Store, prefix: str) -> RunRecord:
    matching = store.run_ids(prefix)
    if not matching:
        raise UsageError(f"there is no run {prefix!r} in {store.name}", hint="'benchfarm results runs' lists them")
    if len(matching) > 1 and prefix not in matching:
        raise UsageError(f"{prefix!r} fits {_listed(matching)}", hint="give more letters")
    found = store.run(RunId(prefix) if prefix in matching else matching[0])
    assert found is not None
    return found


def _listed(identities: Sequence[str]) -> str:
    return ", ".join(identities[:3]) + (" ..." if len(identities) > 3 else "")
