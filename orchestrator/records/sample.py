"""What a device was seen to be like while a run measured: a time series, and what is derived from
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: The file in a run's folder, and the attachment's name.
SAMPLES_FILE: Final = "samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look; None or an empty mapping is unknown."""

    uptime_s: float
    #: Between reading the processors' time and having read the clusters' time in state.
    took_s: float = 0.0
    #: Time that all cores together have worked since boot.
    cpu_busy_s: float | None = None
    #: Cluster (number of its cpufreq policy) -> kHz.
    clock_khz: Mapping[int, int] = field(default_factory=dict)
    clock_limit_khz: Mapping[int, int] = field(default_factory=dict)
    #: Cluster -> {frequency in kHz: time in 10 ms ticks}.
    time_in_state: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    #: Thermal zone name -> degrees Celsius.
    heat_c: Mapping[str, float] = field(default_factory=dict)
    gpu_khz: int | None = None
    gpu_limit_khz: int | None = None
    gpu_busy_percent: float | None = None
    gpu_time_in_state: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSamples:
    """The looks of one run in their order: the first right before the program, the last right after
    it.
    """

    samples: tuple[Sample, ...] = ()
    #: Processor time of the program and its children; None when it didn't come to its end.
    own_cpu_s: float | None = None

    @property
    def duration_s(self) -> float:
        """Device time from the first look to the last."""
        return self.samples[-1].uptime_s - self.samples[0].uptime_s if self.samples else 0.0


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
    #: Over the busiest stretches between looks: the highest mean clock's share of the highest
    #: clock, and the largest fall from one stretch to a later one (0.9: to 90 %); only with looks
    #: enough.
    busiest_share: float | None = None
    fall: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """Everything here is derived: nothing of it is stored. None is unknown."""

    #: Whether looks during the run are behind it; else it spans from the state before to the state
    #: after, which is longer than the run, so that clocks and loads come out lower.
    is_sampled: bool = False
    clusters: tuple[ClusterConditions, ...] = ()
    #: Cores that the program itself kept busy on average, and those that everything else did at
    #: least.
    own_cores: float | None = None
    foreign_cores: float | None = None
    gpu_mhz: float | None = None
    #: How far the wall clock was moved against the clock that only counts.
    clock_jump_s: float | None = None
