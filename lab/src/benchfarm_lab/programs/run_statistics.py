"""The statistics line of the benchmark programs: counts and whole microseconds, and their rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchfarm_lab.programs.transcript import number


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
