"""Splits a text into runs: a paste, a notebook or a logcat holds several.

A command stands behind a phone's or a computer's prompt, a word such as ``CMD:``, a time, or inside
``adb shell "cd ... && ..."``; it may go over several lines that end in a backslash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.delegates.evidence import ECHO_NAMES, is_delegate_line
from orchestrator.frozen import frozen
from orchestrator.reading.failures import FailureClues, SystemLog
from orchestrator.reading.lines import Line, parse_stats
from orchestrator.reading.profile import INIT_TITLE, RUN_TITLE
from orchestrator.reading.transcript import (
    APP_START,
    ECHO,
    FIRST_ECHO,
    STAGE_ECHO,
    STAGE_LOADED,
    STAGE_RUNNING,
    UNCONSUMED,
    Transcript,
)
from orchestrator.records.model import is_model_file
from orchestrator.records.run import LatencySummary, ToolReport

#: A benchmark program or its app's activity as a word of its own.
_PROGRAM: Final = re.compile(
    r"(?:^|[\s\"'`/\\(;&|=>])(?:[\w.+-]{1,60}_)?benchmark_(?:litert_|tflite_)?model\w*(?:\.exe)?(?=[\s\"'`\\^]|$)"
    r"|\.BenchmarkModelActivity\b",
    re.ASCII,
)
_MODEL: Final = re.compile(r"--(?:graph|model)=")
_FLAG: Final = re.compile(r"--[\w-]+=")
#: Text that may stand before a program in a command, as against a sentence about it.
_BEFORE: Final = re.compile(
    r"(?:.{0,160}[$#%!>\]] ?|.{0,60}\b(?:cmd|command|run|running|exec|executing)\b ?[:=] ?|.{0,160}\badb\b.*|[\s+*`-]*"
    r"|.{0,160}(?:&&|;) ?|[\d\s:.,TZ/-]{1,60}|.{0,160}\b(?:taskset|nohup|su|sudo|time|env)\b.*)"
    r"[\"'`(]?(?:[A-Za-z]:)?[\w./\\~-]{0,200}$",
    re.IGNORECASE,
)
_CONTINUES: Final = ("\\", " ^", " `")
#: Lines and characters of one command.
_MOST_LINES, _LONGEST = 60, 20_000


def is_command(text: str) -> bool:
    """Whether a line starts a benchmark program: its model, or the text before the program,
    distinguishes it from a sentence.
    """
    if "enchmark" not in text:
        return False
    match = _PROGRAM.search(text)
    if match is None:
        return False
    rest = text[match.end() :]
    if _MODEL.search(rest):
        return True
    goes_on = rest.rstrip().endswith(_CONTINUES)
    return (goes_on or _FLAG.search(rest) is not None) and _BEFORE.match(
        text[: match.start() + 1]
    ) is not None


#: A shorter line isn't wrapped inside a word.
_NARROWEST: Final = 40
_TRUTHS: Final = frozenset({"true", "false"})
#: The line below a command that is wrapped inside a word: its rest, flags, and shell operators.
_REST: Final = re.compile(
    r"(?P<word>(?:[\w./\\,+=~${}-]|:\d(?![\w:]))+)[\"'`)]*"
    r"(?P<more>(?: +--[\w-]+=\S*)*(?: +(?:-{1,2}[\w-]*|[\\^`]|\d?>.*|[|&;<].*))?)",
    re.ASCII,
)


def _is_rest(word: str, text: str, width: int) -> bool:
    """Whether a line begins with the rest of the word in which a command's line of ``width``
    characters ends.
    """
    rest = _REST.fullmatch(text)
    if width < _NARROWEST or rest is None or _is_complete(word):
        return False
    if word[-1].isdigit() and word.partition("=")[2].isdigit():
        return re.fullmatch(r"[\d.,]+", rest["word"], re.ASCII) is not None
    is_word_of_a_shell = rest["word"].isalpha() and rest["word"].istitle()
    is_flag = "=" in word + rest["word"] and not is_word_of_a_shell
    return bool(rest["more"]) or len(text) == width or is_flag


def _is_complete(word: str) -> bool:
    """Whether a command's last word is complete."""
    value = word.partition("=")[2]
    return not word.startswith("-") or value in _TRUTHS or is_model_file(Path(value))


