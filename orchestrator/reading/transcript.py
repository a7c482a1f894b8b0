"""One run's lines, collected as they come and then turned into a report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from orchestrator.delegates import SWITCHES
from orchestrator.delegates.evidence import ECHO_NAMES, DelegateClues
from orchestrator.reading.failures import FailureClues, SystemLog
from orchestrator.reading.lines import (
    BANNER_KEYS,
    NUMBER,
    Line,
    has_all_digits,
    mean_as_printed,
    parse_banner,
    parse_footprint,
    parse_memory,
    parse_number,
    parse_stats,
    parse_timings,
    to_us,
)
from orchestrator.reading.profile import INIT_TITLE, RUN_TITLE, TABLE_TITLE, TableReader
from orchestrator.records.run import LatencySummary

#: How far a run has come; a line of an earlier stage after a later one belongs to the next run.
STAGE_NEW, STAGE_ECHO, STAGE_LOADED, STAGE_DELEGATES, STAGE_READY, STAGE_RUNNING, STAGE_DONE = (
    range(7)
)

#: The first parameter that is echoed.
FIRST_ECHO: Final = "Log parameter values verbosely"
#: The app's first line, with its arguments.
APP_START: Final = "Running TensorFlow Lite benchmark with args:"
#: The program's line about unknown flags.
UNCONSUMED: Final = "Unconsumed cmdline flags:"

ECHO: Final = re.compile(r"([#A-Za-z][^\[\]]{0,120}?) ?: \[(.*)\]$")
_SESSION: Final = re.compile(rf"Initialized session in ({NUMBER}) ?ms(?:\.|$)", re.ASCII)
_LOADED: Final = re.compile(r"(?:Loaded model (?=\S*\.\w)|Loading model from: )(\S.*)$")
_MODEL_SIZE: Final = re.compile(rf"The input model file size \(MB\): ({NUMBER})$", re.ASCII)
_PEAK: Final = re.compile(
    rf"Overall peak memory footprint \(MB\) via periodic monitoring: ({NUMBER})$", re.ASCII
)
_SHORT_RESULT: Final = re.compile(rf"Inference \(avg\): ({NUMBER}) (us|microseconds|ms)$", re.ASCII)
_SIGNATURE: Final = re.compile(r"Signature name: +(\S.*)$")
_FULLY: Final = re.compile(r"Fully accelerated: +(True|False)$")
_RPC: Final = re.compile(r"RPC \(execute\) time: (\d{1,18}) us", re.ASCII)
_OPERATOR_REFUSED: Final = re.compile(
    r"((?:CUSTOM |DELEGATE )?[A-Z][A-Z0-9_]*[A-Z0-9](?: [\w.:-]+)?): (.+)"
)
_FLAG: Final = re.compile(r"--([\w-]+)=(\"[^\"]*\"|'[^']*'|\S*)")
_TASKSET: Final = re.compile(r"\btaskset +((?:-[\w-]+[ =]+)?[\w,-]{1,60}) ")
_MOST_NAMES: Final = 2000
_MOST_IGNORED_LINES: Final = 64
_MOST_PROTO_LINES: Final = 500_000
#: Statistics lines that are kept: the first ones and the last ones.
_FIRST_STATS, _MOST_STATS = 4, 8
#: A row of an operator table, whose columns are set apart by TABs.
_ROW: Final = re.compile(
    r"\t *\w+(?:\t *[\d.]+%?){5,7}(?:\t\[[^\[\]=>!\x00-\x1f*\x7f-\U0010ffff]*\]:\d+)?", re.ASCII
)
_PROFILE_ENDS: Final = (
    "STARTING!",
    "Log parameter values",
    "Inference timings",
    "Saving benchmark",
    "====Printing out",
    "The list of TFLite runtime options",
    "Loaded model ",
    "Initialized session in",
    "Running benchmark for",
    "count=",
)
#: Beginnings of the lines with figures, and first letters of those about the setup, which rule out
#: most other lines.
_FIGURE_STARTS: Final = (
    "count=",
    "Average inference",
    "Inference",
    "Running benchmark",
    "Memory footprint",
    "Peak memory",
    "Overall",
    "No inference runs",
    "Fully accelerated",
    "Signature name",
    *BANNER_KEYS,
)
_SETUP_LETTERS: Final = frozenset("SULIRTFPO=irm")
#: Lines of LiteRT-LM, which generates text; it shares the runtime's lines with our programs.
_LITERT_LM_LINE: Final = re.compile(
    r"BenchmarkInfo:$|(?:Prefill|Decode) Turns? [\d(]|(?:Prefill|Decode) [Ss]peed: +[\d.]+ tokens/s"
    r"|Number of tokens in (?:prefill|decode) *:|Benchmarking model: .*\.litertlm\b"
)
_PROTO_START: Final = re.compile(r"(?:init_profile|runtime_profile|model_name)\b.*[{:]")


@dataclass(slots=True)
class Transcript:
    """The contents of one run's lines, as printed; judging comes later."""

    title: str = ""
    #: All headings that it stands below, the outermost first.
    heading: str = ""
    pid: int | None = None
    #: The result's time in the log, as written there, "" where it has none.
    logged_at: str = ""
    flags: dict[str, str] = field(default_factory=dict)
    has_command: bool = False
    #: Whether the written command line is abbreviated ("...").
    is_elided: bool = False
    is_litert: bool = False
    has_litert_lm_lines: bool = False
    echoed: dict[str, str] = field(default_factory=dict)
    unconsumed: list[str] = field(default_factory=list)
    stage: int = STAGE_NEW
    has_start: bool = False
    is_loaded: bool = False
    #: The model's file in the line about loading it, the only place where LiteRT's program names it.
    loaded: str = ""
    session_us: float | None = None
    model_size_mb: float | None = None
    phases: int = 0
    #: Statistics lines in order, each with the number of "Running benchmark" lines before it.
    stats: list[tuple[LatencySummary, int]] = field(default_factory=list)
    has_percentiles: bool = False
    timings: dict[str, float] = field(default_factory=dict)
    #: Whether the result line ends inside its last figure.
    is_result_cut: bool = False
    short_result_us: float | None = None
    memory: dict[str, float] = field(default_factory=dict)
    peak_memory_mib: float | None = None
    is_peak_unavailable: bool = False
    banner: dict[str, float] = field(default_factory=dict)
    banner_runs: dict[str, int] = field(default_factory=dict)
    #: The signature that ran, as the banner names it.
    banner_signature: str = ""
    banner_failed: bool = False
    #: litert-benchmark's "Fully accelerated": "true" or "false".
    fully_accelerated: str = ""
    delegates: DelegateClues = field(default_factory=DelegateClues)
    failures: FailureClues = field(default_factory=FailureClues)
    #: Reads an operator profile's tables, from their first title on.
    profile: TableReader | None = None
    profile_proto: list[str] = field(default_factory=list)
    rpc_us: float | None = None
    is_ended: bool = False
    #: The line that shows that another process printed between this one's lines, "" where none does.
    mixed_at: str = ""
    #: Whether the tables of an operator profile are being read.
    in_profile: bool = False
    #: The last two lines that were read, the latest first: the last may be a shell's line about a
    #: signal.
    last_lines: tuple[str, str] = ("", "")
    _in_proto: bool = False
    _in_refused: bool = False
    #: Lines without a severity that match no rule; repetitions of them are skipped.
    _ignored_lines: set[str] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        """Whether no line of a benchmark program was read."""
        return (
            self.stage == STAGE_NEW
            and not self.delegates.lines
            and not self.delegates.uses_npu_runtime
            and not self.failures.is_benchmark_line
            and not self.has_profile
            and not self.profile_proto
            and not self.banner
            and not self.has_start
        )

    @property
    def signature(self) -> str:
        """The model's signature that ran, "" where the output doesn't show it."""
        requested = self.echoed.get("Signature to run") or self.flags.get(
            "signature_to_run_for", ""
        )
        return self.banner_signature or requested

    @property
    def is_litert_lm(self) -> bool:
        """Whether the lines are of LiteRT-LM, which isn't read here, and none of our programs'."""
        return self.has_litert_lm_lines and not (
            self.has_start or self.echoed or self.stage >= STAGE_RUNNING
        )

    @property
    def has_result(self) -> bool:
        """Whether the line or the banner with the run's result was read."""
        return (
            bool(self.timings) or self.short_result_us is not None or "inference_avg" in self.banner
        )

    @property
    def has_inferences(self) -> bool:
        """Whether inferences were made."""
        return bool(self.banner_runs.get("inference_avg")) or any(
            stats.count for stats, _ in self.stats
        )

    @property
    def has_profile(self) -> bool:
        """Whether a part of an operator profile's tables was read."""
        return self.profile is not None and not self.profile.is_empty

    @property
    def is_over(self) -> bool:
        """Whether the run's result, its failure or its operator profile was read: what follows may
        be another's.
        """
        return self.stage >= STAGE_DONE or self.is_ended or self.has_profile

    @property
    def takes_any_line(self) -> bool:
        """Whether the next line may continue a table or a list."""
        return self.in_profile or self._in_proto or self._in_refused

    def has_printed(self, text: str) -> bool:
        """Whether a line is one that a process prints once, and was read before."""
        if text.startswith("Running benchmark for"):
            # The warm-up and the measurement.
            return self.phases > 1
        if text.startswith("Loaded model "):
            return self.is_loaded
        if text.startswith("Initialized session in"):
            return self.session_us is not None
        if text.startswith("The input model file size"):
            return self.model_size_mb is not None
        if text.startswith(("Memory footprint delta", "Peak memory footprint")):
            return bool(self.memory)
        match = ECHO.match(text) if "]" in text else None
        return match is not None and match[1] in ECHO_NAMES and match[1] in self.echoed

    def is_ended_by_start(self, text: str) -> bool:
        """Whether a line is a program's first line and begins another run, as this run has other
        lines already.
        """
        if not text.startswith("STARTING!") or self.is_empty:
            return False
        is_past_start = (
            self.stage > STAGE_ECHO
            or self.failures.best is not None
            or bool(self.echoed or self.unconsumed)
        )
        return is_past_start or not self.has_start

    def read_command(self, command: str) -> None:
        """Take the flags of a command line that stands before the output."""
        self.has_command = True
        self.is_litert = self.is_litert or "benchmark_litert" in command
        self.is_elided = self.is_elided or " ..." in command or "\u2026" in command
        if (cores := _TASKSET.search(command)) is not None:
            self.flags["taskset"] = cores[1]
        for name, value in _FLAG.findall(command):
            if len(self.flags) < _MOST_NAMES:
                self.flags.setdefault(name, value.strip("\"'`"))

    def take_command(self, above: Transcript) -> None:
        """Take the command line from a transcript of which nothing else was read."""
        self.title, self.flags, self.has_command = self.title or above.title, above.flags, True
        self.is_litert, self.is_elided = above.is_litert, above.is_elided
        above.title, above.flags, above.has_command = "", {}, False

    def read_unconsumed(self, text: str) -> None:
        """Take the program's line about unknown flags; with a delegate's flag it is evidence."""
        words = text.partition(":")[2].split()[:_MOST_NAMES]
        self.unconsumed = list(dict.fromkeys([*self.unconsumed, *words]))[:_MOST_NAMES]
        flag_names = {word.lstrip("-").partition("=")[0] for word in words}
        if any(flag in flag_names for switch in SWITCHES for flag, _ in switch):
            self.delegates.add_line(text)

    def feed(self, line: Line) -> None:
        """Read one line of a benchmark program."""
        if line.text:
            self.last_lines = line.text, self.last_lines[0]
        text = line.text
        if (self.in_profile or self._in_proto) and self._continues_block(line):
            return
        if self._in_refused:
            match = _OPERATOR_REFUSED.match(text)
            if match and (line.style == "logcat" or line.text == line.raw.strip()):
                # "DELEGATE" is a node that another delegate has taken, which isn't left to the CPU.
                if not match[1].startswith("DELEGATE"):
                    self.delegates.add_cpu_operator(match[1], match[2])
                return
            self._in_refused = False
        if self.failures.was_read(text) or (
            text in self._ignored_lines and not line.severity and not line.source_file
        ):
            return
        if text:
            if (text.startswith(_FIGURE_STARTS) or "RPC" in text) and self._read_figures(
                line, text
            ):
                return
            if (text[0] in _SETUP_LETTERS or line.source_file) and self._read_setup(line, text):
                return
            self._read_rest(line, text)

    def take_row(self, raw: str) -> bool:
        """Take a console's line if it is a row of the open operator table; faster than parsing it."""
        if not self.in_profile or _ROW.fullmatch(raw) is None:
            return False
        self.last_lines = raw.strip(), self.last_lines[0]
        self._feed_profile(raw)
        return True

    def _feed_profile(self, raw: str) -> None:
        if self.profile is None:
            self.profile = TableReader()
        self.profile.feed(raw)

    def _continues_block(self, line: Line) -> bool:
        is_new_message = (
            line.style == "console" and line.text != line.raw.strip() and bool(line.severity)
        )
        if line.text.startswith(_PROFILE_ENDS) or (
            is_new_message and not self._starts_block(line.text)
        ):
            self.in_profile = self._in_proto = False
            return False
        # The name or figure at the end of a line that was cut off may be incomplete.
        if not line.is_cut:
            text = line.text if is_new_message else line.raw
            if not self._in_proto:
                self._feed_profile(text)
            elif len(self.profile_proto) < _MOST_PROTO_LINES:
                self.profile_proto.append(text)
        return True

    @staticmethod
    def _starts_block(text: str) -> bool:
        if text.startswith("="):
            return TABLE_TITLE.fullmatch(text) is not None
        return text.startswith((INIT_TITLE, RUN_TITLE)) or _PROTO_START.match(text) is not None

    def _read_figures(self, line: Line, text: str) -> bool:
        if text.startswith("count="):
            stats = parse_stats(
                line.whole, has_percentiles=self.has_percentiles, is_cut=bool(line.cut_word)
            )
            if stats is not None:
                self.stats.append((stats, self.phases))
                self.has_percentiles = self.has_percentiles or stats.p95_us is not None
                if len(self.stats) > _MOST_STATS:
                    del self.stats[_FIRST_STATS]
                self._reach(STAGE_RUNNING)
        elif "nference timings in us" in text:
            timings = parse_timings(self._result_text(line, text))
            if timings is None:
                return False
            self.timings = self._without_cut_mean(timings)
            self._reach(STAGE_DONE)
        elif match := _SHORT_RESULT.match(text):
            value = parse_number(match[1])
            self.short_result_us = None if value is None else to_us(value, match[2])
            self._reach(STAGE_DONE)
        elif text.startswith("Running benchmark for at least"):
            self.phases += 1
            self._reach(STAGE_RUNNING)
        elif (amounts := parse_memory(line.whole, is_cut=bool(line.cut_word))) is not None:
            self.memory = amounts
        elif match := _PEAK.match(line.whole):
            is_part = line.cut_word and not has_all_digits(line.cut_word, may_have_power=False)
            self.peak_memory_mib = None if is_part else parse_footprint(match[1])
        elif (entry := parse_banner(text)) is not None:
            key, value, runs = entry
            self.banner[key] = value
            self.is_litert = True
            if runs is not None:
                self.banner_runs[key] = runs
            self._reach(STAGE_DONE if key == "inference_avg" else STAGE_READY)
        elif match := _SIGNATURE.match(text):
            self.banner_signature = match[1]
            self._reach(STAGE_READY)
        elif text.startswith("Peak memory usage not available"):
            self.is_peak_unavailable = True
        elif match := _FULLY.match(text):
            self.fully_accelerated = match[1].lower()
        elif text.startswith("No inference runs were performed"):
            self.banner_failed = True
        elif match := _RPC.search(text):
            self.rpc_us = parse_number(match[1])
        else:
            return False
        return True

    def _result_text(self, line: Line, text: str) -> str:
        # Without a line end the last figure may lack digits; it is complete if it equals the
        # statistics line's.
        is_confirmed = any(mean_as_printed(stats) == line.cut_word for stats, _ in self.stats[-1:])
        return line.whole if is_confirmed or has_all_digits(line.cut_word) else text

    def _without_cut_mean(self, timings: dict[str, float]) -> dict[str, float]:
        """Return the timings without a mean that is only the beginning of the statistics line's: the
        result line was cut inside it.
        """
        if not self.stats or "inference" not in timings:
            return timings
        stats_mean = mean_as_printed(self.stats[-1][0])
        printed = {name: f"{value:.6g}" for name, value in timings.items()}
        is_of_warmup = len(self.stats) == 1 and printed.get("warmup") == stats_mean
        if (
            is_of_warmup
            or stats_mean == printed["inference"]
            or not stats_mean.startswith(printed["inference"])
        ):
            return timings
        self.is_result_cut = True
        return {name: value for name, value in timings.items() if name != "inference"}

    def _read_setup(self, line: Line, text: str) -> bool:
        if text.startswith(("STARTING!", APP_START)):
            self.has_start = True
            if text.startswith(APP_START):
                self.read_command(text.partition(":")[2])
            self._reach(STAGE_ECHO)
        elif text.startswith(UNCONSUMED):
            self.read_unconsumed(text)
            self._reach(STAGE_ECHO)
        elif text.startswith("Loaded model ") or line.source_file == "benchmark_litert_model.cc":
            self.is_loaded = True
            if (match := _LOADED.match(text)) and not line.cut_word:
                self.loaded = match[1]
            self.is_litert = self.is_litert or bool(line.source_file)
            self._reach(STAGE_LOADED)
            return line.severity not in {"E", "F"}
        elif match := _SESSION.match(text):
            value = parse_number(match[1])
            self.session_us = None if value is None else to_us(value, "ms")
            self._reach(STAGE_READY)
        elif match := _MODEL_SIZE.match(text):
            self.model_size_mb = parse_number(match[1])
            self._reach(STAGE_READY)
        elif text.startswith("Following operations are not supported by GPU delegate"):
            self._in_refused = True
            self._reach(STAGE_DELEGATES)
        elif _PROTO_START.match(text):
            self._in_proto = True
            self.profile_proto.append(text)
        elif self._starts_block(text):
            self.in_profile = True
            self._feed_profile(text)
        else:
            return False
        return True

    def _read_rest(self, line: Line, text: str) -> None:
        if self.delegates.feed(text, line.source_file):
            self._reach(STAGE_DELEGATES)
            if line.severity in {"E", "F"} or not text.startswith("Replacing "):
                self.failures.feed(text, line.severity)
            return
        if line.severity not in {"E", "F"} and (match := ECHO.match(text)):
            # Many programs print "name: [value]"; ours begin with a name of ECHO_NAMES.
            if self.stage > STAGE_NEW or self.has_start or match[1] in ECHO_NAMES:
                if len(self.echoed) < _MOST_NAMES:
                    self.echoed.setdefault(match[1], match[2])
                self._reach(STAGE_ECHO)
            return
        if self.failures.feed(text, line.severity):
            self.is_ended = self.is_ended or text.startswith(
                ("Benchmarking failed", "Error while running")
            )
        elif _LITERT_LM_LINE.match(text):
            self.has_litert_lm_lines = True
        elif (
            not line.severity
            and not line.source_file
            and len(self._ignored_lines) < _MOST_IGNORED_LINES
        ):
            self._ignored_lines.add(text)

    def _reach(self, stage: int) -> None:
        if self.stage == STAGE_NEW and stage < STAGE_DONE:
            # Memory lines follow a result, so these are of a run whose beginning is missing.
            self.memory, self.peak_memory_mib = {}, None
        self.stage = max(self.stage, stage)


