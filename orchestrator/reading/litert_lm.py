"""Reads the output of LiteRT-LM: ``litert_lm_main``, ``litert_lm_advanced_main`` and the command
``litert-lm benchmark``.

A process reads a prompt (prefill) and writes an answer (decode), once or several times on one
engine. Both have a report of their own, named ``prefill`` and ``decode``: their figure is the time
of one token, whose mean over the repetitions is the harmonic mean of their speeds. Speeds are
computed from tokens and durations where both are printed: the program rounds them to hundredths.

The programs exit with 0 after most failures, so that only what they print tells them: a speed of
0.00, no results, or a sentence. What is printed as the time to the first token is computed by them
(the prompt's time and the mean time of a token of the answer), and the command's ``Init time`` is
the sum of all phases and of their sum.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.delegates import ACCELERATORS
from orchestrator.delegates.evidence import family, share_in
from orchestrator.delegates.judging import extent_of
from orchestrator.errors import OutputParseError
from orchestrator.reading.failures import Failure
from orchestrator.reading.lines import LITERT_BENCHMARK, US_OF, Line, figures_of
from orchestrator.reading.profile import decode_message, optional_figure
from orchestrator.records.case import DelegateName
from orchestrator.records.model import PHASES
from orchestrator.records.run import (
    DelegateEvidence,
    DelegateShare,
    DelegateTruth,
    LatencySummary,
    ToolReport,
)
from orchestrator.units import US_PER_MS, US_PER_S

#: A value of the program's ``--backend`` -> the delegate's name.
_BACKENDS: Final = {word: name.value for word, name in ACCELERATORS.items()} | {
    # Kernels of LiteRT-LM's own for the same hardware.
    "cpu_artisan": DelegateName.XNNPACK.value,
    "gpu_artisan": DelegateName.GPU.value,
    "google_tensor_artisan": DelegateName.NPU.value,
}
#: One of these is in any text of which a process is read: a search over the whole text costs next
#: to nothing, reading each of its lines doesn't.
MARKS: Final = (
    "BenchmarkInfo:",
    "Benchmarking model:",
    "Input token ids are too long",
    "Failed to create engine",
    "backend constraint mismatch",
    " Turn 1: Processed ",
)
#: The last digit of a speed that is printed.
SPEED_STEP: Final = 0.01
#: Lines about where it ran; each is logged once for each engine.
_MOST_LINES: Final = 200
#: Of one process; more were never asked for.
_MOST_REPETITIONS: Final = 10_000

_GLOG: Final = re.compile(
    r"[IWEF]\d{4} (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d+\.\d+)\s+\d+ [\w./-]+:\d+\] "
)
_COMMAND: Final = re.compile(r"Benchmarking model: (?P<name>.*?)(?: \((?P<path>.*)\))?$")
_SETTING: Final = re.compile(
    r"(?P<name>Backend|Number of tokens in (?:prefill|decode)|Max number of tokens|Cache|Speculative decoding)"
    r"\s*: (?P<value>\S+)"
)
#: The last word of such a name, and the flag of a case that it is.
_FLAGS: Final = {"tokens": "max_num_tokens", **{phase: f"{phase}_tokens" for phase in PHASES}}
#: The programs on a phone say first what they read.
_START: Final = re.compile(r"Model path: (?P<model>\S.*)$|Choose backend: (?P<backend>\S.*)$")
#: What benchmark_model and LiteRT's program print and this one doesn't.
_OTHER_PROGRAMS: Final = re.compile(
    r"(?:\w+: )?(?:STARTING!|Log parameter values verbosely: |Loaded model |Loading model from: "
    r"|(?:Average i|I)nference timings in us: |count=\d)"
    rf"|.{{19}} INFO {LITERT_BENCHMARK}: Model: "
)
_INFO: Final = re.compile(r"BenchmarkInfo:$")
_AGGREGATED: Final = re.compile(r"Aggregated BenchmarkInfo \(median of \d+ iterations\):")
_COMMAND_RESULTS: Final = re.compile(r"----- Results -----$")
_DURATION: Final = r"(?:0|(?:(?:\d+h)?(?:\d+m)?(?:\d[\d.]*(?:ns|us|ms|s))?))"
_TURN: Final = re.compile(
    rf"(?P<phase>Prefill|Decode) Turn \d+: Processed (?P<tokens>\d+) tokens in (?P<time>{_DURATION}) duration"
)
_INIT: Final = re.compile(r"(?:- Init Total|Total init time): (?P<ms>\d[\d.]*) ms$")
_TTFT: Final = re.compile(r"Time to first token:\s+(?P<s>\d[\d.]*) s$")
_SPEED: Final = re.compile(r"(?P<phase>Prefill|Decode) speed:\s+(?P<speed>\d[\d.]*) tokens/s$")
_COMMAND_INIT: Final = re.compile(r"Init time:\s+(?P<s>\d[\d.]*) s$")
_RULE: Final = re.compile(r"-{20,}$")
_PEAK: Final = re.compile(
    r"Peak (?P<what>system ram usage|private footprint|DMA-BUF hardware usage): (?P<mb>\d[\d.]*) ?MB"
)
_ON_CPU: Final = "Created TensorFlow Lite XNNPACK delegate for CPU"
GPU_API: Final = re.compile(
    r"Created (?:default )?(?P<api>OpenCL|WebGPU|Metal|Vulkan) (?:device|context)|Initializing (?P<name>\w+)-based API"
)
_SAMPLES_ON_CPU: Final = "GPU sampler unavailable"
#: No engine was made: which code that is depends on the backend.
_NO_ENGINE: Final = ""
_NO_ENGINE_CODES: Final[Mapping[str, str]] = {"gpu": "gpu-init-failed", "npu": "npu-init-failed"}
#: Sentences of a failure, the most telling first.
_FAILURES: Final = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (r"CANNOT LINK EXECUTABLE.*", "missing-library"),
        (r"(?<=^ERROR: )(Unknown command line flag|Illegal value) '.*", "bad-flag"),
        (r"Input token ids are too long\..*", "context-too-small"),
        # WebGPU's, whichever program asked for it.
        (r"No adapters found", "gpu-init-failed"),
        (r"backend constraint mismatch.*", _NO_ENGINE),
        (r"Could not find .* locally in .*", "model-not-found"),
        (r"Invalid magic number or failed to read.*", "model-corrupt"),
        (r"Failed to create engine.*", _NO_ENGINE),
        (r"Failed to run litert_lm: .*|An error occurred during benchmarking", "benchmark-failed"),
    )
)


@dataclass(slots=True)
class _Turns:
    """The turns of one phase in one repetition: how many, tokens and microseconds together."""

    count: int = 0
    tokens: int = 0
    time_us: float = 0.0


@dataclass(slots=True)
class Repetition:
    """One prompt and its answer."""

    turns: dict[str, _Turns] = field(default_factory=lambda: {phase: _Turns() for phase in PHASES})
    #: The sum of the init phases; the same in all repetitions of an engine.
    init_us: float | None = None
    first_token_us: float | None = None
    #: Whether a rule was printed before the results, or a log's header names their source:
    #: a model's answer may look like results.
    has_rule: bool = False
    #: When it was printed, in seconds since midnight.
    at_s: float | None = None

    def add(self, phase: str, tokens: int, time_us: float) -> None:
        """Add a turn of a phase."""
        turns = self.turns[phase]
        turns.count += 1
        turns.tokens += tokens
        turns.time_us += time_us


@dataclass(slots=True)
class Process:
    """The output of one process."""

    is_command: bool = False
    #: All headings that it stands below in a text of unknown origin.
    heading: str = ""
    model: str = ""
    backend: str = ""
    #: The requested numbers of tokens, by the names of a case's flags.
    asked: dict[str, int] = field(default_factory=dict)
    cache: str = ""
    #: Whether a smaller model guesses tokens ahead; "auto": the model's default.
    speculative: str = ""
    repetitions: list[Repetition] = field(default_factory=list)
    #: The command's results: tokens per second by phase, and seconds.
    speeds: dict[str, float] = field(default_factory=dict)
    command_init_us: float | None = None
    first_token_us: float | None = None
    peak_mib: float | None = None
    private_mib: float | None = None
    #: Buffers of the GPU or NPU, which are in neither of the others.
    dmabuf_mib: float | None = None
    #: How many of its first repetitions only warm up; None: the first of several, as the program
    #: warms nothing up.
    warmups: int | None = None
    #: Differences between its files and its text.
    disagreements: tuple[str, ...] = ()
    #: The lines that show where it ran, each once.
    lines: list[str] = field(default_factory=list)
    #: Whether another program printed between its lines: which of the two ran where isn't known.
    is_mixed: bool = False
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def init_us(self) -> float | None:
        """How long its engine took to start."""
        return next((item.init_us for item in self.repetitions if item.init_us), None)

    @property
    def shares(self) -> list[tuple[DelegateShare, str]]:
        """What delegates took of the graphs, and the name of each graph."""
        shares = (_share_in(line) for line in self.lines)
        return list(dict.fromkeys(share for share in shares if share is not None))

    @property
    def gpu_api(self) -> str:
        """The interface to the GPU, as the last line names it."""
        matches = [match for line in self.lines if (match := GPU_API.search(line))]
        return matches[-1]["api"] or matches[-1]["name"] if matches else ""

    def says(self, words: str) -> bool:
        """Whether a line that shows where it ran has these words."""
        return any(words in line for line in self.lines)

    @property
    def is_litert_lm(self) -> bool:
        """Whether anything shows that this is LiteRT-LM's output, not only its runtime's."""
        evidence = self.repetitions or self.failures.keys() & {"context-too-small", _NO_ENGINE}
        return self.is_command or bool(evidence)

    @property
    def is_unfinished(self) -> bool:
        """Whether only a part of its results was printed."""
        if self.is_command:
            return not (self.failures or len(self.speeds) == len(PHASES))
        return any(
            not all(turn.count for turn in repetition.turns.values())
            for repetition in self.repetitions[-1:]
        )


class Part(enum.Enum):
    """What of a process the lines are of."""

    #: All else: its start, its evidence, the command's results.
    PROCESS = enum.auto()
    #: The results of a repetition, the last one.
    REPETITION = enum.auto()
    #: The median of all repetitions, the first one included, with the same labels.
    MEDIAN = enum.auto()


class LitertLmReader:
    """Reads lines and collects what the processes among them printed; ``_FORMS``, below, is the
    table of the lines.
    """

    def __init__(self, *, is_known: bool = False) -> None:
        """Begin with no process; ``is_known``: whose output it is, so that a failure alone is one
        of its processes.
        """
        self._is_known = is_known
        self.processes: list[Process] = []
        self._current = Process()
        self._part = Part.PROCESS
        self._heading = ""
        #: The header of the program's own log before the line.
        self._header: re.Match[str] | None = None

    def feed(self, line: Line) -> None:
        """Take one line."""
        if line.is_heading or line.heading != self._heading:
            self._take_heading(line.heading)
        self._header = _GLOG.search(line.raw)
        text = _GLOG.sub("", line.raw, count=1).strip()
        for form in _FORMS:
            if form.counts(self) and (values := form.find(text)) is not None:
                if form.begins(self):
                    self._close()
                form.take(self, values)
                return

    def end(self) -> list[Process]:
        """Return the processes that printed something of LiteRT-LM."""
        self._close()
        return self.processes

    def is_of_command(self) -> bool:
        """Whether the process is the command's."""
        return self._current.is_command

    def is_in_repetition(self) -> bool:
        """Whether the lines are of a repetition's results."""
        return self._part is Part.REPETITION

    def may_be_in_repetition(self) -> bool:
        """Whether they may be, as the results' heading may not have been copied."""
        is_at_start = self._part is Part.PROCESS and not self._current.repetitions
        return self.is_in_repetition() or (is_at_start and not self._current.is_command)

    def may_be_first_token(self) -> bool:
        """Whether a time to the first token may be printed here: once by the command too."""
        return self.is_of_command() or self.may_be_in_repetition()

    def is_past_start(self) -> bool:
        """Whether the process has a result or a failure, so that a start is another's."""
        return not self._is_known and bool(self._current.repetitions or self._current.failures)

    def has_results(self) -> bool:
        """Whether the process has its results: an engine is made once, before them."""
        current = self._current
        return bool(current.repetitions) and not (current.is_command or current.is_unfinished)

    def is_finished(self) -> bool:
        """Whether no result of the process is missing."""
        return not self._current.is_unfinished

    @property
    def _repetition(self) -> Repetition:
        if self._part is not Part.REPETITION:
            self._begin_repetition()
        return self._current.repetitions[-1]

    def _begin_repetition(self, at_s: float | None = None) -> None:
        self._part = Part.REPETITION
        self._current.repetitions.append(Repetition(at_s=at_s, has_rule=at_s is not None))

    def _take_heading(self, heading: str) -> None:
        current, self._heading = self._current, heading
        if self.has_results() and not current.init_us:
            # Other processes are told apart by their init times.
            self._close()
        elif not (current.model or current.lines or current.is_litert_lm):
            # Below the first line of a process, a model's answer may have headings.
            current.heading = heading

    def _take_other_program(self, _: re.Match[str]) -> None:
        # Lines before it are that program's too, except results that aren't complete yet.
        self._current.is_mixed = self._current.is_mixed or self._current.is_unfinished

    def _take_command(self, match: re.Match[str]) -> None:
        self._current = Process(is_command=True, heading=self._heading, model=match["name"])

    def _take_start(self, match: re.Match[str]) -> None:
        current = self._current
        current.model = match["model"] or current.model
        current.backend = (match["backend"] or current.backend).lower()

    def _take_info(self, _: re.Match[str]) -> None:
        at_s = None
        if (time := self._header) is not None:
            at_s = 3600 * int(time["h"]) + 60 * int(time["m"]) + float(time["s"])
        self._begin_repetition(at_s)

    def _take_command_results(self, _: re.Match[str]) -> None:
        self._part = Part.PROCESS

    def _take_median(self, _: re.Match[str]) -> None:
        self._part = Part.MEDIAN

    def _take_evidence(self, text: str) -> None:
        lines = self._current.lines
        if text not in lines and len(lines) < _MOST_LINES:
            lines.append(text)

    def _take_failure(self, failure: tuple[str, str]) -> None:
        self._current.failures.setdefault(*failure)

    def _take_peak(self, match: re.Match[str]) -> None:
        name = {"p": "private_mib", "D": "dmabuf_mib"}.get(match["what"][0], "peak_mib")
        setattr(self._current, name, float(match["mb"]))

    def _take_setting(self, match: re.Match[str]) -> None:
        current, name, value = self._current, match["name"], match["value"]
        if name == "Backend":
            current.backend = value.lower()
        elif name == "Cache":
            current.cache = value
        elif name == "Speculative decoding":
            current.speculative = value
        elif value.isdecimal():
            current.asked[_FLAGS[name.rpartition(" ")[2]]] = int(value)

    def _take_speed(self, match: re.Match[str]) -> None:
        phase, speed = match["phase"].lower(), float(match["speed"])
        if self._current.speeds.get(phase, speed) != speed:
            # Of another process, whose settings weren't copied.
            self._close()
            self._current.is_command = True
        self._current.speeds[phase] = speed

    def _take_command_init(self, match: re.Match[str]) -> None:
        self._current.command_init_us = float(match["s"]) * US_PER_S

    def _take_turn(self, match: re.Match[str]) -> None:
        self._repetition.add(
            match["phase"].lower(), int(match["tokens"]), duration_us(match["time"])
        )

    def _take_first_token(self, match: re.Match[str]) -> None:
        first_token_us = float(match["s"]) * US_PER_S
        if self._current.is_command and self._part is not Part.REPETITION:
            self._current.first_token_us = first_token_us
            return
        if self._repetition.first_token_us is not None and not self._current.is_command:
            # Each repetition has one such line.
            self._begin_repetition()
        self._repetition.first_token_us = first_token_us

    def _take_init(self, match: re.Match[str]) -> None:
        current, repetition = self._current, self._repetition
        repetition.init_us = repetition.init_us or float(match["ms"]) * US_PER_MS
        if self._is_known or len({each.init_us for each in current.repetitions} - {None}) < 2:
            return
        # An engine is made once a process, so that this repetition is another one's.
        del current.repetitions[-1]
        # The last GPU line may be the new process's.
        current.is_mixed = current.is_mixed or bool(current.gpu_api)
        self._close()
        self._part = Part.REPETITION
        self._current.repetitions.append(repetition)

    def _take_rule(self, _: re.Match[str]) -> None:
        self._repetition.has_rule = True

    def _close(self) -> None:
        if self._current.is_mixed:
            self._current.lines = []
        if self._current.is_litert_lm or (self._is_known and self._current.failures):
            self.processes.append(self._current)
        self._current, self._part = Process(heading=self._heading), Part.PROCESS


