"""Facts and state of a phone: one script each, read by the probes into records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from orchestrator.devices import probes
from orchestrator.devices.activity_probes import parse_gpu, parse_kernel_counts
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.identity import Serial
from orchestrator.scripts import call

_CPU: Final = "/sys/devices/system/cpu"
_BOOT_ID: Final = "cat /proc/sys/kernel/random/boot_id"

#: What is asked for once per boot. ``grep -H ''`` prints path and content of many files with one process.
FACTS_COMMANDS: Final[Mapping[str, str]] = {
    "properties": "getprop",
    "boot_id": _BOOT_ID,
    "cpufreq": call("cpu_clusters"),
    "cpus": f"cat {_CPU}/possible",
    "cpuinfo": "cat /proc/cpuinfo",
    "meminfo": "cat /proc/meminfo",
    "gles": "dumpsys SurfaceFlinger | grep GLES:",
    "uid": call("root_user"),
}

#: What is asked for before and after every run.
STATE_COMMANDS: Final[Mapping[str, str]] = {
    "files": call("state_files"),
    "counts": (
        "grep -e '^cpu ' -e ^ctxt -e ^btime -e ^processes -e ^procs_running -e ^MemAvailable /proc/stat /proc/meminfo"
    ),
    "thermalservice": "dumpsys thermalservice",
    "battery": "dumpsys battery",
    "screen": (
        'dumpsys power | grep -e mWakefulness= -e "Display Power"\n'
        "dumpsys window policy | grep -i -e showing= -e mCurrentFocus="
    ),
    # Where the window manager's policy doesn't tell the focus: who is in the group of the app on screen.
    "topapp": call("foreground"),
}

#: BatteryManager's numbers that say something -> in words.
#: Less is in no phone's battery that runs.
_LEAST_CHARGE_UAH: Final = 20_000
BATTERY_HEALTH: Final = {2: "good", 3: "overheated", 4: "dead", 5: "over voltage", 6: "failing", 7: "cold"}


def facts_from(sections: Mapping[str, str], *, serial: str) -> DeviceFacts:
    """Put a phone's facts together from the outputs of FACTS_COMMANDS."""
    properties = probes.parse_properties(sections.get("properties", ""))

    def first(*names: str) -> str:
        return next((properties[name].strip() for name in names if properties.get(name, "").strip()), "")

    cpuinfo = probes.parse_cpuinfo(sections.get("cpuinfo", ""))
    gles = probes.parse_gles(sections.get("gles", ""))
    abis = first("ro.product.cpu.abilist") or ",".join(
        filter(None, (first("ro.product.cpu.abi"), first("ro.product.cpu.abi2")))
    )
    sdk = first("ro.build.version.sdk")
    maker, chip = first("ro.soc.manufacturer"), first("ro.soc.model", "ro.hardware.chipname", "ro.chipname")
    return DeviceFacts(
        serial=Serial(probes.parse_serial(first("ro.serialno")) or serial),
        kind=DeviceKind.ANDROID,
        is_virtual=first("ro.benchfarm.virtual") == "1",
        is_emulator=_is_emulator(properties),
        manufacturer=first("ro.product.manufacturer", "ro.product.vendor.manufacturer"),
        model=first("ro.product.model", "ro.product.vendor.model"),
        codename=first("ro.product.device", "ro.product.vendor.device", "ro.build.product"),
        os_version=first("ro.build.version.release"),
        sdk=int(sdk) if sdk.isdigit() else None,
        fingerprint=first("ro.build.fingerprint", "ro.system.build.fingerprint", "ro.vendor.build.fingerprint"),
        security_patch=first("ro.build.version.security_patch"),
        soc=" ".join(filter(None, (maker, chip))) or cpuinfo.hardware,
        platform=first("ro.board.platform"),
        abis=tuple(filter(None, (abi.strip() for abi in abis.split(",")))),
        clusters=clusters_from(sections),
        memory_bytes=probes.parse_meminfo(sections.get("meminfo", "")).get("MemTotal"),
        gpu=gles.renderer,
        gpu_driver=gles.version,
        boot_id=sections.get("boot_id", "").strip(),
        is_rooted="0" in sections.get("uid", "").split(),
        properties=properties,
    )


