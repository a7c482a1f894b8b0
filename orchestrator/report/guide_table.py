"""The table of the public performance guide: models and devices down, configurations across, ``---`` where not run.

Figures that others published and our own stand in rows of their own, each with its source: they are never mixed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final

from orchestrator.analysis.case_result import CaseResult, CaseStatus
from orchestrator.delegates import DELEGATES
from orchestrator.errors import UsageError
from orchestrator.programs import is_usual
from orchestrator.records.device import DeviceFacts
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.plan import StoppingRule
from orchestrator.records.run import OPENGL, DelegateTruth, FigureKind
from orchestrator.records.tokens import worded
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Case, DelegateName, ProcessMode
from orchestrator.report.labels import MODEL_HASH, unique_labels
from orchestrator.report.published import SOURCE, PublishedFigure
from orchestrator.units import US_PER_MS, format_figure, tokens_per_s

#: Where there is no figure.
NOTHING: Final = "---"
#: Of a figure of our own; the interval seldom knows more.
_SIGNIFICANT_DIGITS: Final = 3
MEASURED: Final = "measured with benchfarm"
IMPORTED: Final = "measured elsewhere and imported"
#: What no older figure can surpass (MeasuredCase.worth).
BEST_WORTH: Final = (True, 2)
_PLAIN_AFFINITY: Final = "big"
_ENDED_WITHOUT_FIGURE: Final = frozenset(
    {CaseStatus.FELL_BACK, CaseStatus.REJECTED, CaseStatus.FAILED, CaseStatus.TIMED_OUT}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A configuration that the table is asked for: ``CPU, 4 threads``, ``GPU``."""

    label: str
    delegate: DelegateName
    #: None takes any number of threads, and says which.
    threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """A case of one campaign and what its invocations came to."""

    case: Case
    result: CaseResult
    facts: DeviceFacts
    campaign_id: str
    created_at: datetime
    #: An arm of a search, which gets as few invocations as show that it isn't the fastest.
    is_search: bool = False
    #: Where its campaign was imported from; empty for this lab's own.
    origin: str = ""

    @property
    def has_figure(self) -> bool:
        """Whether it has a figure of its own."""
        return _figure_us(self.result) is not None

    @property
    def worth(self) -> tuple[bool, int]:
        """How well its figure is known, by which the better of two is shown: clean, then by its processes.

        2: precise, or of as many processes as the stopping rule asks for; 1: of several; 0: of one.
        """
        count = self.result.summary.count if self.result.summary is not None else 0
        is_well_known = self.result.is_precise or count >= StoppingRule().first
        return self.result.quality is Quality.TRUSTED, 2 if is_well_known else int(count > 1)


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
    is_virtual: bool
    source: str
    cells: tuple[Cell, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is no figure in it."""
        return all(cell.latency_us is None for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideTable:
    """The whole table."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    @property
    def figures(self) -> range:
        """Which places of a row hold figures."""
        return range(2, 2 + len(self.columns))

    @property
    def sources(self) -> tuple[str, ...]:
        """Where its figures come from, in the order of their first lines."""
        return tuple(dict.fromkeys(line.source for line in self.lines))

    @property
    def campaigns(self) -> tuple[str, ...]:
        """The campaigns that its own figures come from, in the order in which they appear."""
        return tuple(dict.fromkeys(cell.campaign_id for line in self.lines for cell in line.cells if cell.campaign_id))

    def notes_of(self, cell: Cell) -> tuple[str, ...]:
        """Return a cell's notes, with its campaign where the table has figures of several."""
        named = cell.campaign_id and len(self.campaigns) > 1
        return (*cell.notes, f"campaign {cell.campaign_id}") if named else cell.notes

    @property
    def notes(self) -> tuple[str, ...]:
        """The distinct notes of all cells, in the order in which they appear; a cell refers to one by its number."""
        return tuple(dict.fromkeys(note for line in self.lines for cell in line.cells for note in self.notes_of(cell)))

    @property
    def told_sources(self) -> str:
        """The sources in words, with the campaign where all own figures are of one."""
        of_one = f" (campaign {self.campaigns[0]})" if len(self.campaigns) == 1 else ""
        return ", ".join(f"{source}{of_one}" if source in {MEASURED, IMPORTED} else source for source in self.sources)


def parse_column(text: str) -> Column:
    """Return the configuration that a person names, such as ``CPU, 4 threads`` or ``GPU``; raises UsageError."""
    match = re.fullmatch(r"\s*([A-Za-z][A-Za-z ]*?)\s*(?:,\s*(\d+)\s*threads?)?\s*", text)
    name = match.group(1).lower().replace(" ", "") if match else ""
    if match is None or name not in {item.value for item in DelegateName}:
        raise UsageError(
            f"{text!r} is no configuration",
            hint="name a delegate and, if it matters, threads: 'CPU, 4 threads', 'GPU', 'NNAPI', 'Core ML'",
        )
    return _column(DelegateName(name), int(match.group(2)) if match.group(2) else None)


def _column(delegate: DelegateName, threads: int | None) -> Column:
    label = DELEGATES[delegate].label + (f", {_thread_words(threads)}" if threads else "")
    return Column(label=label, delegate=delegate, threads=threads)


def usual_columns(published: Sequence[PublishedFigure], measured: Sequence[MeasuredCase]) -> tuple[Column, ...]:
    """Return the configurations that there are figures for, the CPU's first."""
    found = {_published_column(figure) for figure in published if figure.latency_us is not None}
    found |= {(item.case.delegate, _threads_that_count(item.case)) for item in measured}
    order = list(DelegateName)
    return tuple(_column(*key) for key in sorted(found, key=lambda key: (order.index(key[0]), key[1] or 0)))


def published_lines(
    figures: Iterable[PublishedFigure], columns: Sequence[Column], *, is_wanted: Callable[[str, Sequence[str]], bool]
) -> list[Line]:
    """Return the public table's lines, a model's devices together; ``is_wanted`` takes a model and a device's names."""
    rows: dict[tuple[str, str, str], list[PublishedFigure]] = {}
    figures = list(figures)
    models = list(dict.fromkeys(figure.model for figure in figures))
    for figure in sorted(figures, key=lambda figure: models.index(figure.model)):
        if is_wanted(figure.model, (figure.device,)):
            rows.setdefault((figure.model, figure.device, figure.source or SOURCE), []).append(figure)
    return [
        Line(
            model=model,
            device=device,
            is_virtual=False,
            source=source,
            cells=tuple(_published_cell(of_row, column) for column in columns),
        )
        for (model, device, source), of_row in rows.items()
    ]


def measured_lines(measured: Sequence[MeasuredCase], columns: Sequence[Column]) -> list[Line]:
    """Return a line for each model, which is its content, and device; see :func:`_measured_cell` for its cells."""
    newest_first = sorted(measured, key=lambda item: item.created_at, reverse=True)
    models = unique_labels(
        {item.case.model_sha256: item.case.model_name for item in reversed(newest_first)}, shown=MODEL_HASH
    )
    rows: dict[tuple[str, str, str], list[MeasuredCase]] = {}
    for item in newest_first:
        model = models[item.case.model_sha256]
        if item.case.is_per_token:
            model = f"{model}, {worded(dict(item.case.flags)).removesuffix(', per token')}"
        rows.setdefault((model, item.case.serial, item.case.model_sha256), []).append(item)
    titles = {item.facts.title for item in measured}
    shared = {
        title for title in titles if len({item.case.serial for item in measured if item.facts.title == title}) > 1
    }
    lines = []
    for (model, serial, _), of_row in sorted(rows.items()):
        facts = of_row[0].facts
        lines.append(
            Line(
                model=model,
                device=f"{facts.title} ({serial})" if facts.title in shared else facts.title,
                is_virtual=facts.is_virtual,
                source=IMPORTED if all(item.origin for item in of_row) else MEASURED,
                cells=tuple(_measured_cell(of_row, column) for column in columns),
            )
        )
    return lines


def device_matches(wanted: str, names: Sequence[str]) -> bool:
    """Whether a name that a person gives (``pixel-3``, a serial number, ``Pixel*``) is one of a device's names."""
    slugs = {_slug(name) for name in names}
    return wanted in names or any(fnmatchcase(slug, _slug(wanted)) for slug in slugs)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9*?]+", "-", name.lower()).strip("-")