def _share_in(text: str) -> tuple[DelegateShare, str] | None:
    """Return the share of a delegate and its graph; None for any other line."""
    return share_in(text[text.index("Replacing") :]) if "Replacing" in text else None


def _delegate_in(text: str) -> str | None:
    """Return a line about a delegate of an engine, which is made before its results."""
    return text if _ON_CPU in text or _share_in(text) is not None else None


def _gpu_in(text: str) -> str | None:
    """Return a line about the GPU or its sampler."""
    return text if _SAMPLES_ON_CPU in text or GPU_API.search(text) else None


def _failure_in(text: str) -> tuple[str, str] | None:
    """Return the code of a failure and its sentence, None for any other line."""
    for pattern, code in _FAILURES:
        if match := pattern.search(text):
            return code, match[0][:300]
    return None


@dataclass(frozen=True, slots=True)
class _Form:
    """A form of line."""

    #: Returns the line's values, None for a line of another form.
    find: Callable[[str], Any]
    take: Callable[[LitertLmReader, Any], None]
    #: Whether it begins another process than the open one.
    begins: Callable[[LitertLmReader], bool] = lambda reader: False
    #: Whether it means something where it is.
    counts: Callable[[LitertLmReader], bool] = lambda reader: True


#: The lines in the order in which they are tried.
_FORMS: Final = (
    _Form(
        _OTHER_PROGRAMS.match,
        LitertLmReader._take_other_program,
        begins=LitertLmReader.is_finished,
    ),
    _Form(_COMMAND.match, LitertLmReader._take_command, begins=lambda reader: True),
    _Form(_START.match, LitertLmReader._take_start, begins=LitertLmReader.is_past_start),
    _Form(_INFO.match, LitertLmReader._take_info),
    _Form(_COMMAND_RESULTS.match, LitertLmReader._take_command_results),
    _Form(_AGGREGATED.match, LitertLmReader._take_median),
    # Where it ran.
    _Form(_delegate_in, LitertLmReader._take_evidence, begins=LitertLmReader.has_results),
    _Form(_gpu_in, LitertLmReader._take_evidence),
    _Form(_failure_in, LitertLmReader._take_failure),
    _Form(_PEAK.match, LitertLmReader._take_peak),
    # The command's settings and results.
    _Form(_SETTING.match, LitertLmReader._take_setting, counts=LitertLmReader.is_of_command),
    _Form(_SPEED.match, LitertLmReader._take_speed, counts=LitertLmReader.is_of_command),
    _Form(
        _COMMAND_INIT.match,
        LitertLmReader._take_command_init,
        counts=LitertLmReader.is_of_command,
    ),
    # A repetition's results.
    _Form(
        _TTFT.match,
        LitertLmReader._take_first_token,
        counts=LitertLmReader.may_be_first_token,
    ),
    _Form(
        _TURN.match,
        LitertLmReader._take_turn,
        counts=LitertLmReader.may_be_in_repetition,
    ),
    _Form(_INIT.match, LitertLmReader._take_init, counts=LitertLmReader.is_in_repetition),
    _Form(_RULE.match, LitertLmReader._take_rule, counts=LitertLmReader.is_in_repetition),
)


