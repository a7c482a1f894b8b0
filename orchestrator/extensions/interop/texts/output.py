"""Reads the output of benchmark programs: one grammar for all programs, versions and log formats.

``parse_text`` and ``iterate_file`` read pasted texts and saved files: they are split into runs, and
each is read by ``orchestrator.reading``, as a run of ours is. A value that isn't printed stays
None.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from orchestrator.errors import OutputParseError, PlanError
from orchestrator.extensions.interop.texts.commands import (
    STARTING,
    parse_adb_session,
    without_refused_starts,
)
from orchestrator.extensions.interop.texts.forms import json_text, unwrapped
from orchestrator.extensions.interop.texts.headings import below_headings
from orchestrator.extensions.interop.texts.pasted import (
    Rejoiner,
    is_long_logcat,
    parse_pasted,
    whole_line,
)
from orchestrator.extensions.interop.texts.splitting import RunSplitter
from orchestrator.plugins import is_litert_result, litert_report, program_sources
from orchestrator.reading.failures import Crash, SystemLog
from orchestrator.reading.lines import (
    LONGEST_LINE_BYTES,
    NUMBER,
    Buffer,
    Line,
    iterate_blocks,
    to_us,
    without_foreign,
)
from orchestrator.reading.report import build_report
from orchestrator.reading.transcript import Transcript
from orchestrator.records.run import LatencySummary, ToolReport
from orchestrator.units import parse_number

#: Texts without any line of a benchmark program are searched for other forms up to this size.
_SMALL_BYTES: Final = 2_000_000
#: Every block of lines about a benchmark or the end of a program has one of these.
_MARKER_WORDS: Final = (
    b"count=",
    b"nference",
    b"elegate",
    b"TARTING!",
    b"lite",
    b"enchmark",
    b": [",
    b"node(s)",
    b"nitialized",
    b"ailed",
    b"rror",
    b"odel",
    b"(MB)",
    b"NNAPI",
    b"NN API",
    b"GPU",
    b"bort",
    b"Killed",
    b"Terminated",
    b"Segmentation",
    b"Illegal",
    b"Fatal",
    b"Bus error",
    b"memory",
    b"avg)",
    b"node type",
    b"usage:",
    b"ignature",
    b"INSTALL_",
    b"CANNOT LINK",
    b"not exec",
    b"not found",
    b"space left",
    b"libhexagon",
    b"Qnn",
    b"euron",
    b"Signal",
    b"has died",
    b"Killing",
    b"tokens",
)
#: Runs that are held back: a summary may still name them, or the phone's log show how they ended.
_MOST_HELD_RUNS: Final = 1024


def parse_text(text: bytes | str) -> tuple[ToolReport, ...]:
    """Read a text of unknown origin and return one report per run, in the order of the text.

    Args:
        text: printed output: console, logcat of any format, a notebook, several runs in a row, the
            summary of performance options, the LiteRT banner, the iOS app's view or console, an adb
            session.

    Raises:
        OutputParseError: nothing in the text is the output of a benchmark program.
    """
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return tuple(_reports_in(data))


def iterate_file(path: Path) -> Iterator[ToolReport]:
    """Read a file like :func:`parse_text` and yield the reports as they are read; memory grows
    neither with the file nor with its runs.

    Raises:
        OutputParseError: as :func:`parse_text`, at the first report or where reading fails.
    """
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise OutputParseError(
                    "the text is empty", hint="see whether the program wrote elsewhere"
                )
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield from _reports_in(mapped)
    except (OSError, ValueError) as error:
        raise OutputParseError(f"{path} can't be read: {error}") from error


def declaration_faults() -> list[PlanError]:
    """Return the errors of faulty files that declare programs; texts are read without these."""
    return [error for source in program_sources() for error in source.faults()]


def _lines(buffer: Buffer) -> Iterator[Line]:
    """Yield the lines of a text, each with the headings that it stands below."""
    return below_headings(_rejoined(buffer))


def _rejoined(buffer: Buffer, splitter: RunSplitter | None = None) -> Iterator[Line]:
    """Yield the lines of a text; for a splitter those alone that it has to be fed with.

    Blocks without any word of a benchmark are skipped while the splitter waits for none, and most
    lines of other tags are left out.
    """
    rejoiner, parts = Rejoiner(), dict[str, str]()
    for each in iterate_blocks(buffer):
        block = each if splitter is None else without_foreign(each)
        if not rejoiner.waits_for(block[: block.find(b"\n")].decode("utf-8", "replace")):
            yield from rejoiner.flush()
            if (
                splitter is not None
                and splitter.is_idle
                and not parts
                and not any(word in block for word in _MARKER_WORDS)
            ):
                continue
        # Runs repeat most of their parameters: each text is parsed once a block. Nobody changes a
        # line.
        parsed: dict[str, Line] = {}
        *texts, last = block.decode("utf-8", "replace").split("\n")
        for part in texts:
            if (
                part.startswith("\t")
                and splitter is not None
                and not rejoiner.holds
                and splitter.take_row(part)
            ):
                continue
            if (text := whole_line(part, parts)) is None:
                continue
            line = parsed.get(text)
            if line is None:
                line = parsed[text] = _pasted(text)
            yield from rejoiner.feed(line)
        if last and (text := whole_line(last, parts)) is not None:
            yield from rejoiner.feed(_pasted(text, cut=True))
    for text in parts.values():
        yield from rejoiner.feed(_pasted(text, cut=True))
    yield from rejoiner.end()


def _pasted(text: str, *, cut: bool = False) -> Line:
    line = parse_pasted(text[:LONGEST_LINE_BYTES], cut=cut)
    # The header has the time, which distinguishes runs with the same output.
    line.header = text[: max(0, text.find(line.raw))]
    return line


def _reports_in(packed: Buffer) -> Iterator[ToolReport]:
    with unwrapped(packed) as buffer:
        if is_long_logcat(buffer):
            raise OutputParseError(
                "the log has its headers on lines of their own ('adb logcat -v long')",
                hint="take it again with 'adb logcat -v threadtime', which has the tag in each line",
            )
        if len(buffer) <= _SMALL_BYTES and buffer.find(STARTING) >= 0:
            rest, refused = without_refused_starts(
                buffer[0 : len(buffer)].decode("utf-8", "replace")
            )
            if refused:
                yield from refused
                # A log below it is of an earlier run: the typed command isn't that run's.
                with contextlib.suppress(OutputParseError):
                    yield from filter(_has_figure, _reports_in(rest.encode()))
                return
        texts = json_text(buffer)
        held: list[ToolReport] | None = []
        for report in _runs_in(buffer if texts is None else texts):
            if held is not None and not _has_figure(report) and len(held) < _MOST_HELD_RUNS:
                # A report of a failure alone may be another program's.
                held.append(report)
                continue
            yield from held or ()
            held = None
            yield report
        other_reports = _litert_result(buffer) if texts is not None else []
        for source in program_sources():
            for text in (buffer,) if texts is None else (texts, buffer):
                if not any(map(_has_figure, other_reports)):
                    other_reports = source.read(text, _lines) or other_reports
        if held is None or any(map(_has_figure, other_reports)):
            yield from filter(_is_benchmark_failure, held or ())
            yield from other_reports if held is not None else filter(_is_significant, other_reports)
            return
        if other_reports:
            other_reports = [*filter(_is_benchmark_failure, held), *other_reports]
        other_reports = other_reports or held or _other_formats(buffer)
        if other_reports:
            yield from other_reports
            return
    kind = "text" if texts is None else "JSON"
    raise OutputParseError(
        f"nothing in the {kind} is the output of a benchmark program",
        hint="give the program's standard output and error, or the phone's logcat with the tags tflite and litert: "
        "any format of 'adb logcat -v' that has tags in its lines, or what Android Studio shows",
    )


def _litert_result(buffer: Buffer) -> list[ToolReport]:
    """Return the report of the JSON that litert-benchmark writes; none for any other text."""
    try:
        document = json.loads(buffer[:].decode("utf-8", "replace"))
        return [litert_report(document)] if is_litert_result(document) else []
    except (ValueError, TypeError, RecursionError):
        return []


def _has_figure(report: ToolReport) -> bool:
    return report.inference is not None or report.inference_mean_us is not None


def _is_significant(report: ToolReport) -> bool:
    """Whether a report counts beside another program's: it has a figure, or is a language model's
    failure.
    """
    return _has_figure(report) or "unit" in report.extra


def _is_benchmark_failure(report: ToolReport) -> bool:
    """Whether a failure is of one of our programs, which first print their parameters."""
    return bool(report.echoed) or report.init_us is not None or "graph" in report.extra


def _runs_in(buffer: Buffer) -> Iterator[ToolReport]:
    """Yield the runs of a text; those of a part that is closed by a summary, or of the oldest part,
    before the rest.
    """
    splitter = RunSplitter()
    for line in below_headings(_rejoined(buffer, splitter)):
        splitter.feed(line)
        if len(splitter.runs) >= _MOST_HELD_RUNS:
            yield from _released(splitter, _MOST_HELD_RUNS // 2)
    splitter.end()
    # An app that crashed at its start has no line of the tool itself.
    yield from _released(splitter, 0) or map(_crash_report, splitter.system.crashes)


def _released(splitter: RunSplitter, held: int) -> list[ToolReport]:
    """Return the reports of the splitter's oldest runs, all but ``held``, labelled by the summaries'
    rows.
    """
    reports = [
        _transcript_report(run, splitter.system)
        for run in splitter.release(held)
        if not (run.is_empty or run.is_litert_lm or (run.may_be_row and not run.last_lines[1]))
    ]
    rows, splitter.summary.rows = splitter.summary.rows, []
    return _with_rows(reports, rows)


def _transcript_report(run: Transcript, system: SystemLog) -> ToolReport:
    """Return a run's report, with its command's flags where it echoes none: LiteRT's program, and
    texts without the beginning of a run.
    """
    report = build_report(run, system)
    disagreements, extra = report.disagreements, dict(report.extra)
    if run.mixed_at:
        mixed = f"lines of two runs are mixed: {run.mixed_at!r} came before the first had ended"
        disagreements = (*disagreements, mixed)
    if run.logged_at:
        extra["logged_at"] = run.logged_at
    if run.heading not in {"", run.title}:
        extra["heading"] = run.heading
    if run.flags and (run.is_litert or not run.echoed):
        extra["command"] = shlex.join(f"--{name}={value}" for name, value in run.flags.items())
    return dataclasses.replace(report, disagreements=disagreements, extra=extra)


def _other_formats(buffer: Buffer) -> list[ToolReport]:
    """Read texts without lines of the program itself: an app's view, an adb session."""
    if len(buffer) > _SMALL_BYTES:
        return []
    text = buffer[0 : len(buffer)].decode("utf-8", "replace")
    peeled = "".join(f"{parse_pasted(line).raw}\n" for line in text.splitlines())
    return parse_ios_view(text) or parse_adb_session(peeled)


