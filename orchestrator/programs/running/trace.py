"""What a system trace says of a model's operators: the slices that TensorFlow Lite wrote, read from either format.

A thread's slices nest: ``B|process|NAME`` opens one, ``E`` closes the innermost. The runtime calls them
``OP@node/subgraph`` (tensorflow/lite/profiling/atrace_profiler.cc).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.programs.running.trace_text import Mark, Recording
from orchestrator.records.run import ATRACE_FILE, PERFETTO_FILE

_OPERATOR: Final = re.compile(r"(?P<name>.+)@(?P<node>-?\d{1,18})/(?P<subgraph>-?\d{1,18})", re.DOTALL | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSlices:
    """All slices of one operator; times in microseconds."""

    name: str
    node: int
    subgraph: int
    count: int
    total_us: float
    #: Without the slices inside: what is summed over all operators is never counted twice.
    self_us: float
    #: ``self_us`` over that of all operators, 0 to 1.
    share: float

    @property
    def mean_us(self) -> float:
        """Mean time of one slice."""
        return self.total_us / self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What the operators of one process took, longest first."""

    process: int | None = None
    process_name: str = ""
    operators: tuple[OperatorSlices, ...] = ()
    #: Slices whose end or begin isn't in the trace; they are left out.
    unmatched: int = 0
    lost_events: int = 0
    gaps: tuple[str, ...] = ()
    #: Operator slices of other processes, left out.
    foreign_slices: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost_events and not self.gaps


@dataclass(slots=True, eq=False)
class Slice:
    """A thread's slice, in the trace's nanoseconds."""

    name: str
    process: int
    thread: int
    begun_ns: int
    #: The slice around it.
    outer: Slice | None = None
    ended_ns: int = 0
    #: Operators' time inside.
    inner_ns: int = 0

    @property
    def duration_ns(self) -> int:
        """From begin to end."""
        return self.ended_ns - self.begun_ns

    @property
    def operator(self) -> str:
        """The operator that it is a slice of; empty when it is of none."""
        match = _OPERATOR.fullmatch(self.name)
        return match["name"] if match else ""


@dataclass(slots=True)
class _Sums:
    count: int = 0
    total_ns: int = 0
    self_ns: int = 0


@dataclass(slots=True)
class _Walk:
    """One pass over the marks in the order of time."""

    #: Process -> operator's full name -> sums.
    sums: dict[int, dict[str, _Sums]] = field(default_factory=dict)
    unmatched: dict[int, int] = field(default_factory=dict)
    #: All that have both halves, in the order of their ends.
    slices: list[Slice] = field(default_factory=list)
    _stacks: dict[int, tuple[int, list[Slice]]] = field(default_factory=dict)

    def take(self, mark: Mark) -> None:
        process, stack = self._stacks.setdefault(mark.thread, (mark.process, []))
        if mark.name is not None:
            if process != mark.process:
                # A thread number that was given to another process: what the first left open never ends.
                self._abandon(process, stack)
                stack = []
                self._stacks[mark.thread] = (mark.process, stack)
            stack.append(Slice(mark.name, mark.process, mark.thread, mark.at_ns, stack[-1] if stack else None))
            return
        if not stack:
            self.unmatched[process] = self.unmatched.get(process, 0) + 1
            return
        ended = stack.pop()
        ended.ended_ns = mark.at_ns
        self.slices.append(ended)
        duration_ns = ended.duration_ns
        is_operator = _OPERATOR.fullmatch(ended.name) is not None
        if stack:
            # Time in a slice that is no operator's own stays with the operator around it.
            stack[-1].inner_ns += duration_ns if is_operator else ended.inner_ns
        if is_operator:
            sums = self.sums.setdefault(process, {}).setdefault(ended.name, _Sums())
            sums.count += 1
            sums.total_ns += duration_ns
            sums.self_ns += duration_ns - ended.inner_ns

    def finish(self) -> None:
        for process, stack in self._stacks.values():
            self._abandon(process, stack)

    def _abandon(self, process: int, stack: list[Slice]) -> None:
        left = sum(_OPERATOR.fullmatch(item.name) is not None for item in stack)
        self.unmatched[process] = self.unmatched.get(process, 0) + left


def summarise(recording: Recording, *, command: str = "") -> TraceSummary:
    """Return what the operators of the benchmark took.

    The benchmark is the process that ``command`` names; where none does, the one with most operator slices. Events come
    core by core and are sorted by time first; those of one moment keep the order in which they were read.
    """
    walk = _walked(recording)
    counts = {process: sum(item.count for item in sums.values()) for process, sums in walk.sums.items()}
    named = {process for process in counts if _is_named(recording.processes.get(process, ""), command)}
    chosen = max(named or counts, key=lambda process: (counts[process], -process), default=None)
    if chosen is None:
        return TraceSummary(lost_events=recording.lost_events, gaps=recording.gaps)
    return TraceSummary(
        process=chosen,
        process_name=recording.processes.get(chosen, ""),
        operators=_operators(walk.sums[chosen]),
        unmatched=walk.unmatched.get(chosen, 0),
        lost_events=recording.lost_events,
        gaps=recording.gaps,
        foreign_slices=sum(count for process, count in counts.items() if process != chosen),
    )


def _walked(recording: Recording) -> _Walk:
    walk = _Walk()
    for mark in sorted(recording.marks, key=lambda mark: mark.at_ns):
        walk.take(mark)
    walk.finish()
    return walk


def slices_of(recording: Recording) -> tuple[list[Slice], dict[int, int]]:
    """Return all slices in the order of their ends, and for each process how many operators' lack a half."""
    walk = _walked(recording)
    return walk.slices, walk.unmatched


def _is_named(process_name: str, command: str) -> bool:
    return len(process_name) > 1 and process_name in command


def _operators(sums: Mapping[str, _Sums]) -> tuple[OperatorSlices, ...]:
    all_ns = sum(item.self_ns for item in sums.values())
    found = []
    for full_name, item in sums.items():
        match = _OPERATOR.fullmatch(full_name)
        assert match is not None, "only operators' slices are summed"
        found.append(
            OperatorSlices(
                name=match["name"],
                node=int(match["node"]),
                subgraph=int(match["subgraph"]),
                count=item.count,
                total_us=item.total_ns / 1000,
                self_us=item.self_ns / 1000,
                share=item.self_ns / all_ns if all_ns else 0.0,
            )
        )
    return tuple(sorted(found, key=lambda slices: (-slices.self_us, slices.subgraph, slices.node, slices.name)))


def read_recording(name: str, data: bytes) -> Recording:
    """Read a traced run's attachment; raises OutputParseError, and UsageError when what reads it isn't installed."""
    if name == PERFETTO_FILE:
        from orchestrator.programs.running.trace_perfetto import read_perfetto

        return read_perfetto(data)
    from orchestrator.programs.running.trace_text import read_atrace

    return read_atrace(data)


def trace_names(names: Iterable[str]) -> list[str]:
    """Return those of a run's attachments that are a trace."""
    return [name for name in names if name in {PERFETTO_FILE, ATRACE_FILE}]
