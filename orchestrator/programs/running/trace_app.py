"""What a trace of somebody's own app says: its inferences, and what they are made of.

TensorFlow Lite writes ``Invoke@0/SUBGRAPH`` around an inference and ``OP@node/subgraph`` around each operator; what a
delegate took is one operator, the delegate's kernel. It writes no slice for a copy: only what the app or a delegate
calls a copy in a slice of its own is counted as one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from orchestrator.delegates.evidence import is_delegate_kernel
from orchestrator.programs.running.trace import Slice, slices_of
from orchestrator.programs.running.trace_text import Recording

_INVOKE: Final = "invoke"
#: A task's name in the kernel has so many letters; of a package these are its last.
_TASK_LETTERS: Final = 15
_INPUT: Final = re.compile(r"input|upload|write|to_?(?:device|delegate|gpu|npu|tensor)", re.IGNORECASE)
_OUTPUT: Final = re.compile(r"output|download|read|from_?(?:device|delegate|gpu|npu|tensor)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What slices of one name took; an operator's time is without those inside."""

    name: str
    count: int
    total_us: float
    #: Of the inferences' time, 0 to 1; None when no whole inference was recorded.
    share: float | None
    per_inference: float | None
    #: Of a copy: ``input``, ``output``, or empty when its name doesn't tell. Empty for others.
    direction: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateGaps:
    """What lies between the slices of delegates in the same inference: there data goes back and forth."""

    count: int
    total_us: float
    #: Of it, operators on the CPU.
    operators_us: float
    #: Their types, those that took longest first.
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadShare:
    """A thread that made inferences or ran operators."""

    thread: int
    inferences: int
    operator_slices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSummary:
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
    threads: tuple[ThreadShare, ...]
    unmatched: int
    lost_events: int
    gaps: tuple[str, ...]
    foreign_slices: int

    @property
    def has_slices(self) -> bool:
        """Whether the runtime wrote any."""
        return bool(self.inferences or self.operators or self.outside)


def summarise_app(recording: Recording, package: str, pids: Collection[int] = ()) -> AppSummary:
    """Return what the processes of an app did: those with its name, and ``pids``, which were seen to be its own."""
    slices, unmatched = slices_of(recording)
    own = {process for process, name in recording.processes.items() if _is_of(name, package)} | set(pids)
    ours = [item for item in slices if item.process in own]
    operators = [item for item in ours if item.operator]
    inferences = [item for item in operators if _is_invoke(item) and _inference(item) is item]
    whole = set(map(id, inferences))
    steps = [item for item in operators if not _is_invoke(item)]
    inside = [item for item in steps if id(_inference(item)) in whole]
    durations = [item.duration_ns for item in inferences]
    sums = _Sums(len(inferences), sum(durations))
    kernels = [item for item in inside if is_delegate_kernel(item.operator)]
    return AppSummary(
        processes=tuple(sorted({recording.processes.get(item.process, str(item.process)) for item in operators})),
        inferences=len(inferences),
        total_us=sum(durations) / 1000,
        median_us=median(durations) / 1000 if durations else None,
        least_us=min(durations) / 1000 if durations else None,
        most_us=max(durations) / 1000 if durations else None,
        operators=sums.parts([(item.operator, item.duration_ns - item.inner_ns) for item in inside]),
        delegates=sums.parts([(item.operator, item.duration_ns - item.inner_ns) for item in kernels]),
        delegate_gaps=_gaps(kernels, inside),
        between_us=max(0, sum(durations) - sum(item.duration_ns - item.inner_ns for item in inside)) / 1000,
        outside=sums.parts(
            [(i.operator, i.duration_ns - i.inner_ns) for i in steps if id(_inference(i)) not in whole], is_inside=False
        ),
        copies=sums.parts([(item.operator or item.name, item.duration_ns) for item in _copies(ours)], is_copy=True),
        threads=tuple(_threads(operators, inferences)),
        unmatched=sum(unmatched.get(process, 0) for process in own),
        lost_events=recording.lost_events,
        gaps=recording.gaps,
        foreign_slices=sum(bool(item.operator) for item in slices if item.process not in own),
    )


