"""The pass ``trace``: a run while the operators' slices are recorded by the phone's perfetto,
and the operators summed up in its trace file.

Its changes of the phone are journalled first and restored right after the run: a traced program is
slower, also without a recording.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from orchestrator.errors import DeviceCommandError, DeviceError, OutputParseError
from orchestrator.passes.recording import (
    Property,
    has_perfetto,
    hold_property,
    read_property,
    recorded,
    set_property,
)
from orchestrator.passes.specification import (
    Hold,
    PassServices,
    PassSpec,
    RunProgram,
)
from orchestrator.ports import Device, InvocationRequest, Tool
from orchestrator.reading.profile import decode_trace, text_of
from orchestrator.records import frozen
from orchestrator.records.case import Pass, Serial, grouped
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import PERFETTO_FILE, RawOutput

TRACE: Final = Pass("trace")
#: TensorFlow Lite reads it when an interpreter is made, and writes slices if it is exactly this.
_TRACED: Final = Property("debug.tflite.trace", "1", "operators being traced")
#: From this API level on "*" stands for every process (libcutils' trace-dev).
_WILDCARD_SDK: Final = 28
_BUFFER_KB: Final = 65_536


class TracedRuns:
    """Runs a program while the slices of its operators are recorded."""

    def __init__(self, hold: Hold) -> None:
        """``hold`` makes a change that is journalled first."""
        self._hold = hold
        #: The property's original value on devices where it couldn't be restored: it has our value
        #: there.
        self._unrestored: dict[Serial, str] = {}

    def run(self, tool: Tool, device: Device, request: InvocationRequest) -> RawOutput:
        """Run one invocation, traced; raises DeviceError kinds."""
        if not has_perfetto(device):
            raise DeviceCommandError(
                "the phone has no perfetto (Android 9 and later)", serial=device.serial
            )
        app, sdk = request.build.package or request.program_path, request.facts.sdk or 0
        apps = (app, "*") if sdk >= _WILDCARD_SDK else (app,)
        recording = recorded(
            device,
            self._hold,
            _slices_sources(apps),
            sdk=sdk,
            duration_s=request.timeout_s,
            buffer_kb=_BUFFER_KB,
            apps=apps,
        )
        with self._operators_traced(device), recording as end:
            raw = tool.run(device, request)
            return raw.with_data(PERFETTO_FILE, end())

    @contextlib.contextmanager
    def _operators_traced(self, device: Device) -> Iterator[None]:
        before = self._unrestored.pop(device.serial, None)
        if before is None:
            before = read_property(device, _TRACED.name)
        self._unrestored[device.serial] = before
        hold_property(device, self._hold, _TRACED, before)
        try:
            yield
        finally:
            # The journal restores it on a phone that is unreachable now.
            with contextlib.suppress(DeviceError):
                device.shell(set_property(_TRACED.name, before))
                del self._unrestored[device.serial]


def _slices_sources(apps: tuple[str, ...]) -> str:
    """Return the data sources of slices of ``apps``, scheduling of each core, clocks and process
    names.
    """
    escaped = (app.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for app in apps)
    names = " ".join(f'atrace_apps: "{app}"' for app in escaped)
    events = " ".join(
        f'ftrace_events: "{event}"'
        for event in ("ftrace/print", "sched/sched_switch", "power/cpu_frequency")
    )
    return (
        f'data_sources {{ config {{ name: "linux.ftrace" ftrace_config {{ {events} {names} '
        "buffer_size_kb: 16384 drain_period_ms: 250 } } }\n"
        'data_sources { config { name: "linux.process_stats" process_stats_config { scan_all_processes_on_start: true '
        "} } }"
    )


def _runner(services: PassServices) -> RunProgram:
    return TracedRuns(services.hold).run


PASS = PassSpec(
    name=TRACE,
    about="One run under the phone's tracer, for the Perfetto UI",
    guide="why-slow",
    runner=_runner,
    kinds=frozenset({DeviceKind.ANDROID}),
    campaign_title="a trace",
)


#: The phase of the kernel's statistics before anything was recorded.
_START_OF_TRACE: Final = 1
_OPERATOR: Final = re.compile(
    r"(?P<name>.+)@(?P<node>-?\d{1,18})/(?P<subgraph>-?\d{1,18})", re.DOTALL | re.ASCII
)


@frozen
class Mark:
    """A slice's begin or end, as one thread wrote it."""

    at_ns: int
    thread: int
    process: int
    #: The slice's name; None for an end.
    name: str | None


@frozen
class Recording:
    """The slices of a trace file."""

    marks: tuple[Mark, ...]
    #: Process -> its command line.
    processes: Mapping[int, str] = field(default_factory=dict)
    #: Why it is incomplete, as sentences.
    gaps: tuple[str, ...] = ()


@frozen
class OperatorSlices:
    """All slices of one operator; times in microseconds."""

    name: str
    node: int
    subgraph: int
    count: int
    total_us: float
    #: Without the slices inside: a sum over all operators counts no time twice.
    self_us: float
    #: ``self_us`` over that of all operators, 0 to 1.
    share: float

    @property
    def mean_us(self) -> float:
        """Mean time of one slice."""
        return self.total_us / self.count


@frozen
class TraceSummary:
    """The times of one process's operators, longest first, and the trace's gaps."""

    process: int | None = None
    process_name: str = ""
    operators: tuple[OperatorSlices, ...] = ()
    #: Why it is incomplete, as sentences.
    gaps: tuple[str, ...] = ()


