"""What the watcher beside a run wrote, read into a time series. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from orchestrator.records.sample import RunSamples, Sample

_LOOK: Final = "--look"
_TIMES: Final = "--times"
_FREQUENCY: Final = re.compile(
    r"/cpu/(?:cpufreq/policy|cpu)(\d+)/(?:cpufreq/)?(scaling_cur_freq|scaling_max_freq):(\d+)$"
)
_TICKS: Final = re.compile(r"/cpu/(?:cpufreq/policy|cpu)(\d+)/(?:cpufreq/)?stats/time_in_state:(\d+) (\d+)$")
_ZONE: Final = re.compile(r"/(thermal_zone\d+)/(type|temp):(.*)$")
_GPU: Final = re.compile(r"/(?:kgsl-3d0|mali0/device)/([\w/]+):\s*(\d+(?:\.\d+)?)(?: (\d+))?")
_TICKS_PER_S: Final = 100
_PLAUSIBLE_C: Final = (-40.0, 200.0)


def parse_samples(data: bytes) -> RunSamples:
    """Read the file; a look that was cut off after its first words, or has no time since boot, is left out."""
    text, _, after = data.decode("utf-8", "replace").partition(f"\n{_TIMES}\n")
    times, _, last = after.partition(f"\n{_LOOK}\n")
    looks = [*re.split(rf"^{_LOOK}$", text, flags=re.M)[1:], *([last] if last else [])]
    samples = [sample for look in looks if (sample := _sample(look)) is not None]
    return RunSamples(samples=tuple(samples), own_cpu_s=_children_s(times))


def _children_s(text: str) -> float | None:
    """Read the shell's ``times``: its second line is the processor time of the processes that it waited for."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return None
    parts = re.findall(r"(\d+)m\s*(\d+(?:[.,]\d+)?)s", lines[1])
    return sum(60 * int(minutes) + float(seconds.replace(",", ".")) for minutes, seconds in parts) if parts else None


def _sample(text: str) -> Sample | None:
    uptimes = [float(figure) for figure in re.findall(r"^/proc/uptime:(\d+(?:\.\d+)?)", text, re.M)]
    lines = text.splitlines()
    if not uptimes or _is_cut_off(lines, uptimes):
        return None
    clocks: dict[str, dict[int, int]] = {"scaling_cur_freq": {}, "scaling_max_freq": {}}
    ticks: dict[int, dict[int, int]] = {}
    for line in lines:
        if found := _FREQUENCY.search(line):
            clocks[found[2]][int(found[1])] = int(found[3])
        elif found := _TICKS.search(line):
            ticks.setdefault(int(found[1]), {})[int(found[2])] = int(found[3])
    gpu, gpu_ticks = _gpu(lines)
    return Sample(
        uptime_s=uptimes[0],
        took_s=uptimes[-1] - uptimes[0],
        cpu_busy_s=_cpu_busy_s(text),
        clock_khz=clocks["scaling_cur_freq"],
        clock_limit_khz=clocks["scaling_max_freq"],
        time_in_state=ticks,
        heat_c=_heat(lines),
        gpu_khz=_khz(gpu.get("gpuclk", gpu.get("cur_freq"))),
        gpu_limit_khz=_khz(gpu.get("devfreq/max_freq", gpu.get("scaling_max_freq"))),
        gpu_busy_percent=gpu.get("gpu_busy_percentage", gpu.get("utilization")),
        gpu_time_in_state=gpu_ticks,
    )


def _is_cut_off(lines: list[str], uptimes: list[float]) -> bool:
    """Whether the watcher was ended between its own words, the first two, and what it has another program read."""
    said = [line for line in lines if line]
    own = ("/proc/uptime:", "/proc/stat:")
    return len(uptimes) == 1 and said[0].startswith(own[0]) and all(line.startswith(own) for line in said)


def _cpu_busy_s(text: str) -> float | None:
    found = re.search(r"^/proc/stat:cpu\s+([\d ]+)$", text, re.M)
    ticks = [int(word) for word in found[1].split()][:8] if found else []
    if len(ticks) < 5:
        return None
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS_PER_S


def _heat(lines: list[str]) -> Mapping[str, float]:
    names: dict[str, str] = {}
    heat: dict[str, float] = {}
    for line in lines:
        found = _ZONE.search(line)
        if found is None:
            continue
        if found[2] == "type":
            names[found[1]] = found[3].strip()
        elif re.fullmatch(r"-?\d+", found[3].strip()):
            raw = int(found[3])
            # Kernels give thousandths, tenths or whole degrees.
            degrees = raw / 1000 if abs(raw) >= 1000 else raw / 10 if abs(raw) > _PLAUSIBLE_C[1] else float(raw)
            if _PLAUSIBLE_C[0] < degrees < _PLAUSIBLE_C[1] and degrees:
                heat[found[1]] = degrees
    return {names.get(zone, zone): degrees for zone, degrees in heat.items()}


def _gpu(lines: list[str]) -> tuple[dict[str, float], dict[int, int]]:
    values: dict[str, float] = {}
    ticks: dict[int, int] = {}
    for line in lines:
        found = _GPU.search(line)
        if found is not None and found[1] == "time_in_state" and found[3]:
            ticks[_khz(float(found[2])) or 0] = int(found[3])
        elif found is not None:
            values.setdefault(found[1], float(found[2]))
    return values, ticks


def _khz(value: float | None) -> int | None:
    """No GPU runs below 10 MHz or above 10 GHz, so the size tells the unit."""
    if value is None:
        return None
    return round(value / 1000 if value >= 1e7 else value if value >= 1e4 else value * 1000)
