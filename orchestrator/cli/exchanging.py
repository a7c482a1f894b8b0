"""``benchfarm export`` and ``benchfarm import``: what was written, and what was taken in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.app import bundling, importing, sessions
from orchestrator.app.bundling import FORMATS, ExportRequest
from orchestrator.app.importing import Imported, ImportRequest
from orchestrator.app.sessions import SessionRequest
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.files import format_of
from orchestrator.cli.result import CommandResult


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
    """Import Firebase records and Delegate Performance Benchmark reports; raises UsageError kinds, storing nothing."""
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
