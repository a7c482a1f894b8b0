"""``benchfarm export`` and ``import``: results for other programs and labs, and from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator.app import bundling, importing, sessions
from orchestrator.app.bundling import FORMATS, ExportRequest
from orchestrator.app.importing import Imported, ImportRequest
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.frame import HtmlOut, command
from orchestrator.cli.result import CommandResult, format_of
from orchestrator.errors import UsageError
from orchestrator.units import counted


@command("export")
def export(settings: Settings, request: ExportRequest) -> CommandResult:
    """Write results as a bundle, CSV, Parquet, JSON and more.

    Example: benchfarm export newest --format csv
    """
    request = replace(request, form=format_of(request.form, request.out, FORMATS, default="bundle"))
    done = bundling.export(settings, request)
    names = [str(path) for path in done.files]
    text = names[0] if len(names) == 1 else f"{request.target}: {len(names)} files"
    data: dict[str, object] = {"format": request.form, "files": names}
    if (contents := done.contents) is not None:
        virtual = f", {contents.virtual_runs} of them virtual" if contents.virtual_runs else ""
        text = f"{text}: {counted(contents.runs, 'run')} of {counted(contents.campaigns, 'campaign')}{virtual}"
        data["contents"] = contents
    return CommandResult(text=text, data=data)


@command("import")
def import_results(
    settings: Settings,
    request: ImportRequest,
    out: HtmlOut = None,
) -> CommandResult:
    """Import a bundle, or results of other labs and apps.

    Example: benchfarm import lab.bundle.json
    """
    files, models, device = request.files, request.models, request.device
    if missing := next((path for path in files if not path.exists()), None):
        raise UsageError(f"{missing}: there is no such file")
    if all(map(sessions.is_session, files)):
        if device or request.profile or request.app:
            raise UsageError("a session says itself what it ran on and with", hint="give --model and --name only")
        return import_sessions(settings, request, out)
    if folder := next((path for path in files if not path.is_file()), None):
        raise UsageError(f"{folder}: is a folder", hint="import a session's folder on its own")
    if any(map(bundling.is_bundle, files)):
        if len(files) > 1 or device or models:
            raise UsageError("a bundle is imported alone and says itself what is in it")
        return take_in(settings, files[0])
    if not device or not models:
        raise UsageError("these results don't say what they are of", hint="give --device and --model")
    return import_files(settings, request, out)


def take_in(settings: Settings, path: Path) -> CommandResult:
    """Store what a bundle holds; the exit code is 1 when runs had to be left out."""
    done = bundling.take_in(settings, path)
    new = f"new: {len(done.new_campaigns)} of {counted(len(done.campaigns), 'campaign')}, {', '.join(done.campaigns)}"
    lines = [f"{counted(done.new_runs, 'run')} taken in, {done.known_runs} stored before; {new}"]
    told = f"imported from {path.name}, sha256 {done.origin.sha256}"
    lines.append(f"read again from their raw output; {told}")
    if done.other_runs:
        why = "the store holds others in their place, or they are of a campaign of its own"
        lines.append(f"{counted(len(done.other_runs), 'run')} left out: {why}")
    return CommandResult(text="\n".join(lines), data=done, exit_code=1 if done.other_runs else 0)


def import_files(settings: Settings, request: ImportRequest, out: Path | None) -> CommandResult:
    """Import results of benchmark apps that somebody else started; raises UsageError kinds, storing nothing."""
    with Farm(settings) as farm:
        return told(importing.import_files(farm, request, out))


def import_sessions(settings: Settings, request: ImportRequest, out: Path | None) -> CommandResult:
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
    lines += [f"{counted(len(result.runs), 'run')} imported{known}", *done.notes]
    data: dict[str, object] = {"campaign_id": None, "imported": len(result.runs)}
    data |= {"known": result.known, "notes": list(done.notes)}
    if result.campaign is not None:
        lines.append(f"report: {done.report}")
        data |= {"campaign_id": result.campaign.campaign_id, "report": done.report, "runs": result.runs}
        data |= {"without_result": done.without_result}
    return CommandResult(text="\n".join(lines), data=data, exit_code=int(bool(done.without_result or done.left_out)))
