"""Temperature and clocks over the time of a case, as small drawings; from looks before, during and after the runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.records.device import DeviceState
from orchestrator.records.sample import Sample
from orchestrator.report.conditions import plausible_heat_c
from orchestrator.report.data import InvocationRow, Trace

#: The drawing's size in its own units; the page stretches it in length.
WIDTH: Final = 300.0
HEIGHT: Final = 60.0
_KHZ_PER_MHZ: Final = 1000
_LEAST_POINTS: Final = 2


def condition_traces(invocations: Sequence[InvocationRow]) -> tuple[Trace, ...]:
    """Return the hottest zone and each cluster's clock and limit over time; nothing where they aren't known twice."""
    states = [state for run in invocations for state in (run.state_before, run.state_after) if state is not None]
    series: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for state in sorted(states, key=lambda state: state.at):
        for key, value in _figures(state).items():
            series[key].append((state.at.timestamp(), value))
    return tuple(_trace(name, unit, points) for (name, unit), points in series.items() if len(points) >= _LEAST_POINTS)


def sample_traces(samples: Sequence[Sample]) -> tuple[Trace, ...]:
    """Return the same while one invocation ran, and how busy the GPU was, by looks at the device."""
    series: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for sample in samples:
        for key, value in _figures(sample).items():
            series[key].append((sample.uptime_s, value))
        if sample.gpu_busy_percent is not None:
            series["GPU busy", "%"].append((sample.uptime_s, sample.gpu_busy_percent))
    return tuple(_trace(name, unit, points) for (name, unit), points in series.items() if len(points) >= _LEAST_POINTS)


def _figures(state: DeviceState | Sample) -> Mapping[tuple[str, str], float]:
    figures = {}
    zones = plausible_heat_c(state)
    if zones:
        figures["hottest zone", "°C"] = max(zones.values())
    for cpu in sorted(state.clock_limit_khz):
        figures[f"limit of cpu{cpu}", "MHz"] = state.clock_limit_khz[cpu] / _KHZ_PER_MHZ
    for cpu in sorted(state.clock_khz):
        figures[f"clock of cpu{cpu}", "MHz"] = state.clock_khz[cpu] / _KHZ_PER_MHZ
    return figures


def _trace(name: str, unit: str, points: Sequence[tuple[float, float]]) -> Trace:
    values = [value for _, value in points]
    low, high = min(values), max(values)
    duration_s = points[-1][0] - points[0][0]
    line = _line(points, low, high) if high > low else ""
    return Trace(name=name, unit=unit, low=low, high=high, last=values[-1], duration_s=duration_s, points=line)


def _line(points: Sequence[tuple[float, float]], low: float, high: float) -> str:
    start, end = points[0][0], points[-1][0]
    x_scale = WIDTH / (end - start) if end > start else 0.0
    y_scale = (HEIGHT - 8) / (high - low)
    return " ".join(f"{(at - start) * x_scale:.1f},{HEIGHT - 4 - (value - low) * y_scale:.1f}" for at, value in points)
