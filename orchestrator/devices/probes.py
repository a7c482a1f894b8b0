"""Device facts (once per boot) and device state (before and after every run): the commands, the
parsers of their outputs, the records; and waiting until a device is fit to be measured.

Functions that return a mapping of str to Any return fields of DeviceState. None or an empty mapping
is unknown, never a guess. Heat is in degrees Celsius, clocks in kHz, memory in bytes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from orchestrator.clock import Deadline
from orchestrator.ports import Fitness
from orchestrator.records.case import Serial
from orchestrator.records.device import (
    HOST_SERIAL,
    CpuCluster,
    DeviceFacts,
    DeviceKind,
    DeviceState,
)
from orchestrator.records.plan import FitLimits
from orchestrator.scripts import script_command
from orchestrator.sysfs import (
    COLDEST_C,
    HOTTEST_C,
    content_of,
    parse_clocks,
    parse_cpu_list,
    parse_first_number,
    parse_gpu,
    parse_kernel_counts,
    parse_thermal_zones,
    policies,
    whole_number,
)
from orchestrator.units import parse_number

_CPU: Final = "/sys/devices/system/cpu"
#: Read once per boot. ``grep -H ''`` prints path and content of many files with one process.
FACTS_COMMANDS: Final[Mapping[str, str]] = {
    "properties": "getprop",
    "boot_id": "cat /proc/sys/kernel/random/boot_id",
    "cpufreq": script_command("cpu_clusters"),
    "cpus": f"cat {_CPU}/possible",
    "cpuinfo": "cat /proc/cpuinfo",
    "meminfo": "cat /proc/meminfo",
    "uid": script_command("root_user"),
    "setup": "settings get secure android_id",
}
#: Read apart: an old phone's compositor may hang.
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


def _setup_id(android_id: str, serial: str) -> str:
    """Return a hash of the random number that Android chooses at its first start.

    Not the number, which identifies its user to apps. Empty when the phone doesn't show it.
    """
    if not re.fullmatch("[0-9a-f]{8,32}", android_id):
        return ""
    return hashlib.sha256(f"{serial}\n{android_id}".encode()).hexdigest()[:16]


#: Hardware names of Android emulators.
_EMULATED: Final = frozenset({"goldfish", "ranchu"})


def _clusters(sections: Mapping[str, str]) -> tuple[CpuCluster, ...]:
    """Return the clusters; cores that cpufreq doesn't show form one cluster of unknown clocks."""
    clusters = parse_clusters(sections.get("cpufreq", ""))
    listed = parse_cpuinfo(sections.get("cpuinfo", "")).get("processor", ())
    cpus = parse_cpu_list(sections.get("cpus", "")) or [
        int(number) for number in listed if number.isdigit()
    ]
    rest = tuple(sorted(set(cpus) - {cpu for cluster in clusters for cpu in cluster.cpus}))
    return (*([CpuCluster(cpus=rest, min_khz=None, max_khz=None)] if rest else []), *clusters)


#: Read once on this computer.
HOST_COMMANDS: Final[Mapping[str, str]] = {
    "cpufreq": script_command("cpu_clusters"),
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
    names = (
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
        soc=next(filter(None, names), platform.machine()),
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

    Unprintable characters are removed, as it becomes part of file names and screens.
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
            min_khz=whole_number(files.get("cpuinfo_min_freq", [""])[0]),
            max_khz=whole_number(files.get("cpuinfo_max_freq", [""])[0]),
        )
        for cpus, files in policies(text)
    ]
    return tuple(sorted(clusters, key=lambda cluster: (cluster.max_khz or 0, cluster.cpus)))


def parse_gles(text: str) -> tuple[str, str]:
    """Return renderer and driver version of ``GLES: vendor, renderer, version (...)`` (``dumpsys
    SurfaceFlinger``).
    """
    match = re.search(r"GLES: [^,\n]*, ([^,\n]*), ([^\n]*)", text)
    if match is None:
        return "", ""
    return match[1].strip(), re.sub(r"\s*\(.*", "", match[2]).strip().rstrip(",")


