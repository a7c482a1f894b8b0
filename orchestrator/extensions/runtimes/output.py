"""Reads the output of declared programs as their files describe (declaration.py).

Lines become fields, fields become results, results become reports. A figure that follows an error
of the same process is no result, nor is one whose line was cut off inside it.
"""

from __future__ import annotations

import csv
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from orchestrator.delegates.judging import extent_of
from orchestrator.errors import OutputParseError
from orchestrator.extensions.runtimes.declaration import (
    MeasureSection,
    ProgramSection,
    RanOnSection,
    ResultSection,
    TableSection,
    every_declared,
)
from orchestrator.reading.failures import Failure, system_failure
from orchestrator.reading.lines import (
    US_OF,
    Buffer,
    Line,
    ProcessName,
    as_printed,
    figures_of,
)
from orchestrator.reading.litert_lm import MARKS, LitertLmReader
from orchestrator.reading.litert_lm import reports_of as token_reports
from orchestrator.records.case import DelegateName
from orchestrator.records.run import DelegateEvidence, DelegateTruth, LatencySummary, ToolReport
from orchestrator.units import US_PER_MS, US_PER_S, parse_number

#: A field's value: as printed, or a list of values.
Value = str | list[str]
Fields = dict[str, Value]
#: A line that shows where a process runs, and the values of its named groups.
Placement = tuple[str, Mapping[str, str]]

_UNITS: Final = {
    **US_OF,
    "B": 2.0**-20,
    "KB": 1e3 / 2**20,
    "KiB": 2.0**-10,
    "MB": 1e6 / 2**20,
    "MiB": 1.0,
    "GiB": 1024.0,
}
#: A text of such a program shows one of its marks early.
_SAMPLE_BYTES: Final = 4 << 20
_PIECE_BYTES: Final = 1 << 15
_LONGEST_MARK: Final = 200
#: Characters of one JSON document, results of one process, and values of one field, at most.
_MOST_JSON: Final = 4 << 20
_MOST_RESULTS: Final = 100_000
_MOST_VALUES: Final = 100_000
#: CPU seconds of all lines together, at most (the shipped files take 0.04 ms a line), checked once
#: in so many lines.
_MOST_S: Final = 10.0
_MOST_S_PER_LINE: Final = 0.001
_CHECK_EACH: Final = 64
#: A percentile of fewer inferences is their maximum.
_FEWEST_FOR_P95: Final = 20
#: Figures of samples beside the median.
_OF_SAMPLES: Final = ("first", "current", "min", "max", "mean", "std")


@dataclass(slots=True)
class Process:
    """The state of one process: its rows, and the fields that are common to all of them."""

    context: Fields = field(default_factory=dict)
    #: Rule of ``ran_on`` -> its last line so far.
    placements: dict[int, Placement] = field(default_factory=dict)
    #: Rules with different lines: which result each line belongs to isn't known.
    changed: set[int] = field(default_factory=set)
    #: Lines with an error.
    errors: list[Failure] = field(default_factory=list)
    rows: list[PrintedResult] = field(default_factory=list)
    #: Whether a system line reports its end; output after that is another process's.
    is_over: bool = False
    #: Whether a result was begun: its table's head, or a line before it.
    is_begun: bool = False
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class PrintedResult:
    """The fields of one result."""

    process: Process
    fields: Fields
    #: All headings that it stands below in a text of unknown origin.
    heading: str
    #: The placement lines before it.
    placements: Mapping[int, Placement]
    #: The first error that was printed before it.
    error: Failure | None
    #: The columns of the table that it is a row of.
    columns: tuple[str, ...] = ()
    #: Whether it is of a table or a document, whose figures a program's lines may repeat.
    is_of_table: bool = False


@dataclass(slots=True)
class RegexBudget:
    """The CPU time that a program's expressions may take for all lines of a text."""

    #: CPU seconds, in addition to the allowance for each line.
    most_s: float = _MOST_S
    began_s: float = field(default_factory=time.thread_time)
    lines: int = 0

    def check(self, program: str) -> None:
        """Count a line; raises OutputParseError where all so far took too long."""
        self.lines += 1
        if self.lines % _CHECK_EACH:
            return
        spent_s = time.thread_time() - self.began_s
        if spent_s > self.most_s + _MOST_S_PER_LINE * self.lines:
            raise OutputParseError(
                f"the expressions of {program} took {spent_s:.0f} s for {self.lines} lines",
                hint="write them without nested repeats",
            )


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table whose next row may follow; other lines may come between its rows: a log's."""

    section: TableSection
    columns: list[str]
    #: How many results there were at its head.
    before: int