def processes_in(lines: Iterable[Line], *, is_known: bool = False) -> list[Process]:
    """Return the processes that printed lines; ``is_known`` as for LitertLmReader."""
    reader = LitertLmReader(is_known=is_known)
    for line in lines:
        reader.feed(line)
    return reader.end()


def decode_metrics(data: bytes) -> Process:
    """Decode ``litert.lm.proto.LitertLmMetricsList``: the repetitions of a process, and what was
    asked of it.

    Zero is absent; durations are whole microseconds.

    Raises:
        OutputParseError: the bytes are no such message, or hold no repetition or one that can't be.
    """
    process = Process()
    for metrics in decode_message("LitertLmMetricsList", data).metrics[:_MOST_REPETITIONS]:
        repetition = Repetition(has_rule=True)
        for phase in PHASES:
            for turn in getattr(metrics, f"{phase}_turns"):
                if turn.duration_us < 0 or turn.num_tokens < 0:
                    raise OutputParseError(
                        f"{len(data)} bytes are no LitertLmMetricsList: a turn below zero"
                    )
                repetition.add(phase, turn.num_tokens, float(turn.duration_us))
            if (token_count := getattr(metrics.benchmark_params, f"num_{phase}_tokens")) > 0:
                process.asked[f"{phase}_tokens"] = token_count
        for item in metrics.init_phase_durations_us:
            if item.key == "Init Total" and item.value > 0:
                repetition.init_us = float(item.value)
        process.repetitions.append(repetition)
        # High-water marks of the process: the last ones are the highest.
        process.peak_mib = optional_figure(metrics, "peak_mem_mb") or process.peak_mib
        process.private_mib = optional_figure(metrics, "peak_private_mb") or process.private_mib
        process.dmabuf_mib = optional_figure(metrics, "peak_dmabuf_mb") or process.dmabuf_mib
    if not process.repetitions:
        raise OutputParseError(f"{len(data)} bytes hold no repetition of a LitertLmMetricsList")
    return process


