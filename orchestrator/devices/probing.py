"""What a phone or this computer is and how it is now: what is read for it, and the records put
together from that.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from orchestrator.devices import probes
from orchestrator.processes import own_boot
from orchestrator.records.case import Serial
from orchestrator.records.device import (
    HOST_SERIAL,
    CpuCluster,
    DeviceFacts,
    DeviceKind,
    DeviceState,
)
from orchestrator.scripts import call

_CPU: Final = "/sys/devices/system/cpu"

#: What is asked for once per boot. ``grep -H ''`` prints path and content of many files with one
#: process.
FACTS_COMMANDS: Final[Mapping[str, str]] = {
    "properties": "getprop",
    "boot_id": "cat /proc/sys/kernel/random/boot_id",
    "cpufreq": call("cpu_clusters"),
    "cpus": f"cat {_CPU}/possible",
    "cpuinfo": "cat /proc/cpuinfo",
    "meminfo": "cat /proc/meminfo",
    "gles": "dumpsys SurfaceFlinger 2>/dev/null | grep GLES:",
    "uid": call("root_user"),
    "setup": "settings get secure android_id",
}

#: What is asked for before and after every run.
STATE_COMMANDS: Final[Mapping[str, str]] = {
    "files": call("state_files"),
    "counts": "grep -e '^cpu ' -e ^ctxt -e ^btime -e ^MemAvailable /proc/stat /proc/meminfo",
    "thermalservice": "dumpsys thermalservice",
    "battery": "dumpsys battery",
    "screen": (
        'dumpsys power | grep -e mWakefulness= -e "Display Power"\ndumpsys window policy | grep mCurrentFocus='
    ),
    # Where the window manager's policy doesn't tell the focus: who is in the group of the app on
    # screen.
    "topapp": call("foreground"),
}


def facts_from(sections: Mapping[str, str], *, serial: str) -> DeviceFacts:
    """Put a phone's facts together from the outputs of FACTS_COMMANDS."""
    properties = probes.parse_properties(sections.get("properties", ""))

    def first(*names: str) -> str:
        return next(
            (properties[name].strip() for name in names if properties.get(name, "").strip()), ""
        )

    hardware = probes.parse_cpuinfo(sections.get("cpuinfo", "")).get("Hardware", [""])[-1]
    gpu, gpu_driver = probes.parse_gles(sections.get("gles", ""))
    abis = (
        first("ro.product.cpu.abilist")
        or f"{first('ro.product.cpu.abi')},{first('ro.product.cpu.abi2')}"
    )
    sdk = first("ro.build.version.sdk")
    maker, chip = (
        first("ro.soc.manufacturer"),
        first("ro.soc.model", "ro.hardware.chipname", "ro.chipname"),
    )
    is_virtual = first("ro.benchfarm.virtual") == "1"
    is_emulated = (
        "1" in {first("ro.kernel.qemu"), first("ro.boot.qemu")} or first("ro.hardware") in _EMULATED
    )
    return DeviceFacts(
        serial=Serial(probes.parse_serial(first("ro.serialno")) or serial),
        kind=DeviceKind.ANDROID,
        is_virtual=is_virtual,
        is_emulator=is_emulated and not is_virtual,
        manufacturer=first("ro.product.manufacturer", "ro.product.vendor.manufacturer"),
        model=first("ro.product.model", "ro.product.vendor.model"),
        codename=first("ro.product.device", "ro.product.vendor.device", "ro.build.product"),
        os_version=first("ro.build.version.release"),
        sdk=int(sdk) if sdk.isdigit() else None,
        fingerprint=first(
            "ro.build.fingerprint", "ro.system.build.fingerprint", "ro.vendor.build.fingerprint"
        ),
        security_patch=first("ro.build.version.security_patch"),
        soc=" ".join(filter(None, (maker, chip))) or hardware,
        platform=first("ro.board.platform"),
        abis=tuple(filter(None, (abi.strip() for abi in abis.split(",")))),
        clusters=_clusters(sections),
        memory_bytes=probes.parse_meminfo(sections.get("meminfo", "")).get("MemTotal"),
        gpu=gpu,
        gpu_driver=gpu_driver,
        boot_id=sections.get("boot_id", "").strip(),
        is_rooted="0" in sections.get("uid", "").split(),
        setup_id=_setup_id(sections.get("setup", "").strip(), serial),
        properties=properties,
    )


def _setup_id(told: str, serial: str) -> str:
    """Return what stands for the number that Android draws at its first start.

    Not the number, which identifies its user to apps. Empty when the phone doesn't tell it.
    """
    if not re.fullmatch("[0-9a-f]{8,32}", told):
        return ""
    return hashlib.sha256(f"{serial}\n{told}".encode()).hexdigest()[:16]


#: What an emulator of Android calls its hardware.
_EMULATED: Final = frozenset({"goldfish", "ranchu"})


def _clusters(sections: Mapping[str, str]) -> tuple[CpuCluster, ...]:
    """Return the clusters; cores that cpufreq doesn't show form one cluster of unknown clocks."""
    known = probes.parse_clusters(sections.get("cpufreq", ""))
    listed = probes.parse_cpuinfo(sections.get("cpuinfo", "")).get("processor", ())
    cpus = probes.parse_cpu_list(sections.get("cpus", "")) or [
        int(number) for number in listed if number.isdigit()
    ]
    rest = tuple(sorted(set(cpus) - {cpu for cluster in known for cpu in cluster.cpus}))
    return (*([CpuCluster(cpus=rest, min_khz=None, max_khz=None)] if rest else []), *known)


