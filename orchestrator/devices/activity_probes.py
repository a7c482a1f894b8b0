"""What the kernel counts of work done, read into figures: processors in /proc/stat, GPUs in their drivers' sysfs.

Pure functions. None or an empty mapping is unknown, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: The kernel's USER_HZ is 100 on every Android and on every Linux that matters here.
TICKS_PER_S: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCounts:
    """What /proc/stat counts since boot, over all cores."""

    busy_s: float | None = None
    total_s: float | None = None
    context_switches: int | None = None
    processes_started: int | None = None
    runnable: int | None = None
    #: Unix seconds, by the wall clock as it is now.
    boot_at_s: int | None = None


def parse_kernel_counts(text: str) -> KernelCounts:
    """Read /proc/stat, whole or its lines cpu, ctxt, btime, processes and procs_running, with or without paths."""
    values: dict[str, list[int]] = {}
    for line in text.splitlines():
        found = re.match(r"(?:/proc/stat:)?(cpu|ctxt|btime|processes|procs_running)\s+([\d ]+)$", line)
        if found is not None:
            values.setdefault(found[1], [int(word) for word in found[2].split()])
    # The kernel's order: user nice system idle iowait irq softirq steal; what follows is counted in user already.
    ticks = values.get("cpu", [])[:8]
    busy = sum(ticks) - ticks[3] - ticks[4] if len(ticks) >= 5 else None

    def single(name: str) -> int | None:
        return values[name][0] if values.get(name) else None

    return KernelCounts(
        busy_s=None if busy is None else busy / TICKS_PER_S,
        total_s=None if busy is None else sum(ticks) / TICKS_PER_S,
        context_switches=single("ctxt"),
        processes_started=single("processes"),
        runnable=single("procs_running"),
        boot_at_s=single("btime"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What a GPU's driver shows in sysfs."""

    khz: int | None = None
    limit_khz: int | None = None
    busy_percent: float | None = None
    #: Frequency in kHz -> milliseconds.
    time_in_state: Mapping[int, int] = field(default_factory=dict)


#: What the clock, its limit and the load are called: Adreno's kgsl, Arm's Mali, Google's and Samsung's, devfreq.
_CLOCKS: Final = ("gpuclk", "gpu_clock", "cur_freq", "clock")
_LIMITS: Final = ("devfreq/max_freq", "scaling_max_freq", "max_freq", "gpu_max_clock", "max_gpuclk", "max_clock")
_LOADS: Final = ("gpu_busy_percentage", "utilization", "gpu_busy", "utilisation")
_GPU_FILE: Final = re.compile(
    r"^(?P<folder>/sys/(?:class/kgsl/kgsl-3d0|class/misc/mali0/device|kernel/gpu|class/devfreq/[^/:]+))/"
    r"(?P<name>[\w/]+):(?P<content>.*)$"
)


def parse_gpu(text: str) -> GpuReading:
    """Read ``path:content`` lines of a GPU's folders in /sys; clocks may be in Hz, kHz or MHz."""
    files: dict[str, list[str]] = {}
    for line in text.splitlines():
        found = _GPU_FILE.match(line)
        if found is not None:
            files.setdefault(found["name"], []).append(found["content"])
    clock = _first_number(files, _CLOCKS) or _first_number(files, ("devfreq/cur_freq",))
    limit = _first_number(files, _LIMITS)
    table: dict[int, int] = {}
    for name in ("time_in_state", "devfreq/trans_stat", "trans_stat"):
        table = table or _residency(files.get(name, ()))
    return GpuReading(
        khz=None if clock is None else _as_khz(clock),
        limit_khz=None if limit is None else _as_khz(limit),
        busy_percent=_first_number(files, _LOADS),
        time_in_state=table,
    )


def _residency(lines: list[str] | tuple[str, ...]) -> dict[int, int]:
    """Read ``frequency milliseconds`` lines, or devfreq's table of transitions, whose last column is the time."""
    table: dict[int, int] = {}
    for line in lines:
        row = re.match(r"^\s*\*?\s*(\d+)\s*:(?:\s+\d+)*?\s+(\d+)\s*$", line) or re.match(r"^\s*(\d+)\s+(\d+)\s*$", line)
        if row is not None:
            table[_as_khz(float(row[1]))] = int(row[2])
    return table


def _first_number(files: Mapping[str, list[str]], names: tuple[str, ...]) -> float | None:
    for name in names:
        found = re.match(r"\s*(\d+(?:\.\d+)?)", files.get(name, [""])[0])
        if found is not None:
            return float(found[1])
    return None


def _as_khz(value: float) -> int:
    """No GPU runs below 10 MHz or above 10 GHz, so the size tells the unit."""
    return round(value / 1000 if value >= 1e7 else value if value >= 1e4 else value * 1000)
