"""What a device was like before and after an invocation, in a line each."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.records.device import DeviceState
from orchestrator.records.sample import Sample
from orchestrator.report.tables import NOTHING

#: Zones outside of this aren't temperatures: trip points, disconnected sensors, voltages under a thermal name.
_PLAUSIBLE_C = (-30.0, 130.0)
_KHZ_PER_MHZ = 1000


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
    """Return the battery: ``82 %, 29.5 °C, usb``."""
    if state is None:
        return NOTHING
    parts = []
    if state.battery_percent is not None:
        parts.append(f"{state.battery_percent} %")
    if state.battery_heat_c is not None:
        parts.append(f"{state.battery_heat_c:.1f} °C")
    if state.plugged:
        parts.append("unplugged" if state.plugged == "none" else state.plugged)
    return ", ".join(parts) or NOTHING


def clocks_text(state: DeviceState | None) -> str:
    """Return each cluster's clock of its limit in MHz: ``cpu0 1210/1766, cpu4 2170/2803``."""
    if state is None or not (state.clock_khz or state.clock_limit_khz):
        return NOTHING
    clocks, limits = state.clock_khz, state.clock_limit_khz
    return ", ".join(f"cpu{cpu} {_mhz(clocks.get(cpu))}/{_mhz(limits.get(cpu))}" for cpu in sorted({*clocks, *limits}))


def _mhz(khz: int | None) -> str:
    return NOTHING if khz is None else f"{khz / _KHZ_PER_MHZ:.0f}"