def logged_processes(lines: Iterable[Line], system: SystemLog) -> list[Transcript]:
    """Return a transcript of each of our processes in a log, in the order of their first lines; feed
    other lines to ``system``.
    """
    transcripts: list[Transcript] = []
    by_pid: dict[int | None, Transcript] = {}
    for line in lines:
        if line.is_foreign:
            system.feed(line.text, tag=line.tag, pid=line.pid, severity=line.severity)
            if line.tag != "ExecutionPlan":
                continue
        transcript = by_pid.get(line.pid)
        if transcript is None or transcript.is_ended_by_start(line.text):
            # A process of an app may run the benchmark again.
            transcript = by_pid[line.pid] = Transcript(pid=line.pid)
            transcripts.append(transcript)
        if line.is_foreign:
            transcript.delegates.read_system_line(f"ExecutionPlan: {line.text}")
        else:
            transcript.feed(line)
    return transcripts


def benchmark_transcript(console: Transcript, logged: list[Transcript]) -> Transcript:
    """Return the benchmark's transcript: the console's, or for an app its process's in the log.

    For an app, the console has the activity manager's answer, which counts when it is a refusal.
    """
    if not console.is_empty or console.failures.ended_badly:
        return console
    candidates = (
        [log for log in logged if log.has_start]
        or [log for log in logged if not log.is_empty]
        or [console]
    )
    # A process that only fills caches makes no inference.
    return max(candidates, key=lambda log: (log.has_inferences, log.stage, len(log.echoed)))
