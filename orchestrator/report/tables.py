"""The results as tables: phones down and configurations across; and for a terminal, the cases or
the fastest of each, and the results of further passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.passes import pass_tables, stored_pass
from orchestrator.records import frozen
from orchestrator.records.case import FIGURE_PASS, NOT_IN_TOOL, grouped
from orchestrator.records.model import worded
from orchestrator.records.run import OUT_OF_TIME, DelegateTruth, Outcome
from orchestrator.records.verdict import Outputs, ParityVerdict
from orchestrator.report.data import ReportData
from orchestrator.report.winners import fastest_table
from orchestrator.tables.devices import origin_of
from orchestrator.tables.escapes import WIDTH, visible, wrap
from orchestrator.tables.labels import (
    PARITY_WORDS,
    ShortNames,
    configuration_order,
    figure_text,
    figure_unit,
    figure_value,
)
from orchestrator.tables.operators import slowest_table
from orchestrator.tables.renderers import Line, laid_out
from orchestrator.tables.results import (
    figure_notes,
    figures_decimals,
    listed_table,
    memory_table,
    pass_table,
    row_style,
)
from orchestrator.tables.rows import BestMark, DeviceRow, ResultRow, SkipRow
from orchestrator.tables.table import DATA, IS_VIRTUAL, LINES, PAGE, PEOPLE, Column, Kind, Table
from orchestrator.units import counted


@frozen
class MatrixCell:
    """What a model's line shows under a configuration."""

    #: In microseconds, and as people read it; None for a case without a figure.
    latency_us: float | None = None
    figure: float | None = None
    #: The figure without its unit, or why there is none.
    text: str
    #: Of the figure; empty where there is none.
    unit: str = ""
    #: In parentheses.
    notes: str = ""
    #: None for a published figure and a skipped combination.
    row: ResultRow | None = None


@frozen
class MatrixLine:
    """A model on a device: cells by configuration, measured here or published by others."""

    model: str
    device: DeviceRow
    #: The lab that measured it; empty for this lab.
    source: str = ""
    cells: Mapping[str, MatrixCell]

    @property
    def remarks(self) -> str:
        """The reasons for figures that aren't clean or are missing, for exports."""
        remarks = (
            (label, row.why_not_clean if row.own_summary is None else figure_notes(row))
            for label, cell in self.cells.items()
            if (row := cell.row) is not None and not row.is_unused_thread_count
        )
        return "; ".join(f"{label}: {remark}" for label, remark in remarks if remark)


def labels_of(rows: Iterable[ResultRow], names: ShortNames) -> list[str]:
    """Return the short names of the configurations, in their order."""
    # Where a delegate uses no threads on any device, its figures are in another column.
    cases = {row.configuration: row.case for row in rows if not row.is_unused_thread_count}
    ordered = sorted(cases, key=lambda label: configuration_order(cases[label], label))
    return list(map(names.of, ordered))


def lines_of(
    rows: Sequence[ResultRow], skipped: Iterable[SkipRow], names: ShortNames
) -> list[MatrixLine]:
    """Return a line for each model and device of some cases."""
    digits = figures_decimals(rows)
    configurations = dict.fromkeys(row.configuration for row in rows)
    skips = grouped(skipped, lambda skip: (skip.skipped.model_name, skip.device.serial))
    lines = []
    for members in grouped(rows, lambda row: row.place).values():
        # A skipped combination is shown where another device has a column for it. What only a pass
        # lacks isn't: other passes may measure the case, and its flags aren't known.
        skipped_cells = {
            names.of(label): MatrixCell(text=f"skipped: {skip.skipped.reason_code}")
            for skip in skips.get((members[0].case.model_name, members[0].case.serial), [])
            for label in configurations
            if skip.skipped.reason_code != NOT_IN_TOOL
            if f"{label}, ".startswith(f"{skip.configuration}, ")
        }
        cells = {names.of(row.configuration): _cell(row, digits) for row in members}
        lines.append(
            MatrixLine(
                model=_model(members),
                device=members[0].device,
                source="; ".join(dict.fromkeys(row.origin for row in members if row.origin)),
                cells=skipped_cells | cells,
            )
        )
    return lines


def _model(rows: Sequence[ResultRow]) -> str:
    """Return a model's name, with the tokens that all rows of a language model have in common."""
    tokens = {worded(dict(row.case.flags)) if row.case.is_per_token else "" for row in rows}
    if len(tokens) > 1 or "" in tokens:
        return rows[0].model.label
    return f"{rows[0].case.model_name}, {tokens.pop()}".removesuffix(", per token")