def parse_meminfo(text: str) -> dict[str, int]:
    """Read /proc/meminfo: name -> bytes."""
    return {
        name: int(kib) * 1024
        for name, kib in re.findall(r"^(\w+(?:\(\w+\))?):\s+(\d+) kB", text, re.M)
    }


#: Read before and after every run.
STATE_COMMANDS: Final[Mapping[str, str]] = {
    "files": script_command("state_files"),
    "counts": "grep -e '^cpu ' -e ^ctxt -e ^btime -e ^MemAvailable /proc/stat /proc/meminfo",
    "thermalservice": "dumpsys thermalservice",
    "battery": "dumpsys battery",
    "screen": (
        'dumpsys power | grep -e mWakefulness= -e "Display Power"\ndumpsys window policy | grep mCurrentFocus='
    ),
    # For a window manager that doesn't print the focus: the processes of the app on screen.
    "topapp": script_command("foreground"),
}


def state_from(sections: Mapping[str, str], *, read_at: datetime) -> DeviceState:
    """Put a phone's state together from the outputs of STATE_COMMANDS."""
    files, counted, screen = (sections.get(name, "") for name in ("files", "counts", "screen"))
    thermal = parse_thermalservice(sections.get("thermalservice", ""))
    battery = parse_battery(sections.get("battery", ""))
    # Many phones hide sysfs' zones from the shell: the thermal HAL's values replace them.
    thermal["heat_c"] |= parse_thermal_zones(files)
    if battery["battery_heat_c"] is None:
        battery["battery_heat_c"] = thermal["battery_heat_c"]
    return DeviceState(
        at=read_at,
        uptime_s=parse_first_number(content_of(files, "/proc/uptime")),
        boot_id=content_of(files, "/proc/sys/kernel/random/boot_id").strip(),
        load_1min=parse_first_number(content_of(files, "/proc/loadavg")),
        memory_available_bytes=parse_meminfo(counted.replace("/proc/meminfo:", "")).get(
            "MemAvailable"
        ),
        foreground=parse_foreground(screen, cmdlines=sections.get("topapp", "")),
        **{
            **thermal,
            **battery,
            **parse_clocks(files),
            **parse_gpu(files),
            **parse_kernel_counts(counted),
            **parse_screen(screen),
        },
    )


_COUNTS: Final = STATE_COMMANDS["counts"]
#: Read on this computer; ticks are 10 ms: 0.1 s has enough of them for tenths of a core.
HOST_STATE_COMMANDS: Final[Mapping[str, str]] = {
    "before": f"{_COUNTS}\nsleep 0.1",
    "counts": _COUNTS,
    "files": STATE_COMMANDS["files"],
}


def host_state_from(sections: Mapping[str, str], *, read_at: datetime) -> DeviceState:
    """Put this computer's state together from the outputs of HOST_STATE_COMMANDS; missing values
    stay unknown.
    """
    before = parse_kernel_counts(sections.get("before", ""))
    after = parse_kernel_counts(sections.get("counts", ""))
    busy_cores: float | None = None
    if before["cpu_total_s"] is not None and after["cpu_total_s"] > before["cpu_total_s"]:
        busy_s = after["cpu_busy_s"] - before["cpu_busy_s"]
        share = busy_s / (after["cpu_total_s"] - before["cpu_total_s"])
        busy_cores = share * (os.cpu_count() or 1)
    state = state_from(sections, read_at=read_at)
    return replace(state, load_1min=os.getloadavg()[0], busy_cores=busy_cores)


_TEMPERATURE: Final = re.compile(
    r"Temperature\{mValue=(?P<value>[-+\d.eE]+|NaN), mType=(?P<type>-?\d+), "
    r"mName=(?P<name>[^,}]*), mStatus=(?P<status>\d+)"
)
_COOLING: Final = re.compile(
    r"CoolingDevice\{mValue=(?P<value>\d+), mType=(?P<type>-?\d+), mName=(?P<name>[^,}]*)"
)
#: Android's types of cooling devices that take clocks: CPU, GPU, NPU.
_CLOCK_COOLERS: Final = frozenset({2, 3, 5})
#: Android's temperature type of the sensor that PowerManager's thermal status is derived from.
_SKIN: Final = 3
_BATTERY: Final = 2
#: Types of a battery's voltage, current and charge, which aren't heat.
_NO_HEAT: Final = frozenset({6, 7, 8})
#: BatteryManager's health numbers -> words.
BATTERY_HEALTH: Final = {
    2: "good",
    3: "overheated",
    4: "dead",
    5: "over voltage",
    6: "failing",
    7: "cold",
}


