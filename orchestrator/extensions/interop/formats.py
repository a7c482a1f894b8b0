"""Further formats of ``benchfarm export`` and ``import``: bundles, lines of LiteRT's leaderboard,
sessions of a device lab, and texts that a benchmark program printed.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.extensions.interop.leaderboard import leaderboard_lines
from orchestrator.files import write_file
from orchestrator.plugins import (
    CommandResult,
    Exporter,
    ExportRequest,
    Importer,
    ImportRequest,
    Settings,
    Workspace,
    import_result,
)
from orchestrator.records.answers import DoneAnswer
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import RunRecord
from orchestrator.units import counted


def _write_bundle(
    workspace: Workspace, campaigns: Sequence[Campaign], request: ExportRequest, out: Path
) -> DoneAnswer:
    from orchestrator.extensions.interop.bundle import write_bundle

    done = write_bundle(workspace, campaigns, request.runs, out)
    virtual = f", {done.virtual_runs} of them virtual" if done.virtual_runs else ""
    text = f"{counted(done.runs, 'run')} of {counted(done.campaigns, 'campaign')}{virtual}"
    if done.pruned_runs:
        text += (
            f"; {done.pruned_runs} without raw output, which was deleted: suspect where imported"
        )
    return DoneAnswer(text=text, data={"contents": done})


def _write_leaderboard(
    workspace: Workspace, campaigns: Sequence[Campaign], request: ExportRequest, out: Path
) -> DoneAnswer:
    store = workspace.store
    runs = (store.runs(campaign_ids=[campaign.campaign_id]) for campaign in campaigns)
    write_file(
        out,
        leaderboard_lines(
            runs, devices=store.devices(), models=store.models(), builds=store.builds()
        ),
    )
    with out.open("rb") as lines:
        # Without any run that the leaderboard has a line for, there are none.
        return DoneAnswer(text=counted(sum(1 for _ in lines), "line"))


BUNDLE_OUT = Exporter(
    path=Path("benchfarm-bundle.zip"),
    write=_write_bundle,
    about="everything about the runs, for another benchfarm ([the file](#the-bundles-file))",
    takes_runs=True,
)
LEADERBOARD = Exporter(
    path=Path("benchfarm-measurements.jsonl"),
    write=_write_leaderboard,
    about="a JSON object a line for each process, with the keys of LiteRT's leaderboard, ours under"
    " `benchfarm`; `status` is `measured` only for a clean figure of a real phone, else `virtual`,"
    " `suspect` or `not-confirmed`. Other delegates than CPU, GPU and NPU, and what was imported,"
    " are left out",
)


def _import_bundle(settings: Settings, request: ImportRequest) -> CommandResult:
    """Store the new records of a bundle; the exit code is 1 when runs had to be left out."""
    from orchestrator.extensions.interop.bundle import Bundle, import_bundle
    from orchestrator.plugins import read_imported

    path, *other_files = request.files
    if other_files or request.device or request.models or request.profile or request.app:
        raise UsageError(
            "a bundle is imported alone, without --serial, --model, --profile and --app"
        )
    with Workspace(settings) as workspace, Bundle(path) as bundle:
        tools = workspace.tools

        def read(run: RunRecord, facts: DeviceFacts, campaign: Campaign) -> RunRecord:
            return read_imported(run, facts, tools, campaign.terms.quiet.screen)

        done = import_bundle(bundle, workspace.store, read=read)
    new = f"new: {len(done.new_campaigns)} of {counted(len(done.campaigns), 'campaign')}, {', '.join(done.campaigns)}"
    lines = [f"{counted(done.new_runs, 'run')} imported, {done.known_runs} already stored; {new}"]
    origin = f"imported from {path.name}, sha256 {done.origin.sha256}"
    how = "read again from their raw output"
    if done.pruned_runs:
        none = f"{done.pruned_runs} of {done.new_runs} have no raw output, which was deleted before"
        how = f"{none}: their figures are the bundle's, and suspect (imported-unread)"
    lines.append(f"{how}; {origin}" if done.new_runs else origin)
    if done.other_runs:
        why = "the store holds others in their place, or they are of a campaign of its own"
        lines.append(f"{counted(len(done.other_runs), 'run')} left out: {why}")
    return CommandResult(text="\n".join(lines), data=done, exit_code=1 if done.other_runs else 0)


def _import_sessions(settings: Settings, request: ImportRequest) -> CommandResult:
    from orchestrator.extensions.interop.sessions import import_sessions

    with Workspace(settings) as workspace:
        return import_result(import_sessions(workspace, request))


def _import_texts(settings: Settings, request: ImportRequest) -> CommandResult:
    from orchestrator.extensions.interop.plain_text import import_texts

    with Workspace(settings) as workspace:
        return import_result(import_texts(workspace, request))


def _is_session(path: Path) -> bool:
    from orchestrator.extensions.interop.sessions import is_session

    return is_session(path)


def _is_bundle(path: Path) -> bool:
    """Whether a path is a zip archive with a manifest, or a damaged one."""
    from orchestrator.extensions.interop.bundle import MANIFEST

    try:
        with zipfile.ZipFile(path) as archive:
            return MANIFEST in archive.namelist()
    except OSError:
        return False
    except zipfile.BadZipFile:
        return zipfile.is_zipfile(path)


BUNDLE_IN = Importer(title="a bundle", takes=_is_bundle, take_in=_import_bundle)
SESSION = Importer(
    title="a session's folder or leaderboard lines", takes=_is_session, take_in=_import_sessions
)
CONSOLE = Importer(
    title="a text that a benchmark program printed",
    takes=Path.is_file,
    take_in=_import_texts,
    is_last=True,
)
