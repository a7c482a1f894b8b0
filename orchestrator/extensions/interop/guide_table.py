"""The table of the public performance guide: models and devices down, configurations across,
``---`` where not run.

Figures that others published and our own stand in rows of their own, each with its source: they are
never mixed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.case_result import CaseResult, CaseStatus
from orchestrator.delegates import DELEGATES
from orchestrator.errors import UsageError
from orchestrator.extensions.interop.published import PublishedFigure
from orchestrator.programs import is_usual
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import Case, DelegateName, ProcessMode, grouped
from orchestrator.records.device import DeviceFacts
from orchestrator.records.model import worded
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.plan import StoppingRule
from orchestrator.records.run import OPENGL, DelegateTruth, FigureKind
from orchestrator.records.verdict import Quality
from orchestrator.tables.column import NOTHING, Column, Form, Kind
from orchestrator.tables.devices import origin_of
from orchestrator.tables.escapes import markdown_text, visible
from orchestrator.tables.labels import MODEL_HASH, unique_labels
from orchestrator.tables.table import Table, render
from orchestrator.units import US_PER_MS, counted, format_figure, tokens_per_s

MEASURED: Final = "measured with benchfarm"
IMPORTED: Final = "measured elsewhere and imported"
#: What no older figure can surpass (MeasuredCase.worth).
BEST_WORTH: Final = (True, 2)
_EMPTY: Final = "There is no figure for these devices and configurations.\n"
_LATEX_SPECIAL: Final = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{char: f"\\{char}" for char in "&%$#_"},
}
_PLAIN_AFFINITY: Final = "big"
_ENDED_WITHOUT_FIGURE: Final = frozenset(
    {CaseStatus.FELL_BACK, CaseStatus.REJECTED, CaseStatus.FAILED, CaseStatus.TIMED_OUT}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A configuration that the table is asked for: ``CPU, 4 threads``, ``GPU``."""

    delegate: DelegateName
    #: None takes any number of threads, and says which.
    threads: int | None = None

    @property
    def label(self) -> str:
        """What people call it."""
        return DELEGATES[self.delegate].label + (
            f", {counted(self.threads, 'thread')}" if self.threads else ""
        )

    def fits(self, delegate: DelegateName, threads: int | None) -> bool:
        """Whether figures of a delegate with so many threads belong into it."""
        return delegate is self.delegate and self.threads in {None, threads}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """A case of one campaign and what its invocations came to."""

    case: Case
    result: CaseResult
    facts: DeviceFacts
    campaign: Campaign

    @property
    def latency_us(self) -> float | None:
        """Its figure if it is its own; a figure of something else than was asked for is none."""
        return None if self.result.own_summary is None else self.result.own_summary.median_us

    @property
    def worth(self) -> tuple[bool, int]:
        """How well its figure is known, by which the better of two is shown: clean, then by its
        processes.

        2: precise, or of as many processes as the stopping rule asks for; 1: of several; 0: of one.
        """
        count = self.result.summary.count if self.result.summary is not None else 0
        is_well_known = self.result.is_precise or count >= StoppingRule().first
        return self.result.quality is Quality.TRUSTED, 2 if is_well_known else int(count > 1)

    @property
    def departure(self) -> tuple[bool, ...]:
        """How far it is from what people call its configuration: the least is the plainest."""
        case = self.case
        return (
            bool(case.flags),
            not is_usual(case.tool),
            case.mode is not None,
            case.affinity != _PLAIN_AFFINITY,
        )

    @property
    def why_none(self) -> str:
        """The code of why it has no figure."""
        result = self.result
        return (
            "wrong-outputs"
            if result.parity is ParityVerdict.WRONG
            else result.reason_code or result.status.value
        )

    @property
    def text(self) -> str:
        """The figure with the digits that mean something: three, and no decimals from 100 ms on."""
        assert self.latency_us is not None, "it has a figure"
        if self.case.is_per_token:
            return format_figure(self.latency_us, is_per_token=True)
        value_ms = self.latency_us / US_PER_MS
        return f"{value_ms:.{max(0, 3 - len(str(int(value_ms))))}f} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One figure, or the reason why there is none."""

    #: As it is printed, with its unit: ``23.9 ms``, ``83.0 tokens/s``.
    text: str = NOTHING
    latency_us: float | None = None
    #: What to know about it, as short phrases: ``XNNPACK``, ``14 of 31 operators``.
    notes: tuple[str, ...] = ()
    #: The campaign that it comes from; empty for a published figure.
    campaign_id: str = ""
    #: Whether ``latency_us`` is the time of one token, shown as tokens per second.
    is_per_token: bool = False

    @property
    def speed(self) -> float | None:
        """A language model's tokens per second."""
        return tokens_per_s(self.latency_us) if self.is_per_token else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A model on a device, from one source."""

    model: str
    device: str
    is_virtual: bool = False
    source: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideTable:
    """The whole table."""

    columns: tuple[Configuration, ...]
    lines: tuple[Line, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """Where its figures come from, in the order of their first lines."""
        return tuple(dict.fromkeys(line.source for line in self.lines))

    @property
    def campaigns(self) -> tuple[str, ...]:
        """The campaigns that its own figures come from, in the order in which they appear."""
        return tuple(
            dict.fromkeys(
                cell.campaign_id for line in self.lines for cell in line.cells if cell.campaign_id
            )
        )

    def notes_of(self, cell: Cell) -> tuple[str, ...]:
        """Return a cell's notes, with its campaign where the table has figures of several."""
        named = cell.campaign_id and len(self.campaigns) > 1
        return (*cell.notes, f"campaign {cell.campaign_id}") if named else cell.notes

    @property
    def notes(self) -> tuple[str, ...]:
        """The distinct notes of all cells, in the order in which they appear; a cell refers to one
        by its number.
        """
        return tuple(
            dict.fromkeys(
                note for line in self.lines for cell in line.cells for note in self.notes_of(cell)
            )
        )

    @property
    def told_sources(self) -> str:
        """The sources in words, with the campaign where all own figures are of one."""
        of_one = f" (campaign {self.campaigns[0]})" if len(self.campaigns) == 1 else ""
        return ", ".join(
            f"{source}{of_one}" if source in {MEASURED, IMPORTED} else source
            for source in self.sources
        )