def _crash_report(crash: Crash) -> ToolReport:
    extra: dict[str, float | str] = {"process": crash.process} if crash.process else {}
    if crash.pid is not None:
        extra["pid"] = float(crash.pid)
    return crash.failure.report(extra=extra)


def _with_rows(reports: list[ToolReport], rows: Iterable[ToolReport]) -> list[ToolReport]:
    """Label each run by its row of the summary; add a row whose run isn't in the text."""
    labelled = list(reports)
    used: set[int] = set()
    for row in rows:
        places = [
            index
            for index, report in enumerate(labelled)
            if index not in used and _is_same(report.inference, row.inference)
        ]
        if len(places) > 1 and row.inference is not None and row.inference.mean_us is None:
            # Cut off too early: it may name any of the runs.
            continue
        place = next(iter(places), None)
        if place is None:
            labelled.append(row)
            used.add(len(labelled) - 1)
        else:
            used.add(place)
            labelled[place] = dataclasses.replace(labelled[place], label=row.label)
    return labelled


def _is_same(inference: LatencySummary | None, row: LatencySummary | None) -> bool:
    """Whether a row repeats a run's statistics; a row that was cut off holds fewer of them."""
    if inference is None or row is None or inference.count != row.count:
        return False
    names = [
        field.name for field in dataclasses.fields(row) if getattr(row, field.name) is not None
    ]
    return all(getattr(inference, name) == getattr(row, name) for name in names)