def _is_of(name: str, package: str) -> bool:
    """Whether a process's command line, or the kernel's short name for it, is the app's."""
    return name == package or name.startswith(f"{package}:") or name == package[-_TASK_LETTERS:]


def _is_invoke(item: Slice) -> bool:
    return item.operator.lower() == _INVOKE


def _around(item: Slice) -> Iterator[Slice]:
    outer = item.outer
    while outer is not None:
        yield outer
        outer = outer.outer


def _inference(item: Slice) -> Slice | None:
    """Return the inference that a slice is part of, or is: a subgraph is invoked within another one's."""
    found = item if _is_invoke(item) else None
    for outer in _around(item):
        found = outer if _is_invoke(outer) else found
    return found


@dataclass(frozen=True, slots=True)
class _Sums:
    inferences: int
    inferences_ns: int

    def parts(
        self, found: Sequence[tuple[str, int]], *, is_copy: bool = False, is_inside: bool = True
    ) -> tuple[Part, ...]:
        """Return the sums by name, longest first."""
        times: dict[str, list[int]] = {}
        for name, time_ns in found:
            times.setdefault(name, []).append(time_ns)
        parts = (
            Part(
                name=name,
                count=len(all_ns),
                total_us=sum(all_ns) / 1000,
                share=sum(all_ns) / self.inferences_ns if self.inferences_ns and is_inside else None,
                per_inference=len(all_ns) / self.inferences if self.inferences and is_inside else None,
                direction=_direction(name) if is_copy else "",
            )
            for name, all_ns in times.items()
        )
        return tuple(sorted(parts, key=lambda part: (-part.total_us, part.name)))


def _copies(slices: Sequence[Slice]) -> Iterator[Slice]:
    """Yield what is called a copy; one inside another is part of it."""
    for item in slices:
        if _is_copy(item) and not any(map(_is_copy, _around(item))):
            yield item


def _is_copy(item: Slice) -> bool:
    return "copy" in item.name.lower()


def _direction(name: str) -> str:
    is_input, is_output = _INPUT.search(name) is not None, _OUTPUT.search(name) is not None
    return "" if is_input == is_output else "input" if is_input else "output"


def _gaps(kernels: Sequence[Slice], inside: Sequence[Slice]) -> DelegateGaps:
    """Return what lies between a delegate's slice and the next one in the same inference and thread."""
    others: dict[tuple[int, int], list[Slice]] = {}
    for item in inside:
        if not is_delegate_kernel(item.operator):
            others.setdefault((id(_inference(item)), item.thread), []).append(item)
    pairs: dict[tuple[int, int], list[Slice]] = {}
    for kernel in sorted(kernels, key=lambda item: item.begun_ns):
        pairs.setdefault((id(_inference(kernel)), kernel.thread), []).append(kernel)
    count, total_ns = 0, 0
    times: dict[str, int] = {}
    for key, chain in pairs.items():
        for first, second in pairwise(chain):
            count += 1
            total_ns += max(0, second.begun_ns - first.ended_ns)
            for item in others.get(key, ()):
                if first.ended_ns <= item.begun_ns and item.ended_ns <= second.begun_ns:
                    times[item.operator] = times.get(item.operator, 0) + item.duration_ns - item.inner_ns
    return DelegateGaps(
        count=count,
        total_us=total_ns / 1000,
        operators_us=sum(times.values()) / 1000,
        operators=tuple(sorted(times, key=lambda name: (-times[name], name))),
    )


def _threads(operators: Sequence[Slice], inferences: Sequence[Slice]) -> Iterator[ThreadShare]:
    for thread in sorted({item.thread for item in operators}):
        yield ThreadShare(
            thread=thread,
            inferences=sum(item.thread == thread for item in inferences),
            operator_slices=sum(item.thread == thread and not _is_invoke(item) for item in operators),
        )
