"""Parses one line of output: the program's text, the header that a log puts in front, and the
figures in it.

A program's own line is ``INFO: msg`` (since about 2023) or ``msg``; the phone's log, as benchfarm
has it written, puts ``06-18 10:20:41.572 4669 4669 I tflite  : `` before it. Other formats are in
``extensions/interop/texts/pasted.py``. Latencies come back in microseconds whatever unit the line
uses; a figure that isn't printed is None.
"""

from __future__ import annotations

import math
import mmap
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.records.run import LatencySummary
from orchestrator.units import US_PER_MS, US_PER_S, parse_number

#: Logcat tags of the benchmark programs and of the runtime below them.
OUR_TAGS: Final = frozenset(
    {"tflite", "litert", "tflite_BenchmarkModelActivity", "TfLiteBenchmarkLatency"}
)
#: A line longer than this is no line of a benchmark program; its rest is dropped.
LONGEST_LINE_BYTES: Final = 65_536

_BLOCK_BYTES: Final = 1 << 15

DATE: Final = r"(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d"
SECONDS: Final = r"\d{1,12}\.\d{3,9}"
_THREADTIME: Final = re.compile(
    rf"\s*(?:{DATE}\.\d{{3,9}}(?: [+-]\d{{4}})?|{SECONDS})\s+(?:[a-z_]\w*\s+|\d+\s+(?=\d+\s+\d+ ))?"
    r"(?P<pid>\d{1,9})\s+\d{1,9} (?P<severity>[VDIWEFAS]) (?P<tag>[^\s:][^:]*?)\s*:(?: (?P<text>.*))?$",
    re.ASCII | re.DOTALL,
)
_DIGITS: Final = frozenset("0123456789")
#: A terminal's colour.
COLOUR: Final = re.compile(r"\x1b\[[\d;]{0,20}[A-Za-z]", re.ASCII)
_SEVERITY: Final = re.compile(
    r"(?P<severity>INFO|WARN|WARNING|ERROR|FATAL|VERBOSE|DEBUG): ?(?P<text>.*)$", re.DOTALL
)
#: The name of litert-benchmark's log, which stands for its source file.
LITERT_BENCHMARK: Final = "benchmark_litert_model"
_LOGGED: Final = re.compile(
    rf"(?:{DATE} )?(?P<severity>[A-Z]+) {LITERT_BENCHMARK}: (?P<text>.*)$", re.DOTALL
)
_SOURCE_FILE: Final = re.compile(
    r"\[(?:[A-Za-z]:)?(?P<file>[\w./\\ +-]+\.(?:cc|h|cpp|mm)):\d+\] ?(?P<text>.*)$", re.DOTALL
)
LAST_WORD: Final = re.compile(r"[^\s,]*$")
#: Ends of a line after which nothing of its last word can be missing.
_WHOLE_END: Final = re.compile(r"(?:[)\]|=!*]|[A-Za-z]\.|\d ?(?:[mu]s|MB(?:/s)?))$", re.ASCII)

#: A line of another part of the phone, in the formats of long logs, with a tag that isn't ours and
#: that has no lines about a process's end.
_NOT_OURS: Final = r"(?!tf|TfLite|lit|libc|DEBUG|Android|low|lmkd|Activity|ExecutionPlan)"
_FOREIGN_LINE: Final = (
    rf"(?:\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}} (?: *\d+ +\d+ [VDIWEFAS] {_NOT_OURS}\w|[VDIWEFAS]/{_NOT_OURS}\w)"
    rf"|[VDIWEFAS]/{_NOT_OURS}[^\n(]{{1,80}}\()[^\n]*"
)
_FOREIGN_LINES: Final = re.compile(rf"\n{_FOREIGN_LINE}(?:\n{_FOREIGN_LINE})*(?=\n)".encode())