def reports_of(process: Process, *, requested: str = "") -> list[ToolReport]:
    """Return the reports of a process's prefill and decode."""
    return [report_of(process, phase, requested=requested) for phase in PHASES]


def duration_us(text: str) -> float:
    """Return the microseconds of a duration such as ``1m2.5s`` or ``92.41ms``; 0 for ``0``."""
    return sum(
        float(value) * US_OF[unit]
        for value, unit in re.findall(r"(\d[\d.]*)(ms|us|ns|h|m|s)", text)
    )


def report_of(process: Process, phase: str, *, requested: str) -> ToolReport:
    """Return the report of a process's prefill or decode."""
    measured, warmup = _split(process, phase)
    inference = _inference(process, phase, measured)
    extra = _extra(process, phase, measured)
    failure = _failure(process, phase, inference)
    return ToolReport(
        outcome=failure.outcome if failure else "ok",
        failure_code=failure.code if failure else "",
        failure_reason=failure.reason if failure else "",
        label=phase,
        init_us=process.init_us,
        warmup_mean_us=warmup,
        inference_mean_us=inference.mean_us if inference is not None and failure is None else None,
        inference=inference if failure is None else None,
        peak_memory_mib=process.peak_mib,
        delegate=_delegate(process, phase, requested, has_result=failure is None),
        disagreements=_disagreements(process, phase, measured),
        extra=extra,
    )


