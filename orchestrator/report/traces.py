"""Temperature and clocks over the time of a case, as small drawings; from looks before, during and after the runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from orchestrator.analysis.state_findings import other_battery
from orchestrator.records.device import DeviceState
from orchestrator.records.sample import Sample
from orchestrator.report.data import InvocationRow, Trace
from orchestrator.report.labels import NOTHING

_KHZ_PER_MHZ: Final = 1000
#: Zones outside of this aren't temperatures: trip points, disconnected sensors, voltages under a thermal name.
_PLAUSIBLE_C = (-30.0, 130.0)

#: Below this, the per cent is too coarse to tell a full charge by.
_LEAST_PERCENT = 25
#: Estimates of a full charge that are closer are one battery's.
_OTHER_BATTERY = 1.1


def hottest_text(state: DeviceState | None) -> str:
    """Return the hottest plausible zone: ``41.0 (cpu-1-0)``, in degrees Celsius."""
    zones = [] if state is None else [(heat, zone) for zone, heat in plausible_heat_c(state).items()]
    if not zones:
        return NOTHING
    heat, zone = max(zones)
    return f"{heat:.1f} ({zone})"


def plausible_heat_c(state: DeviceState | Sample) -> Mapping[str, float]:
    """Return the zones that show a temperature, in degrees Celsius."""
    low, high = _PLAUSIBLE_C
    return {zone: heat for zone, heat in state.heat_c.items() if low < heat < high}


def battery_text(state: DeviceState | None) -> str:
    """Return the battery: ``82 %, 29.5 °C, usb``; its health where it isn't good."""
    if state is None:
        return NOTHING
    parts = []
    if state.battery_percent is not None:
        parts.append(f"{state.battery_percent} %")
    if state.battery_heat_c is not None:
        parts.append(f"{state.battery_heat_c:.1f} °C")
    if state.plugged:
        parts.append("unplugged" if state.plugged == "none" else state.plugged)
    if state.battery_health not in {"", "good"}:
        parts.append(f"health {state.battery_health}")
    return ", ".join(parts) or NOTHING


def battery_change_text(states: Sequence[DeviceState]) -> str:
    """Return that the battery was another one later on, where its full charge says so; empty where it doesn't.

    ``states`` in the order of time. The full charge is what is in the battery by its per cent.
    """
    full_mah = [
        state.battery_charge_uah / 1000 / state.battery_percent * 100
        for state in states
        if state.battery_charge_uah is not None and (state.battery_percent or 0) >= _LEAST_PERCENT
        if state.battery_percent
    ]
    if not full_mah or max(full_mah) < _OTHER_BATTERY * min(full_mah):
        return ""
    for cut in range(1, len(full_mah)):
        found = other_battery(full_mah[:cut], full_mah[cut:])
        if found is not None:
            return f"another battery: full, it held {found[0]:.0f} mAh at first and {found[1]:.0f} mAh later"
    return ""


def clocks_text(state: DeviceState | None) -> str:
    """Return each cluster's clock of its limit in MHz: ``cpu0 1210/1766, cpu4 2170/2803``."""
    if state is None or not (state.clock_khz or state.clock_limit_khz):
        return NOTHING
    clocks, limits = state.clock_khz, state.clock_limit_khz
    return ", ".join(f"cpu{cpu} {_mhz(clocks.get(cpu))}/{_mhz(limits.get(cpu))}" for cpu in sorted({*clocks, *limits}))


def _mhz(khz: int | None) -> str:
    return NOTHING if khz is None else f"{khz / _KHZ_PER_MHZ:.0f}"


#: The drawing's size in its own units; the page stretches it in length.
WIDTH: Final = 300.0
HEIGHT: Final = 60.0
_LEAST_POINTS: Final = 2


def condition_traces(invocations: Sequence[InvocationRow]) -> tuple[Trace, ...]:
    """Return the hottest zone and each cluster's clock and limit over time; nothing where they aren't known twice."""
    states = [state for run in invocations for state in (run.state_before, run.state_after) if state is not None]
    return _traces((state.at.timestamp(), state) for state in sorted(states, key=lambda state: state.at))


def sample_traces(samples: Sequence[Sample]) -> tuple[Trace, ...]:
    """Return the same while one invocation ran, and how busy the GPU was, by looks at the device."""
    return _traces((sample.uptime_s, sample) for sample in samples)


def _traces(looks: Iterable[tuple[float, DeviceState | Sample]]) -> tuple[Trace, ...]:
    """Return what looks (seconds, state) in the order of time show; what was seen once only is no trace."""
    series: dict[str | tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for at, look in looks:
        zones = plausible_heat_c(look)
        if zones:
            series["hottest zone"].append((at, max(zones.values())))
        for name, clocks in (("limit of cpu", look.clock_limit_khz), ("clock of cpu", look.clock_khz)):
            for cpu in sorted(clocks):
                series[name, cpu].append((at, clocks[cpu] / _KHZ_PER_MHZ))
        if isinstance(look, Sample) and look.gpu_busy_percent is not None:
            series["GPU busy"].append((at, look.gpu_busy_percent))
    units = {"hottest zone": "°C", "GPU busy": "%"}
    return tuple(
        _trace(key, units[key], points) if isinstance(key, str) else _trace(f"{key[0]}{key[1]}", "MHz", points)
        for key, points in series.items()
        if len(points) >= _LEAST_POINTS
    )


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