#: Bytes that can be searched without being copied.
Buffer = bytes | mmap.mmap
#: What tells the lines of one process from another's.
ProcessName = int | str | None


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading in an output of unknown origin; one ends those of its level and below."""

    level: int
    title: str


@dataclass(slots=True)
class Line:
    """One line without a log's header."""

    #: The unchanged line without its end and without a logcat or NSLog header.
    raw: str
    #: The program's text: ``raw`` without indentation, comment mark, severity and source file.
    text: str
    #: First letter of the severity ("I", "W", "E", "F", "V", "D"), empty when none is named.
    severity: str = ""
    #: "console", "logcat" or "nslog".
    style: str = "console"
    tag: str = ""
    pid: int | None = None
    #: The text before ``raw`` in an output of unknown origin.
    header: str = ""
    #: The process or container named before it, "" for none.
    stream: str = ""
    #: The bullet or number of a list's item before it, "" for none.
    item: str = ""
    #: Source file that a LiteRT line names, for example ``dispatch_delegate.cc``.
    source_file: str = ""
    #: The last word of a line that was cut off; it isn't part of ``text``: a figure in it may lack
    #: digits.
    cut_word: str = ""
    #: Whether the text ended here without a line end.
    is_cut: bool = False
    #: The headings that it stands below in an output of unknown origin, the outermost first; and
    #: whether it is the last of them.
    headings: tuple[Heading, ...] = ()
    is_heading: bool = False

    @property
    def heading(self) -> str:
        """All headings that it stands below."""
        return " / ".join(heading.title for heading in self.headings)

    @property
    def whole(self) -> str:
        """The text with its last word, also where that was cut off."""
        return f"{self.text} {self.cut_word}" if self.cut_word else self.text

    @property
    def process(self) -> ProcessName:
        """The process: its number in a phone's log, elsewhere its name, None where neither is there."""
        return self.pid if self.style == "logcat" else self.stream or None

    @property
    def is_foreign(self) -> bool:
        """Whether the line was logged by another part of the system."""
        return self.style == "logcat" and self.tag not in OUR_TAGS


def threadtime_header(line_text: str) -> Line | None:
    """Return a line without the header of ``logcat -v threadtime``; None where it has none."""
    if line_text.lstrip()[:1] not in _DIGITS or (match := _THREADTIME.match(line_text)) is None:
        return None
    text = match["text"] or ""
    return Line(
        raw=text,
        text=text,
        severity=match["severity"],
        style="logcat",
        tag=match["tag"].strip(),
        pid=int(match["pid"]),
    )


def parse_decoded(
    line_text: str, *, cut: bool = False, header: Callable[[str], Line | None] = threadtime_header
) -> Line:
    """Parse one line; ``cut``: it has no line end, so that its last word may be incomplete;
    ``header`` removes a log's header.
    """
    line_text = line_text.rstrip("\r\n\0")
    if "\x1b" in line_text:
        line_text = COLOUR.sub("", line_text)
    line = header(line_text) or Line(line_text, line_text)
    stripped = _plain(line) if line.style == "console" else line.text.lstrip()
    if stripped.startswith("[") and (match := _SOURCE_FILE.match(stripped)):
        line.source_file = match["file"].replace("\\", "/").rpartition("/")[2]
        stripped = match["text"].lstrip()
    if cut:
        line.is_cut = True
        word = LAST_WORD.search(stripped)
        if word and word[0] and not _WHOLE_END.search(stripped):
            line.cut_word = word[0]
            stripped = stripped[: word.start()]
    line.text = stripped.rstrip()
    return line


def _plain(line: Line) -> str:
    """Return a console's line without indentation and its severity, which is kept."""
    text = line.text.lstrip()
    match = _SEVERITY.match(text)
    if match is None and f" {LITERT_BENCHMARK}: " in text:
        match = _LOGGED.match(text)
        line.source_file = LITERT_BENCHMARK if match is not None else ""
    if match is not None:
        line.severity = match["severity"][0]
        text = match["text"]
    return text