def parse_configuration(text: str) -> Configuration:
    """Return the configuration that a person names, such as ``CPU, 4 threads`` or ``GPU``.

    Raises UsageError.
    """
    match = re.fullmatch(r"\s*([A-Za-z][A-Za-z ]*?)\s*(?:,\s*(\d+)\s*threads?)?\s*", text)
    name = match.group(1).lower().replace(" ", "") if match else ""
    if match is None or name not in {item.value for item in DelegateName}:
        raise UsageError(
            f"{text!r} is no configuration",
            hint="name a delegate and, if it matters, threads: 'CPU, 4 threads', 'GPU', 'NNAPI', 'Core ML'",
        )
    return Configuration(
        delegate=DelegateName(name), threads=int(match.group(2)) if match.group(2) else None
    )


def usual_columns(
    published: Sequence[PublishedFigure], measured: Sequence[MeasuredCase]
) -> tuple[Configuration, ...]:
    """Return the configurations that there are figures for, the CPU's first."""
    found = {
        (figure.delegate, figure.threads) for figure in published if figure.latency_us is not None
    }
    found |= {(item.case.delegate, _threads_that_count(item.case)) for item in measured}
    order = [*DelegateName, *sorted(delegate for delegate, _ in found if delegate.is_of_plugin)]
    ordered = sorted(found, key=lambda key: (order.index(key[0]), key[1] or 0))
    return tuple(Configuration(delegate=delegate, threads=threads) for delegate, threads in ordered)