def parse_thermalservice(text: str) -> dict[str, Any]:
    """Read ``dumpsys thermalservice`` (Android 10 and later); lines may have lost their
    indentation.

    The status is the highest of PowerManager's and of the skin sensors', as some makers' frameworks
    always print 0. The cached temperatures may be hours old: those that the HAL reads now count.
    """
    status = re.search(r"Thermal Status: (\d+)", text)
    statuses = [int(status[1])] if status else []
    _, separator, current = text.partition("Current temperatures from HAL:")
    current, _, devices = (
        current.partition("Current cooling devices") if separator else ("", "", "")
    )
    heat: dict[str, float] = {}
    battery_c: float | None = None
    for sensor in _TEMPERATURE.finditer(current):
        value, kind = parse_number(sensor["value"]), int(sensor["type"])
        if kind == _SKIN:
            statuses.append(int(sensor["status"]))
        if kind not in _NO_HEAT and value is not None and COLDEST_C < value < HOTTEST_C:
            heat[sensor["name"]] = value
            battery_c = value if kind == _BATTERY and battery_c is None else battery_c
    coolers = (
        cooler for cooler in _COOLING.finditer(devices) if int(cooler["type"]) in _CLOCK_COOLERS
    )
    return {
        "thermal_status": max(statuses, default=None),
        "heat_c": heat,
        "battery_heat_c": battery_c,
        "cooling": {cooler["name"]: int(cooler["value"]) for cooler in coolers},
    }


