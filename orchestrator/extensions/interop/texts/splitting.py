"""Splits a text into runs: a paste, a notebook or a logcat holds several."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.extensions.interop.texts.commands import OpenCommand, Variables, is_command
from orchestrator.extensions.interop.texts.headings import CONSOLE_LEVEL, SUMMARY_TITLE
from orchestrator.reading.failures import Failure, SystemLog
from orchestrator.reading.lines import Line, ProcessName, parse_stats
from orchestrator.reading.transcript import (
    APP_START,
    FIRST_ECHO,
    OPTIONS,
    START,
    UNCONSUMED,
    LineKind,
    Stage,
    Transcript,
    kind_of,
)
from orchestrator.records.run import DelegateEvidence, LatencySummary, ToolReport

_SUMMARY_ROW: Final = re.compile(
    r"\s*(?P<name>[\w/(].{0,120}?): (?:(?P<stats>count=.*)|\s*failed!\s*)$"
)
_OPTION: Final = re.compile(
    r"(?:cpu w/ -?\d+ threads(?: \([\w-]+\))?|gpu-(?:default|fp16)|nnapi\(.*\)|dsp w/ hexagon|coreml)$"
)


#: The beginning of an option's name -> the delegate that it asks for.
_REQUESTED: Final = {"gpu": "gpu", "nnapi": "nnapi", "dsp": "hexagon", "coreml": "coreml"}
_ACCELERATOR: Final = re.compile(r"nnapi\((?!w/o)(.*)\)$")


def _row_report(name: str, stats: LatencySummary | None) -> ToolReport:
    """Return the report of a row of the summary of ``benchmark_model_performance_options``, which
    tries several ways to run a model: its name and its statistics, None when the option failed.
    """
    default = ("xnnpack" if "xnnpack" in name else "cpu") if name.startswith("cpu") else ""
    requested = next(
        (word for start, word in _REQUESTED.items() if name.startswith(start)), default
    )
    accelerator = _ACCELERATOR.match(name)
    evidence = DelegateEvidence(
        requested=requested, accelerator=accelerator[1] if accelerator is not None else ""
    )
    if stats is None:
        failure = Failure(code="benchmark-failed", reason="failed!")
    elif stats.count == 0:
        failure = Failure(code="no-inferences", reason="count=0: no inference was made")
    elif stats.mean_us is None:
        reason = "the row is cut off before its average"
        failure = Failure(code="no-result", reason=reason, outcome="truncated")
    else:
        return ToolReport(
            outcome="ok",
            inference=stats,
            inference_mean_us=stats.mean_us,
            delegate=evidence,
            label=name,
        )
    return replace(failure.report(evidence), inference=stats, label=name)


@dataclass(slots=True)
class SummaryReader:
    """Takes the summaries' rows out of a text."""

    #: The report of each row, labelled by its name.
    rows: list[ToolReport] = field(default_factory=list)
    #: Whether a summary is open, in which rows may have any name.
    is_open: bool = False
    _has_percentiles: bool = False

    def take(self, line: Line, *, has_percentiles: bool) -> bool:
        """Take a line that is a summary's title or row; ``has_percentiles`` as for parse_stats.

        Outside a summary only names that the program is known to use are taken for a row's.
        """
        text = line.whole
        if text.strip("= ") == SUMMARY_TITLE:
            self.is_open = True
            return True
        match = _SUMMARY_ROW.match(text) if "count=" in text or "failed!" in text else None
        if (
            match is None
            or not (self.is_open or _OPTION.match(match["name"]))
            or match["name"].endswith("Timings (microseconds)")
        ):
            return False
        stats = None
        if match["stats"]:
            stats = parse_stats(
                match["stats"],
                has_percentiles=has_percentiles or self._has_percentiles,
                is_cut=bool(line.cut_word),
            )
            if stats is None:
                return False
            self._has_percentiles = self._has_percentiles or stats.p95_us is not None
        self.rows.append(_row_report(match["name"], stats))
        return True