def published_lines(
    figures: Sequence[PublishedFigure],
    columns: Sequence[Configuration],
    *,
    is_wanted: Callable[[str, Sequence[str]], bool],
) -> Iterator[Line]:
    """Yield the public table's lines, a model's devices together; ``is_wanted`` takes a model and a
    device's names.
    """
    for model, of_model in grouped(figures, lambda figure: figure.model).items():
        wanted = (figure for figure in of_model if is_wanted(model, (figure.device,)))
        for (device, source), of_row in grouped(
            wanted, lambda figure: (figure.device, figure.source)
        ).items():
            cells = tuple(_published_cell(of_row, column) for column in columns)
            yield Line(model=model, device=device, source=source, cells=cells)


def measured_lines(
    measured: Sequence[MeasuredCase], columns: Sequence[Configuration]
) -> Iterator[Line]:
    """Yield a line for each model, which is its content, and device; see :func:`_measured_cell` for
    its cells.
    """
    newest_first = sorted(measured, key=lambda item: item.campaign.created_at, reverse=True)
    names = {str(item.case.model_sha256): item.case.model_name for item in reversed(newest_first)}
    models = unique_labels(names, shown=MODEL_HASH)
    rows: dict[tuple[str, str, str], list[MeasuredCase]] = {}
    for item in newest_first:
        model = models[item.case.model_sha256]
        if item.case.is_per_token:
            model = f"{model}, {worded(dict(item.case.flags)).removesuffix(', per token')}"
        rows.setdefault((model, item.case.serial, item.case.model_sha256), []).append(item)
    devices = unique_labels({item.case.serial: item.facts.title for item in measured})
    for (model, serial, _), of_row in sorted(rows.items()):
        yield Line(
            model=model,
            device=devices[serial],
            is_virtual=of_row[0].facts.is_virtual,
            source=IMPORTED if all(origin_of(item.campaign) for item in of_row) else MEASURED,
            cells=tuple(_measured_cell(of_row, column) for column in columns),
        )


def _of_processes(count: int) -> str:
    return "one invocation" if count == 1 else f"{count} invocations"


def _published_cell(figures: Sequence[PublishedFigure], column: Configuration) -> Cell:
    for figure in figures:
        if column.fits(figure.delegate, figure.threads) and figure.latency_us is not None:
            threads = (
                (counted(figure.threads, "thread"),)
                if figure.threads and column.threads is None
                else ()
            )
            return Cell(
                text=figure.text,
                latency_us=figure.latency_us,
                notes=(*threads, *figure.notes),
                is_per_token=figure.is_per_token,
            )
    return Cell()


def _threads_that_count(case: Case) -> int | None:
    """Return a case's threads where they are a part of what people call the configuration: on the
    CPU.
    """
    return case.threads if case.delegate.is_cpu and case.threads > 0 else None


def _measured_cell(items: Sequence[MeasuredCase], column: Configuration) -> Cell:
    """Return the best known figure of the plainest case of a configuration, the newest of equal
    ones.

    Of several in one campaign it is the fastest.

    A column names delegate and threads. A case with flags, of another program or on other cores is
    another configuration: it stands in only where there is no plain one, and its notes say what it
    is. Where later runs gave no figure, a note says why; what is known to compute wrong outputs has
    none.
    """
    fitting = [item for item in items if column.fits(item.case.delegate, item.case.threads)]
    if not fitting and (other := DELEGATES[column.delegate].stands_for) is not None:
        # The note says which it was.
        fitting = [
            item
            for item in items
            if column.threads in {None, item.case.threads} and item.case.delegate is other
        ]
    known = [
        (item, item.latency_us)
        for item in fitting
        if item.latency_us is not None and not _has_turned_wrong(item, fitting)
    ]
    if not known:
        return Cell(notes=(f"no figure: {fitting[0].why_none}",) if fitting else ())
    plainest = min(item.departure for item, _ in known)
    alike = [pair for pair in known if pair[0].departure == plainest]
    # Of equal worth the newest, which comes first.
    chosen = max((item for item, _ in alike), key=lambda item: item.worth)
    beside = [
        pair
        for pair in alike
        if pair[0].campaign is chosen.campaign and pair[0].worth == chosen.worth
    ]
    best, latency_us = min(beside, key=lambda pair: pair[1])
    newer = [
        item
        for item in fitting
        if item.campaign.created_at > best.campaign.created_at and item.departure == plainest
    ]
    notes = list(_notes(best, column))
    builds = len({item.case.build_sha256 for item, _ in beside})
    if builds > 1:
        notes.append(f"fastest of {builds} builds")
    # A phone that wasn't fit says nothing of the program.
    failed = [
        item
        for item in newer
        if item.result.parity is ParityVerdict.WRONG or item.result.status in _ENDED_WITHOUT_FIGURE
    ]
    if failed:
        notes.append(f"newer runs: {failed[0].why_none}")
    passed_over = next((item for item, _ in alike if item in newer), None)
    if passed_over is not None and passed_over.result.summary is not None:
        is_clean = passed_over.result.quality is Quality.TRUSTED
        worth = _of_processes(passed_over.result.summary.count) if is_clean else "suspect"
        where = f"campaign {passed_over.campaign.campaign_id}"
        notes.append(f"newer but known less well: {passed_over.text} ({worth}, {where})")
    return Cell(
        text=best.text,
        is_per_token=best.case.is_per_token,
        latency_us=latency_us,
        notes=tuple(notes),
        campaign_id=best.campaign.campaign_id,
    )