_STARTUP: Final = re.compile(rf"^\s*Startup latency: ({NUMBER}) ms\s*$", re.ASCII | re.MULTILINE)
_BLOCK: Final = re.compile(
    r"^\s*(Inference|Warmup):[ \t]*$(?P<body>(?:\r?\n[ \t]*- .*)*)", re.MULTILINE
)
_RUNS: Final = re.compile(r"- Num runs: (\d{1,18})[ \t]*\r?$", re.ASCII | re.MULTILINE)
_ENTRY: Final = re.compile(
    rf"- (Average|Min|Max|Std deviation): ({NUMBER}) ms[ \t]*\r?$", re.ASCII | re.MULTILINE
)
_FIELDS: Final = {"Average": "mean_us", "Min": "min_us", "Max": "max_us", "Std deviation": "std_us"}


def parse_ios_view(text: str) -> list[ToolReport]:
    """Read the view's text; one report per run, none when it isn't such a text."""
    if not text.endswith("\n"):
        # A copy from the view ends without a line end; its last line is whole when it ends in its
        # unit.
        text += "\n"
    starts = list(_STARTUP.finditer(text))
    reports = []
    for index, start in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(text)
        reports.append(_report(start[1], text[start.end() : end]))
    return reports


def _report(startup: str, body: str) -> ToolReport:
    blocks = {match[1]: _summary(match["body"]) for match in _BLOCK.finditer(body)}
    inference, warmup = blocks.get("Inference"), blocks.get("Warmup")
    value = parse_number(startup)
    has_result = inference is not None and inference.mean_us is not None
    is_empty = inference is not None and inference.count == 0
    code = "no-inferences" if is_empty else "" if has_result else "no-result"
    return ToolReport(
        outcome="failed" if is_empty else "ok" if has_result else "truncated",
        failure_code=code,
        failure_reason={
            "no-inferences": "Num runs: 0",
            "no-result": "no average under Inference",
        }.get(code, ""),
        init_us=None if value is None else to_us(value, "ms"),
        inference=inference,
        inference_mean_us=inference.mean_us if inference is not None and not is_empty else None,
        warmup=warmup,
        warmup_mean_us=warmup.mean_us if warmup is not None and warmup.count != 0 else None,
    )


def _summary(body: str) -> LatencySummary | None:
    runs = _RUNS.search(body)
    if not runs:
        return None
    values = {
        _FIELDS[name]: to_us(value, "ms")
        for name, figure in _ENTRY.findall(body)
        if (value := parse_number(figure)) is not None
    }
    count = int(runs[1])
    # A count with nothing after it may lack digits.
    return LatencySummary(count=count, **values) if values or count == 0 else None