_MOST_NSLOG: Final = 10_000
_MOST_OVERLAPPING: Final = 8
#: The time of a line in the header of a log or a build server.
_MOMENT: Final = re.compile(
    r"(?:(?:\d{4}-)?\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    # Not a part of a phone's address.
    r"|(?<![\d.])\d{1,12}\.\d{3,9}(?![\d.])",
    re.ASCII,
)


@dataclass(slots=True)
class RunSplitter:
    """Takes lines in order and adds each to a transcript, one per process and run.

    A program's line begins another run where ``reading.transcript.KINDS`` says so, a command and a
    heading below a run that has lines.
    """

    #: In the order of their starts.
    runs: list[Transcript] = field(default_factory=list)
    summary: SummaryReader = field(default_factory=SummaryReader)
    system: SystemLog = field(default_factory=SystemLog)
    #: Process -> its run.
    _open: dict[ProcessName, Transcript] = field(default_factory=dict)
    _nslog_texts: dict[str, int] = field(default_factory=dict)
    #: Process -> the unknown flags, which performance options list once, before the options' runs.
    _shared_unconsumed: dict[ProcessName, str] = field(default_factory=dict)
    #: Process -> a run that hadn't ended when the next one began, and those that began since.
    _overlapping: dict[ProcessName, list[Transcript]] = field(default_factory=dict)
    _variables: Variables = field(default_factory=Variables)
    _command: OpenCommand | None = None

    def feed(self, line: Line) -> None:
        """Add one line to its transcript."""
        if line.is_foreign:
            self._feed_system(line)
            return
        if self._command is not None:
            if self._command.take(line):
                return
            self.end(line)
        if (self._nslog_texts or line.style == "nslog") and self._is_second_of_xcode(line):
            return
        has_percentiles = bool(self.runs) and self.runs[-1].has_percentiles
        if self.summary.take(line, has_percentiles=has_percentiles):
            return
        kind = kind_of(line) or _kind_above(line)
        run = self._open.get(line.process)
        if run is None or run.is_ended_by(line, kind):
            run = self._begin(line, kind, run)
        if line.style == "console":
            self._variables.read(line.text)
        if kind is None:
            run.take(line, None)
        elif kind not in _ABOVE or not self._take_above(line, run):
            self._add(line, kind, run)

    def _is_second_of_xcode(self, line: Line) -> bool:
        """Whether Xcode shows a message for the second time: once from NSLog, once from stderr."""
        if line.style == "nslog":
            if line.text and len(self._nslog_texts) < _MOST_NSLOG:
                self._nslog_texts[line.text] = self._nslog_texts.get(line.text, 0) + 1
            return False
        is_second = line.style == "console" and self._nslog_texts.get(line.text, 0) > 0
        if is_second:
            self._nslog_texts[line.text] -= 1
        return is_second

    def _add(self, line: Line, kind: LineKind, run: Transcript) -> None:
        if line.text.startswith(START):
            self.summary.is_open = False
            self._shared_unconsumed.clear()
        elif line.text.startswith(OPTIONS) and run.unconsumed:
            self._shared_unconsumed[line.process] = f"{UNCONSUMED} {' '.join(run.unconsumed)}"
        if kind.is_repeated(run):
            self._mark_mixed(line, run)
        had_result = run.has_result
        run.take(line, kind)
        if line.header and not had_result and run.has_result:
            moment = _MOMENT.search(line.header)
            run.logged_at = moment[0] if moment is not None else ""

    def take_row(self, raw: str) -> bool:
        """Take a line of a text if it can be nothing but a row of the open run's operator table."""
        if self._command is not None or self._nslog_texts:
            return False
        run = self._open.get(None)
        return run is not None and run.take_row(raw)

    @property
    def is_idle(self) -> bool:
        """Whether no line's meaning depends on the line before it."""
        return not (
            self._command is not None
            or self._nslog_texts
            or any(run.takes_any_line for run in self._open.values())
        )

    def release(self, held: int) -> list[Transcript]:
        """Return the oldest runs, all but ``held`` of them, and forget them: a later line opens a
        new run.
        """
        count = max(0, len(self.runs) - held)
        released, self.runs = self.runs[:count], self.runs[count:]
        self._overlapping.clear()
        gone = {id(transcript) for transcript in released}
        self._open = {
            process: transcript
            for process, transcript in self._open.items()
            if id(transcript) not in gone
        }
        return released

    def end(self, after: Line | None = None) -> None:
        """Take the command that was held back; ``after`` is the line below it."""
        command, self._command = self._command, None
        if command is not None and (run := self._open.get(None)) is not None:
            run.read_command(self._variables.filled(command.end(after)))

    def _begin(self, line: Line, kind: LineKind | None, above: Transcript | None) -> Transcript:
        """Return a new run, which a line begins; ``above`` is the run of its process until then."""
        process = line.process
        pid = process if isinstance(process, int) else None
        run = Transcript(pid=pid, heading=line.heading)
        command = self._open.get(None)
        if above is not None:
            if above.is_empty and not above.has_command:
                # A heading belongs to the command that follows it.
                run.title = above.title
            self._note_overlap(line, kind, above, run)
        elif (
            # A script may name a phone in a line of its own, and not in the program's.
            (pid is not None or (process is not None and kind not in {None, *_ABOVE}))
            and command is not None
            and command.has_command
            and command.is_empty
        ):
            # A command at a prompt, and below it the phone's log of its process.
            run.take_command(command)
        if line.text.startswith(FIRST_ECHO) and process in self._shared_unconsumed:
            run.read_unconsumed(self._shared_unconsumed[process])
        run.may_be_row = "|" in line.header and line.text.startswith("count=")
        self._open[process] = run
        self.runs.append(run)
        return run

    def _note_overlap(
        self, line: Line, kind: LineKind | None, above: Transcript, transcript: Transcript
    ) -> None:
        """Note that a run began before the one above it had ended.

        A result without a start above it shows that the lines of both are mixed.
        """
        has_ended = above.is_over() or above.failures.best is not None
        if kind in _ABOVE or line.text.startswith((START, APP_START, FIRST_ECHO)):
            if has_ended or not (above.has_start or above.echoed):
                self._overlapping.pop(line.process, None)
            else:
                runs = self._overlapping.setdefault(line.process, [above])
                runs.append(transcript)
                del runs[:-_MOST_OVERLAPPING]
        elif runs := self._overlapping.get(line.process, []):
            runs.append(transcript)
            if has_ended:
                self._mark_mixed(line, transcript)

    def _mark_mixed(self, line: Line, run: Transcript) -> None:
        for each in (*self._overlapping.get(line.process, ()), run):
            each.mixed_at = each.mixed_at or line.text

    def _feed_system(self, line: Line) -> None:
        self.system.feed(line)
        if line.tag == "ExecutionPlan":
            run = self._open.get(line.pid) or self._begin(line, None, None)
            run.delegates.read_system_line(f"ExecutionPlan: {line.text}")

    def _take_above(self, line: Line, transcript: Transcript) -> bool:
        """Take the title or command above a run's output; return whether the line is nothing else."""
        if transcript.stage > Stage.ECHO or transcript.is_over():
            return False
        if line.is_heading and not (transcript.has_command or transcript.echoed):
            transcript.title, transcript.heading = line.headings[-1].title, line.heading
        elif is_command(line.text):
            transcript.has_command = True
            if line.style == "console" and not line.stream:
                self._command = OpenCommand(line)
            else:
                transcript.read_command(self._variables.filled(line.text))
            return True
        return False


#: A command, and a heading of a console: each run has one.
_COMMAND: Final = LineKind(begins=lambda run: not run.is_empty or run.has_command)
#: A heading of Markdown, which may stand between a run's command and its output.
_HEADING: Final = LineKind(begins=lambda run: run.stage >= Stage.LOADED or run.is_over())
_ABOVE: Final = (_COMMAND, _HEADING)


def _kind_above(line: Line) -> LineKind | None:
    """Return the kind of a line that stands above a run's output, None for any other line."""
    if is_command(line.text) or (line.is_heading and line.headings[-1].level == CONSOLE_LEVEL):
        return _COMMAND
    return _HEADING if line.is_heading else None
