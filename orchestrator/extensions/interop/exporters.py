"""Results as other programs and labs take them: bundles, and the lines of LiteRT's leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import UsageError
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
    run_ids = _run_ids(workspace, campaigns, request.runs)
    done = write_bundle(workspace, ids, run_ids, out)
    virtual = f", {done.virtual_runs} of them virtual" if done.virtual_runs else ""
    text = f"{counted(done.runs, 'run')} of {counted(done.campaigns, 'campaign')}{virtual}"
    return Exported(text=text, data={"contents": done})


def _run_ids(
    workspace: Workspace, campaigns: Sequence[Campaign], prefixes: Sequence[str]
) -> list[RunId]:
    """Return the runs of some campaigns that the beginnings of ids mean; raises UsageError."""
    if not prefixes:
        return []
    ids = [campaign.campaign_id for campaign in campaigns]
    known = [run.run_id for run in workspace.store.runs(campaign_ids=ids)]
    found = []
    for prefix in prefixes:
        fitting = [run_id for run_id in known if prefix and run_id.startswith(prefix)]
        if prefix in fitting:
            fitting = [RunId(prefix)]
        if len(fitting) != 1:
            what = f"{len(fitting)} runs" if fitting else "no run"
            raise UsageError(
                f"{what} of {', '.join(ids)} begin with {prefix!r}"
                if prefix
                else "--run names no run",
                hint="'benchfarm results runs CAMPAIGN' lists them",
            )
        found += fitting
    return found


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