def program_lines(buffer: Buffer) -> Iterator[Line]:
    """Yield the lines of a program's output, without a log's ``threadtime`` headers.

    If the buffer ends without a line end, its last line was cut off.
    """
    for block in iterate_blocks(buffer):
        *texts, last = block.decode("utf-8", "replace").split("\n")
        yield from map(parse_decoded, texts)
        if last:
            yield parse_decoded(last, cut=True)


def iterate_blocks(buffer: Buffer) -> Iterator[bytes]:
    """Yield the text in blocks of whole lines, about ``_BLOCK_BYTES`` each.

    A longer line is a block of its own, and what is beyond ``LONGEST_LINE_BYTES`` of it is dropped.
    """
    start, size = 0, len(buffer)
    while start < size:
        end = buffer.rfind(b"\n", start, min(size, start + _BLOCK_BYTES)) + 1
        if end <= start or start + _BLOCK_BYTES >= size:
            end = size if start + _BLOCK_BYTES >= size else buffer.find(b"\n", start) + 1 or size
        if end - start <= LONGEST_LINE_BYTES:
            yield buffer[start:end]
        else:
            yield buffer[start : start + LONGEST_LINE_BYTES] + (
                b"\n" if buffer[end - 1 : end] == b"\n" else b""
            )
        start = end


def without_foreign(block: bytes) -> bytes:
    """Return a block without a log's lines that aren't about a benchmark or its end."""
    # SELinux's denials are logged under the tag of the denied process.
    return block if b"denied" in block else _FOREIGN_LINES.sub(b"", b"\n" + block)[1:]


#: Microseconds of a unit, as programs print them.
US_OF: Final[Mapping[str, float]] = {
    "h": 3600 * US_PER_S,
    "m": 60 * US_PER_S,
    "s": US_PER_S,
    "ms": US_PER_MS,
    "us": 1.0,
    "microseconds": 1.0,
    "ns": 1e-3,
}
NUMBER: Final = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?|nan|inf)"

#: Separators of other locales in figures, which then aren't read: of thousands, or a decimal comma.
#: A comma before a blank is the program's own; a blank separates only before three digits.
_SEPARATED: Final = r"(?:[,'\u2019]\d| \d{3}(?![\d:-]))"

_STATS: Final = re.compile(
    rf"count=(?P<count>\d{{1,18}})(?![\d.]|{_SEPARATED})(?P<rest>(?:\s+\w{{1,16}}={NUMBER}(?:\(all same\))?)*)",
    re.ASCII,
)
_STAT: Final = re.compile(rf"(\w{{1,16}})=({NUMBER})(?![\d.eE-]|{_SEPARATED})", re.ASCII)
_TIMINGS: Final = re.compile(r"(?:Average i|I)nference timings in us: (?P<rest>.*)$", re.DOTALL)
_TIMING: Final = re.compile(
    rf"([A-Z][a-z]*(?: inference)?(?: \(avg\))?|no stats): ({NUMBER})(?![\w.-]|{_SEPARATED})",
    re.ASCII,
)
_MEMORY: Final = re.compile(
    r"(?:Memory footprint delta from the start of the tool|Peak memory footprint) \(MB\): (?P<rest>.*)$",
    re.DOTALL,
)
_AMOUNT: Final = re.compile(
    rf"(?P<number>{NUMBER})\s*(?P<unit>us|microseconds|ms|s|MB/s|MB)?(?![\w/.])(?:\s*\((?P<runs>\d{{1,18}}) runs\))?",
    re.ASCII,
)

