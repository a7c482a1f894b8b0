"""A small campaign of virtual phones, as each rendering has it: tests/golden."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from orchestrator.records.case import DelegateName
from orchestrator.records.run import DelegateTruth, Outcome
from orchestrator.records.verdict import Quality
from orchestrator.report.assembly import build_report_data
from orchestrator.report.data import ReportData
from orchestrator.report.exports import to_csv, to_json, to_markdown
from orchestrator.report.render import render_html
from orchestrator.report.tables import render_text_table
from tests.conftest import golden
from tests.samples.extensions import needs_extension
from tests.samples.sample_lab import PIXEL_3, PIXEL_4, case, lab_of, series


def campaign() -> ReportData:
    """Two phones, one of which falls back and has a suspect figure."""
    gpu, nnapi = DelegateName.GPU, DelegateName.NNAPI
    runs = [
        *series(case(PIXEL_3, delegate=gpu, threads=1), 6_450, 2),
        *series(case(PIXEL_3), 23_900, 2),
        *series(case(PIXEL_4, delegate=gpu, threads=1), 9_000, 2, quality=Quality.SUSPECT),
        *series(case(PIXEL_4), 14_000, 2),
        *series(
            case(PIXEL_4, delegate=nnapi, threads=1),
            24_300,
            2,
            truth=DelegateTruth.FELL_BACK,
            outcome=Outcome.FAILED,
            quality=Quality.REJECTED,
            reason_code="delegate-fell-back",
            reason="nnapi: the delegate could not be made",
        ),
    ]
    return build_report_data(**lab_of(runs, PIXEL_3, PIXEL_4).inputs())  # type: ignore[arg-type]


def _page(data: ReportData) -> str:
    """What the page has without scripts; each element that stands for itself on a line."""
    (main,) = re.findall(r"<main.*</main>", render_html(data, title="Golden"), re.DOTALL)
    return re.sub(
        r"\n\s*\n+", "\n", re.sub(r"(</(?:tr|p|h\d|figure|thead|li|g|pre)>)", r"\1\n", main)
    )


def _json(data: ReportData) -> str:
    return json.dumps({**json.loads(to_json(data)), "benchfarm_version": ""}, indent=1)


FORMS: dict[str, Callable[[ReportData], str]] = {
    "html": _page,
    "txt": lambda data: render_text_table(data, 100, legend=True),
    "md": to_markdown,
    "csv": to_csv,
    "json": _json,
}


#: Data have the columns of passes that extensions bring.
_WHOLE = [needs_extension("energy"), needs_extension("contention")]


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=_WHOLE if form in {"csv", "json"} else ()) for form in FORMS]
)
def test_a_campaign_is_written_as_it_always_was(form: str) -> None:
    golden(f"campaign.{form}", FORMS[form](campaign()))
