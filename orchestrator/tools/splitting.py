"""Which line belongs to which run: a paste, a notebook or a logcat holds several."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from orchestrator.tools.failures import SystemLog
from orchestrator.tools.lines import Line
from orchestrator.tools.op_profile import INIT_TITLE, RUN_TITLE
from orchestrator.tools.summary_rows import SummaryRow, parse_row, starts_summary
from orchestrator.tools.transcript import (
    STAGE_DONE,
    STAGE_ECHO,
    STAGE_LOADED,
    STAGE_NEW,
    STAGE_RUNNING,
    UNCONSUMED,
    Transcript,
)

_HEADING: Final = re.compile(r"[\u2500\u2501=]{2,}\s+(?P<title>[^\u2500\u2501=].*?)\s*[\u2500\u2501=]{3,}$")
_TABLE: Final = re.compile(r"=+ (?:Run Order|Top by Computation Time|Summary by node type|BENCHMARK RESULTS) =+")
_COMMAND: Final = re.compile(r"(?:[!$%>] ?)?[^:]{0,300}?\bbenchmark_\w+(?:\s|\\).*?--(?:graph|model)=")
_FIRST_ECHO: Final = "Log parameter values verbosely"
_OPTIONS: Final = "The list of TFLite runtime options to be benchmarked:"
_APP_START: Final = "Running TensorFlow Lite benchmark with args:"
_DELEGATE_START: Final = (
    "Explicitly applied",
    "Though ",
    "Replacing ",
    "Following operations are not supported",
    "Created TensorFlow Lite",
    "Initialized TensorFlow Lite runtime",
    "NNAPI accelerators available",
)


@dataclass(slots=True)
class RunSplitter:
    """Takes lines in order and deals them out to transcripts, one per process and run."""

    transcripts: list[Transcript] = field(default_factory=list)
    rows: list[SummaryRow] = field(default_factory=list)
    system: SystemLog = field(default_factory=SystemLog)
    #: One run only, whatever the lines look like: the output of one process that benchfarm started.
    is_single: bool = False
    _open: dict[int | None, Transcript] = field(default_factory=dict)
    _nslog_texts: dict[str, int] = field(default_factory=dict)
    #: Process -> what performance options said of unknown flags, once, before the options' runs.
    _of_all_options: dict[int | None, str] = field(default_factory=dict)
    _in_summary: bool = False

    def feed(self, line: Line) -> None:
        """Deal out one line."""
        if line.is_foreign:
            self._feed_system(line)
            return
        if line.text.startswith("STARTING!"):
            self._in_summary = False
            self._of_all_options.clear()
        if line.style == "nslog":
            self._remember_nslog(line.text)
        elif line.style == "console" and self._nslog_texts.get(line.text, 0) > 0:
            # Xcode shows each message twice: once from NSLog, once from stderr.
            self._nslog_texts[line.text] -= 1
            return
        if self._read_row(line):
            return
        key = line.pid if line.style == "logcat" else None
        transcript = self._open.get(key)
        if transcript is None or (not self.is_single and self._begins_run(line, transcript)):
            transcript = Transcript(pid=key)
            self._open[key] = transcript
            self.transcripts.append(transcript)
            if line.text.startswith(_FIRST_ECHO) and key in self._of_all_options:
                transcript.read_unconsumed(self._of_all_options[key])
        elif line.text.startswith(_OPTIONS) and transcript.unconsumed:
            self._of_all_options[key] = f"{UNCONSUMED} {' '.join(transcript.unconsumed)}"
        self._head(line, transcript)
        transcript.feed(line)

    def _remember_nslog(self, text: str) -> None:
        if text and len(self._nslog_texts) < 10_000:
            self._nslog_texts[text] = self._nslog_texts.get(text, 0) + 1

    def _feed_system(self, line: Line) -> None:
        self.system.feed(line.text, tag=line.tag, pid=line.pid, severity=line.severity)
        if line.tag == "ExecutionPlan":
            clues = self._open.get(line.pid)
            if clues is None:
                clues = Transcript(pid=line.pid)
                self._open[line.pid] = clues
                self.transcripts.append(clues)
            clues.delegates.read_system_line(f"ExecutionPlan: {line.text}")

    def _read_row(self, line: Line) -> bool:
        text = line.text
        if starts_summary(text):
            self._in_summary = True
            return True
        if "count=" not in text and "failed!" not in text:
            return False
        earlier = [*(row.stats for row in self.rows), *(s for t in self.transcripts[-1:] for s, _ in t.stats)]
        has_percentiles = any(stats is not None and stats.p95_us is not None for stats in earlier)
        row = parse_row(text, in_summary=self._in_summary, has_percentiles=has_percentiles)
        if row is None:
            return False
        self.rows.append(row)
        return True

    @staticmethod
    def _begins_run(line: Line, transcript: Transcript) -> bool:
        text, stage = line.text, transcript.stage
        has_content = not transcript.is_empty
        if text.startswith(("STARTING!", _APP_START)):
            return has_content
        if text.startswith(_FIRST_ECHO):
            return stage >= STAGE_LOADED or _FIRST_ECHO in transcript.echoed
        if text.startswith(("count=", "Running benchmark")):
            return stage >= STAGE_DONE or transcript.is_ended
        if "nference timings in us" in text or text.startswith("Inference (avg):"):
            return bool(transcript.timings) or transcript.short_result_us is not None
        if text.startswith(("Loaded model ", "The input model file size", "Initialized session in")):
            return stage >= STAGE_RUNNING or transcript.is_ended
        if text.startswith(_DELEGATE_START):
            return stage >= STAGE_DONE or transcript.is_ended
        if text.endswith((INIT_TITLE, RUN_TITLE)):
            return False
        if _is_heading(line) or _is_command(text):
            return has_content or transcript.has_command
        return False

    def _head(self, line: Line, transcript: Transcript) -> None:
        if transcript.stage > STAGE_ECHO or line.text.startswith("Log parameter"):
            return
        match = _HEADING.match(line.text) if _is_heading(line) else None
        if match:
            transcript.title = match["title"]
        elif _is_command(line.text):
            transcript.read_command(line.text)
        elif line.text.startswith(_APP_START):
            transcript.read_command(line.text.partition(":")[2])
            transcript.has_start = True
        elif transcript.stage == STAGE_NEW and transcript.has_command and line.text.startswith("--"):
            transcript.read_command(line.text)


def _is_heading(line: Line) -> bool:
    return (
        not line.severity
        and line.style == "console"
        and _TABLE.fullmatch(line.text) is None
        and _HEADING.match(line.text) is not None
    )


def _is_command(text: str) -> bool:
    return "benchmark_" in text and _COMMAND.match(text) is not None