def _split(process: Process, phase: str) -> tuple[list[_Turns], float | None]:
    """Return the repetitions that count, and the time of a token in those before them."""
    phase_turns = [item.turns[phase] for item in process.repetitions if item.has_rule]
    warmups = int(len(phase_turns) > 1) if process.warmups is None else process.warmups
    before, turns = (
        [item for item in part if item.tokens and item.time_us]
        for part in (phase_turns[:warmups], phase_turns[warmups:])
    )
    return turns, before[-1].time_us / before[-1].tokens if before else None


def _inference(process: Process, phase: str, measured: Sequence[_Turns]) -> LatencySummary | None:
    if measured:
        return figures_of([item.time_us for item in measured], [item.tokens for item in measured])
    speed = process.speeds.get(phase)
    if not speed:
        return None
    return LatencySummary(count=process.asked.get(f"{phase}_tokens"), mean_us=US_PER_S / speed)


def _extra(process: Process, phase: str, measured: Sequence[_Turns]) -> dict[str, float | str]:
    requested_tokens, context = (
        process.asked.get(f"{phase}_tokens"),
        process.asked.get("max_num_tokens"),
    )
    speed = process.speeds.get(phase)
    first_us = next(
        (item.first_token_us for item in process.repetitions if item.first_token_us), None
    )
    derived = _first_token_us(process) or process.first_token_us or first_us
    extra: dict[str, float | str | None] = {
        "unit": "token",
        "heading": process.heading or None,
        "graph": process.model or None,
        "tokens": float(measured[0].tokens if measured else requested_tokens or 0) or None,
        # An answer takes longer after a long prompt.
        "prompt_tokens": float(_prompt_tokens(process)) or None if phase == "decode" else None,
        "context_tokens": None if context is None else float(context),
        "repetitions_us": " ".join(f"{item.time_us / item.tokens:.6g}" for item in measured)
        or None,
        "derived_first_token_us": derived,
        "printed_init_us": process.command_init_us,
        "private_memory_mib": process.private_mib,
        "dmabuf_memory_mib": process.dmabuf_mib,
        "cache": process.cache or None,
        "speculative_decoding": process.speculative or None,
        # Where only a speed is printed, it has two decimals.
        "resolution_us": SPEED_STEP * US_PER_S / speed**2 if speed and not measured else None,
        "sampled_on_cpu": "yes" if phase == "decode" and process.says(_SAMPLES_ON_CPU) else None,
    }
    return {name: value for name, value in extra.items() if value is not None}