#: A script's variable, which a line sets, and which a command names.
_SETS: Final = re.compile(
    r"(?:export |for )?(?P<name>\w{1,60})(?: ?= ?|(?= in ))(?P<value>.{1,200})$", re.ASCII
)
_SIMPLE_VALUE: Final = re.compile(r"([\"']?)([\w./+-]+)\1;?", re.ASCII)
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}|\$(\w+)|\{(\w+)\}", re.ASCII)
_MOST_VARIABLES: Final = 100


def _without_mark(text: str) -> str:
    text = text.rstrip()
    return next(
        (text.removesuffix(mark).rstrip() for mark in _CONTINUES if text.endswith(mark)), text
    )


_HEADING: Final = re.compile(
    r"[\u2500\u2501=]{2,}\s+(?P<title>[^\u2500\u2501=].*?)\s*[\u2500\u2501=]{3,}$"
)
_HEADING_MARKS: Final = frozenset("\u2500\u2501=")
_TABLE: Final = re.compile(
    r"=+ (?:Run Order|Top by Computation Time|Summary by node type|BENCHMARK RESULTS) =+"
)
#: A heading of Markdown; with a single ``#`` a notebook marks output.
_MARKDOWN: Final = re.compile(r"\s*#{2,6} +(?P<title>\S.*)$")
#: Of headings that a console prints.
_CONSOLE_LEVEL: Final = 7
_OPTIONS: Final = "The list of TFLite runtime options to be benchmarked:"
#: Lines from the middle of a run, beside those about delegates: after its end they are the
#: next one's.
_MIDDLE: Final = (
    "count=",
    "Running benchmark",
    "Explicitly applied",
    "Though ",
    "Replacing ",
    "Following operations are not supported",
    "Initialized TensorFlow Lite runtime",
    "Attempting to use a delegate that only supports static-sized tensors",
)
_MOST_NSLOG: Final = 10_000
_MOST_OVERLAPPING: Final = 8
#: The time of a line in the header of a log or a build server.
_MOMENT: Final = re.compile(
    r"(?:(?:\d{4}-)?\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\d{1,12}\.\d{3,9}", re.ASCII
)
#: What a line that may begin a run begins with, beside parameters, commands and headings of
#: Markdown.
_OPENING_LETTERS: Final = frozenset({*"SRLcAITM\u2500\u2501=", *(words[0] for words in _MIDDLE)})


#: The summary of ``benchmark_model_performance_options``, which tries several ways to run a model.
_SUMMARY_TITLE: Final = "Summary of All Runs w/ Different Performance Options"
_SUMMARY_ROW: Final = re.compile(
    r"\s*(?P<name>[\w/(].{0,120}?): (?:(?P<stats>count=.*)|\s*failed!\s*)$"
)
_OPTION: Final = re.compile(
    r"(?:cpu w/ -?\d+ threads(?: \([\w-]+\))?|gpu-(?:default|fp16)|nnapi\(.*\)|dsp w/ hexagon|coreml)$"
)


@frozen
class SummaryRow:
    """One row: its name and its statistics, None when the option failed."""

    name: str
    stats: LatencySummary | None

    @property
    def requested(self) -> str:
        """The delegate that the option asks for, "" when the name is new."""
        for start, delegate in (
            ("gpu", "gpu"),
            ("nnapi", "nnapi"),
            ("dsp", "hexagon"),
            ("coreml", "coreml"),
        ):
            if self.name.startswith(start):
                return delegate
        if self.name.startswith("cpu"):
            return "xnnpack" if "xnnpack" in self.name else "cpu"
        return ""

    @property
    def accelerator(self) -> str:
        """The NNAPI accelerator that the option names, "" for none."""
        match = re.match(r"nnapi\((?!w/o)(.*)\)$", self.name)
        return match[1] if match else ""


def starts_summary(text: str) -> bool:
    """Whether a line is the summary's title."""
    return _SUMMARY_TITLE in text and text.strip("= ") == _SUMMARY_TITLE


def parse_row(
    text: str, *, in_summary: bool, has_percentiles: bool = False, is_cut: bool = False
) -> SummaryRow | None:
    """Read a row; outside a summary only names that the program is known to use are taken for one.

    ``has_percentiles`` and ``is_cut`` as for :func:`parse_stats`.
    """
    match = _SUMMARY_ROW.match(text)
    if (
        not match
        or not (in_summary or _OPTION.match(match["name"]))
        or match["name"].endswith("Timings (microseconds)")
    ):
        return None
    stats = (
        parse_stats(match["stats"], has_percentiles=has_percentiles, is_cut=is_cut)
        if match["stats"]
        else None
    )
    return None if match["stats"] and stats is None else SummaryRow(name=match["name"], stats=stats)


