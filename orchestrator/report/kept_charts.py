"""The charts of a report, made once and kept for the next."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import cache
from importlib.metadata import version
from pathlib import Path

from orchestrator.report.chart_specs import ChartSpec
from orchestrator.report.kept_text import kept_text


@cache
def chart_specs(cache_folder: Path | None = None) -> tuple[ChartSpec, ...]:
    """Return all charts, in the page's order; with a folder, they are kept there for the next report."""
    files = (Path(__file__).with_name("charts.py"), Path(__file__).with_name("chart_specs.py"))
    source = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    kept = kept_text(cache_folder, f"charts-{version('altair')}-{source}.json", is_whole=_is_whole, make=_made)
    return tuple(ChartSpec(**{**fields, "needs": tuple(fields["needs"])}) for fields in json.loads(kept))


def _made() -> str:
    # Takes half a second, which a report that finds them kept does without.
    from orchestrator.report.charts import make_charts

    return json.dumps([dataclasses.asdict(chart) for chart in make_charts()])


def _is_whole(text: str) -> bool:
    return text.startswith("[{") and text.endswith("}]")
