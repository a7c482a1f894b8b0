"""The HTML report: one file without references, made of the templates in reports/templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from orchestrator.analysis.case_result import CaseResult
from orchestrator.analysis.comparison import ComparedCase, Comparison
from orchestrator.passes import pass_tables
from orchestrator.records.case import grouped
from orchestrator.report.advice import collect_advice
from orchestrator.report.assembly import without_garbage_collection
from orchestrator.report.charts import (
    ThreadStep,
    model_pictures,
    report_charts,
    run_strip,
    thread_steps,
)
from orchestrator.report.data import ReportData
from orchestrator.report.drawing import Dot, change_axis, dots, grid_lines, strips, ticks
from orchestrator.report.evidence import TOGETHER, evidence_of
from orchestrator.report.tables import MatrixLine, labels_of, lines_of, matrix_table
from orchestrator.report.winners import kind_title
from orchestrator.tables.comparisons import (
    case_title,
    compared_table,
    level_text,
    sentences,
    summary_line,
    worst_first,
)
from orchestrator.tables.devices import BUILDS, CAMPAIGNS, DEVICES, MODELS
from orchestrator.tables.escapes import visible
from orchestrator.tables.findings import kinds_table, skips_table
from orchestrator.tables.html import Html, fold, pack, table_html, template
from orchestrator.tables.labels import figure_unit
from orchestrator.tables.operators import CHANGES, OPERATORS, TYPES, DiffPair, DiffRow
from orchestrator.tables.results import (
    FIGURE_COLUMNS,
    case_parts,
    delegates_table,
    figures_decimals,
    parts_table,
    pass_table,
    plain_table,
    results_table,
    starts_table,
)
from orchestrator.tables.rows import ResultRow
from orchestrator.tables.table import NOTHING, Column, Form, Kind, Table
from orchestrator.units import first_few, format_figure, format_percent

#: With more models than this, their pictures are folded below the winners.
_MOST_OPEN: Final = 3
#: With more models or kinds of devices than this, rows have no filter for them.
_MOST_CHIPS: Final = 14


def _used_tables(data: ReportData) -> Sequence[Table[Any]]:
    """Return the tables of campaigns, devices, programs and models."""
    parts = (
        ("campaigns", "Campaigns", CAMPAIGNS, data.campaigns),
        ("devices", "Devices", DEVICES, data.devices),
        ("builds", "Benchmark programs", BUILDS, data.builds),
        ("models", "Models", MODELS, data.models),
    )
    return [
        Table(
            name=name,
            caption=title,
            columns=columns,
            rows=rows,
        )
        for name, title, columns, rows in parts
        if rows
    ]


@without_garbage_collection()
def render_html(data: ReportData, *, title: str, is_of_site: bool = False) -> str:
    """Return the report as one HTML file with styles and scripts, without external references.

    The same data and title give the same bytes. Every text is escaped; controls and direction marks
    are made visible. With ``is_of_site`` it links to the site's other pages.
    """
    pictures = model_pictures(data.contests)
    models = {row.model.subject: row.model for row in data.results}.values()
    # Each model's picture (None without a timing pass) and matrix.
    blocks = [
        (model, picture, "" if picture is None else table_html(picture.table, "pictured"), matrix)
        for model, matrix in zip(models, matrix_tables(data), strict=True)
        for picture in (pictures.get(model.subject),)
    ]
    grids = page_tables(data)
    folds = {
        table.name: fold(table) for table in (*grids.values(), *(matrix for *_, matrix in blocks))
    }
    is_folded = len(blocks) > _MOST_OPEN
    if is_folded:
        folds |= {
            f"picture-{place}": pack({"html": drawn})
            for place, (_, _, drawn, _) in enumerate(blocks)
        }
    folds |= {
        f"evidence-{place}": pack(part) for place, part in enumerate(evidence_of(data.results))
    }
    return template("report.html.j2").render(
        title=_full_title(title, data),
        data=data,
        blocks=blocks,
        is_folded=is_folded,
        chips=_chips(data),
        advice=collect_advice(data),
        grids=grids,
        pass_tables=pass_tables(),
        charts=report_charts(data),
        findings=kinds_table(data.cases),
        skipped=skips_table(data.skipped),
        used=_used_tables(data),
        plain=plain_table(data.results),
        TOGETHER=TOGETHER,
        folds=folds,
        site=is_of_site,
    )


def _full_title(title: str, data: ReportData) -> str:
    """Return a title with models, phones and days, after the name unless they contain it."""
    subject = data.headline.subject
    return subject if title in subject else f"{title}: {subject}"


def _chips(data: ReportData) -> Sequence[tuple[str, Sequence[str]]]:
    """Return the filters of rows: models and kinds of devices, where there are several."""
    models = list(dict.fromkeys(visible(row.model.label) for row in data.results))
    devices = list(dict.fromkeys(visible(kind_title(row)) for row in data.results))
    return [
        (name, words)
        for name, words in (("model", models), ("device", devices))
        if 1 < len(words) <= _MOST_CHIPS
    ]


_STEPS: Final[Sequence[Column[ThreadStep]]] = (
    Column("threads", value=lambda step: step.row.case.threads, kind=Kind.COUNT),
    Column(
        "speed_up",
        "speed-up",
        lambda row: row.speed_up,
        kind=Kind.NUMBER,
        unit="x fewest threads",
        digits=2,
    ),
    Column(
        "efficiency",
        value=lambda row: row.efficiency,
        kind=Kind.NUMBER,
        unit="% per thread",
        scale=100,
        digits=0,
    ),
)


def page_tables(data: ReportData) -> Mapping[str, Table[Any]]:
    """Return the tables that have rows, by name; ``results`` is always among them."""
    rows = data.results
    profiled = [row for row in rows if row.profiles]
    tables: Sequence[Table[Any]] = (
        results_table(rows),
        starts_table(rows),
        *(pass_table(table, rows) for table in pass_tables()),
        _threads(rows),
        delegates_table(rows),
        _operators(profiled),
        parts_table(
            "types",
            "Time by type of operator",
            case_parts(profiled, lambda row: row.profiles[-1].by_type()),
            TYPES,
        ),
        _changes(data.diffs),
    )
    return {table.name: table for table in tables if table.listed or table.name == "results"}


def _threads(rows: Sequence[ResultRow]) -> Table[Any]:
    caption = "Thread scaling of each case that was measured with several numbers of threads"
    steps = [(step.row, step) for steps in thread_steps(rows) for step in steps]
    return parts_table("threads", caption, steps, _STEPS, of_case=FIGURE_COLUMNS)


def _operators(rows: Sequence[ResultRow]) -> Table[Any]:
    # Nested operators (of WHILE) come last: their time is part of the outer operator's.
    numbered = case_parts(
        rows,
        lambda row: sorted(
            enumerate((*row.profiles[-1].rows, *row.profiles[-1].nested), start=1),
            key=lambda item: (bool(item[1].subgraph), -item[1].mean_us),
        ),
    )
    table = parts_table("operators", "Layers of the model, the slowest first", numbered, OPERATORS)
    return replace(table, order="slowest first")


def _changes(pairs: Sequence[DiffPair]) -> Table[Any]:
    """Return the table of operators of each pair of runs; a page shows one pair at a time."""
    rows = [(pair, number, change) for number, pair in enumerate(pairs) for change in pair.rows]

    def diff_row(row: tuple[DiffPair, int, DiffRow]) -> DiffRow:
        return row[2]

    return Table(
        name="changes",
        caption="Operators of two runs, largest difference first",
        columns=[column.of(diff_row, opens=column is CHANGES[0]) for column in CHANGES],
        rows=rows,
        key=lambda row: row[0].row.key,
        is_virtual=lambda row: row[0].row.is_virtual,
        attributes=lambda row: {"data-group": str(row[1])},
    )


def matrix_tables(data: ReportData) -> list[Table[MatrixLine]]:
    """Return a table for each model that has a case, in the order of the data."""
    models = grouped(data.results, lambda row: row.model.subject).values()
    return [
        matrix_table(
            f"matrix-{number}",
            f"{rows[0].model.label}: median of each configuration",
            lines_of(rows, data.skipped, data.names),
            labels_of(rows, data.names),
            figures_decimals(rows),
        )
        for number, rows in enumerate(models)
    ]


#: The greatest number of cases drawn with their runs; Markdown and JSON have all.
MOST_SHOWN: Final = 200
_MOST_ALONE: Final = 40
_MOST_NAMED: Final = 8
#: A fact, and its values on the two sides.
Fact = tuple[str, str, str]


def render_comparison(comparison: Comparison) -> str:
    """Return the comparison as one HTML file that needs nothing else; names in it are escaped and
    made visible.
    """
    first_cases = worst_first(comparison)[:MOST_SHOWN]
    table, grid = _table(comparison, first_cases)
    sides = {"baseline": comparison.only_baseline, "candidate": comparison.only_candidate}
    return template("compared.html.j2").render(
        title=f"{comparison.candidate} against {comparison.baseline}",
        comparison=comparison,
        answer=summary_line(comparison),
        table=table,
        grid=grid,
        details=[_details(row) for row in first_cases],
        sides=_sides(comparison),
        level=level_text(comparison.change_rule.level),
        threshold=format_percent(comparison.change_rule.threshold),
        has_real=any(not row.is_virtual for row in comparison.rows),
        more=len(comparison.rows) - len(first_cases),
        only=[(name, titles) for name, titles in sides.items() if titles],
        folds={},
        MOST_ALONE=_MOST_ALONE,
    )


def _table(comparison: Comparison, rows: Sequence[ComparedCase]) -> tuple[Table[ComparedCase], str]:
    """Return the table of cases with intervals as pictures, and the grid lines behind these."""
    verdicts = [row.verdict for row in rows]
    ends = [
        end - 1
        for verdict in verdicts
        for end in (verdict.ratio, verdict.low, verdict.high)
        if end is not None
    ]
    threshold = comparison.change_rule.threshold
    axis = change_axis(ends, threshold)
    head = ticks(axis, "change of time", lambda change: f"{change:+.0%}" if change else "0")

    def picture(row: ComparedCase) -> Html:
        verdict, text, change = row.verdict, "nothing to compare", []
        if verdict.ratio is not None:
            text, detectable = f"{verdict.ratio - 1:+.1%} time", verdict.detectable
            change.append(
                Dot(
                    value=verdict.ratio - 1,
                    interval=(
                        None
                        if verdict.low is None or verdict.high is None
                        else (verdict.low - 1, verdict.high - 1)
                    ),
                    bracket=None if detectable is None else (-detectable, detectable),
                    look=f"r-{verdict.outcome} best",
                    told=text,
                )
            )
        return dots(axis, change, text, band=(-threshold, threshold))

    table = compared_table(comparison)
    by_name = {column.name: column for column in table.columns if Form.HTML in column.forms}
    columns: list[Column[Any]] = [
        replace(by_name["title"], shown=lambda row: row.title.replace(".tflite", "")),
        by_name["outcome"],
        by_name["ratio"],
        Column("picture", "change of time", picture, Kind.PICTURE, box=head),
        by_name["interval"],
        by_name["detectable"],
        replace(by_name["baseline"], shown=lambda row: _no_result(row.baseline)),
        replace(by_name["candidate"], shown=lambda row: _no_result(row.candidate)),
        by_name["counts"],
    ]
    return replace(table, columns=columns, rows=rows), grid_lines(axis)


def _no_result(item: CaseResult) -> str | None:
    """Return the text of a figure that isn't the requested one's; None where there is none."""
    other_us = item.not_a_result_us
    if other_us is None:
        return None
    return f"no result: {format_figure(other_us, is_per_token=item.case.is_per_token)}"


def _details(row: ComparedCase) -> Mapping[str, object]:
    """Return the details of a compared case; ``runs`` is a drawing of both sides on one axis, None
    where neither has a figure.
    """
    sides = {"baseline": row.baseline, "candidate": row.candidate}
    all_strips = [
        run_strip(item.case, list(item.used_runs.values()), item.figure, name, f"d{colour}")
        for colour, (name, item) in enumerate(sides.items(), start=1)
    ]
    drawn = [strip for strip in all_strips if strip.runs]
    unit = figure_unit(row.baseline.case)
    return {
        "title": case_title(row),
        "is_virtual": row.is_virtual,
        "runs": strips(drawn, "The runs of both sides", unit) if drawn else None,
        "sentences": sentences(row),
    }


def _sides(comparison: Comparison) -> Table[Fact]:
    """Return the table of facts of both sides."""
    facts: Mapping[str, Callable[[CaseResult], str]] = {
        "campaign": lambda item: ", ".join(filter(None, (item.campaign_id, item.origin))),
        "program": lambda item: item.build,
        "device": lambda item: item.device_title,
        "system": lambda item: item.system,
        "model": lambda item: f"{item.case.model_name} {item.case.model_sha256[:12]}",
        "grade of control": _grade,
    }
    rows = [
        (
            name,
            _listed({value_of(row.baseline) for row in comparison.rows}),
            _listed({value_of(row.candidate) for row in comparison.rows}),
        )
        for name, value_of in facts.items()
    ]

    def tone(fact: Fact) -> str:
        return "" if fact[1] == fact[2] else "doubt"

    return Table(
        name="sides",
        caption="Facts of both sides",
        columns=(
            Column("fact", value=lambda fact: fact[0]),
            Column("baseline", value=lambda fact: fact[1], tone=tone),
            Column("candidate", value=lambda fact: fact[2], tone=tone),
        ),
        rows=rows,
    )


def _grade(item: CaseResult) -> str:
    """Return the grade of control; empty where nothing was measured."""
    if item.grade is None:
        return "unknown" if item.used else ""
    return item.grade.value


def _listed(texts: set[str]) -> str:
    return "; ".join(first_few(sorted(texts - {""}), _MOST_NAMED)) or NOTHING