@dataclass(slots=True)
class RunSplitter:
    """Takes lines in order and adds each to a transcript, one per process and run."""

    #: In the order of their starts.
    runs: list[Transcript] = field(default_factory=list)
    rows: list[SummaryRow] = field(default_factory=list)
    system: SystemLog = field(default_factory=SystemLog)
    _open: dict[int | str | None, Transcript] = field(default_factory=dict)
    _nslog_texts: dict[str, int] = field(default_factory=dict)
    #: Process -> the unknown flags, which performance options list once, before the options' runs.
    _shared_unconsumed: dict[int | str | None, str] = field(default_factory=dict)
    #: Process -> a run that hadn't ended when the next one began, and those that began since.
    _overlapping: dict[int | str | None, list[Transcript]] = field(default_factory=dict)
    _variables: dict[str, str] = field(default_factory=dict)
    #: Level -> heading of the following lines; a console's own are below all of Markdown's.
    _headings: dict[int, str] = field(default_factory=dict)
    _in_summary: bool = False
    _has_percentiles: bool = False
    #: The lines of a command that may continue in the next, and whether the last one says so.
    _command: list[str] = field(default_factory=list)
    _command_goes_on: bool = False
    #: What its lines are indented by, and characters of the last one beside, 0 where that ends in a
    #: space.
    _command_indent: str = ""
    _command_width: int = 0

    def feed(self, line: Line) -> None:
        """Add one line to its transcript."""
        if line.is_foreign:
            self._feed_system(line)
            return
        if self._command:
            if not line.severity and self._continues_command(line):
                return
            # Flags that aren't of a command are of the one above.
            has_flags = _FLAG.search(line.text) is not None and not is_command(line.text)
            self.end(is_torn=has_flags and not _is_complete(self._last_word))
        if line.text.startswith("STARTING!"):
            self._in_summary = False
            self._shared_unconsumed.clear()
        if line.style == "nslog":
            if line.text and len(self._nslog_texts) < _MOST_NSLOG:
                self._nslog_texts[line.text] = self._nslog_texts.get(line.text, 0) + 1
        elif (
            self._nslog_texts
            and line.style == "console"
            and self._nslog_texts.get(line.text, 0) > 0
        ):
            # Xcode shows each message twice: once from NSLog, once from stderr.
            self._nslog_texts[line.text] -= 1
            return
        if self._read_row(line):
            return
        key = line.pid if line.style == "logcat" else line.stream or None
        transcript = self._open.get(key)
        may_open = _may_open(line) or (transcript is not None and transcript.is_over)
        if may_open:
            self._read_heading(line)
        if transcript is None or (may_open and self._begins_run(line, transcript)):
            above, transcript = transcript, self._begin(key, transcript)
            if above is not None:
                self._note_overlap(key, line, above, transcript)
            if line.text.startswith(FIRST_ECHO) and key in self._shared_unconsumed:
                transcript.read_unconsumed(self._shared_unconsumed[key])
        elif line.text.startswith(_OPTIONS) and transcript.unconsumed:
            self._shared_unconsumed[key] = f"{UNCONSUMED} {' '.join(transcript.unconsumed)}"
        if line.style == "console" and ("=" in line.text or " in " in line.text):
            self._read_variable(line.text)
        if not (may_open and self._head(line, transcript)):
            if may_open and transcript.has_printed(line.text):
                self._mark_mixed(key, line.text, transcript)
            had_result = transcript.has_result
            transcript.feed(line)
            if line.header and not had_result and transcript.has_result:
                moment = _MOMENT.search(line.header)
                transcript.logged_at = moment[0] if moment is not None else ""

    def take_row(self, raw: str) -> bool:
        """Take a line of a text if it can be nothing but a row of the open run's operator table."""
        run = self._open.get(None)
        return run is not None and not self._command and not self._nslog_texts and run.take_row(raw)

    @property
    def is_idle(self) -> bool:
        """Whether no line's meaning depends on the line before it."""
        return not (
            self._command
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
            key: transcript for key, transcript in self._open.items() if id(transcript) not in gone
        }
        return released

    def end(self, *, is_torn: bool = False) -> None:
        """Take the lines that were held back; ``is_torn``: the rest of the last word is unknown."""
        command, self._command = self._command, []
        if is_torn:
            command[-1] = f"{command[-1].rpartition(' ')[0]} ..."
        if command and (run := self._open.get(None)) is not None:
            self._read_command(run, " ".join(map(_without_mark, command)))

    def _read_command(self, run: Transcript, command: str) -> None:
        def value(match: re.Match[str]) -> str:
            return self._variables.get(match[1] or match[2] or match[3], match[0])

        run.read_command(_VARIABLE.sub(value, command))

    def _read_variable(self, text: str) -> None:
        """Store the value of a script's variable, and forget one with an unknown value."""
        if (match := _SETS.match(text)) is None:
            return
        if (value := _SIMPLE_VALUE.fullmatch(match["value"])) is None:
            self._variables.pop(match["name"], None)
        elif len(self._variables) < _MOST_VARIABLES:
            self._variables[match["name"]] = value[2]

    def _read_heading(self, line: Line) -> None:
        """Keep a heading until one of its level, or of one above, follows."""
        if title := _title(_MARKDOWN, line):
            level = line.raw.count("#", 0, line.raw.index(title))
        elif title := _title(_HEADING, line):
            level = _CONSOLE_LEVEL
        else:
            return
        above = {depth: heading for depth, heading in self._headings.items() if depth < level}
        self._headings = {**above, level: title}

    @property
    def _heading(self) -> str:
        return " / ".join(self._headings.values())

    def _begin(self, key: int | str | None, before: Transcript | None = None) -> Transcript:
        pid = key if isinstance(key, int) else None
        transcript = Transcript(pid=pid, heading=self._heading)
        if before is not None and before.is_empty and not before.has_command:
            # A heading belongs to the command that follows it.
            transcript.title = before.title
        above = self._open.get(None)
        if (
            key is not None
            and before is None
            and above is not None
            and above.has_command
            and above.is_empty
        ):
            # A command at a prompt, and below it the phone's log of its process.
            transcript.take_command(above)
        return self._add_run(transcript, key)

    def _note_overlap(
        self, key: int | str | None, line: Line, above: Transcript, transcript: Transcript
    ) -> None:
        """Note that a run began before the one above it had ended.

        A result without a start above it shows that the lines of both are mixed.
        """
        has_ended = above.is_over or above.failures.best is not None
        if _is_start(line):
            if has_ended or not (above.has_start or above.echoed):
                self._overlapping.pop(key, None)
            else:
                runs = self._overlapping.setdefault(key, [above])
                runs.append(transcript)
                del runs[:-_MOST_OVERLAPPING]
        elif runs := self._overlapping.get(key, []):
            runs.append(transcript)
            if has_ended:
                self._mark_mixed(key, line.text, transcript)

    def _mark_mixed(self, key: int | str | None, text: str, run: Transcript) -> None:
        for each in (*self._overlapping.get(key, ()), run):
            each.mixed_at = each.mixed_at or text

    def _add_run(self, transcript: Transcript, key: int | str | None) -> Transcript:
        self._open[key] = transcript
        self.runs.append(transcript)
        return transcript

    def _continues_command(self, line: Line) -> bool:
        text = line.text
        is_flag = text.startswith(("--", "-e ", "'--", '"--'))
        if len(self._command) >= _MOST_LINES or sum(map(len, self._command)) > _LONGEST:
            return False
        if is_flag or (self._command_goes_on and (_FLAG.search(text) or _PROGRAM.search(text))):
            self._command.append(text)
        elif not is_command(text) and _is_rest(
            self._last_word,
            # What has flags is of a command, whatever it is indented by.
            text if _FLAG.search(text) else self._without_indent(line).rstrip(),
            self._command_width,
        ):
            self._command[-1] += text
        else:
            return False
        self._take_end(line)
        return True

    @property
    def _last_word(self) -> str:
        return self._command[-1].rpartition(" ")[2]

    def _take_end(self, line: Line) -> None:
        self._command_goes_on = line.text.endswith(_CONTINUES)
        raw = self._without_indent(line)
        self._command_width = 0 if raw.endswith(" ") else len(raw)

    def _without_indent(self, line: Line) -> str:
        return line.raw.removeprefix(self._command_indent)

    def _feed_system(self, line: Line) -> None:
        self.system.feed(line.text, tag=line.tag, pid=line.pid, severity=line.severity)
        if line.tag == "ExecutionPlan":
            run = self._open.get(line.pid) or self._add_run(Transcript(pid=line.pid), line.pid)
            run.delegates.read_system_line(f"ExecutionPlan: {line.text}")

    def _read_row(self, line: Line) -> bool:
        text = line.whole
        if starts_summary(text):
            self._in_summary = True
            return True
        if "count=" not in text and "failed!" not in text:
            return False
        run = self.runs[-1] if self.runs else None
        has_percentiles = self._has_percentiles or (run is not None and run.has_percentiles)
        row = parse_row(
            text,
            in_summary=self._in_summary,
            has_percentiles=has_percentiles,
            is_cut=bool(line.cut_word),
        )
        if row is None:
            return False
        self._has_percentiles = self._has_percentiles or (
            row.stats is not None and row.stats.p95_us is not None
        )
        self.rows.append(row)
        return True

    @staticmethod
    def _begins_run(line: Line, transcript: Transcript) -> bool:
        text, stage = line.text, transcript.stage
        has_ended = transcript.has_result or transcript.is_ended
        is_later = stage >= STAGE_RUNNING or transcript.is_over
        if text.startswith("STARTING!"):
            return transcript.is_ended_by_start(text)
        if text.startswith(APP_START):
            return not transcript.is_empty
        if text.startswith(FIRST_ECHO):
            return stage >= STAGE_LOADED or transcript.is_over or FIRST_ECHO in transcript.echoed
        if transcript.is_over and (text.startswith(_MIDDLE) or is_delegate_line(text)):
            return True
        if "nference timings in us" in text or text.startswith("Inference (avg):"):
            return has_ended
        if text.startswith(
            (
                "Loaded model ",
                "Loading model from: ",
                "The input model file size",
                "Initialized session in",
            )
        ):
            return is_later
        if text.endswith((INIT_TITLE, RUN_TITLE)):
            return False
        if "BENCHMARK RESULTS" in text or text.startswith("Model initialization:"):
            return has_ended or "init" in transcript.banner
        if "]" in text and (match := ECHO.match(text)) and match[1] in ECHO_NAMES:
            # Parameters are printed before anything else.
            return is_later or (stage >= STAGE_LOADED and match[1] in transcript.echoed)
        if _title(_HEADING, line) or is_command(text):
            return not transcript.is_empty or transcript.has_command
        return (
            _title(_MARKDOWN, line) != ""
            and not transcript.is_empty
            and (is_later or stage >= STAGE_LOADED)
        )

    def _head(self, line: Line, transcript: Transcript) -> bool:
        """Take the title or command above a run's output; return whether the line is nothing else."""
        text = line.text
        if transcript.stage > STAGE_ECHO or transcript.is_over or text.startswith("Log parameter"):
            return False
        title = _title(_HEADING, line) or _title(_MARKDOWN, line)
        if title and not (transcript.has_command or transcript.echoed):
            transcript.title, transcript.heading = title, self._heading
        elif is_command(text):
            transcript.has_command = True
            if line.style == "console" and not line.stream:
                self._command = [text]
                self._command_indent = line.raw[: len(line.raw) - len(line.raw.lstrip())]
                self._take_end(line)
            else:
                self._read_command(transcript, text)
            return True
        return False