#: Lines of the LiteRT banner and of abbreviated pastes, by their label, and the key each is kept
#: under.
BANNER_KEYS: Final[Mapping[str, str]] = {
    "Model initialization": "init",
    "Warmup (first)": "warmup_first",
    "Warmup (avg)": "warmup_avg",
    "Inference (avg)": "inference_avg",
    "Inference (min)": "inference_min",
    "Inference (max)": "inference_max",
    "Inference (std)": "inference_std",
    "Inference (median)": "inference_median",
    "Inference (p5)": "inference_p5",
    "Inference (p95)": "inference_p95",
    "Throughput": "throughput_mb_s",
    "Init footprint": "init_footprint_mb",
    "Overall footprint": "overall_footprint_mb",
    "Peak memory": "peak_memory_mb",
}
_MEMORY_KEYS: Final = frozenset(
    {"throughput_mb_s", "init_footprint_mb", "overall_footprint_mb", "peak_memory_mb"}
)
#: Of the smallest pages that phones have; larger ones are multiples of them.
_PAGES_PER_MIB: Final = 256
_STAT_FIELDS: Final[Mapping[str, str]] = {
    "first": "first_us",
    "curr": "current_us",
    "min": "min_us",
    "max": "max_us",
    "avg": "mean_us",
    "std": "std_us",
    "p5": "p5_us",
    "median": "median_us",
    "p95": "p95_us",
}


def has_all_digits(figure: str, *, may_have_power: bool = True) -> bool:
    """Whether a figure is complete: the programs print at most six significant digits, and from a
    million on a power.

    One digit before the point may be the beginning of a power.
    """
    if "e" in figure:
        return re.search(r"e[+-]\d\d$", figure, re.ASCII) is not None
    integer_part, point, rest = figure.partition(".")
    digits = f"{integer_part}{rest}".lstrip("0")
    return (
        len(digits) == 6
        and digits.isdigit()
        and bool(point)
        and (len(integer_part) > 1 or integer_part == "0" or not may_have_power)
    )


def parse_stats(
    text: str, *, has_percentiles: bool = False, is_cut: bool = False
) -> LatencySummary | None:
    """Read ``count=50 first=.. curr=.. min=.. max=.. avg=.. std=.. [p5=.. median=.. p95=..]`` at
    the text's start.

    A single sample (``count=1 curr=X``) and equal samples (``count=2 curr=X(all same)``) print
    nothing but ``curr``: first, min, max and mean are that value then, and the deviation is 0. Of a
    line that isn't whole the last figure is left out, for it may lack digits. ``has_percentiles``
    says that this program's other lines end in percentiles, ``is_cut`` that the text ends after the
    line.
    """
    match = _STATS.match(text)
    if not match:
        return None
    count = int(match["count"])
    # The next characters show whether the last figure ends here.
    pairs = _STAT.findall(f"{match['rest']}{text[match.end() : match.end() + 5]}")
    if is_cut and pairs and not has_all_digits(pairs[-1][1]):
        del pairs[-1]
    elif not _is_complete(count, [name for name, _ in pairs], has_percentiles=has_percentiles):
        if not pairs:
            return None
        del pairs[-1]
    values: dict[str, float | None] = {}
    for name, figure in pairs:
        if name in _STAT_FIELDS:
            values.setdefault(_STAT_FIELDS[name], parse_number(figure))
    median, p95 = values.get("median_us"), values.get("p95_us")
    if median is not None and p95 is not None and p95 < median:
        values["p95_us"] = None
    current = values.get("current_us")
    is_single = count == 1 or "(all same)" in match["rest"]
    if is_single and current is not None and "mean_us" not in values:
        values = {
            "first_us": current,
            "min_us": current,
            "max_us": current,
            "mean_us": current,
            "std_us": 0.0,
            **values,
        }
    return LatencySummary(count=count, **values)


def _is_complete(count: int, names: Sequence[str], *, has_percentiles: bool) -> bool:
    """Whether a statistics line is complete: with deviation and mean, or with one value, or with
    none.
    """
    if "p5" in names or has_percentiles:
        return "p95" in names
    return "std" in names or list(names) == ["curr"] or (not names and count == 0)


