"""What a device was like during one invocation, derived from the states before and after and the looks between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConditions:
    """The clocks of one cluster over a run; None is unknown."""

    #: The cluster's first cpu.
    cpu: int
    #: The mean clock by time in state, and its share of the highest clock.
    effective_mhz: float | None = None
    share: float | None = None
    #: The lowest and the highest limit that was seen, as shares of the highest clock.
    limit_low: float | None = None
    limit_high: float | None = None
    #: Over the busiest stretches between looks: the highest mean clock's share of the highest clock, and the largest
    #: fall from one stretch to a later one (0.9: to 90 %); only with looks enough.
    busiest_share: float | None = None
    fall: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """Everything here is derived: nothing of it is stored. None and empty mappings are unknown."""

    #: Whether looks during the run are behind it; else it spans from the state before to the state after, which is
    #: longer than the run, so that clocks and loads come out lower.
    is_sampled: bool = False
    #: Device time that the means are over.
    span_s: float | None = None
    clusters: tuple[ClusterConditions, ...] = ()
    #: Cores that the program itself, and that everything else, kept busy on average.
    own_cores: float | None = None
    foreign_cores: float | None = None
    context_switches_per_s: float | None = None
    processes_per_s: float | None = None
    gpu_mhz: float | None = None
    #: The GPU's mean clock as a share of its highest one.
    gpu_share: float | None = None
    gpu_busy_percent: float | None = None
    #: The hottest zone before and after, the hottest of all looks, and zone -> rise over the run.
    heat_before_c: float | None = None
    heat_after_c: float | None = None
    heat_highest_c: float | None = None
    heat_rise_c: Mapping[str, float] = field(default_factory=dict)
    #: How far the wall clock was moved against the clock that only counts.
    clock_jump_s: float | None = None
    battery_percent_change: int | None = None
    battery_current_ua: int | None = None