@dataclass(frozen=True, slots=True)
class OpenDocument:
    """A JSON document of which a part was read."""

    section: TableSection
    lines: list[str]


class DeclaredReader:
    """Reads the lines of one declared program's output.

    A line goes on with the open table or document, begins one, or is of the first form of the file
    that fits; ``_take`` has what each form ``does``.
    """

    def __init__(self, section: ProgramSection, budget: RegexBudget | None = None) -> None:
        """Begin with no process; ``budget`` is that of the whole text."""
        self._section = section
        self._budget = budget or RegexBudget()
        self._process = Process()
        self.processes = [self._process]
        self._part: Fields = {}
        #: Those of the open part's first line.
        self._heading = ""
        self._open: OpenTable | OpenDocument | None = None
        #: Lines before the head of their process, which show where it runs.
        self._early_placements: dict[int, Placement] = {}

    def feed(self, line: Line) -> None:
        """Take one line; the last figure of one that is cut may lack digits.

        Raises OutputParseError where the expressions take too long, on one line or on all so far.
        """
        text, is_cut = line.raw, line.is_cut
        if not self._part:
            self._heading = line.heading
        self._budget.check(self._section.name)
        if isinstance(self._open, OpenDocument):
            self._continue_document(text, self._open)
            return
        is_row = self._open is not None and self._takes_row(text, self._open, is_cut=is_cut)
        if is_row or self._begins_table(text):
            return
        for form in self._section.lines:
            match = form.regex.find(text)
            if match is None:
                continue
            if (
                is_cut
                and text[-1:].isdigit()
                and form.does in {"row", "part", "samples", "end"}
                and not form.whole
            ):
                self._process.is_begun = self._process.is_cut = True
                return
            self._take(form.does, dict(match), form.code, text)
            return
        if (system_end := system_failure(text)) is not None:
            self._process.is_over = True
            self._take("fail", {}, system_end.code, text)
            return
        for number, rule in enumerate(self._section.ran_on):
            if rule.line is not None and (groups := rule.line.find(text)) is not None:
                placement = self._early_placements[number] = (text.strip()[:300], groups)
                if self._process.placements.setdefault(number, placement) != placement:
                    self._process.changed.add(number)
                self._process.placements[number] = placement

    @property
    def has_program_lines(self) -> bool:
        """Whether a line is the program's own, and not only the system's about some process."""
        return any(
            process.is_begun or (process.errors and not process.is_over)
            for process in self.processes
        )

    def end(self) -> None:
        """Close what is open at the end of the text."""
        self._close_part()
        if isinstance(self._open, OpenDocument) or (self._open and not self._process.rows):
            self._process.is_begun = self._process.is_cut = True
            self._open = None

    def _take(self, does: str, groups: dict[str, str], code: str, text: str) -> None:
        process = self._process
        match does:
            case "begin":
                errors = () if process.is_begun or process.is_over else process.errors
                self._begin(groups)
                self._process.errors += errors
            case "context":
                process.context.update(groups)
            case "fail":
                process.errors.append(Failure(code=code, reason=text.strip()[:300]))
            case "row":
                self._add(dict(groups))
            case "samples":
                process.is_begun = True
                for name, value in groups.items():
                    values = self._part.setdefault(name, [])
                    if isinstance(values, list) and len(values) < _MOST_VALUES:
                        values.append(value)
            case "part" if any(
                self._part.get(name, value) != value for name, value in groups.items()
            ):
                # Another value of a field is another process's.
                self._begin({})
                self._part.update(groups)
            case _:
                process.is_begun = True
                self._part.update(groups)
        if does == "end":
            self._close_part()

    def _begin(self, groups: dict[str, str]) -> None:
        self._close_part()
        self._process = Process(
            context=dict(groups), placements=self._early_placements, is_begun=True
        )
        self._early_placements = {}
        self.processes.append(self._process)

    def _close_part(self) -> None:
        part, self._part = self._part, {}
        if part:
            self._add(part)

    def _add(
        self, fields: Fields, *, columns: Sequence[str] = (), is_of_table: bool = False
    ) -> None:
        process = self._process
        self._early_placements = {}
        if len(process.rows) >= _MOST_RESULTS:
            return
        all_fields = {**process.context, **fields}
        for name, pattern in self._section.split.items():
            value = all_fields.get(name)
            if isinstance(value, str) and (groups := pattern.find(value)) is not None:
                all_fields |= {key: value for key, value in groups.items() if key not in all_fields}
        error = process.errors[0] if process.errors else None
        plain = tuple(name for name in columns if name not in self._section.split)
        process.rows.append(
            PrintedResult(
                process,
                all_fields,
                self._heading,
                dict(process.placements),
                error,
                plain,
                is_of_table,
            )
        )

    def _takes_row(self, text: str, table: OpenTable, *, is_cut: bool) -> bool:
        """Take a line that is of the open table."""
        kind, columns, process = table.section.kind, table.columns, self._process
        cells = _cells(kind, text)
        if kind == "markdown" and cells and set("".join(cells)) <= set("-: "):
            if len(process.rows) > table.before:
                # The row above is the head of another program's table.
                self._open = None
            return True
        is_head = not set(columns).isdisjoint(cells) and table.section.start.find(text) is not None
        if len(cells) == len(columns) and not is_head and not (is_cut and text[-1:].isdigit()):
            row: Fields = {name: value for name, value in zip(columns, cells, strict=True) if value}
            self._add(row, columns=columns if kind == "markdown" else (), is_of_table=True)
            return True
        process.is_cut = process.is_cut or (is_cut and bool(cells))
        return is_cut and bool(cells)

    def _begins_table(self, text: str) -> bool:
        """Take a line that is the head of a table, or a document's first."""
        for section in self._section.tables:
            if (groups := section.start.find(text)) is None:
                continue
            if self._process.rows and section.kind in {"csv", "markdown"}:
                self._begin({})
            self._process.is_begun = True
            match section.kind:
                case "json":
                    self._continue_document(groups.get("json", text), OpenDocument(section, []))
                case "sql":
                    names, values = (
                        _cells("sql", groups.get(name, "")) for name in ("columns", "values")
                    )
                    if len(names) == len(values):
                        self._add(dict(zip(names, values, strict=True)))
                case "csv" | "markdown":
                    columns = _cells(section.kind, text)
                    self._open = OpenTable(section, columns, len(self._process.rows))
            return True
        return False

    def _continue_document(self, text: str, document: OpenDocument) -> None:
        """Take a line of a JSON document; once it is whole, its objects are results."""
        section, lines = document.section, document.lines
        is_start = bool(lines) and lines[0][:1] == text[:1] == "{"
        if is_start and section.start.find(text) is not None and _parse_json(text):
            # A whole document of one line, behind one that was cut off.
            self._process.is_cut = True
            lines.clear()
        lines.append(text)
        self._open = document
        if text[-1:] not in {"}", "]"} or (len(lines) > 1 and text[:1] not in {"}", "]"}):
            if len(text) + 80 * len(lines) > _MOST_JSON:
                self._open, self._process.is_cut = None, True
            return
        value = _parse_json("\n".join(lines))
        if value is None:
            return
        self._open = None
        for item in value if isinstance(value, list) else [value]:
            inner = item.get(section.each) if isinstance(item, dict) and section.each else None
            for each in inner if isinstance(inner, list) else [item]:
                if isinstance(item, dict) and isinstance(each, dict):
                    row = {
                        str(key): field_value
                        for key, json_value in {**item, **each}.items()
                        if (field_value := _value(json_value)) is not None
                    }
                    self._add(row, is_of_table=True)