def matrix_table(
    name: str, caption: str, lines: Sequence[MatrixLine], labels: Sequence[str], digits: int
) -> Table[MatrixLine]:
    """Return the table of these lines with a column for each configuration."""

    def columns(label: str) -> Iterator[Column[MatrixLine]]:
        units = {cell.unit for line in lines if (cell := line.cells.get(label)) and cell.unit}
        is_mixed = len(units) > 1
        cells = Column[MatrixCell](
            f"{label}, median_us",
            label,
            lambda cell: cell.figure,
            Kind.NUMBER,
            "" if is_mixed else next(iter(units), "ms"),
            digits=digits,
            forms=PEOPLE,
            shown=lambda cell: " ".join(
                filter(None, (cell.text, cell.unit * is_mixed, cell.notes))
            ),
            tone=lambda cell: row_style(cell.row) if cell.row is not None else "",
            case=lambda cell: cell.row.key if cell.row is not None else "",
        )
        for column in (cells, replace(cells, value=lambda cell: cell.latency_us, forms=DATA)):
            yield column.of(lambda line: line.cells.get(label))

    return Table(
        name=name,
        caption=caption,
        columns=[
            # On a page, virtual phones have a badge.
            Column("device", "phone", lambda line: line.device.label, forms=PAGE),
            Column("device", "phone", lambda line: line.device.title, forms=LINES | DATA),
            Column("serial", value=lambda line: line.device.serial, forms=DATA),
            IS_VIRTUAL.of(lambda line: line.device),
            *(item for label in labels for item in columns(label)),
            Column("remarks", value=lambda row: row.remarks, forms=DATA),
        ],
        rows=lines,
        is_virtual=lambda line: line.device.is_virtual,
    )


def _cell(row: ResultRow, digits: int) -> MatrixCell:
    """Return a case's cell; milliseconds have these decimals."""
    if row.median_us is None:
        text = "same: uses no threads" if row.is_unused_thread_count else row.why_not_clean
        return MatrixCell(text=text, row=row)
    notes = figure_notes(row)
    return MatrixCell(
        latency_us=row.median_us,
        figure=figure_value(row.case, row.median_us),
        text=figure_text(row.case, row.median_us, digits),
        unit=figure_unit(row.case),
        notes=notes and f"({notes})",
        row=row,
    )


#: The greatest number of listed cases; of more, the fastest of each model on each phone.
_MOST_LISTED: Final = 40
#: Narrower terminals don't show the speed-up of the fastest.
_ROOM_FOR_ALL: Final = 100
_ELSEWHERE: Final = "the fastest of each; the report and 'benchfarm table --all' have all {cases}"
#: The greatest number of named cases of one kind; more are counted.
_MOST_NAMED: Final = 5


def render_text_table(data: ReportData, room: int | None = WIDTH, *, legend: bool = False) -> str:
    """Return the results as plain text, see :func:`text_lines`."""
    return "\n".join(line for line, _ in text_lines(data, room, legend=legend)) + "\n"


def text_lines(data: ReportData, room: int | None = WIDTH, *, legend: bool = False) -> list[Line]:
    """Return the results for a terminal of ``room`` columns, at least 80, each line with its style;
    None for tables with whole lines.

    Cases are listed below their phones; of many, the fastest of each model on each phone. A figure
    that isn't the requested delegate's, or that was rejected, is replaced by the reason. Below stand
    the winners, the problems with their next steps, and what names leave out; ``legend`` explains
    marks and words for figures; ``benchfarm explain`` has all.
    """
    if not data.results:
        return [(data.headline.scope, "")]
    width = room or WIDTH
    names = data.names
    rows = [replace(row, configuration=names.of(row.configuration)) for row in data.cases]
    timed = [row for row in rows if row.status is not CaseStatus.UNTIMED]
    lines: list[Line] = []
    if len(timed) > _MOST_LISTED:
        fastest = replace(fastest_table(data.contests), notes=(), groups=1)
        if room is not None and room < _ROOM_FOR_ALL:
            fastest = replace(
                fastest, columns=[item for item in fastest.columns if item.name != "speed_up"]
            )
        lines += laid_out(fastest, room)
        lines += [("", ""), (_ELSEWHERE.format(cases=counted(len(timed), "case")), "head")]
    elif timed:
        lines += laid_out(listed_table(sorted(timed, key=_fastest_first)), room)
    pass_parts = [pass_table(table, rows) for table in pass_tables()]
    for part in (*pass_parts, memory_table(_with_memory(rows))):
        if part.listed:
            lines += [("", ""), (part.caption, "title"), *laid_out(part, room)]

    for row in rows:
        if row.profiles:
            slowest = slowest_table(row.profiles[-1], row.title)
            lines += [
                ("", ""),
                *((line, "title") for line in wrap(visible(slowest.caption), width)),
            ]
            lines += laid_out(slowest, room)

    def add_paragraph(sentences: Iterable[str], style: str = "") -> None:
        wrapped = [
            (line, style) for item in sentences if item for line in wrap(visible(item), width)
        ]
        lines.extend([("", ""), *wrapped] if wrapped else [])

    add_paragraph(_passes(rows))
    add_paragraph(data.headline.answers)
    add_paragraph([data.headline.state, *data.headline.warnings], "doubt")
    origins = ((row.name or row.campaign_id, origin_of(row)) for row in data.campaigns)
    add_paragraph(dict.fromkeys(f"campaign {name}: {origin}" for name, origin in origins if origin))
    add_paragraph(_legend(data) if legend else [names.note, "--legend explains the words"], "head")
    start = next((place for place, (line, _) in enumerate(lines) if line), 0)
    return [(line.rstrip(), style) for line, style in lines[start:]]


