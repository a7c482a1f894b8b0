"""What this computer is and how it is now, from its /proc and /sys where it has them."""

from __future__ import annotations

import os
import platform
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Final

from orchestrator.devices import probes
from orchestrator.devices.activity_probes import parse_kernel_counts
from orchestrator.devices.lease import own_boot
from orchestrator.devices.probing import clusters_from
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.identity import Serial

#: Ticks are 10 ms: enough of them for a share in tenths of a core.
_BUSY_MOMENT_S: Final = 0.1
_CPUFREQ_FACTS: Final = ("related_cpus", "cpuinfo_min_freq", "cpuinfo_max_freq")
_CPUFREQ_STATE: Final = (
    "related_cpus", "scaling_cur_freq", "scaling_min_freq", "scaling_max_freq", "scaling_governor",
    "stats/time_in_state",
)  # fmt: skip


def host_facts(serial: Serial) -> DeviceFacts:
    """Return what this computer is; clusters come from cpufreq, else all cores form one."""
    cpuinfo = probes.parse_cpuinfo(_read("/proc/cpuinfo"))
    sections = {
        "cpufreq": _cpufreq(_CPUFREQ_FACTS),
        "cpus": _read("/sys/devices/system/cpu/online"),
        "cpuinfo": _read("/proc/cpuinfo"),
    }
    cpus = tuple(range(os.cpu_count() or 1))
    return DeviceFacts(
        serial=serial,
        kind=DeviceKind.HOST,
        is_virtual=False,
        manufacturer=_read("/sys/class/dmi/id/sys_vendor").strip(),
        model=platform.node(),
        codename="host",
        os_version=f"{platform.system()} {platform.release()}",
        soc=cpuinfo.model_name or cpuinfo.hardware or platform.processor() or platform.machine(),
        platform=platform.machine(),
        abis=(platform.machine(),),
        clusters=clusters_from(sections) or (CpuCluster(cpus=cpus, min_khz=None, max_khz=None),),
        memory_bytes=_memory_bytes(),
        gpu=_gpu(),
        boot_id=own_boot(),
        is_rooted=os.geteuid() == 0,
        properties={"python": sys.version.split(maxsplit=1)[0]},
    )


def host_state(at: datetime) -> DeviceState:
    """Return how this computer is now; what it doesn't show stays unknown."""
    cpufreq = probes.parse_cpufreq(_cpufreq(_CPUFREQ_STATE))
    zones = "".join(
        f"{zone / name}:{_read(zone / name).strip()}\n"
        for zone in sorted(Path("/sys/class/thermal").glob("thermal_zone*"))
        for name in ("type", "temp")
    )
    try:
        load = os.getloadavg()[0]
    except OSError:
        load = None
    busy_cores = _busy_cores()
    counts = parse_kernel_counts(_read("/proc/stat"))
    return DeviceState(
        at=at,
        uptime_s=probes.parse_uptime(_read("/proc/uptime")),
        boot_id=own_boot(),
        heat_c=probes.parse_thermal_zones(zones),
        clock_khz=cpufreq.current_khz,
        clock_limit_khz=cpufreq.limit_khz,
        clock_floor_khz=cpufreq.floor_khz,
        governors=cpufreq.governors,
        time_in_state=cpufreq.time_in_state,
        load_1min=load,
        busy_cores=busy_cores,
        cpu_busy_s=counts.busy_s,
        cpu_total_s=counts.total_s,
        context_switches=counts.context_switches,
        processes_started=counts.processes_started,
        runnable=counts.runnable,
        boot_at_s=counts.boot_at_s,
        memory_available_bytes=probes.parse_meminfo(_read("/proc/meminfo")).get("MemAvailable"),
    )


def _gpu() -> str:
    """Return the driver of the first GPU that programs may compute on, empty where there is none."""
    for node in sorted(Path("/dev/dri").glob("renderD*")):
        driver = Path("/sys/class/drm") / node.name / "device" / "driver"
        return driver.resolve().name if driver.exists() else node.name
    return "Metal" if sys.platform == "darwin" else ""


def _busy_cores() -> float | None:
    """Return how many cores all processes together kept busy over a moment; None where /proc/stat isn't there."""
    first = parse_kernel_counts(_read("/proc/stat"))
    time.sleep(_BUSY_MOMENT_S)
    second = parse_kernel_counts(_read("/proc/stat"))
    if first.busy_s is None or first.total_s is None or second.busy_s is None or second.total_s is None:
        return None
    if second.total_s <= first.total_s:
        return None
    return (second.busy_s - first.busy_s) / (second.total_s - first.total_s) * (os.cpu_count() or 1)


def _cpufreq(names: tuple[str, ...]) -> str:
    lines: list[str] = []
    for policy in Path("/sys/devices/system/cpu/cpufreq").glob("policy*"):
        for name in names:
            lines += [f"{policy / name}:{line}" for line in _read(policy / name).splitlines()]
    return "\n".join(lines)


def _memory_bytes() -> int | None:
    if total := probes.parse_meminfo(_read("/proc/meminfo")).get("MemTotal"):
        return total
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""
