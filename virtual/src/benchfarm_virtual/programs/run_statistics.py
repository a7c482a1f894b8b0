"""The statistics and memory lines of the benchmark programs: counts, whole microseconds, and their
rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from benchfarm_virtual.delegation import GPU, HEXAGON, NNAPI, NPU, XNNPACK
from benchfarm_virtual.programs.transcript import number

if TYPE_CHECKING:
    from benchfarm_virtual.programs.interpreter import Interpreter


@dataclass(slots=True)
class Stat:
    """Latencies in whole microseconds, in the order of the runs."""

    _parts: list[NDArray[np.int64]] = field(default_factory=list)
    count: int = 0

    def add(self, values: NDArray[np.int64]) -> None:
        """Append runs."""
        if len(values):
            self._parts.append(values)
            self.count += len(values)

    @property
    def values(self) -> NDArray[np.int64]:
        """All runs."""
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0] if self._parts else np.zeros(0, dtype=np.int64)

    @property
    def first(self) -> int:
        """The first run, 0 without any."""
        return int(self.values[0]) if self.count else 0

    @property
    def average(self) -> float:
        """The mean, 0 without any."""
        return float(self.values.sum()) / self.count if self.count else 0.0

    @property
    def deviation(self) -> int:
        """The population's standard deviation, cut to a whole number."""
        if not self.count:
            return 0
        values = self.values.astype(np.float64)
        variance = float((values * values).sum()) / self.count - self.average**2
        return int(math.sqrt(max(0.0, variance)))

    def percentile(self, percent: int) -> int:
        """Return the element at place count*percent/100 of the sorted runs, 0 without any."""
        if not self.count:
            return 0
        place = self.count * percent // 100
        return int(np.partition(self.values, place)[place])

    def body(self) -> str:
        """Return the line without percentiles."""
        values = self.values
        if not len(values):
            return "count=0"
        last, low, high = int(values[-1]), int(values.min()), int(values.max())
        if len(values) == 1:
            return f"count=1 curr={last}"
        if low == high:
            return f"count={len(values)} curr={last}(all same)"
        return (
            f"count={len(values)} first={self.first} curr={last} min={low} max={high} avg={number(self.average)} "
            f"std={self.deviation}"
        )

    def line(self) -> str:
        """Return the whole line."""
        return f"{self.body()} p5={self.percentile(5)} median={self.percentile(50)} p95={self.percentile(95)}"


_PAGE_KB: Final = 4
#: A process before it does anything, and what the interpreter itself takes.
_PROCESS_KB: Final = 7200.0
_RUNTIME_KB: Final = 2700.0
_UNIT_KB: Final = {GPU: 84_000.0, NNAPI: 9_500.0, HEXAGON: 6_000.0, NPU: 12_000.0, XNNPACK: 900.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory in kB: what initialisation and the whole run added to the process, and the parts of
    its end.
    """

    init_kb: int
    overall_kb: int
    peak_kb: int
    anonymous_kb: int
    arena_kb: float


def footprint_of(interpreter: Interpreter, runs: int) -> Footprint:
    """Return the memory of a run; in a process that had more before, growth is smaller, down to 0."""
    once = interpreter.run.once
    units = {plan.nodes[i].delegate for plan in interpreter.plans for i in plan.execution}
    model_kb = interpreter.graph.size_bytes / 1024
    computed = [t for t in interpreter.subgraph.tensors if not t.constant]
    # The arena reuses memory: about the two largest tensors live at a time.
    arena_kb = (
        sum(sorted((t.size_bytes for t in computed), reverse=True)[:3]) / 1024 * interpreter.scale
    )
    anonymous_kb = arena_kb + sum(_UNIT_KB.get(unit, 0.0) for unit in units)
    if XNNPACK in units:
        anonymous_kb += 1.3 * model_kb
    init_kb = _RUNTIME_KB + model_kb + anonymous_kb
    # What the program keeps of each run's time.
    overall_kb = init_kb + 0.03 * arena_kb + 350.0 + runs * 0.024
    grown_init = max(0.0, init_kb - once.max_rss_kb)
    grown = max(0.0, overall_kb - once.max_rss_kb)
    return Footprint(
        init_kb=_pages(grown_init),
        overall_kb=_pages(grown),
        peak_kb=_pages(_PROCESS_KB + overall_kb),
        anonymous_kb=_pages(anonymous_kb + 1400.0 + runs * 0.024),
        arena_kb=arena_kb,
    )


def _pages(kilobytes: float) -> int:
    return int(kilobytes // _PAGE_KB) * _PAGE_KB