def _thread_words(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def _published_column(figure: PublishedFigure) -> tuple[DelegateName, int | None]:
    """Return what ``cpu_4_threads`` means."""
    name, _, threads = figure.configuration.partition("_")
    return DelegateName(name), int(threads.removesuffix("_threads")) if threads else None


def _published_cell(figures: Sequence[PublishedFigure], column: Column) -> Cell:
    for figure in figures:
        delegate, threads = _published_column(figure)
        if delegate is column.delegate and column.threads in {None, threads} and figure.latency_us is not None:
            notes = (_thread_words(threads),) if threads and column.threads is None else ()
            is_per_token = bool(figure.source)
            return Cell(
                text=f"{figure.printed_ms} {'tokens/s' if is_per_token else 'ms'}",
                latency_us=figure.latency_us,
                notes=(*notes, *figure.notes),
                is_per_token=is_per_token,
            )
    return Cell()


def _threads_that_count(case: Case) -> int | None:
    """Return a case's threads where they are a part of what people call the configuration: on the CPU."""
    return case.threads if case.delegate.is_cpu and case.threads > 0 else None


def _measured_cell(items: Sequence[MeasuredCase], column: Column) -> Cell:
    """Return the best known figure of the plainest case of a configuration, the newest of equal ones.

    Of several in one campaign it is the fastest.

    A column names delegate and threads. A case with flags, of another program or on other cores is another
    configuration: it stands in only where there is no plain one, and its notes say what it is; so does an arm of a
    search. Where later runs gave no figure, a note says why; what is known to compute wrong outputs has none.
    """
    fitting = [item for item in items if _fits(item.case, column)]
    if not fitting and (other := DELEGATES[column.delegate].stands_for) is not None:
        # The note says which it was.
        fitting = [item for item in items if _fits(item.case, column, delegate=other)]
    with_figure = [item for item in fitting if item.has_figure and not _has_turned_wrong(item, fitting)]
    if not with_figure:
        reason = _why_none(fitting[0].result) if fitting else ""
        return Cell(notes=(f"no figure: {reason}",) if reason else ())
    plainest = min(_departure(item.case) for item in with_figure)
    alike = [item for item in with_figure if _departure(item.case) == plainest]
    alike = [item for item in alike if not item.is_search] or alike
    # Of equal worth the newest, which comes first.
    chosen = max(alike, key=lambda item: item.worth)
    beside = [item for item in alike if (item.campaign_id, item.worth) == (chosen.campaign_id, chosen.worth)]
    best = min(beside, key=lambda item: _figure_us(item.result) or 0.0)
    latency_us = _figure_us(best.result)
    assert latency_us is not None
    builds = len({item.case.build_sha256 for item in beside})
    newer = [item for item in fitting if item.created_at > best.created_at and _departure(item.case) == plainest]
    failed = [_why_none(item.result) for item in newer if _ended_without_figure(item.result)]
    passed_over = [item for item in newer if item in alike]
    return Cell(
        text=_shown(best, latency_us),
        is_per_token=best.case.is_per_token,
        latency_us=latency_us,
        notes=(
            *_notes(best, column),
            *((f"fastest of {builds} builds",) if builds > 1 else ()),
            *((f"newer runs: {failed[0]}",) if failed else ()),
            *((_passed_over(passed_over[0]),) if passed_over else ()),
        ),
        campaign_id=best.campaign_id,
    )


def _passed_over(item: MeasuredCase) -> str:
    """Return what to say of a newer figure that is known less well than the one that is shown."""
    latency_us, summary = _figure_us(item.result), item.result.summary
    assert latency_us is not None
    assert summary is not None
    worth = _of_processes(summary.count) if item.result.quality is Quality.TRUSTED else "suspect"
    return f"newer but known less well: {_shown(item, latency_us)} ({worth}, campaign {item.campaign_id})"


def _of_processes(count: int) -> str:
    return "one invocation" if count == 1 else f"{count} invocations"


def _has_turned_wrong(item: MeasuredCase, others: Sequence[MeasuredCase]) -> bool:
    """Whether a later campaign showed that what a figure is of computes wrong outputs."""
    return any(
        other.case.case_key == item.case.case_key
        and other.created_at > item.created_at
        and other.result.parity is ParityVerdict.WRONG
        for other in others
    )


def _ended_without_figure(result: CaseResult) -> bool:
    """Whether the program ran and gave no figure of its own; a phone that wasn't fit says nothing of the program."""
    return result.parity is ParityVerdict.WRONG or result.status in _ENDED_WITHOUT_FIGURE


def _why_none(result: CaseResult) -> str:
    """Return the code of why a case has no figure."""
    return "wrong-outputs" if result.parity is ParityVerdict.WRONG else result.reason_code or result.status.value


def _fits(case: Case, column: Column, *, delegate: DelegateName | None = None) -> bool:
    return case.delegate is (delegate or column.delegate) and column.threads in {None, case.threads}


def _departure(case: Case) -> tuple[bool, ...]:
    """Return how far a case is from what people call its configuration: the least is the plainest."""
    return (
        bool(case.flags),
        not is_usual(case.tool),
        case.mode is not None,
        case.affinity != _PLAIN_AFFINITY,
    )


def _figure_us(result: CaseResult) -> float | None:
    """Return a case's figure if it is its own; a figure of something else than was asked for is none."""
    return None if result.own_summary is None else result.own_summary.median_us


def _shown(item: MeasuredCase, latency_us: float) -> str:
    if item.case.is_per_token:
        return format_figure(latency_us, is_per_token=True)
    return f"{_digits(latency_us / US_PER_MS)} ms"


def _digits(value_ms: float) -> str:
    """Return a latency with the digits that mean something: three, and no decimals from 100 on."""
    decimals = max(0, _SIGNIFICANT_DIGITS - 1 - max(0, len(str(int(value_ms))) - 1))
    return f"{value_ms:.{decimals}f}"


def _notes(item: MeasuredCase, column: Column) -> Iterable[str]:
    case, result = item.case, item.result
    if item.origin:
        yield item.origin
    if case.delegate is not column.delegate:
        yield DELEGATES[case.delegate].label
    if column.threads is None and _threads_that_count(case):
        yield _thread_words(case.threads)
    if case.flags and not case.is_per_token:
        yield f"with {' '.join(f'{name}={value}' for name, value in case.flags)}"
    if not is_usual(case.tool):
        yield f"measured by {case.tool.value}"
    if case.affinity != _PLAIN_AFFINITY:
        yield f"on the cores {case.affinity}"
    if case.process_mode is not ProcessMode.SHELL:
        yield {ProcessMode.FOREGROUND: "app on the screen", ProcessMode.TOP_APP: "top-app"}[case.process_mode]
    if result.figure is FigureKind.MEAN and not case.is_per_token:
        yield "a mean: no medians were printed"
    if result.is_on_opengl:
        yield f"gpu ({OPENGL})"
    if result.truth is DelegateTruth.PARTIAL:
        yield "a part of the operators ran on the CPU"
    if result.status is CaseStatus.UNCONFIRMED:
        yield "nothing shows where the operators ran"
    assert result.summary is not None, "it has a figure"
    invocations = _of_processes(result.summary.count)
    if item.is_search:
        yield f"from a search, {invocations}"
    elif result.summary.count == 1:
        yield invocations
    if result.precision is not None and result.imprecision and not item.is_search:
        yield result.imprecision
    if result.quality is Quality.SUSPECT:
        yield "suspect: see the findings in its report"
