"""``benchfarm compare --format html``: the page, with the runs of both sides behind each verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.matching import Measured
from orchestrator.app.reporting import report_data
from orchestrator.bootstrap import Farm, Settings
from orchestrator.report.data import ResultRow

_LONGEST_NAME = 120


def comparison_html(farm: Farm, comparison: Comparison) -> str:
    """Return the comparison as one HTML file; the runs of the cases that it shows are read from the store."""
    from orchestrator.report.comparison_page import MOST_SHOWN, render_comparison
    from orchestrator.report.comparisons import worst_first

    shown = worst_first(comparison)[:MOST_SHOWN]
    stored = _stored(farm, [side for row in shown for side in (row.baseline, row.candidate)])
    return render_comparison(comparison, lambda item: stored.get((item.campaign_id, item.case.case_key)))


def _stored(farm: Farm, sides: list[Measured]) -> Mapping[tuple[str, str], ResultRow]:
    found: dict[tuple[str, str], ResultRow] = {}
    for campaign_id in dict.fromkeys(side.campaign_id for side in sides):
        campaign = farm.store.campaign(campaign_id)
        if campaign is not None:
            data = report_data(farm, [campaign])
            found |= {(str(campaign_id), row.key): row for row in data.results}
    return found


def default_path(settings: Settings, comparison: Comparison) -> Path:
    """Return where a page goes that no file is named for."""
    name = f"compare-{comparison.axis}-{comparison.baseline}-{comparison.candidate}"
    return settings.data_folder / "reports" / f"{re.sub('[^A-Za-z0-9._-]+', '-', name)[:_LONGEST_NAME]}.html"
