"""What a system trace says of a model's operators, and of an app's inferences.

A thread's slices nest: ``B|process|NAME`` opens one, ``E`` closes the innermost. TensorFlow Lite
writes ``OP@node/subgraph`` around each operator and ``Invoke@0/SUBGRAPH`` around an inference
(tensorflow/lite/profiling/atrace_profiler.cc); what a delegate took is one operator, the delegate's
kernel. It writes no slice for a copy: only what the app or a delegate calls a copy in a slice of
its own is counted as one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from orchestrator.delegates.evidence import is_delegate_kernel
from orchestrator.extensions.trace.trace_file import Mark, Recording
from orchestrator.records.case import grouped

_OPERATOR: Final = re.compile(
    r"(?P<name>.+)@(?P<node>-?\d{1,18})/(?P<subgraph>-?\d{1,18})", re.DOTALL | re.ASCII
)
_INVOKE: Final = "invoke"
#: Letters of a task's name in the kernel; for a package the last ones.
_TASK_LETTERS: Final = 15
_INPUT: Final = re.compile(
    r"input|upload|write|to_?(?:device|delegate|gpu|npu|tensor)", re.IGNORECASE
)
_OUTPUT: Final = re.compile(
    r"output|download|read|from_?(?:device|delegate|gpu|npu|tensor)", re.IGNORECASE
)


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
class LeftOut:
    """What a summary of a trace doesn't hold."""

    #: Slices whose end or begin isn't in the trace.
    unmatched: int = 0
    lost_events: int = 0
    gaps: tuple[str, ...] = ()
    #: Operator slices of other processes.
    foreign_slices: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary(LeftOut):
    """What the operators of one process took, longest first."""

    process: int | None = None
    process_name: str = ""
    operators: tuple[OperatorSlices, ...] = ()


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
    def self_ns(self) -> int:
        """From begin to end without the operators inside."""
        return self.duration_ns - self.inner_ns

    @property
    def operator(self) -> str:
        """The operator that it is a slice of; empty when it is of none."""
        match = _OPERATOR.fullmatch(self.name)
        return match["name"] if match else ""

    @property
    def is_invoke(self) -> bool:
        """Whether it is a subgraph's run."""
        return self.operator.lower() == _INVOKE

    @property
    def is_copy(self) -> bool:
        """Whether it is called a copy."""
        return "copy" in self.name.lower()

    def around(self) -> Iterator[Slice]:
        """Yield the slices around it, the innermost first."""
        outer = self.outer
        while outer is not None:
            yield outer
            outer = outer.outer

    @property
    def inference(self) -> Slice | None:
        """The inference that it is part of, or is: a subgraph is invoked within another one's."""
        found = self if self.is_invoke else None
        for outer in self.around():
            found = outer if outer.is_invoke else found
        return found


def _slices_of(marks: Iterable[Mark]) -> tuple[list[Slice], Counter[int]]:
    """Return all slices in the order of their ends, and for each process how many operators' lack a
    half.

    Events come core by core and are sorted by time first; those of one moment keep the order in
    which they were read.
    """
    slices: list[Slice] = []
    unmatched: Counter[int] = Counter()
    stacks: dict[int, tuple[int, list[Slice]]] = {}
    for mark in sorted(marks, key=lambda mark: mark.at_ns):
        process, stack = stacks.setdefault(mark.thread, (mark.process, []))
        if mark.name is not None:
            if process != mark.process:
                # A thread number that was given to another process: what the first left open never
                # ends.
                unmatched[process] += sum(bool(item.operator) for item in stack)
                stack = []
                stacks[mark.thread] = (mark.process, stack)
            stack.append(
                Slice(
                    mark.name, mark.process, mark.thread, mark.at_ns, stack[-1] if stack else None
                )
            )
        elif not stack:
            unmatched[process] += 1
        else:
            ended = stack.pop()
            ended.ended_ns = mark.at_ns
            slices.append(ended)
            if stack:
                # Time in a slice that is no operator's own stays with the operator around it.
                stack[-1].inner_ns += ended.duration_ns if ended.operator else ended.inner_ns
    for process, stack in stacks.values():
        unmatched[process] += sum(bool(item.operator) for item in stack)
    return slices, unmatched


def summarise(recording: Recording, *, command: str = "") -> TraceSummary:
    """Return what the operators of the benchmark took.

    The benchmark is the process that ``command`` names; where none does, the one with most operator
    slices.
    """
    slices, unmatched = _slices_of(recording.marks)
    operators = [item for item in slices if item.operator]
    counts = Counter(item.process for item in operators)
    names = recording.processes
    named = {
        process
        for process in counts
        if len(names.get(process, "")) > 1 and names[process] in command
    }
    chosen = max(named or counts, key=lambda process: (counts[process], -process), default=None)
    if chosen is None:
        return TraceSummary(lost_events=recording.lost_events, gaps=recording.gaps)
    return TraceSummary(
        process=chosen,
        process_name=names.get(chosen, ""),
        operators=_operators([item for item in operators if item.process == chosen]),
        unmatched=unmatched[chosen],
        lost_events=recording.lost_events,
        gaps=recording.gaps,
        foreign_slices=counts.total() - counts[chosen],
    )


