"""One run's lines, collected as they come and then turned into a report.

``KINDS``, at the end, is the table of the lines: how far a run has come that prints one, when it
begins another run, and what is read from it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from orchestrator.delegates import SWITCHES
from orchestrator.delegates.evidence import ECHO_NAMES, DelegateClues, is_delegate_line
from orchestrator.reading.failures import FailureClues
from orchestrator.reading.lines import (
    BANNER_KEYS,
    LITERT_BENCHMARK,
    NUMBER,
    TABLE_TITLE,
    Line,
    has_all_digits,
    mean_as_printed,
    parse_banner,
    parse_footprint,
    parse_memory,
    parse_stats,
    parse_timings,
    to_us,
)
from orchestrator.reading.profile import INIT_TITLE, RUN_TITLE, TableReader
from orchestrator.records.run import LatencySummary
from orchestrator.units import parse_number


class Stage(enum.IntEnum):
    """How far a run has come; a line of an earlier stage after a later one is the next run's."""

    NEW = 0
    ECHO = 1
    LOADED = 2
    DELEGATES = 3
    READY = 4
    RUNNING = 5
    DONE = 6


class Block(enum.Enum):
    """What the open block of lines is: lines that mean something only below its first one."""

    NONE = enum.auto()
    TABLES = enum.auto()
    PROTO = enum.auto()
    REFUSED = enum.auto()