def _parse_json(text: str) -> object:
    """Return a JSON document's value, None where it isn't JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _value(value: object) -> Value | None:
    """Return a JSON value as a field's value; None unless it is a scalar or a list of numbers."""
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case list() if all(isinstance(item, int | float) for item in value[:_MOST_VALUES]):
            return [str(item) for item in value[:_MOST_VALUES]]
    return None


def _cells(kind: str, text: str) -> list[str]:
    """Return the cells of a row; none for any other line."""
    text = text.strip()
    if kind == "markdown":
        return (
            [cell.strip() for cell in text.strip("|").split("|")]
            if text[:1] == "|" and text[-1:] == "|"
            else []
        )
    if "," not in text:
        return []
    try:
        rows = list(
            csv.reader([text], quotechar="'" if kind == "sql" else '"', skipinitialspace=True)
        )
    except csv.Error:
        return []
    return rows[0] if rows else []


def reports_in(buffer: Buffer, lines: Callable[[Buffer], Iterable[Line]]) -> list[ToolReport]:
    """Return the reports of LiteRT-LM and of every declared program of which a text has a mark; a
    file with faults declares none. ``lines`` takes the text apart.
    """
    sections = _marked_programs(buffer, every_declared()[0])
    # The lines of several processes may alternate: each has a reader of its own.
    language_models: defaultdict[ProcessName, LitertLmReader] = defaultdict(LitertLmReader)
    declared: list[defaultdict[ProcessName, DeclaredReader]] = [
        defaultdict(partial(DeclaredReader, section, RegexBudget())) for section in sections
    ]
    has_mark = any(buffer.find(mark.encode()) >= 0 for mark in MARKS)
    programs: list[Mapping[ProcessName, LitertLmReader | DeclaredReader]] = [*declared]
    programs += [language_models] if has_mark else []
    for line in lines(buffer) if programs else ():
        for readers in programs:
            readers[line.process].feed(line)
    of_language_models = [
        report
        for reader in language_models.values()
        for process in reader.end()
        for report in token_reports(process)
    ]
    by_program: list[list[ToolReport]] = []
    for section, readers in zip(sections, declared, strict=True):
        active = [reader for reader in readers.values() if reader.has_program_lines]
        by_program.append(
            [
                report
                for reader in active or readers.values()
                for report in reports_of(reader, section)
            ]
        )
    # A text with results of one program may mention another.
    results = [
        reports for reports in by_program if any(each.inference is not None for each in reports)
    ]
    of_declared = [each for reports in results or by_program[:1] for each in reports]
    return [*of_language_models, *of_declared]