def _prompt_tokens(process: Process) -> int:
    measured, _ = _split(process, "prefill")
    return measured[0].tokens if measured else process.asked.get("prefill_tokens", 0)


def _first_token_us(process: Process) -> float | None:
    """Return the prompt's time and the mean time of a token of the last answer, as the program
    computes it.
    """
    turns = process.repetitions[-1].turns if process.repetitions else {}
    if not turns or not turns["prefill"].time_us or not turns["decode"].tokens:
        return None
    return turns["prefill"].time_us + turns["decode"].time_us / turns["decode"].tokens


def _failure(process: Process, phase: str, inference: LatencySummary | None) -> Failure | None:
    for _, code in _FAILURES:
        if code in process.failures:
            own_code = code or _NO_ENGINE_CODES.get(process.backend, "benchmark-failed")
            return Failure(code=own_code, reason=process.failures[code])
    if inference is not None:
        return None
    if process.speeds.get(phase) == 0:
        reason = f"the program printed a {phase} speed of 0.00 tokens/s: no {phase} ran"
        return Failure(code="no-inferences", reason=reason)
    if process.repetitions:
        return Failure(code="no-inferences", reason=f"no {phase} turn is in the results")
    return Failure(code="no-result", reason="no results were printed")


def _disagreements(process: Process, phase: str, measured: Sequence[_Turns]) -> tuple[str, ...]:
    disagreements = list(process.disagreements)
    requested_tokens = process.asked.get(f"{phase}_tokens")
    missing = sum(
        not (item.turns[phase].tokens and item.turns[phase].time_us) for item in process.repetitions
    )
    if missing and measured:
        disagreements.append(f"{missing} of {len(process.repetitions)} repetitions have no {phase}")
    if requested_tokens and (
        other_counts := [item.tokens for item in measured if item.tokens != requested_tokens]
    ):
        disagreements.append(
            f"{phase} was of {other_counts[0]} tokens, {requested_tokens} were requested: the figure is for another context"
        )
    if turn_counts := [item.count for item in measured if item.count > 1]:
        disagreements.append(
            f"{turn_counts[0]} {phase} turns in one repetition: the figure isn't comparable with that of one turn"
        )
    context = process.asked.get("max_num_tokens")
    total_tokens = sum(process.asked.get(f"{name}_tokens", 0) for name in PHASES)
    if phase == "decode" and not measured and context and total_tokens > context:
        disagreements.append(
            f"{total_tokens} tokens were requested in a context of {context}: the answer was cut short"
        )
    return tuple(disagreements)