#: A program's first line, and its app's, with the arguments.
START: Final = "STARTING!"
APP_START: Final = "Running TensorFlow Lite benchmark with args:"
#: The first parameter that is echoed.
FIRST_ECHO: Final = "Log parameter values verbosely"
#: The lines about unknown flags, and about the options that one process tries in turn.
UNCONSUMED: Final = "Unconsumed cmdline flags:"
OPTIONS: Final = "The list of TFLite runtime options to be benchmarked:"

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
#: Lines of LiteRT-LM, which generates text; it shares the runtime's lines with our programs.
_LITERT_LM_LINE: Final = re.compile(
    r"BenchmarkInfo:$|(?:Prefill|Decode) Turns? [\d(]|(?:Prefill|Decode) [Ss]peed: +[\d.]+ tokens/s"
    r"|Number of tokens in (?:prefill|decode) *:|Benchmarking model: .*\.litertlm\b"
)
_TABLES_START: Final = re.compile(rf"{INIT_TITLE}|{RUN_TITLE}|{TABLE_TITLE.pattern}$")
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
    stage: Stage = Stage.NEW
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
    #: The process's exit code: None when there is none (an app) or it isn't known.
    exit_code: int | None = None
    #: Whether benchfarm ended it at its deadline.
    timed_out: bool = False
    #: The line that shows that another process printed between this one's lines, "" where none does.
    mixed_at: str = ""
    #: The last two lines that were read, the latest first: the last may be a shell's line about a
    #: signal.
    last_lines: tuple[str, str] = ("", "")
    #: Whether its first line has statistics behind a name and a bar; without a second line it is a
    #: row of a table.
    may_be_row: bool = False
    _block: Block = Block.NONE
    #: Lines without a severity that match no rule; repetitions of them are skipped.
    _ignored_lines: set[str] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        """Whether no line of a benchmark program was read."""
        return (
            self.stage == Stage.NEW
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
            self.has_start or self.echoed or self.stage >= Stage.RUNNING
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

    def is_over(self) -> bool:
        """Whether the run's result, its failure or its operator profile was read: what follows may
        be another's.
        """
        return self.stage >= Stage.DONE or self.is_ended or self.has_profile

    def has_ended(self) -> bool:
        """Whether the run's result or its failure was read."""
        return self.has_result or self.is_ended

    def is_past_setup(self) -> bool:
        """Whether the run has begun to measure, or is over."""
        return self.stage >= Stage.RUNNING or self.is_over()

    @property
    def takes_any_line(self) -> bool:
        """Whether the next line may continue a table or a list."""
        return self._block is not Block.NONE

    def is_started(self) -> bool:
        """Whether a program's first line begins another run, as this one has other lines already."""
        is_past_start = (
            self.stage > Stage.ECHO
            or self.failures.best is not None
            or bool(self.echoed or self.unconsumed)
        )
        return not self.is_empty and (is_past_start or not self.has_start)

    def is_ended_by(self, line: Line, kind: LineKind | None) -> bool:
        """Whether a program's line, of this kind, begins another run than this one."""
        begins = kind is not None and kind.begins(self)
        return begins or (self.is_over() and is_delegate_line(line.text))

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
        self.take(line, kind_of(line))

    def take(self, line: Line, kind: LineKind | None) -> None:
        """Read one line of a benchmark program, of this kind."""
        if line.text:
            self.last_lines = line.text, self.last_lines[0]
        text = line.text
        if self._block is not Block.NONE and self._continues_block(line, kind):
            return
        if self.failures.was_read(text) or (
            text in self._ignored_lines and not line.severity and not line.source_file
        ):
            return
        if kind is not None and kind.read(self, line):
            self._reach(kind.stage)
            self._block = kind.block
        elif text:
            self._read_rest(line, text)

    def take_row(self, raw: str) -> bool:
        """Take a console's line if it is a row of the open operator table; faster than parsing it."""
        if self._block is not Block.TABLES or _ROW.fullmatch(raw) is None:
            return False
        self.last_lines = raw.strip(), self.last_lines[0]
        self._feed_tables(raw)
        return True

    def _feed_tables(self, raw: str) -> None:
        if self.profile is None:
            self.profile = TableReader()
        self.profile.feed(raw)

    def _continues_block(self, line: Line, kind: LineKind | None) -> bool:
        """Take a line of the open block; otherwise close the block."""
        if self._block is Block.REFUSED:
            match = _OPERATOR_REFUSED.match(line.text)
            if match and (line.style == "logcat" or line.text == line.raw.strip()):
                # "DELEGATE" is a node that another delegate has taken, which isn't left to the CPU.
                if not match[1].startswith("DELEGATE"):
                    self.delegates.add_cpu_operator(match[1], match[2])
                return True
            self._block = Block.NONE
            return False
        is_new_message = (
            line.style == "console" and line.text != line.raw.strip() and bool(line.severity)
        )
        opens = kind is not None and kind.form is not None
        if (kind is not None and kind.ends_block) or (is_new_message and not opens):
            self._block = Block.NONE
            return False
        # The name or figure at the end of a line that was cut off may be incomplete.
        if not line.is_cut:
            text = line.text if is_new_message else line.raw
            if self._block is Block.TABLES:
                self._feed_tables(text)
            elif len(self.profile_proto) < _MOST_PROTO_LINES:
                self.profile_proto.append(text)
        return True

    def _read_start(self, _: Line) -> bool:
        self.has_start = True
        return True

    def _read_app_start(self, line: Line) -> bool:
        self.read_command(line.text.partition(":")[2])
        return self._read_start(line)

    def _read_unconsumed(self, line: Line) -> bool:
        self.read_unconsumed(line.text)
        return True

    def _read_loaded(self, line: Line) -> bool:
        self.is_loaded = True
        if (match := _LOADED.match(line.text)) and not line.cut_word:
            self.loaded = match[1]
        self.is_litert = self.is_litert or bool(line.source_file)
        self._reach(Stage.LOADED)
        return line.severity not in {"E", "F"}

    def _read_session(self, line: Line) -> bool:
        if match := _SESSION.match(line.text):
            value = parse_number(match[1])
            self.session_us = None if value is None else to_us(value, "ms")
        return match is not None

    def _read_model_size(self, line: Line) -> bool:
        if match := _MODEL_SIZE.match(line.text):
            self.model_size_mb = parse_number(match[1])
        return match is not None

    def _read_proto_start(self, line: Line) -> bool:
        self.profile_proto.append(line.text)
        return True

    def _read_table_title(self, line: Line) -> bool:
        self._feed_tables(line.text)
        return True

    def _read_phase(self, line: Line) -> bool:
        is_phase = line.text.startswith("Running benchmark for at least")
        self.phases += is_phase
        return is_phase

    def _read_statistics(self, line: Line) -> bool:
        stats = parse_stats(
            line.whole, has_percentiles=self.has_percentiles, is_cut=bool(line.cut_word)
        )
        if stats is None:
            return False
        self.stats.append((stats, self.phases))
        self.has_percentiles = self.has_percentiles or stats.p95_us is not None
        if len(self.stats) > _MOST_STATS:
            del self.stats[_FIRST_STATS]
        return True

    def _read_result(self, line: Line) -> bool:
        timings = parse_timings(self._result_text(line, line.text))
        if timings is None:
            return False
        self.timings = self._without_cut_mean(timings)
        return True

    def _read_mean(self, line: Line) -> bool:
        if (match := _SHORT_RESULT.match(line.text)) is None:
            return self._read_banner(line)
        value = parse_number(match[1])
        self.short_result_us = None if value is None else to_us(value, match[2])
        return True

    def _read_banner(self, line: Line) -> bool:
        if (entry := parse_banner(line.text)) is None:
            return False
        key, self.banner[key], runs = entry
        self.is_litert = True
        if runs is not None:
            self.banner_runs[key] = runs
        return True

    def _read_memory(self, line: Line) -> bool:
        amounts = parse_memory(line.whole, is_cut=bool(line.cut_word))
        if amounts is not None:
            self.memory = amounts
        return amounts is not None

    def _read_peak(self, line: Line) -> bool:
        if match := _PEAK.match(line.whole):
            is_part = line.cut_word and not has_all_digits(line.cut_word, may_have_power=False)
            self.peak_memory_mib = None if is_part else parse_footprint(match[1])
        return match is not None

    def _read_no_peak(self, _: Line) -> bool:
        self.is_peak_unavailable = True
        return True

    def _read_signature(self, line: Line) -> bool:
        if match := _SIGNATURE.match(line.text):
            self.banner_signature = match[1]
        return match is not None

    def _read_setting(self, line: Line) -> bool:
        name, _, value = (part.strip() for part in line.text.partition(":"))
        match name:
            case "Model":
                self.loaded, self.is_loaded, self.is_litert = value, True, True
            case "Accelerators":
                # The CPU beside another is what may take operators that it leaves.
                names = {word.strip().lower() for word in value.split("|")} - {"cpu"}
                self.flags |= {f"use_{word}": "true" for word in names}
            case "Num threads":
                self.echoed[name] = value
            case "Using signature":
                self.banner_signature = value
        return bool(value)

    def _read_fully(self, line: Line) -> bool:
        if match := _FULLY.match(line.text):
            self.fully_accelerated = match[1].lower()
        return match is not None

    def _read_no_inference(self, _: Line) -> bool:
        self.banner_failed = True
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

    def _read_rest(self, line: Line, text: str) -> None:
        if self.delegates.feed(text, line.source_file):
            self._reach(Stage.DELEGATES)
            if line.severity in {"E", "F"} or not text.startswith("Replacing "):
                self.failures.feed(text, line.severity)
            return
        if "RPC" in text and (match := _RPC.search(text)):
            self.rpc_us = parse_number(match[1])
            return
        if line.severity not in {"E", "F"} and (match := ECHO.match(text)):
            # Many programs print "name: [value]"; ours begin with a name of ECHO_NAMES.
            if self.stage > Stage.NEW or self.has_start or match[1] in ECHO_NAMES:
                if len(self.echoed) < _MOST_NAMES:
                    self.echoed.setdefault(match[1], match[2])
                self._reach(Stage.ECHO)
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

    def _reach(self, stage: Stage) -> None:
        if stage <= self.stage:
            return
        if self.stage is Stage.NEW and stage < Stage.DONE:
            # Memory lines follow a result, so these are of a run whose beginning is missing.
            self.memory, self.peak_memory_mib = {}, None
        self.stage = stage


def _is_read_elsewhere(_: Transcript, __: Line) -> bool:
    return False


@dataclass(frozen=True, slots=True, eq=False)
class LineKind:
    """A form of line, known by its beginning."""

    starts: tuple[str, ...] = ()
    #: Takes its values; returns whether it has them, so that nothing else is in the line.
    read: Callable[[Transcript, Line], bool] = _is_read_elsewhere
    #: How far a run has come that prints it.
    stage: Stage = Stage.NEW
    #: Whether it begins another run than the open one.
    begins: Callable[[Transcript], bool] = lambda run: False
    #: Whether the run has such a line already, of which a process prints one.
    is_repeated: Callable[[Transcript], bool] = lambda run: False
    #: The block that it opens, and what else of it has to match.
    block: Block = Block.NONE
    form: re.Pattern[str] | None = None
    #: Whether a profile ends above it.
    ends_block: bool = False
    #: Of a message that a narrow window may break: the expression that the whole of it matches.
    whole: str = ""


#: Every kind, in the order in which a run prints them.
KINDS: Final = (
    LineKind(
        (START,),
        Transcript._read_start,
        Stage.ECHO,
        begins=Transcript.is_started,
        ends_block=True,
    ),
    LineKind(
        (APP_START,),
        Transcript._read_app_start,
        Stage.ECHO,
        begins=lambda run: not run.is_empty,
    ),
    LineKind(
        (FIRST_ECHO,),
        begins=lambda run: run.stage >= Stage.LOADED or run.is_over() or FIRST_ECHO in run.echoed,
        ends_block=True,
    ),
    LineKind((UNCONSUMED,), Transcript._read_unconsumed, Stage.ECHO),
    LineKind((OPTIONS,), ends_block=True),
    LineKind(
        ("Loaded model ", "Loading model from: "),
        Transcript._read_loaded,
        Stage.LOADED,
        begins=Transcript.is_past_setup,
        is_repeated=lambda run: run.is_loaded,
        ends_block=True,
        whole=r"(?:Loaded model|Loading model from:) \S+\.(?:tflite|lite|tfl|litertlm|task)",
    ),
    LineKind(
        ("Following operations are not supported by GPU delegate",),
        lambda run, line: True,
        Stage.DELEGATES,
        begins=Transcript.is_over,
        block=Block.REFUSED,
    ),
    LineKind(
        (
            "Initialized TensorFlow Lite runtime",
            "Attempting to use a delegate that only supports static-sized tensors",
        ),
        begins=Transcript.is_over,
    ),
    LineKind(
        ("Explicitly applied", "Though ", "Replacing "),
        begins=Transcript.is_over,
        whole=r"(?:Explicitly applied|Applied|Though) \w+ delegate(?: is)?(?: explicitly)?"
        r"(?: applied)?,(?: and)? the model graph will(?: not)? be(?: only)?"
        r"(?: completely| partially)? executed (?:by|w/|with) the delegate"
        r"(?: w/ \d+ delegate kernels)?\.?"
        r"|Replacing \d+ out of \d+ node\(s\) with delegate \(\w+\) node, yielding \d+ partitions"
        r"(?: for (?:subgraph \d+(?: \([^()]*\))?|the whole graph))?\.?",
    ),
    LineKind(
        (
            "Applied ",
            "Failed to create a dispatch delegate kernel",
            "No operations will run on the GPU",
            "Node number ",
        ),
        whole=r"Failed to create a dispatch delegate kernel(?:: No usable Dispatch runtime found)?\.?"
        r"|No operations will run on the GPU, and all \d+ operations will run on the CPU\.?"
        r"|Node number \d+ \([\w ]+\) failed to (?:invoke|prepare)\.?",
    ),
    LineKind(
        ("The input model file size",),
        Transcript._read_model_size,
        Stage.READY,
        begins=Transcript.is_past_setup,
        is_repeated=lambda run: run.model_size_mb is not None,
        whole=_MODEL_SIZE.pattern,
    ),
    LineKind(
        ("Initialized session in",),
        Transcript._read_session,
        Stage.READY,
        begins=Transcript.is_past_setup,
        is_repeated=lambda run: run.session_us is not None,
        ends_block=True,
        whole=_SESSION.pattern,
    ),
    LineKind(
        ("Running benchmark",),
        Transcript._read_phase,
        Stage.RUNNING,
        begins=Transcript.is_over,
        # The warm-up and the measurement.
        is_repeated=lambda run: run.phases > 1,
        ends_block=True,
        whole=rf"Running benchmark for at least \d+ iterations and at least {NUMBER} seconds"
        rf"(?: but terminate if exceeding {NUMBER} seconds)?\.?",
    ),
    LineKind(
        ("count=",),
        Transcript._read_statistics,
        Stage.RUNNING,
        begins=Transcript.is_over,
        ends_block=True,
        whole=rf"count=\d+(?: \w+={NUMBER})* (?:std|p95)={NUMBER}"
        rf"|count=\d+ curr={NUMBER}(?:\(all same\))?",
    ),
    LineKind(
        ("Inference timings in us", "Average inference timings in us"),
        Transcript._read_result,
        Stage.DONE,
        begins=Transcript.has_ended,
        ends_block=True,
        whole=rf"(?:Average i|I)nference timings in us: (?:[\w ()]+: {NUMBER}, )*"
        rf"(?:Inference(?: \(avg\))?|no stats): {NUMBER}",
    ),
    LineKind(
        ("Memory footprint delta", "Peak memory footprint"),
        Transcript._read_memory,
        is_repeated=lambda run: bool(run.memory),
        whole=r"(?:Memory footprint delta from the start of the tool|Peak memory footprint)"
        rf" \(MB\): init={NUMBER} overall={NUMBER}",
    ),
    LineKind(
        ("Overall peak memory footprint",),
        Transcript._read_peak,
        whole=_PEAK.pattern,
    ),
    LineKind(("Peak memory usage not available",), Transcript._read_no_peak),
    LineKind(("Saving benchmark", "====Printing out"), ends_block=True),
    LineKind(
        (INIT_TITLE, RUN_TITLE, "="),
        Transcript._read_table_title,
        block=Block.TABLES,
        form=_TABLES_START,
    ),
    LineKind(
        ("init_profile", "runtime_profile", "model_name"),
        Transcript._read_proto_start,
        block=Block.PROTO,
        form=_PROTO_START,
    ),
    # LiteRT's banner.
    LineKind(
        ("========== BENCHMARK RESULTS", "Model initialization"),
        Transcript._read_banner,
        Stage.READY,
        begins=lambda run: run.has_ended() or "init" in run.banner,
    ),
    LineKind(("Inference (avg)",), Transcript._read_mean, Stage.DONE, begins=Transcript.has_ended),
    LineKind(
        tuple(BANNER_KEYS),
        Transcript._read_banner,
        Stage.READY,
        whole=rf"(?:{'|'.join(map(re.escape, BANNER_KEYS))}): +{NUMBER}"
        r"(?: (?:ms|us|MB/s|MB))?(?: \(\d+ runs\))?",
    ),
    LineKind(("Signature name",), Transcript._read_signature, Stage.READY),
    LineKind(("Fully accelerated",), Transcript._read_fully),
    LineKind(("No inference runs were performed",), Transcript._read_no_inference),
)
_KIND_OF_START: Final = {start: kind for kind in reversed(KINDS) for start in kind.starts}
_START: Final = re.compile("|".join(map(re.escape, sorted(_KIND_OF_START, reverse=True))))
#: Any other line of the file that loads LiteRT's model.
_OF_LOADING: Final = LineKind(read=Transcript._read_loaded, stage=Stage.LOADED)
#: What litert-benchmark logs, by the words before the colon, the model first.
_LOGGED_KINDS: Final = {
    "Model": LineKind(
        read=Transcript._read_setting, stage=Stage.ECHO, begins=lambda run: not run.is_empty
    ),
    **dict.fromkeys(
        ("Accelerators", "Num threads", "Using signature"),
        LineKind(read=Transcript._read_setting, stage=Stage.ECHO),
    ),
    "Fully accelerated": LineKind(read=Transcript._read_fully),
}


def _parameter(name: str) -> LineKind:
    """Return the kind of the lines that echo a parameter, which are printed before anything else."""
    return LineKind(
        begins=lambda run: (
            run.is_past_setup() or (run.stage >= Stage.LOADED and name in run.echoed)
        ),
        is_repeated=lambda run: name in run.echoed,
    )


_PARAMETERS: Final = {name: _parameter(name) for name in ECHO_NAMES}


def kind_of(line: Line) -> LineKind | None:
    """Return the kind of a line by its beginning, None for any other line."""
    if line.source_file == LITERT_BENCHMARK and line.severity == "I":
        return _LOGGED_KINDS.get(line.text.partition(":")[0])
    if (match := _START.match(line.text)) is None:
        if line.source_file == "benchmark_litert_model.cc":
            return _OF_LOADING
        if not line.text.endswith("]"):
            return None
        return _PARAMETERS.get(line.text.partition(": [")[0].removesuffix(" "))
    kind = _KIND_OF_START[match[0]]
    return kind if kind.form is None or kind.form.match(line.text) else None