def _marked_programs(buffer: Buffer, sections: Iterable[ProgramSection]) -> list[ProgramSection]:
    """Return the programs of which a text has a mark, in the order in which the marks are found."""
    remaining = {
        section.name: (section, [mark.lower().encode() for mark in section.marks])
        for section in sections
    }
    matching = []
    for start in range(0, min(len(buffer), _SAMPLE_BYTES), _PIECE_BYTES):
        piece = buffer[start : start + _PIECE_BYTES + _LONGEST_MARK].lower()
        for name, (section, marks) in list(remaining.items()):
            if any(mark in piece for mark in marks):
                matching.append(section)
                del remaining[name]
    return matching


def reports_of(
    reader: DeclaredReader,
    section: ProgramSection,
    *,
    requested: str = "",
    figure: str = "",
    proven: bool = False,
) -> list[ToolReport]:
    """End the reading; return a report for each result, and one for each process that has only an
    error or was cut off.

    ``figure``: only the results that are declared as this one. ``proven``: a run that ended well
    shows by itself that all ran where it was asked to.
    """
    reports: list[ToolReport] = []
    reader.end()
    for process in reader.processes:
        process_reports: list[ToolReport] = []
        #: The results of the table or document before, which a program may repeat in lines.
        table_results: set[tuple[str, int | None]] = set()
        for row in process.rows:
            delegate = _evidence(row, section, requested, proven)
            row_reports = [
                _report(row, section, result, delegate)
                for result in section.results
                if _fits(row.fields, result.where)
                and (not figure or result.figure in {None, figure})
            ]
            names = [
                (item.label, item.inference.count if item.inference else None)
                for item in row_reports
            ]
            if row.is_of_table:
                table_results = set(names)
            else:
                row_reports = [
                    item
                    for item, name in zip(row_reports, names, strict=True)
                    if name not in table_results
                ]
                table_results = set()
            process_reports += row_reports
        reports += process_reports
        is_of_another = not process.is_begun and any(other.rows for other in reader.processes)
        if process.errors and not is_of_another and not any(row.error for row in process.rows):
            failure = process.errors[0]
        elif process.is_cut:
            failure = Failure(code="no-result", reason="the output is cut off", outcome="truncated")
        elif process.is_begun and not process_reports:
            failure = Failure(code="no-result", reason="no result was printed")
        else:
            continue
        evidence = DelegateEvidence(requested=requested)
        reports.append(failure.report(evidence, {"program": section.name}))
    return reports


