"""Results as other programs and labs take them: bundles, and the lines of LiteRT's leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.extensions.interop.leaderboard import leaderboard_lines
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
    done = write_bundle(workspace, ids, [RunId(run_id) for run_id in request.runs], out)
    virtual = f", {done.virtual_runs} of them virtual" if done.virtual_runs else ""
    text = f"{counted(done.runs, 'run')} of {counted(done.campaigns, 'campaign')}{virtual}"
    if done.pruned_runs:
        text += (
            f"; {done.pruned_runs} without raw output, which was deleted: suspect where imported"
        )
    return Exported(text=text, data={"contents": done})


def _write_leaderboard(
    workspace: Workspace, campaigns: Sequence[Campaign], request: ExportRequest, out: Path
) -> None:
    store = workspace.store
    runs = (store.runs(campaign_ids=[campaign.campaign_id]) for campaign in campaigns)
    write_file(
        out,
        leaderboard_lines(
            runs, devices=store.devices(), models=store.models(), builds=store.builds()
        ),
    )


BUNDLE = Exporter(path=Path("benchfarm-bundle.zip"), write=_write_bundle, takes_runs=True)
LEADERBOARD = Exporter(path=Path("benchfarm-measurements.jsonl"), write=_write_leaderboard)
