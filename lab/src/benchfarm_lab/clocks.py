"""The clocks of one cluster of a virtual phone's cores: what users set, what heat took, and time spent at each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchfarm_lab.profiles import ClusterSpec

#: The share of the highest clock that fixed performance mode keeps.
_FIXED_SHARE: Final = 0.72


class ClusterClocks:
    """One cluster's clocks."""

    __slots__ = ("governor", "held_steps", "max_khz", "min_khz", "spec", "steps_down", "ticks_s")

    def __init__(self, spec: ClusterSpec, governor: str) -> None:
        self.spec = spec
        self.governor = governor
        self.min_khz = spec.available_khz[0]
        self.max_khz = spec.available_khz[-1]
        self.steps_down = 0
        #: Steps that a fault takes, whatever the heat is.
        self.held_steps = 0
        self.ticks_s: dict[int, float] = dict.fromkeys(spec.available_khz, 0.0)

    def limit_khz(self, *, fixed: bool) -> int:
        """Return the highest clock that it may have now."""
        available = self.spec.available_khz
        down = max(self.steps_down, self.held_steps)
        if not down and not fixed:
            return self.max_khz
        top = available[max(0, len(available) - 1 - down)]
        if fixed:
            top = min(top, max(f for f in available if f <= max(available[0], available[-1] * _FIXED_SHARE)))
        return max(available[0], min(top, self.max_khz))

    def khz(self, *, busy: bool, fixed: bool) -> int:
        """Return its clock now."""
        limit = self.limit_khz(fixed=fixed)
        if self.governor == "powersave":
            return min(self.min_khz, limit)
        if busy or fixed or self.governor == "performance":
            return limit
        return min(self.min_khz, limit)


def next_lower(available: Sequence[int], khz: int) -> int:
    """Return the clock itself if there is such a one, else the next lower; the lowest when there is none."""
    return max((f for f in available if f <= khz), default=available[0])