def _report(
    row: PrintedResult, section: ProgramSection, result: ResultSection, delegate: DelegateEvidence
) -> ToolReport:
    fields = row.fields
    latency: dict[str, float | None] = {
        name: _first_figure(fields, measures) for name, measures in result.latency.items()
    }
    samples = _samples(fields, result)
    count = next(
        (int(number) for name in result.count if (number := _number(fields.get(name))) is not None),
        None,
    )
    printed = fields.get(result.samples.field) if result.samples is not None else None
    disagreements: tuple[str, ...] = ()
    if (
        count is not None
        and isinstance(printed, list)
        and result.unit == "inference"
        and len(printed) != count
    ):
        disagreements = (f"{len(printed)} of {count} times were printed: lines are missing",)
    if samples:
        figures = figures_of(samples, [1] * len(samples))
        latency |= {name: getattr(figures, f"{name}_us") for name in _OF_SAMPLES}
        tokens = None
        if result.unit == "token":
            # Each repetition is of many tokens: the time of all of them counts, as in other
            # programs.
            latency.pop("median", None)
            tokens = _divisor(fields, result.samples) if result.samples else None
        else:
            latency["median"] = statistics.median(samples)
        count = round(len(samples) * (tokens or 1.0))
    if count is not None and count < _FEWEST_FOR_P95:
        latency.pop("p5", None)
        latency.pop("p95", None)
    mean = latency.get("mean") or latency.get("median")
    words = {name: value for name, value in fields.items() if isinstance(value, str)}
    label = section.filled(result.label, words).strip() or result.figure or ""
    report = ToolReport(
        outcome="ok",
        label=label,
        init_us=_first_figure(fields, result.init) or None,
        first_inference_us=_first_figure(fields, result.first_inference),
        inference_mean_us=latency.get("mean"),
        inference=LatencySummary(
            count=count, **{f"{name}_us": value for name, value in latency.items()}
        ),
        peak_memory_mib=_first_figure(fields, result.peak_memory),
        delegate=delegate,
        disagreements=disagreements,
        extra=_extra(row, section, result, samples),
    )
    if row.error is not None:
        code, reason = row.error.code, f"{row.error.reason} (output after it isn't a result)"
    elif mean is None or mean <= 0:
        code, reason = "no-inferences", "the program printed no time above 0"
    else:
        return report
    return replace(
        report,
        outcome="failed",
        failure_code=code,
        failure_reason=reason,
        inference=None,
        inference_mean_us=None,
    )


def _fits(fields: Fields, where: Mapping[str, Any]) -> bool:
    return all(
        pattern.find(value if isinstance(value := fields.get(name, ""), str) else "") is not None
        for name, pattern in where.items()
    )


def _number(value: Value | None) -> float | None:
    return parse_number(value) if isinstance(value, str) else None


def _divisor(fields: Fields, measure: MeasureSection) -> float | None:
    parts = [_number(fields.get(part, part)) for part in measure.per]
    if any(part is None for part in parts):
        return None
    return sum(part for part in parts if part is not None) if parts else 1.0


def _in_us(number: float, measure: MeasureSection, divisor: float) -> float | None:
    """Return a time in microseconds, memory in MiB; None for a speed of nothing."""
    if measure.unit == "1/s":
        return US_PER_S / number / divisor if number > 0 else None
    return as_printed(number * _UNITS[measure.unit] / divisor)