def _with_memory(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Return the cases whose memory a separate pass measured, and those without another figure."""
    return [
        row
        for row in rows
        if row.has_memory
        and (
            row.own_summary is None
            or any(stored_pass(run.run_pass).measures_memory for run in row.runs)
        )
    ]


def _passes(rows: Sequence[ResultRow]) -> Iterator[str]:
    """Yield the outputs that couldn't be compared, and the runs left out of passes but timing."""
    for verdict in (ParityVerdict.DEGENERATE, ParityVerdict.UNREADABLE):
        compared = [row for row in rows if row.parity is verdict]
        words = PARITY_WORDS[verdict]
        yield from (f"{words}: {row.title}: {row.parity_reason}" for row in compared[:_MOST_NAMED])
        if len(compared) > _MOST_NAMED:
            yield f"{words}: {counted(len(compared) - _MOST_NAMED, 'case')} more"
    left_out = Counter(
        reason
        for row in rows
        for reason in dict.fromkeys(
            (run.run_pass, run.reason_code, run.reason)
            for run in row.runs
            if run.outcome is Outcome.SKIPPED and run.run_pass is not FIGURE_PASS
            if run.reason_code != OUT_OF_TIME
        )
    )
    for (name, code, reason), count in left_out.items():
        yield f"{name.value} left out for {counted(count, 'case')} ({code}): {reason}"


def _fastest_first(row: ResultRow) -> tuple[object, ...]:
    """Return the sort key of a case in a list: by model and device, those without a figure last."""
    place = row.model.label, row.device.is_virtual, row.device.label
    return *place, row.median_us is None, row.median_us or 0.0


def _legend(data: ReportData) -> list[str]:
    """Return the explanations of the marks and words that are in the table."""
    rows = data.results
    lines = [data.headline.trust, data.names.note]
    if any(row.best is not BestMark.NONE for row in rows):
        lines.append(
            "* fastest of this model on this device; = tied, can't be told from the fastest (95 % interval)"
        )
    if any(row.outputs is Outputs.NOT_CHECKED for row in rows):
        lines.append("not checked: the outputs weren't compared with the reference's")
    if any(row.has_mean for row in rows):
        lines.append("mean: the program printed no medians")
    if any(row.case.is_per_token for row in rows):
        lines.append(
            "tokens/s: all tokens over their time together, the harmonic mean of the repetitions' speeds"
        )
    lines.append("; ".join(_word_legend(rows)))
    if any(row.delegate_text == "fell back to CPU" for row in rows):
        lines.append("fell back: the CPU ran it, so the figure isn't the delegate's")
    if data.has_virtual:
        lines.append("virtual: from benchfarm's own virtual phone, no measurement")
    return lines


def _word_legend(rows: Sequence[ResultRow]) -> Iterable[str]:
    """Yield the explanations of the words in a list of cases."""
    with_figure = [row for row in rows if row.own_summary is not None]
    if any(row.speed_up is not None for row in rows):
        yield "vs CPU: times as fast as the fastest on the CPU"
    if any(row.truth is DelegateTruth.FULL for row in with_figure):
        yield "full: the delegate ran all operators"
    if any(row.truth is DelegateTruth.PARTIAL for row in with_figure):
        yield "partial n/m: it ran n of m, the CPU the rest"
    if any(row.is_judged for row in with_figure):
        yield "clean: no finding casts doubt on the figure"