def _is_start(line: Line) -> bool:
    """Whether a line stands above a run, or is one that its program prints first."""
    return (
        line.text.startswith(("STARTING!", APP_START, FIRST_ECHO))
        or is_command(line.text)
        or _title(_HEADING, line) != ""
        or _title(_MARKDOWN, line) != ""
    )


def _may_open(line: Line) -> bool:
    """Whether a line can begin a run or stand above one; a quick check for most lines."""
    text = line.text
    return text[:1] in _OPENING_LETTERS or "enchmark" in text or "]" in text or "##" in line.raw


def _title(pattern: re.Pattern[str], line: Line) -> str:
    """Return the title in a line of a console, "" for any other line."""
    is_it = "##" in line.raw if pattern is _MARKDOWN else line.text[:1] in _HEADING_MARKS
    if not is_it or line.severity or line.style != "console" or _TABLE.fullmatch(line.text):
        return ""
    match = pattern.match(line.raw if pattern is _MARKDOWN else line.text)
    return match["title"].rstrip(" #") if match else ""


_INSTALL: Final = re.compile(r"^\s*Performing (?:Streamed|Push) Install\s*$", re.MULTILINE)
_FAILURE: Final = re.compile(r"(?:Failure \[)(INSTALL_[A-Z_]+)|(Failure \[-\d+\])")
_SUCCESS: Final = re.compile(r"^\s*Success\s*$", re.MULTILINE)
_PUSHED: Final = re.compile(r"\d+ files? pushed\b.*?\((\d{1,18}) bytes in", re.ASCII)
_STARTING: Final = re.compile(r"^\s*(Starting: Intent \{.*\})\s*$", re.MULTILINE)
#: The line below an intent that wasn't started, whatever its reason.
_NOT_STARTED: Final = re.compile(
    r"^\s*((?:Error\b|Exception occurred|[\w.]+Exception\b|Security exception).*)", re.MULTILINE
)
_STATUS: Final = re.compile(r"^\s*Status: (\w+)\s*$", re.MULTILINE)