def parse_timings(text: str) -> dict[str, float] | None:
    """Read ``Inference timings in us: ...`` of any year; keys ``init``, ``first``, ``warmup``,
    ``inference``.

    The last figure of a line without the inference's is left out: the line was cut, and the figure
    may lack digits.
    """
    match = _TIMINGS.match(text)
    if not match:
        return None
    names = {
        "Init": "init",
        "First inference": "first",
        "Warmup (avg)": "warmup",
        "Warmup": "warmup",
        "Inference (avg)": "inference",
        "Inference": "inference",
        "no stats": "inference",
    }
    timings: dict[str, float] = {}
    for name, figure in _TIMING.findall(match["rest"]):
        value = parse_number(figure)
        if name in names and value is not None and value >= 0:
            timings.setdefault(names[name], value)
    if timings and "inference" not in timings:
        timings.popitem()
    return timings


def parse_memory(text: str, *, is_cut: bool = False) -> dict[str, float] | None:
    """Read the memory line; keys ``init`` and ``overall``, in units of 2**20 bytes.

    Both are high-water marks, so that an overall below what the start needed was cut, as was a
    start without one. ``is_cut``: the text ends after the line.
    """
    match = _MEMORY.match(text)
    if not match:
        return None
    amounts = {name: parse_footprint(figure) for name, figure in _STAT.findall(match["rest"])}
    init, overall = amounts.get("init"), amounts.get("overall")
    if init is None or "overall" not in amounts:
        return {}
    is_part = is_cut and not has_all_digits(text.rpartition("=")[2], may_have_power=False)
    return (
        {"init": init}
        if overall is None or overall < init or is_part
        else {"init": init, "overall": overall}
    )


def parse_footprint(figure: str) -> float | None:
    """Return a memory figure in units of 2**20 bytes, None for one that was cut inside.

    The kernel counts in pages and the programs print six digits, so that few figures with less
    digits are possible.
    """
    value = parse_number(figure)
    if value is None or figure.endswith("."):
        return None
    return (
        value if float(f"{round(value * _PAGES_PER_MIB) / _PAGES_PER_MIB:.6g}") == value else None
    )


def parse_banner(text: str) -> tuple[str, float, int | None] | None:
    """Read a line of the LiteRT banner: its key, the figure (microseconds or MB) and the number of
    runs it names.
    """
    label, colon, rest = text.partition(":")
    key = BANNER_KEYS.get(label)
    if key is None or not colon:
        return None
    match = _AMOUNT.fullmatch(rest.strip())
    value = parse_number(match["number"]) if match else None
    if match is None or value is None:
        return None
    if match["unit"] is None and key != "inference_std":
        # Without its unit the line was cut, and the figure may lack digits.
        return None
    if key not in _MEMORY_KEYS:
        value = to_us(value, match["unit"] or "ms")
    return key, value, int(match["runs"]) if match["runs"] else None


def to_us(value: float, unit: str) -> float:
    """Return a latency in microseconds; without a known unit it is in microseconds."""
    return as_printed(value * US_OF.get(unit, 1.0))


def as_printed(value: float) -> float:
    """Return a figure without the noise of binary fractions: what was printed has few digits."""
    return float(f"{value:.12g}")


def mean_as_printed(summary: LatencySummary) -> str:
    """Return the mean the way the programs print it: six significant digits, exponent from a
    million up.
    """
    return "" if summary.mean_us is None else f"{summary.mean_us:.6g}"


def figures_of(times_us: Sequence[float], counts: Sequence[int]) -> LatencySummary:
    """Return the time of one inference or token in blocks of them, by each block's time and number.

    The mean is the time of all by their number, of tokens the harmonic mean of the speeds.
    """
    each_us = [time_us / count for time_us, count in zip(times_us, counts, strict=True)]
    return LatencySummary(
        count=sum(counts),
        first_us=each_us[0],
        current_us=each_us[-1],
        min_us=min(each_us),
        max_us=max(each_us),
        mean_us=math.fsum(times_us) / sum(counts),
        std_us=statistics.stdev(each_us) if len(each_us) > 1 else None,
    )


#: The line above each of a profile's three tables.
TABLE_TITLE: Final = re.compile(r"=+ (Run Order|Top by Computation Time|Summary by node type) =+")
