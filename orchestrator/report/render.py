"""The HTML report: one file that needs nothing else, drawn from the templates in reports/templates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Final

import jinja2

from orchestrator import __version__
from orchestrator.analysis.case_result import CaseStatus
from orchestrator.records.device import CpuCluster
from orchestrator.records.verdict import Severity
from orchestrator.report.conditions import battery_text, clocks_text, hottest_text
from orchestrator.report.data import BestMark, FindingRow, LogExcerpt, ReportData, ResultRow
from orchestrator.report.escapes import csv_text, visible, visible_block
from orchestrator.report.guide_table import GuideTable
from orchestrator.report.labels import SHORT_HASH, STATUS_WORDS, column_decimals, fallback_words
from orchestrator.report.logs import LOG_CHARACTERS, shorter
from orchestrator.report.matrix import OWN_FIGURE, figures_decimals, matrix_tables
from orchestrator.report.published import SOURCE
from orchestrator.report.tables import (
    NOTHING,
    delegate_text,
    figure_ms,
    flat_record,
    quality_text,
    reference_lines,
    result_cells,
    spread_text,
    start_cells,
)
from orchestrator.resources import data_folder
from orchestrator.units import US_PER_MS, format_bytes, format_duration

#: Cases whose evidence stands on the page itself, to be read without scripts and to be printed. Beyond, it is kept
#: aside in the page and shown when a cell is opened, so that a browser doesn't lay out what nobody looks at.
_LAID_OUT_CASES: Final = 400
#: Characters of logs in one report, shared among its cases; what is left of a share below the least isn't worth it.
_LOG_BUDGET: Final = 500_000
_LEAST_LOG: Final = 400
_SHOWN_CASES: Final = 8
_REFERENCE_WORDS: Final = {
    "cpu_4_threads": "CPU, 4 threads",
    "cpu_2_threads": "CPU, 2 threads",
    "gpu": "GPU",
    "nnapi": "NNAPI",
}


class _Block(str):
    """Text of several lines, already visible; escaped like any other text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _FindingGroup:
    """One finding over all cases in which it was made."""

    first: FindingRow
    rows: Sequence[ResultRow]


def render_html(data: ReportData, *, title: str) -> str:
    """Return the report as one HTML file: no reference to anything outside of it, styles and script of our own inside.

    The same data and title give the same bytes. Every text is escaped; controls and direction marks are made visible.
    """
    reference_columns, references = reference_lines(data.published)
    log_characters = _log_characters(len(data.results))
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=title,
            version=__version__,
            data=data,
            tables=matrix_tables(data),
            findings=_finding_groups(data.results),
            troubled=[row for row in data.results if row.next_step and row.result.status is not CaseStatus.MEASURED],
            memory_rows=[row for row in data.results if row.result.status in OWN_FIGURE],
            start_rows=[row for row in data.results if row.starts],
            reference_columns=reference_columns,
            references=references,
            reference_words=_REFERENCE_WORDS,
            source=SOURCE,
            is_laid_out=len(data.results) <= _LAID_OUT_CASES,
            log_of=lambda log: _log_for_page(log, log_characters),
            decimals=_decimals(data.results),
            download=_download(data.results),
        )
    )


def render_guide_html(table: GuideTable, *, title: str) -> str:
    """Return a guide table as one HTML file that needs nothing else."""
    return _environment().get_template("guide_table.html.j2").render(title=title, version=__version__, table=table)


def _download(rows: Sequence[ResultRow]) -> Mapping[str, object]:
    """Return the flat records by column, for the page's own CSV download; text as it may stand in a CSV cell."""
    records = [flat_record(row) for row in rows]
    return {
        "columns": list(records[0]) if records else [],
        "rows": [
            [csv_text(value) if isinstance(value, str) else value for value in record.values()] for record in records
        ],
    }


def _decimals(rows: Sequence[ResultRow]) -> Mapping[str, int]:
    def of(*values_us: float | None) -> int:
        return column_decimals([value / US_PER_MS for value in values_us if value])

    return {
        "median": figures_decimals(rows),
        "init": of(*(row.init_us for row in rows)),
        "first": of(*(row.first_us for row in rows)),
    }


def _finding_groups(rows: Sequence[ResultRow]) -> Sequence[_FindingGroup]:
    """Return the findings of all cases by code, worst first."""
    groups: dict[tuple[str, Severity], list[ResultRow]] = defaultdict(list)
    firsts: dict[tuple[str, Severity], FindingRow] = {}
    for row in rows:
        for finding in row.findings:
            key = (finding.code, finding.severity)
            firsts.setdefault(key, finding)
            groups[key].append(row)
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    keys = sorted(groups, key=lambda key: (order.index(key[1]), -len(groups[key]), key[0]))
    return [_FindingGroup(first=firsts[key], rows=groups[key]) for key in keys]


def _log_characters(case_count: int) -> int:
    """Return how many characters of log each case may show; 0 when its share would be too little to read."""
    share = min(LOG_CHARACTERS, _LOG_BUDGET // max(1, case_count))
    return share if share >= _LEAST_LOG else 0


def _log_for_page(log: LogExcerpt, characters: int) -> LogExcerpt | None:
    if characters == 0:
        return None
    short = shorter(log, characters)
    return LogExcerpt(
        text=_Block(visible_block(short.text)), total_bytes=short.total_bytes, left_out_bytes=short.left_out_bytes
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_folder("reports") / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {
        "ms": figure_ms,
        "size": format_bytes,
        "duration": format_duration,
        "moment": _moment,
        "short": lambda text: text[:SHORT_HASH],
        "quality": quality_text,
        "delegate": delegate_text,
        "spread": spread_text,
        "hottest": hottest_text,
        "battery": battery_text,
        "clocks": clocks_text,
        "clusters": _clusters_text,
    }
    environment.globals |= {
        "BestMark": BestMark,
        "CaseStatus": CaseStatus,
        "NOTHING": NOTHING,
        "OWN_FIGURE": OWN_FIGURE,
        "SHOWN_CASES": _SHOWN_CASES,
        "STATUS_WORDS": STATUS_WORDS,
        "fallback_words": fallback_words,
        "result_cells": result_cells,
        "start_cells": start_cells,
    }
    return environment


def _finalize(value: object) -> object:
    """Make plain text visible before it is escaped; None is nothing."""
    # Called for every expression of every row: the common case stays free of a second call.
    if type(value) is str:
        return value if value.isprintable() else visible(value)
    return "" if value is None else value


def _moment(moment: datetime | None) -> str:
    return NOTHING if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _clusters_text(clusters: Sequence[CpuCluster]) -> str:
    """Return the CPU's clusters: ``4 x 1.77 GHz + 4 x 2.80 GHz``; the clock is left out where it isn't known."""
    parts = [
        f"{len(cluster.cpus)} x {cluster.max_khz / 1e6:.2f} GHz" if cluster.max_khz else f"{len(cluster.cpus)} cores"
        for cluster in clusters
    ]
    return " + ".join(parts) or NOTHING