#: What each text with a started activity holds.
STARTING: Final = b"Starting: Intent {"
_REFUSED_START: Final = re.compile(
    # The command, what it prints before it starts anything, and what stands in the place of a
    # started activity.
    r"(?:^.*\bam start\b.*\n)?(?:^[ \t]*Stopping: .*\n)?^[ \t]*Starting: Intent \{.*\}[ \t\r]*\n(?:[ \t\r]*\n)*"
    r"[ \t]*(?:Error\b|Exception occurred|[\w.]+Exception\b|Security exception).*\n?"
    r"(?:^[ \t]*(?:at |\.\.\. |Caused by: |callingUid|Error\b|[\w.]+Exception\b).*\n?)*",
    re.MULTILINE,
)


def without_refused_starts(text: str) -> tuple[str, list[ToolReport]]:
    """Return a text without the starts of activities that a phone refused, and a report for each."""
    refused = [_report(match[0]) for match in _REFUSED_START.finditer(text)]
    return (_REFUSED_START.sub("", text) if refused else text), refused


def parse_adb_session(text: str) -> list[ToolReport]:
    """Return a report per installation, or one for a started activity; empty when the text has
    neither.
    """
    installs = [match.start() for match in _INSTALL.finditer(text)]
    if len(installs) > 1:
        ends = [*installs[1:], len(text)]
        return [_report(text[start:end]) for start, end in zip(installs, ends, strict=True)]
    is_session = installs or any(pattern.search(text) for pattern in (_FAILURE, _PUSHED, _STARTING))
    return [_report(text)] if is_session else _refusals(text)


