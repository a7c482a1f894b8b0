"""What a report shows of stored campaigns, and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.workspace import Workspace
from orchestrator.errors import PlanError
from orchestrator.files import write_file
from orchestrator.records.campaign import Campaign
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from orchestrator.report.data import ReportData


def report_data(
    workspace: Workspace, campaigns: Sequence[Campaign], *, has_logs: bool = True
) -> ReportData:
    """Gather what a report shows of some campaigns.

    No run is held as it was read: tens of thousands would take a gigabyte.
    """
    from orchestrator.report.assembly import Stored, build_report_data
    from orchestrator.report.lean import lean_runs, newest_runs

    named = [item.campaign_id for item in campaigns]
    stored = Stored(
        campaigns=campaigns,
        runs=lean_runs(workspace.store.runs(campaign_ids=named)),
        outputs=workspace.store.attachments_of if has_logs else None,
        devices=workspace.store.devices(),
        models=workspace.store.models(),
        builds=workspace.store.builds(),
        accuracy=_manifest_accuracies(workspace.settings),
    )
    return build_report_data(newest_runs(stored) if len(set(named)) > 1 else stored)


def _manifest_accuracies(settings: Settings) -> Mapping[str, float]:
    """Return the accuracies that the data folder's models.yaml knows, in percent by sha256.

    A manifest with faults is no reason to have no report after a night; 'benchfarm model list'
    tells the faults.
    """
    from orchestrator.config.declarations import MANIFEST_NAME, load_manifest

    try:
        entries = load_manifest(settings.data_folder / MANIFEST_NAME)
    except PlanError:
        return {}
    return {
        sha256: entry.accuracy.percent
        for sha256, entry in entries.items()
        if entry.accuracy is not None
    }


def write_html(data: ReportData, path: Path, *, title: str, makes_folder: bool = False) -> None:
    """Write the HTML report; see :func:`orchestrator.files.write_file`."""
    from orchestrator.report.render import render_html

    write_file(path, render_html(data, title=title), makes_folder=makes_folder)


def write_report(
    settings: Settings,
    data: ReportData,
    campaigns: Sequence[Campaign],
    out: Path | None,
    name: str = "",
) -> Path:
    """Write the HTML report of some campaigns, among the data folder's reports where no file is
    named, and return where: by the first campaign's id there, or by a name.
    """
    name = name or campaigns[0].campaign_id
    path = out or settings.data_folder / "reports" / f"{name}.html"
    write_html(data, path, title=report_title(campaigns), makes_folder=out is None)
    return path


def report_title(campaigns: Sequence[Campaign]) -> str:
    """Return a report's title: the names of its campaigns."""
    return " and ".join(dict.fromkeys(campaign.name for campaign in campaigns))
