"""The charts of a report, ready to be drawn: report/charts.py takes half a second to make them, so they are kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from orchestrator.report.kept_text import kept_text

#: Pixels of one line, and the least height of a chart; the page's script has the same.
_STEP: Final = 14
_LEAST_HEIGHT: Final = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSpec:
    """One chart."""

    name: str
    title: str
    #: What it shows, for those who don't see it, and as the text under it.
    description: str
    #: Which data set of report/chart_rows.py it draws.
    dataset: str
    #: The field that one drawing shows one value of; empty when a drawing shows all rows.
    by: str
    spec: Mapping[str, Any]
    #: Fields without which a row can't be drawn.
    needs: tuple[str, ...] = ()


@cache
def chart_specs(cache_folder: Path | None = None) -> tuple[ChartSpec, ...]:
    """Return all charts, in the page's order; with a folder, they are kept there for the next report."""
    source = hashlib.sha256(Path(__file__).with_name("charts.py").read_bytes()).hexdigest()[:16]
    kept = kept_text(cache_folder, f"charts-{version('altair')}-{source}.json", is_whole=_is_whole, make=_made)
    return tuple(ChartSpec(**{**fields, "needs": tuple(fields["needs"])}) for fields in json.loads(kept))


def _made() -> str:
    from orchestrator.report.charts import make_charts

    return json.dumps([dataclasses.asdict(chart) for chart in make_charts()])


def _is_whole(text: str) -> bool:
    return text.startswith("[{") and text.endswith("}]")


def drawn_height(chart: ChartSpec, rows: Sequence[Mapping[str, object]]) -> int | None:
    """Return the height in pixels of a chart whose height follows its rows; None for any other."""
    lines = chart.spec["usermeta"]["lines"]
    if not lines:
        return None
    count = 1
    for field in lines:
        count *= max(1, len({row[field] for row in rows}))
    return max(_LEAST_HEIGHT, count * _STEP)