def _first_figure(fields: Fields, measures: Iterable[MeasureSection]) -> float | None:
    """Return a figure from the first measure whose fields are present."""
    for measure in measures:
        number, divisor = _number(fields.get(measure.field)), _divisor(fields, measure)
        subtrahend = _number(fields.get(measure.minus)) if measure.minus is not None else 0.0
        if number is not None and subtrahend is not None and divisor:
            return _in_us(number - subtrahend, measure, divisor)
    return None


def _resolution_us(fields: Fields, result: ResultSection) -> float | None:
    """Return the figure's resolution in microseconds: the declared one, else that of its last
    printed digit; None where the digits don't show it.
    """
    if result.resolution_ms is not None:
        return result.resolution_ms * US_PER_MS
    measures = [result.samples] if result.samples is not None else []
    measures += [*result.latency.get("median", ()), *result.latency.get("mean", ())]
    for measure in measures:
        value, divisor = fields.get(measure.field), _divisor(fields, measure)
        printed = [value] if isinstance(value, str) else value or []
        if printed and divisor and all(text.replace(".", "", 1).isdecimal() for text in printed):
            step = 10.0 ** -max(len(text.partition(".")[2]) for text in printed)
            median = statistics.median(map(float, printed))
            if measure.unit == "1/s":
                return US_PER_S * step / median**2 / divisor if median > 0 else None
            return _in_us(step, measure, divisor)
    return None


def _samples(fields: Fields, result: ResultSection) -> list[float]:
    measure = result.samples
    values = fields.get(measure.field) if measure is not None else None
    if measure is None or not isinstance(values, list):
        return []
    divisor = _divisor(fields, measure)
    numbers = [_number(value) for value in values]
    if not divisor or not numbers or any(number is None for number in numbers):
        return []
    times_us = [_in_us(number, measure, divisor) for number in numbers if number is not None]
    positive_us = [number for number in times_us if number is not None and number > 0]
    return positive_us[measure.drop_first :] or positive_us


def _extra(
    row: PrintedResult, section: ProgramSection, result: ResultSection, samples: Sequence[float]
) -> dict[str, float | str]:
    fields = row.fields
    extra: dict[str, float | str] = {"program": section.name}
    if result.unit == "token":
        extra["unit"] = "token"
        if len(samples) > 1:
            extra["repetitions_us"] = " ".join(f"{each:.6g}" for each in samples)
    resolution_us = _resolution_us(fields, result)
    if resolution_us is not None:
        extra["resolution_us"] = resolution_us
    if (first := _first_figure(fields, result.first_token)) is not None:
        extra["first_token_us"] = first
    for name in dict.fromkeys((*result.keep, *row.columns)):
        if isinstance(value := fields.get(name), str):
            extra[name] = value[:200]
    if row.heading:
        extra["heading"] = row.heading
    return extra


def _evidence(
    row: PrintedResult, section: ProgramSection, requested: str, proven: bool
) -> DelegateEvidence:
    for number, rule in enumerate(section.ran_on):
        placement = row.placements.get(number)
        if placement is None and number not in row.process.changed:
            # A program's other stream may be read after its results.
            placement = row.process.placements.get(number)
        if (rule.line is not None and placement is None) or not _fits(row.fields, rule.where):
            continue
        return _delegate_evidence(rule, placement, requested)
    if proven and requested:
        return DelegateEvidence(requested=requested, actual=requested, truth=DelegateTruth.FULL)
    return DelegateEvidence(requested=requested)


def _delegate_evidence(
    rule: RanOnSection, placement: Placement | None, requested: str
) -> DelegateEvidence:
    line, groups = placement or ("", {})
    delegated, total = (
        int(groups[name]) if groups.get(name, "").isdigit() else None for name in ("own", "all")
    )
    actual = rule.is_
    truth = DelegateTruth.UNKNOWN
    if delegated == 0 and not actual.is_cpu and requested in {"", actual.value}:
        truth, actual = DelegateTruth.NONE, DelegateName.CPU
    elif requested:
        truth = extent_of(requested, actual.value, delegated, total)
        # The line alone shows that it ran there.
        truth = DelegateTruth.FULL if truth is DelegateTruth.UNKNOWN else truth
    return DelegateEvidence(
        requested=requested,
        actual=actual.value,
        truth=truth,
        delegated_nodes=delegated,
        total_nodes=total,
        lines=(line,) if line else (),
    )