def clusters_from(sections: Mapping[str, str]) -> tuple[CpuCluster, ...]:
    """Return the clusters; cores that cpufreq doesn't show form one cluster of unknown clocks."""
    known = probes.parse_cpufreq(sections.get("cpufreq", "")).clusters
    cpus = (
        probes.parse_cpu_list(sections.get("cpus", "")) or probes.parse_cpuinfo(sections.get("cpuinfo", "")).processors
    )
    rest = tuple(sorted(set(cpus) - {cpu for cluster in known for cpu in cluster.cpus}))
    return (*([CpuCluster(cpus=rest, min_khz=None, max_khz=None)] if rest else []), *known)


def state_from(sections: Mapping[str, str], *, at: datetime) -> DeviceState:
    """Put a phone's state together from the outputs of STATE_COMMANDS."""
    thermal = probes.parse_thermalservice(sections.get("thermalservice", ""))
    battery = probes.parse_battery(sections.get("battery", ""))
    files, counted = sections.get("files", ""), sections.get("counts", "")
    cpufreq = probes.parse_cpufreq(files)
    gpu = parse_gpu(files)
    counts = parse_kernel_counts(counted)
    screen = probes.parse_screen(sections.get("screen", ""))
    return DeviceState(
        at=at,
        uptime_s=probes.parse_uptime(_content(files, "/proc/uptime")),
        boot_id=_content(files, "/proc/sys/kernel/random/boot_id").strip(),
        # Many phones hide sysfs' zones from the shell: what the thermal HAL tells comes in their place.
        heat_c={**thermal.heat_c, **probes.parse_thermal_zones(files)},
        thermal_status=thermal.worst_status,
        cooling=thermal.cooling,
        battery_percent=battery.percent,
        battery_heat_c=battery.heat_c if battery.heat_c is not None else thermal.battery_c,
        plugged=battery.plugged,
        # Some phones count nothing and say 0, or count in another unit.
        battery_charge_uah=battery.charge_uah if (battery.charge_uah or 0) >= _LEAST_CHARGE_UAH else None,
        battery_health=BATTERY_HEALTH.get(battery.health or 0, ""),
        clock_khz=cpufreq.current_khz,
        clock_limit_khz=cpufreq.limit_khz,
        clock_floor_khz=cpufreq.floor_khz,
        governors=cpufreq.governors,
        time_in_state=cpufreq.time_in_state,
        gpu_khz=gpu.khz,
        gpu_limit_khz=gpu.limit_khz,
        gpu_busy_percent=gpu.busy_percent,
        gpu_time_in_state=gpu.time_in_state,
        cpu_busy_s=counts.busy_s,
        cpu_total_s=counts.total_s,
        context_switches=counts.context_switches,
        processes_started=counts.processes_started,
        runnable=counts.runnable,
        boot_at_s=counts.boot_at_s,
        load_1min=probes.parse_load(_content(files, "/proc/loadavg")),
        memory_available_bytes=probes.parse_meminfo(counted.replace("/proc/meminfo:", "")).get("MemAvailable"),
        screen_on=screen.on,
        locked=screen.locked,
        foreground=probes.parse_foreground(sections.get("screen", ""), cmdlines=sections.get("topapp", "")),
    )


def _content(text: str, path: str) -> str:
    """Return the first line of a file among ``path:content`` lines, empty when it isn't there."""
    found = re.search(rf"^{re.escape(path)}:(.*)$", text, re.M)
    return found[1] if found else ""


def _is_emulator(properties: Mapping[str, str]) -> bool:
    if properties.get("ro.benchfarm.virtual") == "1":
        return False
    return (
        properties.get("ro.kernel.qemu") == "1"
        or properties.get("ro.boot.qemu") == "1"
        or properties.get("ro.hardware") in {"goldfish", "ranchu"}
    )
