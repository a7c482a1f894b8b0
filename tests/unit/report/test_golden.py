"""A small campaign of virtual phones, and a comparison, as each rendering has them: tests/golden."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from orchestrator.analysis.comparison import Comparison
from orchestrator.cli.output import to_json as cli_json
from orchestrator.records.case import DelegateName, Pass
from orchestrator.records.run import DelegateTruth, Outcome
from orchestrator.records.verdict import ParityVerdict, Quality
from orchestrator.report.data import ReportData
from orchestrator.report.exports import to_csv, to_json, to_markdown
from orchestrator.report.render import render_comparison, render_html
from orchestrator.report.tables import render_text_table
from orchestrator.tables.comparisons import to_data, to_junit, to_text
from orchestrator.tables.comparisons import to_markdown as comparison_markdown
from tests.conftest import golden
from tests.samples.extensions import needs_extension
from tests.samples.sample_lab import (
    CPU_ROWS,
    FELL_BACK,
    PIXEL_3,
    PIXEL_4,
    case,
    lab_of,
    parity,
    profile,
    run,
    series,
    skewed,
)
from tests.unit.report.test_comparisons import comparison


def campaign() -> ReportData:
    """Two phones with every pass of the core; one falls back, one has a suspect figure and one of
    means, and one whose outputs differ."""
    gpu, nnapi = DelegateName.GPU, DelegateName.NNAPI
    fast, cpu = case(PIXEL_3, delegate=gpu, threads=1), case(PIXEL_3)
    fell_back = series(
        case(PIXEL_4, delegate=nnapi, threads=1),
        24_300,
        2,
        **FELL_BACK,
        reason="nnapi: the delegate could not be made",
    )
    partial = case(PIXEL_4, delegate=gpu, threads=1)
    left_out = run(
        cpu,
        0,
        None,
        run_pass=Pass.PARITY,
        outcome=Outcome.SKIPPED,
        reason_code="parity-no-reference",
        reason="nothing here computes the reference outputs",
    )
    runs = [
        *series(fast, 6_450, 2),
        run(fast, run_pass=Pass.MEMORY),
        *(run(fast, number, 9_000.0 / (1 + number), run_pass=Pass.COLD) for number in range(3)),
        parity(fast, ParityVerdict.WRONG, 0.8),
        *(skewed(record, has_median=False) for record in series(cpu, 23_900, 2)),
        profile(cpu, CPU_ROWS),
        left_out,
        *series(
            partial, 9_000, 2, quality=Quality.SUSPECT, truth=DelegateTruth.PARTIAL, nodes=(28, 31)
        ),
        *series(case(PIXEL_4), 14_000, 2),
        *fell_back,
    ]
    return lab_of(runs, PIXEL_3, PIXEL_4).data()


def _main(page: str) -> str:
    """What a page has without scripts."""
    (main,) = re.findall(r"<main.*</main>", page, re.DOTALL)
    return re.sub(r"\n\s*\n+", "\n", main)


def _page(data: ReportData) -> str:
    """Each element of a report that stands for itself on a line."""
    main = _main(render_html(data, title="Golden"))
    return re.sub(r"(</(?:tr|p|h\d|figure|thead|li|g|pre)>)", r"\1\n", main)


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


COMPARED: dict[str, Callable[[Comparison], str]] = {
    "txt": to_text,
    "md": comparison_markdown,
    "xml": to_junit,
    "json": lambda found: cli_json(to_data(found)),
    "html": lambda found: _main(render_comparison(found)),
}


@pytest.mark.parametrize("form", COMPARED)
def test_a_comparison_is_written_as_it_always_was(form: str) -> None:
    golden(f"comparison.{form}", COMPARED[form](comparison()))