def _has_turned_wrong(item: MeasuredCase, others: Sequence[MeasuredCase]) -> bool:
    """Whether a later campaign showed that what a figure is of computes wrong outputs."""
    return any(
        other.case.case_key == item.case.case_key
        and other.campaign.created_at > item.campaign.created_at
        and other.result.parity is ParityVerdict.WRONG
        for other in others
    )


def _notes(item: MeasuredCase, column: Configuration) -> Iterator[str]:
    case, result = item.case, item.result
    assert result.summary is not None, "it has a figure"
    count = result.summary.count
    modes = {
        ProcessMode.SHELL: "",
        ProcessMode.FOREGROUND: "app on the screen",
        ProcessMode.TOP_APP: "top-app",
    }
    processes = _of_processes(count) if count == 1 else ""
    imprecision = result.imprecision if result.precision is not None else ""
    told = (
        (True, origin_of(item.campaign)),
        (case.delegate is not column.delegate, DELEGATES[case.delegate].label),
        (column.threads is None and _threads_that_count(case), counted(case.threads, "thread")),
        (
            case.flags and not case.is_per_token,
            f"with {' '.join(f'{name}={value}' for name, value in case.flags)}",
        ),
        (not is_usual(case.tool), f"measured by {case.tool.value}"),
        (case.affinity != _PLAIN_AFFINITY, f"on the cores {case.affinity}"),
        (True, modes[case.process_mode]),
        (
            result.figure is FigureKind.MEAN and not case.is_per_token,
            "a mean: no medians were printed",
        ),
        (result.is_on_opengl, f"gpu ({OPENGL})"),
        (result.truth is DelegateTruth.PARTIAL, "a part of the operators ran on the CPU"),
        (result.status is CaseStatus.UNCONFIRMED, "nothing shows where the operators ran"),
        (True, processes),
        (True, imprecision),
        (result.quality is Quality.SUSPECT, "suspect: see the findings in its report"),
    )
    yield from (note for is_told, note in told if is_told and note)


def format_text(table: GuideTable) -> str:
    """Return the table for a terminal; notes stand below by their numbers."""
    return _with_legend(table, Form.TEXT, "\n".join(map(visible, _legend(table))))


def format_markdown(table: GuideTable) -> str:
    """Return the table as a Markdown table."""
    # The marks are ours: digits in parentheses, which Markdown shows as they are.
    return _with_legend(table, Form.MARKDOWN, "  \n".join(map(markdown_text, _legend(table))))


def _with_legend(table: GuideTable, form: Form, legend: str) -> str:
    drawn = str(render(_lines_table(table), form)).rstrip("\n")
    return f"{drawn}\n\n{legend}\n" if table.lines else _EMPTY


def format_csv(table: GuideTable) -> str:
    """Return a line for each figure: latency in ms, a language model's of a token."""
    figures = [
        (line, column, cell)
        for line in table.lines
        for column, cell in zip(table.columns, line.cells, strict=True)
    ]
    return str(render(Table(name="guide", caption="", columns=_FIGURES, rows=figures), Form.CSV))