def _report(text: str) -> ToolReport:
    extra: dict[str, float | str] = {}
    if match := _FAILURE.search(text):
        return ToolReport(
            outcome="failed", failure_code="install-failed", failure_reason=match[1] or match[2]
        )
    refused = _refusals(text)
    if refused:
        return refused[0]
    if _SUCCESS.search(text):
        extra["install"] = "Success"
    if match := _PUSHED.search(text):
        extra["pushed_bytes"] = float(match[1])
    if match := _STARTING.search(text):
        extra["am_start"] = match[1]
    if _INSTALL.search(text) and not _SUCCESS.search(text) and not _STARTING.search(text):
        reason = "the session ends before the package manager's answer"
        return ToolReport(outcome="truncated", failure_code="no-result", failure_reason=reason)
    if _STARTING.search(text) and (match := _NOT_STARTED.search(text)):
        return ToolReport(
            outcome="failed", failure_code="activity-refused", failure_reason=match[1].strip()[:300]
        )
    status = _STATUS.search(text)
    well = status is None or status[1] == "ok"
    return ToolReport(
        outcome="ok" if well else "failed",
        failure_code="" if well else "activity-missing",
        failure_reason="" if well else f"Status: {status[1] if status else ''}",
        extra=extra,
    )


def _refusals(text: str) -> list[ToolReport]:
    """Return a report of a shell's or linker's error when a program can't be started, else none."""
    clues = FailureClues()
    for line in text.splitlines()[:10_000]:
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            clues.feed(stripped)
    failure = clues.text_failure()
    if failure is None or clues.best is None or clues.is_benchmark_line:
        return []
    return [
        ToolReport(
            outcome=failure.outcome, failure_code=failure.code, failure_reason=failure.reason
        )
    ]
