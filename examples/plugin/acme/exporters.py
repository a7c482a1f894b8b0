"""An export format: a JSON object a run."""

import json
from pathlib import Path

from orchestrator.plugins import Exporter


def write_lines(workspace, campaigns, request, out):
    """Write a JSON object a run, one a line."""
    with out.open("w", encoding="utf-8") as file:
        for run in workspace.store.runs(
            campaign_ids=[campaign.campaign_id for campaign in campaigns]
        ):
            row = {
                "serial": run.case.serial,
                "model": run.case.model_name,
                "latency_us": run.latency_us,
                "is_virtual": run.is_virtual,
            }
            file.write(json.dumps(row) + "\n")


LINES = Exporter(path=Path("runs.acme-lines"), write=write_lines)