@dataclass(slots=True)
class _Slice:
    """A thread's slice, in the trace's nanoseconds."""

    name: str
    process: int
    begin_ns: int
    duration_ns: int = 0
    #: Operators' time inside.
    inner_ns: int = 0

    @property
    def is_operator(self) -> bool:
        return _OPERATOR.fullmatch(self.name) is not None


def read_recording(data: bytes) -> Recording:
    """Read perfetto's trace file; raises OutputParseError."""
    trace = decode_trace(data)
    if not trace.packet:
        raise OutputParseError("the trace is empty: perfetto was killed before it could write")
    marks: list[Mark] = []
    processes: dict[int, str] = {}
    lost_events = lost_chunks = 0
    gaps: list[str] = []
    for packet in trace.packet:
        for event in packet.ftrace_events.event:
            if event.HasField("print"):
                text = text_of(event.print.buf)
                mark = _parse_mark(text, at_ns=event.timestamp, thread=event.pid)
                marks += [mark] if mark is not None else []
        processes |= {
            process.pid: text_of(process.cmdline[0])
            for process in packet.process_tree.processes
            if process.cmdline
        }
        if packet.HasField("ftrace_stats"):
            # Events that the kernel's buffers report as lost at the start are from before it.
            stats = packet.ftrace_stats
            lost_here = sum(
                cpu.overrun + cpu.commit_overrun + cpu.dropped_events for cpu in stats.cpu_stats
            )
            lost_events += -lost_here if stats.phase == _START_OF_TRACE else lost_here
        lost_chunks += sum(
            item.chunks_discarded + item.chunks_overwritten + item.trace_writer_packet_loss
            for item in packet.trace_stats.buffer_stats
        )
        if packet.ftrace_events.lost_events or packet.compressed_packets:
            gaps.append("some of its packets lost events or can't be read here")
    if lost_events > 0:
        gaps.append(f"the phone lost {lost_events} events; a shorter run makes a smaller trace")
    if lost_chunks:
        gaps.append(f"perfetto's buffer had no room for {lost_chunks} chunks")
    return Recording(marks=tuple(marks), processes=processes, gaps=tuple(dict.fromkeys(gaps)))


def _parse_mark(text: str, *, at_ns: int, thread: int) -> Mark | None:
    """Return the mark in a line of the kernel's trace marker, None for another line (counters, async
    slices).
    """
    kind, _, rest = text.rstrip("\n").partition("|")
    process, bar, name = rest.partition("|")
    if kind == "B" and bar and process.isdecimal() and process.isascii():
        return Mark(at_ns=at_ns, thread=thread, process=int(process[:18]), name=name)
    if kind == "E":
        return Mark(at_ns=at_ns, thread=thread, process=thread, name=None)
    return None


def summarise(recording: Recording, *, command: str = "") -> TraceSummary:
    """Return the times of the benchmark's operators.

    The benchmark is the process that ``command`` names, else the one with most operator slices.
    """
    operators, unmatched = _operator_slices(recording.marks)
    counts = Counter(item.process for item in operators)
    names = recording.processes
    matching = {
        process
        for process in counts
        if len(names.get(process, "")) > 1 and names[process] in command
    }
    chosen = max(matching or counts, key=lambda process: (counts[process], -process), default=None)
    if chosen is None:
        return TraceSummary(gaps=recording.gaps)
    gaps = recording.gaps
    if unmatched[chosen]:
        gaps += (f"{unmatched[chosen]} slices lack their begin or end and are left out",)
    return TraceSummary(
        process=chosen,
        process_name=names.get(chosen, ""),
        operators=_sums([item for item in operators if item.process == chosen]),
        gaps=gaps,
    )


def _operator_slices(marks: Iterable[Mark]) -> tuple[list[_Slice], Counter[int]]:
    """Return the operators' slices, and per process the number of those without begin or end.

    Events come core by core and are sorted by time first; those of one moment keep their order.
    """
    operators: list[_Slice] = []
    unmatched: Counter[int] = Counter()
    # A later process may reuse the number of an ended thread; an end names no process.
    owners: dict[int, int] = {}
    stacks: dict[tuple[int, int], list[_Slice]] = defaultdict(list)
    for mark in sorted(marks, key=lambda mark: mark.at_ns):
        if mark.name is not None:
            owners[mark.thread] = mark.process
        process = owners.get(mark.thread, mark.process)
        stack = stacks[process, mark.thread]
        if mark.name is not None:
            stack.append(_Slice(mark.name, mark.process, mark.at_ns))
        elif not stack:
            unmatched[process] += 1
        else:
            ended = stack.pop()
            ended.duration_ns = mark.at_ns - ended.begin_ns
            if ended.is_operator:
                operators.append(ended)
            if stack:
                # Time in a slice that is no operator's own stays with the operator around it.
                stack[-1].inner_ns += ended.duration_ns if ended.is_operator else ended.inner_ns
    for (process, _), stack in stacks.items():
        unmatched[process] += sum(item.is_operator for item in stack)
    return operators, unmatched


def _sums(slices: Sequence[_Slice]) -> tuple[OperatorSlices, ...]:
    all_ns = sum(item.duration_ns - item.inner_ns for item in slices)
    rows = []
    for full_name, group in grouped(slices, lambda item: item.name).items():
        match = _OPERATOR.fullmatch(full_name)
        assert match is not None, "only operators' slices are summed"
        self_ns = sum(item.duration_ns - item.inner_ns for item in group)
        rows.append(
            OperatorSlices(
                name=match["name"],
                node=int(match["node"]),
                subgraph=int(match["subgraph"]),
                count=len(group),
                total_us=sum(item.duration_ns for item in group) / 1000,
                self_us=self_ns / 1000,
                share=self_ns / all_ns if all_ns else 0.0,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.self_us, row.subgraph, row.node, row.name)))
