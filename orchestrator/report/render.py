"""The HTML report: one file that needs nothing else, drawn from the templates in reports/templates."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import jinja2

from orchestrator.analysis.case_result import OWN_FIGURE, CaseStatus
from orchestrator.files import make_private
from orchestrator.records.device import CpuCluster
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.verdict import Severity
from orchestrator.report.advice import advice_of
from orchestrator.report.chart_rows import ChartRow, chart_rows
from orchestrator.report.charts import CHARTS, Chart
from orchestrator.report.data import ReportData
from orchestrator.report.evidence import case_evidence, moment_text
from orchestrator.report.glance import winner_blocks
from orchestrator.report.matrix import matrix_tables
from orchestrator.report.sections import page_tables
from orchestrator.report.vega import packed_runtime
from orchestrator.report.winners import Certainty
from orchestrator.tables.column import NOTHING
from orchestrator.tables.escapes import visible
from orchestrator.tables.html import environment, page_data
from orchestrator.tables.labels import (
    PARITY_CLASSES,
    PARITY_WORDS,
    STATE_CLASSES,
    STATUS_WORDS,
    fallback_words,
    figure_ms,
    figure_text,
    page_name,
    short_names,
)
from orchestrator.tables.page_policy import pack, without_collector
from orchestrator.tables.rows import SEVERITIES, BestMark, FindingRow, ResultRow, origin_of
from orchestrator.tables.table import Table
from orchestrator.units import format_bytes, format_change, format_duration, format_latency

#: Cases whose matrix and evidence stand on the page itself, to be read without scripts and to be
#: printed. Beyond, they are folded into the page and unfolded when they are looked at.
_LAID_OUT_CASES: Final = 60
#: Lines of matrices that are open from the beginning; more of them are folded, model by model.
_OPEN_LINES: Final = 14
#: Cases whose evidence is folded together: enough for it to fold well, few enough to unfold at
#: once.
EVIDENCE_SIZE: Final = 25
_AS_MEANT: Final = frozenset({CaseStatus.MEASURED, CaseStatus.UNTIMED})
_SHOWN_CASES: Final = 8
_MOST_TROUBLED: Final = 200


@without_collector
def render_html(
    data: ReportData, *, title: str, cache_folder: Path | None = None, library: str = ""
) -> str:
    """Return the report as one HTML file: no reference to anything outside of it, styles and
    scripts inside.

    The same data and title give the same bytes. Every text is escaped; controls and direction marks
    are made visible. Charts, their library and compiled templates are kept in ``cache_folder`` for
    the next report. As a page of a site it names the site's own copy of that library, by its
    address in ``library``, and links to the site's other pages.
    """
    is_laid_out = len(data.results) <= _LAID_OUT_CASES
    grids, sets = page_tables(data), chart_rows(data)
    charts = {chart.name: chart for chart in CHARTS if chart.drawable(sets.get(chart.dataset, ()))}
    folds = _data_folds(grids, sets, charts)
    places = {row.key: place for place, row in enumerate(data.results)}
    names = short_names((row.configuration, row.case) for row in data.results)
    templates = _environment()
    if cache_folder is not None and templates.bytecode_cache is None:
        # Compiling templates takes a quarter of a second. A folder that can't be written to is
        # ignored.
        with suppress(OSError):
            make_private(cache_folder / "templates")
            if os.access(cache_folder / "templates", os.W_OK):
                templates.bytecode_cache = jinja2.FileSystemBytecodeCache(
                    str(cache_folder / "templates")
                )
    blocks = [
        (table, "" if is_laid_out else f"matrix-{number}")
        for number, table in enumerate(matrix_tables(data))
    ]
    matrix = templates.get_template("matrix.html.j2")
    # Those of a large report are put among the folds.
    folds |= {
        name: pack(matrix.render(table=table, places=places, names=names))
        for table, name in blocks
        if name
    }
    evidence = iter(case_evidence(data.results))
    if not is_laid_out:
        # Never all of it at once: unfolded it is many times as large.
        parts = iter(lambda: list(islice(evidence, EVIDENCE_SIZE)), [])
        folds |= {f"evidence-{place}": pack(part) for place, part in enumerate(parts)}
    if charts and not library:
        folds["vega"] = packed_runtime(cache_folder)
    winners, models_left_out = winner_blocks(data.contests, names)
    # A thread count that a delegate doesn't use is no trouble: another column has its figure.
    measured = [row for row in data.results if not row.is_unused_thread_count]
    troubled = [row for row in measured if row.next_step and row.result.status not in _AS_MEANT]
    return templates.get_template("report.html.j2").render(
        title=_whole_title(title, data),
        data=data,
        winners=winners,
        models_left_out=models_left_out,
        figures_in_ms=not any(row.case.is_per_token for row in data.results),
        names=names,
        advice=advice_of(data),
        blocks=blocks,
        is_open=sum(len(table.lines) for table, _ in blocks) <= _OPEN_LINES,
        places=places,
        baselines=_baselines(data),
        grids=grids,
        charts=charts,
        findings=_finding_groups(measured),
        troubled=troubled[:_MOST_TROUBLED],
        troubled_count=len(troubled),
        case_count=len(measured),
        evidence=[(row, parts) for row, (_, parts) in zip(data.results, evidence, strict=True)]
        if is_laid_out
        else [],
        settings={"evidence_size": EVIDENCE_SIZE},
        folds=folds,
        modes=sorted({row.case.process_mode.value for row in data.results}),
        site=library,
    )


def _whole_title(title: str, data: ReportData) -> str:
    """Return a title that says models, phones and days, and the name, where that isn't made of the
    same words.
    """
    subject = data.headline.subject
    # A campaign that nobody named has its first model's name, and how many more there are.
    name = re.sub(r" and \d+ more$", "", title)
    return subject if name in subject else f"{title}: {subject}"


def render_template(name: str, **values: object) -> str:
    """Return a template of reports/templates, filled in.

    Text is made visible and escaped as in the report.
    """
    return _environment().get_template(name).render(**values)


def _data_folds(
    grids: Mapping[str, Table[Any]],
    sets: Mapping[str, Sequence[ChartRow]],
    charts: Mapping[str, Chart],
) -> dict[str, str]:
    folds = {name: pack(page_data(table)) for name, table in grids.items()}
    if charts:
        folds["charts"] = pack({name: asdict(chart) for name, chart in charts.items()})
        for name in dict.fromkeys(chart.dataset for chart in charts.values()):
            rows = sets[name]
            folds[f"rows-{name}"] = pack({field: [row[field] for row in rows] for field in rows[0]})
    return folds


def _baselines(data: ReportData) -> Mapping[str, Sequence[str]]:
    """Return what figures can be compared with: the configurations and the devices that have a
    judged figure.
    """
    judged = [row for row in data.results if row.result.is_judged]
    devices = dict.fromkeys(visible(row.device.title) for row in judged)
    return {
        "configurations": list(dict.fromkeys(visible(row.configuration) for row in judged)),
        "devices": list(devices) if len(devices) > 1 else [],
    }


def _finding_groups(rows: Sequence[ResultRow]) -> Sequence[tuple[FindingRow, Sequence[ResultRow]]]:
    """Return the findings of all cases by code, worst first: the first of each with the rows that
    have it.
    """
    groups: dict[tuple[str, Severity], tuple[FindingRow, list[ResultRow]]] = {}
    for row in rows:
        for item in row.findings:
            groups.setdefault((item.finding.code, item.finding.severity), (item, []))[1].append(row)
    keys = sorted(groups, key=lambda key: (SEVERITIES.index(key[1]), -len(groups[key][1]), key[0]))
    return [groups[key] for key in keys]


@cache
def _environment() -> jinja2.Environment:
    made = environment()
    filters: Mapping[str, Callable[..., object]] = {
        "ms": figure_ms,
        "figure": figure_text,
        "size": format_bytes,
        "duration": format_duration,
        "moment": moment_text,
        "origin": origin_of,
        "clusters": _clusters_text,
        "latency": format_latency,
        "change": format_change,
        "page_name": page_name,
        "state_class": lambda state: STATE_CLASSES.get(state, "v-warning"),
    }
    made.filters |= filters
    made.globals |= {
        "BestMark": BestMark,
        "CaseStatus": CaseStatus,
        "Certainty": Certainty,
        "OWN_FIGURE": OWN_FIGURE,
        "PARITY_CLASSES": PARITY_CLASSES,
        "PARITY_WORDS": PARITY_WORDS,
        "ParityVerdict": ParityVerdict,
        "SHOWN_CASES": _SHOWN_CASES,
        "STATUS_WORDS": STATUS_WORDS,
        "fallback_words": fallback_words,
    }
    return made


def _clusters_text(clusters: Sequence[CpuCluster]) -> str:
    """Return the CPU's clusters: ``4 x 1.77 GHz + 4 x 2.80 GHz``.

    The clock is left out where it isn't known.
    """
    parts = [
        f"{len(cluster.cpus)} x {cluster.max_khz / 1e6:.2f} GHz"
        if cluster.max_khz
        else f"{len(cluster.cpus)} cores"
        for cluster in clusters
    ]
    return " + ".join(parts) or NOTHING
