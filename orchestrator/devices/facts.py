"""What a device is: what it is asked once per boot, the record put together from that, and how what
its tools and its kernel print is read. Pure functions.

None or an empty mapping is unknown, never a guess. Clocks are in kHz, memory in bytes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.records.case import Serial
from orchestrator.records.device import HOST_SERIAL, CpuCluster, DeviceFacts, DeviceKind
from orchestrator.scripts import call
from orchestrator.sysfs import parse_cpu_list, policies, whole

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
    "uid": call("root_user"),
    "setup": "settings get secure android_id",
}
#: Asked by itself: an old phone's compositor may hang.
GPU_COMMANDS: Final[Mapping[str, str]] = {
    "gles": "dumpsys SurfaceFlinger 2>/dev/null | grep GLES:",
}


def facts_from(sections: Mapping[str, str], *, serial: str) -> DeviceFacts:
    """Put a phone's facts together from the outputs of FACTS_COMMANDS and GPU_COMMANDS."""
    properties = parse_properties(sections.get("properties", ""))

    def first(*names: str) -> str:
        return next(
            (properties[name].strip() for name in names if properties.get(name, "").strip()), ""
        )

    hardware = parse_cpuinfo(sections.get("cpuinfo", "")).get("Hardware", [""])[-1]
    gpu, gpu_driver = parse_gles(sections.get("gles", ""))
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
        serial=Serial(parse_serial(first("ro.serialno")) or serial),
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
        abis=tuple(
            filter(None, (abi.strip() for abi in first("ro.product.cpu.abilist").split(",")))
        ),
        clusters=_clusters(sections),
        memory_bytes=parse_meminfo(sections.get("meminfo", "")).get("MemTotal"),
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
    known = parse_clusters(sections.get("cpufreq", ""))
    listed = parse_cpuinfo(sections.get("cpuinfo", "")).get("processor", ())
    cpus = parse_cpu_list(sections.get("cpus", "")) or [
        int(number) for number in listed if number.isdigit()
    ]
    rest = tuple(sorted(set(cpus) - {cpu for cluster in known for cpu in cluster.cpus}))
    return (*([CpuCluster(cpus=rest, min_khz=None, max_khz=None)] if rest else []), *known)


#: What this computer is asked for, once.
HOST_COMMANDS: Final[Mapping[str, str]] = {
    "cpufreq": call("cpu_clusters"),
    "boot_id": FACTS_COMMANDS["boot_id"],
    "cpus": f"cat {_CPU}/online",
    "cpuinfo": "cat /proc/cpuinfo",
    "maker": "cat /sys/class/dmi/id/sys_vendor",
}


def host_facts(sections: Mapping[str, str]) -> DeviceFacts:
    """Put this computer's facts together from the outputs of HOST_COMMANDS.

    Clusters come from cpufreq, else all cores form one.
    """
    cpuinfo = parse_cpuinfo(sections.get("cpuinfo", ""))
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
        manufacturer=sections.get("maker", "").strip(),
        model=platform.node(),
        codename="host",
        os_version=f"{platform.system()} {platform.release()}",
        soc=next(filter(None, named), platform.machine()),
        platform=platform.machine(),
        abis=(platform.machine(),),
        clusters=_clusters(sections) or (one_cluster,),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpu=_host_gpu(),
        boot_id=sections.get("boot_id", "").strip(),
        is_rooted=os.geteuid() == 0,
        properties={"python": sys.version.split(maxsplit=1)[0]},
    )


def _host_gpu() -> str:
    """Return the driver of the first GPU that programs may compute on, empty where there is none."""
    for node in sorted(Path("/dev/dri").glob("renderD*")):
        driver = Path("/sys/class/drm") / node.name / "device" / "driver"
        return driver.resolve().name if driver.exists() else node.name
    return "Metal" if sys.platform == "darwin" else ""


_PROPERTY: Final = re.compile(r"^\[([^\]\n]+)\]: \[(.*?)\]\r?$", re.M | re.S)


def parse_properties(text: str) -> dict[str, str]:
    """Read ``getprop``: ``[name]: [value]``, values may span lines."""
    return dict(_PROPERTY.findall(text))


def parse_serial(text: str) -> str:
    """Read ``getprop ro.serialno``: its last line that is one word; empty where there is none.

    What isn't printable is left out, as it names files and screens.
    """
    lines = (
        "".join(c for c in line if c.isprintable()).strip() for line in reversed(text.splitlines())
    )
    return next((line for line in lines if line and " " not in line), "")


def parse_cpuinfo(text: str) -> dict[str, list[str]]:
    """Read /proc/cpuinfo of ARM and x86: every value of each key, in order."""
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            values.setdefault(key.strip(), []).append(value.strip())
    return values


def parse_clusters(text: str) -> tuple[CpuCluster, ...]:
    """Read ``path:content`` lines (``grep -H ''``) of cpufreq's policyN or cpuN/cpufreq folders,
    slowest first.
    """
    clusters = [
        CpuCluster(
            cpus=cpus,
            min_khz=whole(known.get("cpuinfo_min_freq", [""])[0]),
            max_khz=whole(known.get("cpuinfo_max_freq", [""])[0]),
        )
        for cpus, known in policies(text)
    ]
    return tuple(sorted(clusters, key=lambda cluster: (cluster.max_khz or 0, cluster.cpus)))


def parse_gles(text: str) -> tuple[str, str]:
    """Return renderer and driver version of ``GLES: vendor, renderer, version (...)`` (``dumpsys
    SurfaceFlinger``).
    """
    found = re.search(r"GLES: [^,\n]*, ([^,\n]*), ([^\n]*)", text)
    if found is None:
        return "", ""
    return found[1].strip(), re.sub(r"\s*\(.*", "", found[2]).strip().rstrip(",")


def parse_meminfo(text: str) -> dict[str, int]:
    """Read /proc/meminfo: name -> bytes."""
    return {
        name: int(kib) * 1024
        for name, kib in re.findall(r"^(\w+(?:\(\w+\))?):\s+(\d+) kB", text, re.M)
    }