def state_from(sections: Mapping[str, str], *, at: datetime) -> DeviceState:
    """Put a phone's state together from the outputs of STATE_COMMANDS."""
    files, counted, screen = (sections.get(name, "") for name in ("files", "counts", "screen"))
    thermal = probes.parse_thermalservice(sections.get("thermalservice", ""))
    battery = probes.parse_battery(sections.get("battery", ""))
    # Many phones hide sysfs' zones from the shell: what the thermal HAL tells comes in their place.
    thermal["heat_c"] |= probes.parse_thermal_zones(files)
    if battery["battery_heat_c"] is None:
        battery["battery_heat_c"] = thermal["battery_heat_c"]
    return DeviceState(
        at=at,
        uptime_s=probes.parse_first_number(_content(files, "/proc/uptime")),
        boot_id=_content(files, "/proc/sys/kernel/random/boot_id").strip(),
        load_1min=probes.parse_first_number(_content(files, "/proc/loadavg")),
        memory_available_bytes=probes.parse_meminfo(counted.replace("/proc/meminfo:", "")).get(
            "MemAvailable"
        ),
        foreground=probes.parse_foreground(screen, cmdlines=sections.get("topapp", "")),
        **{
            **thermal,
            **battery,
            **probes.parse_clocks(files),
            **probes.parse_gpu(files),
            **probes.parse_kernel_counts(counted),
            **probes.parse_screen(screen),
        },
    )


def _content(text: str, path: str) -> str:
    """Return the first line of a file among ``path:content`` lines, empty when it isn't there."""
    found = re.search(rf"^{re.escape(path)}:(.*)$", text, re.M)
    return found[1] if found else ""


#: Ticks are 10 ms: enough of them for a share in tenths of a core.
_BUSY_MOMENT_S: Final = 0.1
_CPUFREQ_FACTS: Final = ("related_cpus", "cpuinfo_min_freq", "cpuinfo_max_freq")
_CPUFREQ_STATE: Final = (
    "related_cpus",
    "scaling_cur_freq",
    "scaling_min_freq",
    "scaling_max_freq",
    "scaling_governor",
    "stats/time_in_state",
)


def host_facts() -> DeviceFacts:
    """Return what this computer is; clusters come from cpufreq, else all cores form one."""
    text = _read("/proc/cpuinfo")
    cpuinfo = probes.parse_cpuinfo(text)
    sections = {
        "cpufreq": _cpufreq(_CPUFREQ_FACTS),
        "cpus": _read(f"{_CPU}/online"),
        "cpuinfo": text,
    }
    one_cluster = CpuCluster(cpus=tuple(range(os.cpu_count() or 1)), min_khz=None, max_khz=None)
    named = (
        cpuinfo.get("model name", [""])[0],
        cpuinfo.get("Hardware", [""])[-1],
        platform.processor(),
    )
    return DeviceFacts(
        serial=HOST_SERIAL,
        kind=DeviceKind.HOST,
        is_virtual=False,
        manufacturer=_read("/sys/class/dmi/id/sys_vendor").strip(),
        model=platform.node(),
        codename="host",
        os_version=f"{platform.system()} {platform.release()}",
        soc=next(filter(None, named), platform.machine()),
        platform=platform.machine(),
        abis=(platform.machine(),),
        clusters=_clusters(sections) or (one_cluster,),
        memory_bytes=_memory_bytes(),
        gpu=_host_gpu(),
        boot_id=own_boot(),
        is_rooted=os.geteuid() == 0,
        properties={"python": sys.version.split(maxsplit=1)[0]},
    )


def host_state(at: datetime) -> DeviceState:
    """Return how this computer is now; what it doesn't show stays unknown."""
    zones = "".join(
        f"{zone / name}:{_read(zone / name).strip()}\n"
        for zone in sorted(Path("/sys/class/thermal").glob("thermal_zone*"))
        for name in ("type", "temp")
    )
    first = probes.parse_kernel_counts(_read("/proc/stat"))
    time.sleep(_BUSY_MOMENT_S)
    counts = probes.parse_kernel_counts(_read("/proc/stat"))
    busy_cores: float | None = None
    if first["cpu_total_s"] is not None and counts["cpu_total_s"] > first["cpu_total_s"]:
        share = (counts["cpu_busy_s"] - first["cpu_busy_s"]) / (
            counts["cpu_total_s"] - first["cpu_total_s"]
        )
        busy_cores = share * (os.cpu_count() or 1)
    return DeviceState(
        at=at,
        uptime_s=probes.parse_first_number(_read("/proc/uptime")),
        boot_id=own_boot(),
        heat_c=probes.parse_thermal_zones(zones),
        load_1min=os.getloadavg()[0],
        busy_cores=busy_cores,
        memory_available_bytes=probes.parse_meminfo(_read("/proc/meminfo")).get("MemAvailable"),
        **{**probes.parse_clocks(_cpufreq(_CPUFREQ_STATE)), **counts},
    )


def _host_gpu() -> str:
    """Return the driver of the first GPU that programs may compute on, empty where there is none."""
    for node in sorted(Path("/dev/dri").glob("renderD*")):
        driver = Path("/sys/class/drm") / node.name / "device" / "driver"
        return driver.resolve().name if driver.exists() else node.name
    return "Metal" if sys.platform == "darwin" else ""


def _cpufreq(names: tuple[str, ...]) -> str:
    paths = (policy / name for policy in Path(f"{_CPU}/cpufreq").glob("policy*") for name in names)
    return "\n".join(f"{path}:{line}" for path in paths for line in _read(path).splitlines())


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
