"""Parsers of the kernel's small files under /sys and /proc, from ``path:content`` lines.

The files are read before and after a run, and by the watcher during it. All functions are pure.
Those that return a mapping of str to Any return fields for records. None or an empty mapping is
unknown, never a guess. Heat is in degrees Celsius, clocks in kHz.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from orchestrator.units import parse_number

#: A sensor outside this range isn't connected or reports something else than heat.
COLDEST_C: Final = -40.0
HOTTEST_C: Final = 200.0
#: A reading above this isn't in whole degrees: 150 is 15 degrees.
_HOTTEST_WHOLE_C: Final = 110.0
#: Zones by which kernels watch the battery: its charge in per cent, currents in mA, voltages in mV.
_NO_HEAT: Final = re.compile(r"^socd?$|[iv]bat|vph|bcl|ocp_|vdroop|batoilo|smpl|_cycle")
#: The kernel's USER_HZ is 100 on every Android and on every Linux that matters here.
TICKS_PER_S: Final = 100


def content_of(text: str, path: str) -> str:
    """Return the first line of a file among ``path:content`` lines, empty when it isn't there."""
    match = re.search(rf"^{re.escape(path)}:(.*)$", text, re.M)
    return match[1] if match else ""


def whole_number(text: str | None) -> int | None:
    """Return a whole number, None for anything else."""
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def parse_first_number(text: str) -> float | None:
    """Read the first word of /proc/uptime (seconds since boot) or /proc/loadavg (processes over a
    minute).
    """
    return parse_number(text.partition(" ")[0])


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Read the kernel's lists of cpus: ``0 1 2 3``, ``0-3``, ``0-3,6``; empty for any other text."""
    cpus: set[int] = set()
    for part in re.split(r"[\s,]+", text.strip()):
        if not re.fullmatch(r"\d{1,4}(-\d{1,4})?", part, re.ASCII):
            return ()
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


_CPUFREQ: Final = re.compile(
    r"/cpu/(?:cpufreq/policy(?P<policy>\d+)|cpu(?P<cpu>\d+)/cpufreq)/(?P<name>[\w/]+)$"
)


def policies(text: str) -> Iterator[tuple[tuple[int, ...], dict[str, list[str]]]]:
    """Yield the cpus and the files (name -> lines) of each cpufreq policy; folders of the same
    cores come once.
    """
    files: dict[int, dict[str, list[str]]] = {}
    for line in text.splitlines():
        path, colon, content = line.partition(":")
        match = _CPUFREQ.search(path) if colon else None
        if match is not None:
            number = int(match["policy"] or match["cpu"] or 0)
            files.setdefault(number, {}).setdefault(match["name"], []).append(content.strip())
    covered_cpus: set[int] = set()
    for number, policy_files in sorted(files.items()):
        listed = policy_files.get("related_cpus") or policy_files.get("affected_cpus") or [""]
        cpus = parse_cpu_list(listed[0]) or (number,)
        if number not in covered_cpus:
            covered_cpus.update(cpus)
            yield cpus, policy_files


def parse_clocks(text: str) -> dict[str, Any]:
    """Read the same folders' clocks, limits, governors and times; the mappings go by the first cpu
    of a cluster.
    """
    fields = {
        "clock_khz": "scaling_cur_freq",
        "clock_limit_khz": "scaling_max_freq",
        "clock_floor_khz": "scaling_min_freq",
    }
    clocks: dict[str, dict[int, Any]] = {
        name: {} for name in (*fields, "governors", "time_in_state")
    }
    for cpus, policy_files in policies(text):
        first = min(cpus)
        for field, name in fields.items():
            if (value := whole_number(policy_files.get(name, [""])[0])) is not None:
                clocks[field][first] = value
        if governor := policy_files.get("scaling_governor", [""])[0]:
            clocks["governors"][first] = governor
        pairs = (line.split() for line in policy_files.get("stats/time_in_state", ()))
        ticks = {
            int(pair[0]): int(pair[1])
            for pair in pairs
            if len(pair) == 2 and all(p.isdigit() for p in pair)
        }
        if ticks:
            clocks["time_in_state"][first] = ticks
    return dict(clocks)


