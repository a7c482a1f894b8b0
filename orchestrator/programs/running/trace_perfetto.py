"""Perfetto's trace files, read with the messages of the ``perfetto`` package (the extra ``trace``).

Its TraceProcessor isn't used: it downloads a program at its first use, and slices need none of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from orchestrator.errors import OutputParseError, UsageError
from orchestrator.programs.running.trace_text import Mark, Recording, mark_of

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import FtraceStats, Trace, TracePacket, TraceStats


def require_perfetto() -> None:
    """Raise UsageError when the package that reads perfetto's files isn't installed."""
    if find_spec("perfetto") is None:
        raise UsageError(
            "the package 'perfetto', which reads trace files, isn't installed",
            hint="pip install 'benchfarm[trace]'; --no-summary records without it",
        )


def read_perfetto(data: bytes) -> Recording:
    """Return the slices of a trace; raises OutputParseError, and UsageError without the package."""
    require_perfetto()
    trace = _parsed(data)
    marks: list[Mark] = []
    processes: dict[int, str] = {}
    lost = 0
    gaps: list[str] = []
    for packet in trace.packet:
        marks += _marks(packet)
        for process in packet.process_tree.processes:
            if process.cmdline:
                processes[process.pid] = process.cmdline[0]
        if packet.HasField("ftrace_stats"):
            lost += _lost(packet.ftrace_stats)
        if packet.HasField("trace_stats"):
            gaps += _buffer_gaps(packet.trace_stats)
        if packet.ftrace_events.lost_events:
            gaps.append(f"core {packet.ftrace_events.cpu} lost events between two readings")
        if packet.compressed_packets:
            gaps.append("it holds compressed packets, which aren't read here")
    return Recording(marks=tuple(marks), processes=processes, lost_events=max(0, lost), gaps=tuple(dict.fromkeys(gaps)))


def _parsed(data: bytes) -> Trace:
    from google.protobuf.message import DecodeError
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    try:
        trace.ParseFromString(data)
    except DecodeError as error:
        raise OutputParseError(f"this is no whole perfetto trace: {error}") from error
    if not trace.packet:
        raise OutputParseError("the trace is empty: perfetto was killed before it could write")
    return trace


def _marks(packet: TracePacket) -> Iterator[Mark]:
    for event in packet.ftrace_events.event:
        if event.HasField("print"):
            mark = mark_of(event.print.buf, at_ns=event.timestamp, thread=event.pid)
            if mark is not None:
                yield mark


def _lost(stats: FtraceStats) -> int:
    """Return how many events the kernel's buffers lost; what is told at the start was lost before it."""
    lost: int = sum(cpu.overrun + cpu.commit_overrun + cpu.dropped_events for cpu in stats.cpu_stats)
    return -lost if stats.phase == stats.START_OF_TRACE else lost


def _buffer_gaps(stats: TraceStats) -> Iterator[str]:
    discarded = sum(item.chunks_discarded + item.chunks_overwritten for item in stats.buffer_stats)
    if discarded:
        yield f"perfetto's buffer had no room for {discarded} chunks"
    packets = sum(item.trace_writer_packet_loss for item in stats.buffer_stats)
    if packets:
        yield f"perfetto's writers lost {packets} packets"
