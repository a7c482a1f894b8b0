"""Results as other programs and labs take them: bundles, TensorFlow's protos, and the lines of
LiteRT's leaderboard.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.app.exporting import own_folders_of
from orchestrator.errors import UsageError
from orchestrator.files import write_file
from orchestrator.plugins import Exported, Exporter, ExportRequest, Workspace
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import RunId
from orchestrator.units import counted


def _write_bundle(
    workspace: Workspace, campaigns: Sequence[Campaign], request: ExportRequest, out: Path
) -> Exported:
    from orchestrator.extensions.interop.bundle import write_bundle

    ids = [campaign.campaign_id for campaign in campaigns]
    run_ids, folders = _run_ids(workspace, campaigns, request.runs), own_folders_of(workspace)
    done = write_bundle(
        out, workspace.store, ids, run_ids=run_ids, folders=folders, at=workspace.clock.now()
    )
    virtual = f", {done.virtual_runs} of them virtual" if done.virtual_runs else ""
    text = f"{counted(done.runs, 'run')} of {counted(done.campaigns, 'campaign')}{virtual}"
    return Exported(text=text, data={"contents": done})


def _run_ids(
    workspace: Workspace, chosen: Sequence[Campaign], prefixes: Sequence[str]
) -> list[RunId]:
    """Return the runs that a person names by the beginnings of their ids."""
    if not prefixes:
        return []
    known = [
        run.run_id
        for run in workspace.store.runs(campaign_ids=[campaign.campaign_id for campaign in chosen])
    ]
    found = []
    for prefix in prefixes:
        if not prefix:
            raise UsageError(
                "--run names no run", hint="'benchfarm results runs CAMPAIGN' lists them"
            )
        fitting = [run_id for run_id in known if run_id.startswith(prefix)]
        if len(fitting) != 1:
            what = "no run" if not fitting else f"{len(fitting)} runs"
            raise UsageError(
                f"{what} of {', '.join(campaign.campaign_id for campaign in chosen)} begin with {prefix!r}",
                hint="'benchfarm results runs CAMPAIGN' lists them",
            )
        found += fitting
    return found


def _write_protos(
    workspace: Workspace, campaigns: Sequence[Campaign], request: ExportRequest, out: Path
) -> None:
    """Write a BenchmarkResult for each run that has figures: what the program wrote, or else what
    was read of it.
    """
    from orchestrator.reading.protos import encode_result
    from orchestrator.tables.escapes import visible

    wanted = set(_run_ids(workspace, campaigns, request.runs))
    ids = [campaign.campaign_id for campaign in campaigns]
    origins = {
        item.campaign_id: f", {item.terms.origin.text}"
        for item in campaigns
        if item.terms.origin is not None
    }
    for run in workspace.store.runs(campaign_ids=ids, with_attachments=True):
        if (wanted and run.run_id not in wanted) or run.report is None or run.latency_us is None:
            continue
        own = next((item.data for item in run.attachments if item.name == "result.pb"), b"")
        # Programs leave the name empty: here it says what the figures are of, and that virtual ones
        # are none.
        virtual = ", virtual" if run.is_virtual else ""
        name = f"{run.case.model_name}, {run.case.configuration}{virtual}{origins.get(run.campaign_id, '')}"
        write_file(out / f"{run.run_id}.pb", encode_result(run.report, name=visible(name), own=own))


def _write_leaderboard(
    workspace: Workspace, campaigns: Sequence[Campaign], request: ExportRequest, out: Path
) -> None:
    from orchestrator.extensions.interop.leaderboard_lines import leaderboard_lines

    store = workspace.store
    runs = (store.runs(campaign_ids=[campaign.campaign_id]) for campaign in campaigns)
    write_file(
        out,
        leaderboard_lines(
            runs, devices=store.devices(), models=store.models(), builds=store.builds()
        ),
    )


BUNDLE = Exporter(path=Path("benchfarm-bundle.zip"), write=_write_bundle, takes_runs=True)
PROTO = Exporter(path=Path("benchfarm-protos"), write=_write_protos, takes_runs=True)
LEADERBOARD = Exporter(path=Path("benchfarm-measurements.jsonl"), write=_write_leaderboard)