def parse_thermal_zones(text: str) -> dict[str, float]:
    """Read ``path:content`` lines of /sys/class/thermal/thermal_zone*/type and temp: zone name ->
    degrees.

    Kernels give thousandths, tenths or whole degrees; absent sensors, and zones that aren't of
    heat, are left out.
    Zones of equal name keep the hottest.
    """
    lines = re.findall(r"^.*/(thermal_zone\d+)/(type|temp):(.*)$", text, re.M)
    names = {zone: content.strip() for zone, kind, content in lines if kind == "type"}
    readings = [
        (zone, value)
        for zone, kind, content in lines
        if kind == "temp"
        and (value := parse_number(content))
        and not _NO_HEAT.search(names.get(zone, ""))
    ]
    sizes = [abs(value) for _, value in readings]
    # 1100 is 1.1 degrees in thousandths, or 110 where the others are in tenths.
    are_tenths = any(_HOTTEST_WHOLE_C < size < 1000 for size in sizes) and max(sizes) < 2000
    heat: dict[str, float] = {}
    for zone, value in readings:
        is_thousandths = abs(value) >= 1000 and not are_tenths
        degrees = (
            value / 1000
            if is_thousandths
            else value / 10
            if abs(value) > _HOTTEST_WHOLE_C
            else value
        )
        if COLDEST_C < degrees < HOTTEST_C and degrees != 0:
            name = names.get(zone) or zone
            heat[name] = max(degrees, heat.get(name, COLDEST_C))
    return heat


def parse_kernel_counts(text: str) -> dict[str, Any]:
    """Read /proc/stat, whole or its lines cpu, ctxt and btime, with or without paths."""
    rows = re.findall(r"^(?:/proc/stat:)?(cpu|ctxt|btime)\s+([\d ]+)$", text, re.M)
    values = {name: [int(word) for word in words.split()] for name, words in reversed(rows)}
    # The kernel's order: user nice system idle iowait irq softirq steal; user includes the further
    # ones.
    ticks = values.get("cpu", [])[:8]
    is_known = len(ticks) >= 5
    return {
        "cpu_busy_s": (sum(ticks) - ticks[3] - ticks[4]) / TICKS_PER_S if is_known else None,
        "cpu_total_s": sum(ticks) / TICKS_PER_S if is_known else None,
        "context_switches": next(iter(values.get("ctxt", ())), None),
        "boot_at_s": next(iter(values.get("btime", ())), None),
    }


#: Names of the clock, its limit and the load: Adreno's kgsl, Arm's Mali, Google's and Samsung's,
#: devfreq.
_CLOCKS: Final = ("gpuclk", "gpu_clock", "cur_freq", "clock")
_LIMITS: Final = (
    "devfreq/max_freq",
    "scaling_max_freq",
    "max_freq",
    "gpu_max_clock",
    "max_gpuclk",
    "max_clock",
)
_LOADS: Final = ("gpu_busy_percentage", "utilization", "gpu_busy", "utilisation")
_GPU_FILE: Final = re.compile(
    r"^/sys/(?:class/kgsl/kgsl-3d0|class/misc/mali0/device|kernel/gpu|class/devfreq/[^/:]+)/([\w/]+):(.*)$",
    re.M,
)


def parse_gpu(text: str) -> dict[str, Any]:
    """Read ``path:content`` lines of a GPU's folders in /sys; clocks may be in Hz, kHz or MHz."""
    files: dict[str, list[str]] = {}
    for name, content in _GPU_FILE.findall(text):
        files.setdefault(name, []).append(content)
    tables = (
        _residency(files.get(name, ()))
        for name in ("time_in_state", "devfreq/trans_stat", "trans_stat")
    )
    return {
        # A driver that reports 0 has switched its clock off.
        "gpu_khz": _as_khz(_first_number(files, _CLOCKS) or None),
        "gpu_limit_khz": _as_khz(_first_number(files, _LIMITS)),
        "gpu_busy_percent": _first_number(files, _LOADS),
        "gpu_time_in_state": next(filter(None, tables), {}),
    }


def _residency(lines: Iterable[str]) -> dict[int, int]:
    """Read ``frequency milliseconds`` lines, or devfreq's table of transitions, whose last column
    is the time.
    """
    table: dict[int, int] = {}
    for line in lines:
        row = re.match(r"^\s*\*?\s*(\d+)\s*:(?:\s+\d+)*?\s+(\d+)\s*$", line) or re.match(
            r"^\s*(\d+)\s+(\d+)\s*$", line
        )
        if row is not None and (khz := _as_khz(float(row[1]))) is not None:
            table[khz] = int(row[2])
    return table


def _first_number(files: Mapping[str, list[str]], names: tuple[str, ...]) -> float | None:
    for name in names:
        match = re.match(r"\s*(\d+(?:\.\d+)?)", files.get(name, [""])[0])
        if match is not None:
            return float(match[1])
    return None


def _as_khz(value: float | None) -> int | None:
    """No GPU runs below 10 MHz or above 10 GHz, so the size tells the unit."""
    if value is None:
        return None
    return round(value / 1000 if value >= 1e7 else value if value >= 1e4 else value * 1000)