def format_latex(table: GuideTable) -> str:
    """Return a ``tabular`` that needs no package."""
    if not table.lines:
        return f"% {_EMPTY}"
    columns = _lines_table(table).columns
    cells = zip(*(column.cells(table.lines) for column in columns), strict=True)
    heads, *rows = (
        " & ".join(map(_latex, row)) + r" \\"
        for row in ([column.title for column in columns], *cells)
    )
    sides = f"ll{'r' * len(table.columns)}{'l' * (len(table.sources) > 1)}"
    body = [
        rf"\begin{{tabular}}{{{sides}}}",
        r"\hline",
        heads,
        r"\hline",
        *rows,
        r"\hline",
        r"\end{tabular}",
        "",
    ]
    return "\n".join([*body, "\n\n".join(map(_latex, _legend(table)))]) + "\n"


def _latex(text: str) -> str:
    return "".join(_LATEX_SPECIAL.get(char, char) for char in visible(text))


def to_document(table: GuideTable) -> dict[str, object]:
    """Return the table as plain JSON values; latencies in microseconds."""
    return {
        "columns": [
            {"label": column.label, "delegate": column.delegate, "threads": column.threads}
            for column in table.columns
        ],
        "rows": [
            {
                "model": line.model,
                "device": line.device,
                "is_virtual": line.is_virtual,
                "source": line.source,
                "cells": [
                    {
                        "text": cell.text,
                        "latency_us": cell.latency_us,
                        "tokens_per_s": cell.speed,
                        "notes": list(cell.notes),
                        "campaign_id": cell.campaign_id,
                    }
                    for cell in line.cells
                ],
            }
            for line in table.lines
        ],
    }


def _lines_table(table: GuideTable) -> Table[Line]:
    """Return the lines as a table for people, each with its source where there are several."""
    numbers = {note: number for number, note in enumerate(table.notes, start=1)}

    def figures(place: int, configuration: Configuration) -> Column[Line]:
        def shown(line: Line) -> str:
            cell = line.cells[place]
            marks = ",".join(str(numbers[note]) for note in table.notes_of(cell))
            return f"{cell.text} ({marks})" if marks else cell.text

        label = configuration.label
        return Column(label, label, lambda line: None, kind=Kind.NUMBER, shown=shown)

    columns = [
        Column[Line]("model", "Model", lambda line: line.model),
        Column[Line]("device", "Device", lambda line: line.device),
        *(figures(place, column) for place, column in enumerate(table.columns)),
    ]
    if len(table.sources) > 1:
        columns.append(Column("source", "Source", lambda line: line.source))
    return Table(name="guide", caption="", columns=columns, rows=table.lines)


#: A figure of the table: its line, its configuration and its cell.
_Figure = tuple[Line, Configuration, Cell]
_FIGURES: Final[tuple[Column[_Figure], ...]] = (
    Column("model", "", lambda it: it[0].model),
    Column("device", "", lambda it: it[0].device),
    Column("is_virtual", "", lambda it: str(it[0].is_virtual).lower()),
    Column("configuration", "", lambda it: it[1].label),
    Column("latency_ms", "", lambda it: _digits(it[2].latency_us, US_PER_MS)),
    Column("source", "", lambda it: it[0].source),
    Column("campaign_id", "", lambda it: it[2].campaign_id),
    Column("notes", "", lambda it: "; ".join(it[2].notes)),
    Column("tokens_per_s", "", lambda it: _digits(it[2].speed)),
)


def _digits(value: float | None, unit: float = 1.0) -> str:
    return "" if value is None else f"{value / unit:.6g}"


def _legend(table: GuideTable) -> Iterable[str]:
    yield from (f"({number}) {note}" for number, note in enumerate(table.notes, start=1))
    yield f"Source: {table.told_sources}."
    if any(line.is_virtual for line in table.lines):
        yield "Virtual: from benchfarm's own virtual phone, no measurement."
