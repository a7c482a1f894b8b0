"""What a device was like during one invocation, derived from the states before and after and the looks between."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConditions:
    """The clocks of one cluster over a run; None is unknown."""

    #: The cluster's first cpu.
    cpu: int
    #: The mean clock by time in state, and its share of the highest clock.
    effective_mhz: float | None = None
    share: float | None = None
    #: The highest limit that was seen, as a share of the highest clock.
    limit_high: float | None = None
    #: Over the busiest stretches between looks: the highest mean clock's share of the highest clock, and the largest
    #: fall from one stretch to a later one (0.9: to 90 %); only with looks enough.
    busiest_share: float | None = None
    fall: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """Everything here is derived: nothing of it is stored. None is unknown."""

    #: Whether looks during the run are behind it; else it spans from the state before to the state after, which is
    #: longer than the run, so that clocks and loads come out lower.
    is_sampled: bool = False
    clusters: tuple[ClusterConditions, ...] = ()
    #: Cores that the program itself kept busy on average, and those that everything else did at least.
    own_cores: float | None = None
    foreign_cores: float | None = None
    gpu_mhz: float | None = None
    #: How far the wall clock was moved against the clock that only counts.
    clock_jump_s: float | None = None