def _operators(slices: Sequence[Slice]) -> tuple[OperatorSlices, ...]:
    all_ns = sum(item.self_ns for item in slices)
    found = []
    for full_name, own in grouped(slices, lambda item: item.name).items():
        match = _OPERATOR.fullmatch(full_name)
        assert match is not None, "only operators' slices are summed"
        self_ns = sum(item.self_ns for item in own)
        found.append(
            OperatorSlices(
                name=match["name"],
                node=int(match["node"]),
                subgraph=int(match["subgraph"]),
                count=len(own),
                total_us=sum(item.duration_ns for item in own) / 1000,
                self_us=self_ns / 1000,
                share=self_ns / all_ns if all_ns else 0.0,
            )
        )
    return tuple(
        sorted(
            found, key=lambda slices: (-slices.self_us, slices.subgraph, slices.node, slices.name)
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What slices of one name took; an operator's time is without those inside."""

    name: str
    count: int
    total_us: float
    #: Of the inferences' time, 0 to 1; None when no whole inference was recorded.
    share: float | None
    per_inference: float | None
    #: Of a copy: ``input``, ``output``, or empty when its name doesn't say. Empty for others.
    direction: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateGaps:
    """What lies between the slices of delegates in the same inference: there data goes back and
    forth.
    """

    count: int
    total_us: float
    #: Of it, operators on the CPU.
    operators_us: float
    #: Their types, those that took longest first.
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSummary(LeftOut):
    """What an app's inferences took, times in microseconds."""

    processes: tuple[str, ...]
    inferences: int
    total_us: float
    median_us: float | None
    least_us: float | None
    most_us: float | None
    #: By type, longest first; with the kernels of delegates.
    operators: tuple[Part, ...]
    #: The kernels of delegates among them.
    delegates: tuple[Part, ...]
    delegate_gaps: DelegateGaps
    #: Time of inferences outside all operators.
    between_us: float
    #: Operators' slices outside whole inferences, such as those of the preparation.
    outside: tuple[Part, ...]
    copies: tuple[Part, ...]

    @property
    def has_slices(self) -> bool:
        """Whether the runtime wrote any."""
        return bool(self.inferences or self.operators or self.outside)


def summarise_app(recording: Recording, package: str, pids: Collection[int] = ()) -> AppSummary:
    """Return what the processes of an app did: those with its name, and ``pids``, which were seen
    to be its own.
    """
    slices, unmatched = _slices_of(recording.marks)
    names = recording.processes
    own = {process for process, name in names.items() if _is_of(name, package)} | set(pids)
    ours = [item for item in slices if item.process in own]
    operators = [item for item in ours if item.operator]
    inferences = [item for item in operators if item.is_invoke and item.inference is item]
    whole = set(map(id, inferences))
    steps = [item for item in operators if not item.is_invoke]
    inside = [item for item in steps if id(item.inference) in whole]
    kernels = [item for item in inside if is_delegate_kernel(item.operator)]
    # A copy inside another is part of it.
    copies = [
        item for item in ours if item.is_copy and not any(outer.is_copy for outer in item.around())
    ]
    durations = [item.duration_ns for item in inferences]
    total_ns = sum(durations)

    def parts(
        found: Sequence[Slice], *, are_copies: bool = False, are_inside: bool = True
    ) -> tuple[Part, ...]:
        """Return the sums by name, longest first."""
        each = []
        for name, items in grouped(found, lambda item: item.operator or item.name).items():
            sum_ns = sum(item.duration_ns if are_copies else item.self_ns for item in items)
            each.append(
                Part(
                    name=name,
                    count=len(items),
                    total_us=sum_ns / 1000,
                    share=sum_ns / total_ns if total_ns and are_inside else None,
                    per_inference=len(items) / len(inferences)
                    if inferences and are_inside
                    else None,
                    direction=_direction(name) if are_copies else "",
                )
            )
        return tuple(sorted(each, key=lambda part: (-part.total_us, part.name)))

    return AppSummary(
        processes=tuple(sorted({names.get(item.process, str(item.process)) for item in operators})),
        inferences=len(inferences),
        total_us=total_ns / 1000,
        median_us=median(durations) / 1000 if durations else None,
        least_us=min(durations) / 1000 if durations else None,
        most_us=max(durations) / 1000 if durations else None,
        operators=parts(inside),
        delegates=parts(kernels),
        delegate_gaps=_gaps(inside),
        between_us=max(0, total_ns - sum(item.self_ns for item in inside)) / 1000,
        outside=parts(
            [item for item in steps if id(item.inference) not in whole], are_inside=False
        ),
        copies=parts(copies, are_copies=True),
        unmatched=sum(unmatched[process] for process in own),
        lost_events=recording.lost_events,
        gaps=recording.gaps,
        foreign_slices=sum(bool(item.operator) for item in slices if item.process not in own),
    )


def _is_of(name: str, package: str) -> bool:
    """Whether a process's command line, or the kernel's short name for it, is the app's."""
    return name == package or name.startswith(f"{package}:") or name == package[-_TASK_LETTERS:]


def _direction(name: str) -> str:
    is_input, is_output = _INPUT.search(name) is not None, _OUTPUT.search(name) is not None
    return "" if is_input == is_output else "input" if is_input else "output"


def _gaps(inside: Sequence[Slice]) -> DelegateGaps:
    """Return what lies between a delegate's slice and the next one in the same inference and
    thread.
    """
    count, total_ns = 0, 0
    times: Counter[str] = Counter()
    for steps in grouped(inside, lambda item: f"{id(item.inference)} {item.thread}").values():
        kernels = sorted(
            (it for it in steps if is_delegate_kernel(it.operator)), key=lambda item: item.begun_ns
        )
        for first, second in pairwise(kernels):
            count += 1
            total_ns += max(0, second.begun_ns - first.ended_ns)
            for item in steps:
                is_between = first.ended_ns <= item.begun_ns and item.ended_ns <= second.begun_ns
                if is_between and not is_delegate_kernel(item.operator):
                    times[item.operator] += item.self_ns
    return DelegateGaps(
        count=count,
        total_us=total_ns / 1000,
        operators_us=times.total() / 1000,
        operators=tuple(sorted(times, key=lambda name: (-times[name], name))),
    )
