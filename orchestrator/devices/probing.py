"""Facts and state of a phone: one script each, read by the probes into records."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from orchestrator.devices import probes
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.identity import Serial

_CPU: Final = "/sys/devices/system/cpu"
_BOOT_ID: Final = "cat /proc/sys/kernel/random/boot_id"

#: What is asked for once per boot. ``grep -H ''`` prints path and content of many files with one process.
FACTS_COMMANDS: Final[Mapping[str, str]] = {
    "properties": "getprop",
    "boot_id": _BOOT_ID,
    "cpufreq": (
        f'f=$(ls -d {_CPU}/cpufreq/policy[0-9]*); [ -n "$f" ] || f=$(ls -d {_CPU}/cpu[0-9]*/cpufreq)\n'
        'for d in $f; do grep -H "" $d/related_cpus $d/cpuinfo_min_freq $d/cpuinfo_max_freq; done'
    ),
    "cpus": f"cat {_CPU}/possible",
    "cpuinfo": "cat /proc/cpuinfo",
    "meminfo": "cat /proc/meminfo",
    "gles": "dumpsys SurfaceFlinger | grep GLES:",
    # su is only asked where it exists; Android's own takes a user first, Magisk's takes -c.
    "uid": "id -u; command -v su >/dev/null && { su 0 id -u || su -c 'id -u'; }",
}

#: What is asked for before and after every run.
STATE_COMMANDS: Final[Mapping[str, str]] = {
    "boot_id": _BOOT_ID,
    "uptime": "cat /proc/uptime",
    "load": "cat /proc/loadavg",
    "meminfo": "grep MemAvailable /proc/meminfo",
    "zones": 'grep -H "" /sys/class/thermal/thermal_zone*/type /sys/class/thermal/thermal_zone*/temp',
    "cpufreq": (
        f'f=$(ls -d {_CPU}/cpufreq/policy[0-9]*); [ -n "$f" ] || f=$(ls -d {_CPU}/cpu[0-9]*/cpufreq)\n'
        'for d in $f; do grep -H "" $d/related_cpus $d/scaling_cur_freq $d/scaling_max_freq '
        "$d/stats/time_in_state; done"
    ),
    "thermalservice": "dumpsys thermalservice",
    "battery": "dumpsys battery",
    "current": "cat /sys/class/power_supply/battery/current_now",
    "screen": 'dumpsys power | grep -e mWakefulness= -e "Display Power"; dumpsys window policy | grep -i -e showing=',
}


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
    cpufreq = probes.parse_cpufreq(sections.get("cpufreq", ""))
    screen = probes.parse_screen(sections.get("screen", ""))
    return DeviceState(
        at=at,
        uptime_s=probes.parse_uptime(sections.get("uptime", "")),
        boot_id=sections.get("boot_id", "").strip(),
        # Many phones hide sysfs' zones from the shell: what the thermal HAL tells comes in their place.
        heat_c={**thermal.heat_c, **probes.parse_thermal_zones(sections.get("zones", ""))},
        thermal_status=thermal.worst_status,
        battery_percent=battery.percent,
        battery_heat_c=battery.heat_c if battery.heat_c is not None else thermal.battery_c,
        battery_current_ua=probes.parse_current_ua(sections.get("current", "")),
        plugged=battery.plugged,
        clock_khz=cpufreq.current_khz,
        clock_limit_khz=cpufreq.limit_khz,
        time_in_state=cpufreq.time_in_state,
        load_1min=probes.parse_load(sections.get("load", "")),
        memory_available_bytes=probes.parse_meminfo(sections.get("meminfo", "")).get("MemAvailable"),
        screen_on=screen.on,
        locked=screen.locked,
    )


def _is_emulator(properties: Mapping[str, str]) -> bool:
    if properties.get("ro.benchfarm.virtual") == "1":
        return False
    return (
        properties.get("ro.kernel.qemu") == "1"
        or properties.get("ro.boot.qemu") == "1"
        or properties.get("ro.hardware") in {"goldfish", "ranchu"}
    )
