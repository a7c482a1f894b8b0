"""Trace files of both tracers as begins and ends of slices.

perfetto's files are read with the messages of the ``perfetto`` package (the extra ``trace``). Its
TraceProcessor isn't used: it downloads a program at its first use, and slices need none of it.
atrace (systrace) prints text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orchestrator.errors import OutputParseError
from orchestrator.installation import require_packages
from orchestrator.records.run import ATRACE_FILE, PERFETTO_FILE

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TraceStats

#: ``TASK-PID (TGID) [CPU] flags SECONDS: tracing_mark_write: TEXT``; a task's name may hold
#: anything.
_LINE: Final = re.compile(
    r"\s*(?P<task>.{1,32}?)-(?P<pid>\d{1,9})\s+(?:\(\s*(?P<tgid>\d{1,9}|-+)\)\s+)?\[\d{1,4}\]\s+(?:\S{1,8}\s+)?"
    r"(?P<s>\d{1,12})\.(?P<us>\d{6}):\s+(?:tracing_mark_write|print):\s+(?P<text>.*)",
    re.ASCII,
)
_ENTRIES: Final = re.compile(
    r"#\s*entries-in-buffer/entries-written: (\d{1,18})/(\d{1,18})", re.ASCII
)
_LOST: Final = re.compile(r"CPU:\s*\d{1,4} \[LOST (?:(\d{1,18}) )?EVENTS\]", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A slice's begin or end, as one thread wrote it."""

    at_ns: int
    thread: int
    process: int
    #: The slice's name; None for an end.
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a trace file holds of slices."""

    marks: tuple[Mark, ...]
    #: Process -> its command line, or the kernel's short name for it.
    processes: Mapping[int, str] = field(default_factory=dict)
    #: Events that the phone had no room for; a summary of such a trace is incomplete.
    lost_events: int = 0
    #: Further reasons why it is incomplete, as sentences.
    gaps: tuple[str, ...] = ()


def trace_names(names: Iterable[str]) -> list[str]:
    """Return those of a run's attachments that are a trace."""
    return [name for name in names if name in {PERFETTO_FILE, ATRACE_FILE}]


def read_recording(name: str, data: bytes) -> Recording:
    """Read a traced run's attachment; raises OutputParseError, and MissingPackageError."""
    return _read_perfetto(data) if name == PERFETTO_FILE else _read_atrace(data)


def require_perfetto() -> None:
    """Raise MissingPackageError when the package that reads perfetto's files isn't there."""
    require_packages("reading a trace file (--no-summary records without it)", "perfetto")


def mark_of(text: str, *, at_ns: int, thread: int) -> Mark | None:
    """Return the mark that a line in the kernel's trace marker means, None for another (counters,
    async slices).
    """
    text = text.rstrip("\n")
    kind, _, rest = text.partition("|")
    process, bar, name = rest.partition("|")
    if kind == "B" and bar and process.isdecimal() and process.isascii():
        return Mark(at_ns=at_ns, thread=thread, process=int(process[:18]), name=name)
    if kind == "E":
        return Mark(at_ns=at_ns, thread=thread, process=thread, name=None)
    return None


def _read_atrace(data: bytes) -> Recording:
    text = data.decode("utf-8", "replace")
    if "tracer: nop" not in text[:10_000]:
        raise OutputParseError("this is no text of atrace: it has no line '# tracer: nop'")
    marks: list[Mark] = []
    processes: dict[int, str] = {}
    lost = 0
    gaps: list[str] = []
    # A task's name may hold what else ends a line; the kernel's lines end with a newline only.
    for line in text.split("\n"):
        if line.startswith("#"):
            if entries := _ENTRIES.match(line):
                lost += max(0, int(entries[2]) - int(entries[1]))
        elif match := _LINE.match(line):
            at_ns = (int(match["s"]) * 1_000_000 + int(match["us"])) * 1000
            mark = mark_of(match["text"], at_ns=at_ns, thread=int(match["pid"]))
            if mark is not None:
                marks.append(mark)
                if mark.name is not None and mark.process == mark.thread:
                    processes.setdefault(mark.process, match["task"].strip())
        elif found := _LOST.match(line):
            lost += int(found[1] or 0)
            if not found[1]:
                gaps.append("the kernel says that it lost events, and not how many")
    return Recording(
        marks=tuple(marks), processes=processes, lost_events=lost, gaps=tuple(dict.fromkeys(gaps))
    )


def _read_perfetto(data: bytes) -> Recording:
    require_perfetto()
    from google.protobuf.message import DecodeError
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    try:
        trace.ParseFromString(data)
    except DecodeError as error:
        raise OutputParseError(f"this is no whole perfetto trace: {error}") from error
    if not trace.packet:
        raise OutputParseError("the trace is empty: perfetto was killed before it could write")
    marks: list[Mark] = []
    processes: dict[int, str] = {}
    lost = 0
    gaps: list[str] = []
    for packet in trace.packet:
        for event in packet.ftrace_events.event:
            if event.HasField("print"):
                mark = mark_of(event.print.buf, at_ns=event.timestamp, thread=event.pid)
                marks += [mark] if mark is not None else []
        processes |= {
            process.pid: process.cmdline[0]
            for process in packet.process_tree.processes
            if process.cmdline
        }
        if packet.HasField("ftrace_stats"):
            # What the kernel's buffers report at the start was lost before it.
            stats = packet.ftrace_stats
            own = sum(
                cpu.overrun + cpu.commit_overrun + cpu.dropped_events for cpu in stats.cpu_stats
            )
            lost += -own if stats.phase == stats.START_OF_TRACE else own
        if packet.HasField("trace_stats"):
            gaps += _buffer_gaps(packet.trace_stats)
        if packet.ftrace_events.lost_events:
            gaps.append(f"core {packet.ftrace_events.cpu} lost events between two readings")
        if packet.compressed_packets:
            gaps.append("it holds compressed packets, which aren't read here")
    return Recording(
        marks=tuple(marks),
        processes=processes,
        lost_events=max(0, lost),
        gaps=tuple(dict.fromkeys(gaps)),
    )


def _buffer_gaps(stats: TraceStats) -> Iterator[str]:
    discarded = sum(item.chunks_discarded + item.chunks_overwritten for item in stats.buffer_stats)
    if discarded:
        yield f"perfetto's buffer had no room for {discarded} chunks"
    packets = sum(item.trace_writer_packet_loss for item in stats.buffer_stats)
    if packets:
        yield f"perfetto's writers lost {packets} packets"