def parse_battery(text: str) -> dict[str, Any]:
    """Read ``dumpsys battery``; only its first section, as some makers append logs that repeat its
    words.
    """
    sections = re.split(
        r"^\[\w+\]|^\s*$", text.partition("Current Battery Service state:")[2] or text, flags=re.M
    )
    values: dict[str, str] = {}
    for line in next((part for part in sections if ":" in part), "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            values.setdefault(key.strip(), value.strip())
    level, scale = whole_number(values.get("level")), whole_number(values.get("scale"))
    tenths = parse_number(values.get("temperature", ""))
    sources = {name: values.get(f"{word} powered") for name, word in _POWER_SOURCES.items()}
    plugged = next((name for name, is_powered in sources.items() if is_powered == "true"), "")
    return {
        "battery_percent": None
        if level is None or level < 0
        else round(100 * level / scale)
        if scale
        else level,
        "battery_heat_c": None if tenths is None else tenths / 10,
        "battery_health": BATTERY_HEALTH.get(whole_number(values.get("health")) or 0, ""),
        "plugged": plugged or ("none" if "false" in {sources["ac"], sources["usb"]} else ""),
    }


_POWER_SOURCES: Final = {"ac": "AC", "usb": "USB", "wireless": "Wireless", "dock": "Dock"}


def parse_free_bytes(text: str) -> int | None:
    """Read ``df -k``: bytes available; None when the figures can't be told apart."""
    # Blocks, used, available, share: a long device name moves them to a line of their own.
    match = re.search(r"\s\d+\s+\d+\s+(\d+)\s+\d+%\s", text)
    return int(match[1]) * 1024 if match else None


def parse_screen(text: str) -> dict[str, Any]:
    """Read lines of ``dumpsys power``: the display's state, else mWakefulness."""
    match = re.search(r"Display Power: state=(\w+)", text) or re.search(r"mWakefulness=(\w+)", text)
    return {"screen_on": match[1] in {"ON", "Awake"} if match else None}


def parse_foreground(text: str, *, cmdlines: str = "") -> str:
    """Return the package on the screen: WindowManager's focus, else the first command line of
    ``top-app``.

    ``cmdlines`` is /proc/<pid>/cmdline of the processes in that scheduling group, one after the
    other.
    """
    focus = re.search(r"mCurrentFocus=Window\{\S+ \S+ ([\w.]+)", text)
    if focus is not None:
        return focus[1]
    return next(
        (name for name in re.split(r"[\0\s]+", cmdlines) if re.fullmatch(r"[\w]+(\.[\w]+)+", name)),
        "",
    )


#: Pause between two polls of an unfit phone: short at first, then longer, as polling takes
#: processor time on a phone that has to cool down.
_SHORTEST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 20.0
_GROWTH: Final = 1.5


class Unfit(NamedTuple):
    """One reason why a phone isn't fit, with its documented code."""

    code: str
    text: str


def unfit_reasons(
    state: DeviceState, limits: FitLimits, zone_limits: Mapping[str, float]
) -> list[Unfit]:
    """Return the reasons why a device in this state isn't fit; unknown values are no reason."""
    percent, heat_c, status = state.battery_percent, state.battery_heat_c, state.thermal_status
    reasons: list[Unfit] = []
    if percent is not None and percent < limits.battery_min:
        text = f"battery at {percent} %, at least {limits.battery_min:g} % required"
        reasons.append(Unfit("battery-low", text))
    if heat_c is not None and heat_c > limits.battery_heat_max:
        text = f"battery at {heat_c:.1f} C, at most {limits.battery_heat_max:g} C allowed"
        reasons.append(Unfit("battery-hot", text))
    if status is not None and status > limits.thermal_status_max:
        text = f"thermal status {status}, at most {limits.thermal_status_max} allowed"
        reasons.append(Unfit("thermal-status", text))
    reasons += [
        Unfit("zone-hot", f"{zone} at {zone_c:.1f} C, at most {limit_c:g} C allowed")
        for pattern, limit_c in zone_limits.items()
        for zone, zone_c in state.heat_c.items()
        if re.search(pattern, zone) and zone_c > limit_c
    ]
    return reasons


#: Battery health before it swells or burns; heat and cold are waited for instead.
_DAMAGED: Final = frozenset({"dead", "over voltage", "failing"})
#: Far above what measuring does to a battery, and where Android switches a phone off.
DANGER_HEAT_C: Final = 60.0


def danger_reason(state: DeviceState) -> str:
    """Return why a device in this state must not continue unattended, empty if it may."""
    if state.battery_health in _DAMAGED:
        return f"its battery reports {state.battery_health!r}"
    if state.battery_heat_c is not None and state.battery_heat_c >= DANGER_HEAT_C:
        return f"its battery is at {state.battery_heat_c:.1f} C, where {DANGER_HEAT_C:g} C are dangerous"
    return ""


def wait_until_fit(
    read: Callable[[], DeviceState],
    judge: Callable[[DeviceState], list[Unfit]],
    deadline: Deadline,
    *,
    on_wait: Callable[[str], None],
    cancelled: threading.Event | None = None,
) -> Fitness:
    """Read the state until it is fit by ``judge`` (`unfit_reasons`) or the deadline has passed.

    A low battery that isn't being charged isn't waited for. ``on_wait`` gets the reason once.
    """
    pause_s = _SHORTEST_PAUSE_S
    while True:
        state = read()
        faults, waited_s = judge(state), deadline.elapsed_s
        reason, code = "; ".join(item.text for item in faults), faults[0].code if faults else ""
        is_in_vain = code == "battery-low" and state.plugged == "none"
        if is_in_vain:
            reason += " (and it isn't being charged)"
        if not faults or is_in_vain or deadline.expired:
            return Fitness(reason=reason, code=code, waited_s=waited_s, state=state)
        if pause_s == _SHORTEST_PAUSE_S:
            on_wait(reason)
        if deadline.wait(pause_s, cancelled):
            reason = f"cancelled while waiting: {reason}"
            return Fitness(reason=reason, code="cancelled", waited_s=waited_s, state=state)
        pause_s = min(_LONGEST_PAUSE_S, pause_s * _GROWTH)