def _family(share: DelegateShare) -> str:
    """Return the delegate that a share is of; this program calls Metal its GPU."""
    name = family(share.delegate)
    return "gpu" if name == "metal" else name


def _share(process: Process, phase: str, delegate: str) -> DelegateShare | None:
    """Return a delegate's share of a phase's graph, the smallest where there are several; None
    where no line reports one.

    Other models in the bundle have graphs such as ``decode_mask`` and ``prefill_embedder_128``,
    which don't count. A share without a graph's name may be of any graph.
    """
    shares = [each for each in process.shares if _family(each[0]) == delegate]
    phase_shares = [
        share for share, signature in shares if re.fullmatch(rf"{phase}(?:_\d+)?", signature)
    ]
    return min(
        phase_shares or [share for share, signature in shares if not signature],
        key=lambda share: share.delegated_nodes / (share.total_nodes or math.inf),
        default=None,
    )


def _delegate(
    process: Process, phase: str, requested: str, *, has_result: bool
) -> DelegateEvidence:
    expected = requested or _BACKENDS.get(process.backend, process.backend)
    delegates = {_family(share) for share, _ in process.shares}
    if process.gpu_api:
        delegates.add("gpu")
    if process.says(_ON_CPU):
        delegates.add("xnnpack")
    # A sampler may run on the GPU beside the NPU.
    actual = next((name for name in (expected, "gpu", "npu", "xnnpack") if name in delegates), "")
    phase_share = _share(process, phase, expected or actual)
    nodes, total = (
        (phase_share.delegated_nodes, phase_share.total_nodes)
        if phase_share is not None
        else (None, None)
    )
    # A backend that can't be had is an error of this program; without the nodes it isn't known how
    # much it took.
    truth = extent_of(expected, actual, nodes, total)
    if not has_result and not actual and expected in {"gpu", "npu"}:
        truth = DelegateTruth.FAILED
    return DelegateEvidence(
        requested=expected,
        actual=actual,
        truth=truth,
        delegated_nodes=nodes,
        total_nodes=total,
        partitions=phase_share.partitions if phase_share is not None else None,
        backend=process.gpu_api.lower(),
        lines=tuple(process.lines[:20]),
        shares=tuple(share for share, _ in process.shares),
    )
