"""What a phone's own tools print, read into figures: pure functions, tested on the output of many makers' phones.

None or an empty mapping is unknown, never a guess. Heat is in degrees Celsius, clocks in kHz, memory in bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.records.device import CpuCluster

_PROPERTY: Final = re.compile(r"^\[([^\]\n]+)\]: \[(.*?)\]\r?$", re.M | re.S)
_TEMPERATURE: Final = re.compile(
    r"Temperature\{mValue=(?P<value>[-+\d.eE]+|NaN), mType=(?P<type>-?\d+), "
    r"mName=(?P<name>[^,}]*), mStatus=(?P<status>\d+)"
)
_COOLING: Final = re.compile(r"CoolingDevice\{mValue=(?P<value>\d+), mType=(?P<type>-?\d+), mName=(?P<name>[^,}]*)")
#: Android's types of cooling devices that take clocks: CPU, GPU, NPU.
_CLOCK_COOLERS: Final = frozenset({2, 3, 5})
#: Android's temperature type of the sensor that PowerManager's thermal status is derived from.
_SKIN: Final = 3
_BATTERY: Final = 2
#: A sensor outside this range isn't connected or reports something else than heat.
_COLDEST_C: Final = -40.0
_HOTTEST_C: Final = 200.0


def parse_properties(text: str) -> dict[str, str]:
    """Read ``getprop`` (``[name]: [value]``, values may span lines) or a ``build.prop`` (``name=value``)."""
    if found := dict(_PROPERTY.findall(text)):
        return found
    pairs = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()}


def parse_serial(text: str) -> str:
    """Read ``getprop ro.serialno``: its first line; what isn't printable is left out, as it names files and screens."""
    return "".join(c for c in text.strip().partition("\n")[0] if c.isprintable()).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuInfo:
    """What /proc/cpuinfo tells: one entry in ``parts`` for each processor that names it."""

    processors: tuple[int, ...] = ()
    parts: tuple[str, ...] = ()
    hardware: str = ""
    #: x86: the processor's name; also on 32-bit ARM.
    model_name: str = ""


def parse_cpuinfo(text: str) -> CpuInfo:
    """Read /proc/cpuinfo of 32- and 64-bit ARM and of x86."""
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            # "Processor" (capital) is the name of the CPU in old 32-bit kernels, "processor" a core's number.
            values.setdefault(key.strip(), []).append(value.strip())
    return CpuInfo(
        processors=tuple(int(value) for value in values.get("processor", ()) if value.isdigit()),
        parts=tuple(values.get("CPU part", ())),
        hardware=values.get("Hardware", [""])[-1],
        model_name=values.get("model name", [""])[0],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFrequencies:
    """The cpufreq tree; clusters slowest first; the mappings go by the first cpu of a cluster."""

    clusters: tuple[CpuCluster, ...] = ()
    current_khz: Mapping[int, int] = field(default_factory=dict)
    limit_khz: Mapping[int, int] = field(default_factory=dict)
    floor_khz: Mapping[int, int] = field(default_factory=dict)
    governors: Mapping[int, str] = field(default_factory=dict)
    time_in_state: Mapping[int, Mapping[int, int]] = field(default_factory=dict)


_CPUFREQ: Final = re.compile(r"/cpu/(?:cpufreq/policy(?P<policy>\d+)|cpu(?P<cpu>\d+)/cpufreq)/(?P<name>[\w/]+)$")


def parse_cpufreq(text: str) -> CpuFrequencies:
    """Read ``path:content`` lines (``grep -H ''``) of cpufreq's policyN or cpuN/cpufreq folders."""
    files: dict[int, dict[str, list[str]]] = {}
    for line in text.splitlines():
        path, colon, content = line.partition(":")
        found = _CPUFREQ.search(path) if colon else None
        if found is not None:
            number = int(found["policy"] or found["cpu"] or 0)
            files.setdefault(number, {}).setdefault(found["name"], []).append(content.strip())
    clusters: dict[int, CpuCluster] = {}
    current: dict[int, int] = {}
    limit: dict[int, int] = {}
    floor: dict[int, int] = {}
    governors: dict[int, str] = {}
    ticks: dict[int, Mapping[int, int]] = {}
    seen: set[int] = set()
    for number in sorted(files):
        known = {name: lines[0] for name, lines in files[number].items()}
        cpus = parse_cpu_list(known.get("related_cpus") or known.get("affected_cpus") or str(number)) or (number,)
        if number in seen:
            continue
        seen.update(cpus)
        first = min(cpus)
        clusters[first] = CpuCluster(
            cpus=cpus, min_khz=_whole(known.get("cpuinfo_min_freq")), max_khz=_whole(known.get("cpuinfo_max_freq"))
        )
        for target, name in (
            (current, "scaling_cur_freq"), (limit, "scaling_max_freq"), (floor, "scaling_min_freq")
        ):  # fmt: skip
            if (value := _whole(known.get(name))) is not None:
                target[first] = value
        if known.get("scaling_governor"):
            governors[first] = known["scaling_governor"]
        pairs = (line.split() for line in files[number].get("stats/time_in_state", ()))
        table = {int(pair[0]): int(pair[1]) for pair in pairs if len(pair) == 2 and all(p.isdigit() for p in pair)}
        if table:
            ticks[first] = table
    ordered = sorted(clusters.values(), key=lambda cluster: (cluster.max_khz or 0, cluster.cpus))
    return CpuFrequencies(
        clusters=tuple(ordered), current_khz=current, limit_khz=limit, floor_khz=floor, governors=governors,
        time_in_state=ticks,
    )  # fmt: skip


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Read the kernel's lists of cpus: ``0 1 2 3``, ``0-3``, ``0-3,6``."""
    cpus: list[int] = []
    for part in re.findall(r"\d+(?:-\d+)?", text):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(sorted(set(cpus)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalService:
    """What ``dumpsys thermalservice`` tells. The cached temperatures may be hours old: they aren't kept."""

    #: PowerManager's status as printed; None when it isn't.
    status: int | None = None
    #: Sensor name -> degrees, as the HAL reads them now.
    heat_c: Mapping[str, float] = field(default_factory=dict)
    battery_c: float | None = None
    #: Cooling devices of CPU, GPU and NPU -> the state that they are in; 0 doesn't cool.
    cooling: Mapping[str, int] = field(default_factory=dict)
    #: The highest status that one of the HAL's skin sensors reports for itself.
    skin_status: int | None = None

    @property
    def worst_status(self) -> int | None:
        """The status as Android defines it, also where a maker's framework prints 0 whatever its skin sensor says."""
        known = [status for status in (self.status, self.skin_status) if status is not None]
        return max(known, default=None)


def parse_thermalservice(text: str) -> ThermalService:
    """Read ``dumpsys thermalservice`` (Android 10 and later); lines may have lost their indentation."""
    status = re.search(r"Thermal Status: (\d+)", text)
    _, found, current = text.partition("Current temperatures from HAL:")
    current, _, devices = current.partition("Current cooling devices") if found else ("", "", "")
    cooling = {
        one["name"]: int(one["value"]) for one in _COOLING.finditer(devices) if int(one["type"]) in _CLOCK_COOLERS
    }
    heat: dict[str, float] = {}
    battery: float | None = None
    skin_status: int | None = None
    for sensor in _TEMPERATURE.finditer(current):
        value = _plausible_c(sensor["value"])
        if int(sensor["type"]) == _SKIN:
            skin_status = max(skin_status or 0, int(sensor["status"]))
        if value is None:
            continue
        heat[sensor["name"]] = value
        if int(sensor["type"]) == _BATTERY and battery is None:
            battery = value
    return ThermalService(
        status=int(status[1]) if status else None,
        heat_c=heat,
        battery_c=battery,
        cooling=cooling,
        skin_status=skin_status,
    )


def parse_thermal_zones(text: str) -> dict[str, float]:
    """Read ``path:content`` lines of /sys/class/thermal/thermal_zone*/type and temp: zone name -> degrees.

    Kernels give thousandths, tenths or whole degrees; readings of absent sensors are left out. Zones of equal name
    keep the hottest.
    """
    names: dict[str, str] = {}
    raw: dict[str, float] = {}
    for line in text.splitlines():
        found = re.match(r".*/(thermal_zone\d+)/(type|temp):(.*)$", line)
        if found is None:
            continue
        if found[2] == "type":
            names[found[1]] = found[3].strip()
        elif (value := _number(found[3])) is not None:
            raw[found[1]] = value
    heat: dict[str, float] = {}
    for zone, value in raw.items():
        degrees = value / 1000 if abs(value) >= 1000 else value / 10 if abs(value) > _HOTTEST_C else value
        if _COLDEST_C < degrees < _HOTTEST_C and degrees != 0:
            name = names.get(zone) or zone
            heat[name] = max(degrees, heat.get(name, _COLDEST_C))
    return heat


@dataclass(frozen=True, slots=True, kw_only=True)
class BatteryReading:
    """What ``dumpsys battery`` tells."""

    level: int | None = None
    scale: int | None = None
    #: 1 unknown, 2 charging, 3 discharging, 4 not charging, 5 full.
    status: int | None = None
    #: As android.os.BatteryManager counts: 1 unknown, 2 good, 3 overheat, 4 dead, 5 over voltage, 6 failure, 7 cold.
    health: int | None = None
    heat_c: float | None = None
    voltage_mv: int | None = None
    #: What is in it now, in microampere hours.
    charge_uah: int | None = None
    ac: bool | None = None
    usb: bool | None = None
    wireless: bool | None = None

    @property
    def percent(self) -> int | None:
        """The level as a percentage, whatever the scale."""
        if self.level is None or self.level < 0:
            return None
        return round(100 * self.level / self.scale) if self.scale else self.level

    @property
    def plugged(self) -> str:
        """``ac``, ``usb``, ``wireless``, ``none``; empty when unknown."""
        for name, is_plugged in (("ac", self.ac), ("usb", self.usb), ("wireless", self.wireless)):
            if is_plugged:
                return name
        return "" if self.ac is None and self.usb is None else "none"


def parse_battery(text: str) -> BatteryReading:
    """Read ``dumpsys battery``; only its first section, as some makers append logs that repeat its words."""
    section = re.split(r"^\[\w+\]|^\s*$", text.partition("Current Battery Service state:")[2] or text, flags=re.M)
    values: dict[str, str] = {}
    for line in next((part for part in section if ":" in part), "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            values.setdefault(key.strip(), value.strip())
    tenths = _number(values.get("temperature", ""))
    return BatteryReading(
        level=_whole(values.get("level")),
        scale=_whole(values.get("scale")),
        status=_whole(values.get("status")),
        health=_whole(values.get("health")),
        heat_c=None if tenths is None else tenths / 10,
        voltage_mv=_whole(values.get("voltage")),
        charge_uah=_whole(values.get("Charge counter")),
        ac=_truth(values.get("AC powered")),
        usb=_truth(values.get("USB powered")),
        wireless=_truth(values.get("Wireless powered")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GlesInfo:
    """The graphics driver as SurfaceFlinger names it."""

    vendor: str = ""
    renderer: str = ""
    version: str = ""


def parse_gles(text: str) -> GlesInfo:
    """Read the line ``GLES: vendor, renderer, version (...)`` of ``dumpsys SurfaceFlinger``."""
    found = re.search(r"GLES: ([^,\n]*), ([^,\n]*), ([^\n]*)", text)
    if found is None:
        return GlesInfo()
    version = re.sub(r"\s*\(.*", "", found[3]).strip().rstrip(",")
    return GlesInfo(vendor=found[1].strip(), renderer=found[2].strip(), version=version)


def parse_meminfo(text: str) -> dict[str, int]:
    """Read /proc/meminfo: name -> bytes."""
    return {name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+(?:\(\w+\))?):\s+(\d+) kB", text, re.M)}


def parse_uptime(text: str) -> float | None:
    """Read /proc/uptime: seconds since boot."""
    return _number(text.partition(" ")[0])


def parse_load(text: str) -> float | None:
    """Read /proc/loadavg: runnable processes on average over a minute."""
    return _number(text.partition(" ")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenReading:
    """Whether somebody could see and touch something."""

    on: bool | None = None
    locked: bool | None = None


def parse_screen(text: str) -> ScreenReading:
    """Read lines of ``dumpsys power`` (mWakefulness, Display Power) and ``dumpsys window policy`` (keyguard)."""
    wakefulness = re.search(r"mWakefulness=(\w+)", text)
    display = re.search(r"Display Power: state=(\w+)", text)
    keyguard = re.search(
        r"(?:^|\s)(?:showing|mIsShowing|mShowingLockscreen|mKeyguardShowing|isStatusBarKeyguard|mDreamingLockscreen)"
        r"\s*=\s*(true|false)",
        text,
    )
    screen_on: bool | None = None
    if display is not None:
        screen_on = display[1] == "ON"
    elif wakefulness is not None:
        screen_on = wakefulness[1] == "Awake"
    return ScreenReading(on=screen_on, locked=keyguard[1] == "true" if keyguard else None)


def parse_foreground(text: str, *, cmdlines: str = "") -> str:
    """Return the package that has the screen: WindowManager's focus, else the first command line of ``top-app``.

    ``cmdlines`` is /proc/<pid>/cmdline of the processes in that scheduling group, one after the other.
    """
    focus = re.search(r"mCurrentFocus=Window\{\S+ \S+ ([\w.]+)", text)
    if focus is not None:
        return focus[1]
    return next((name for name in re.split(r"[\0\s]+", cmdlines) if re.fullmatch(r"[\w]+(\.[\w]+)+", name)), "")


def _plausible_c(text: str) -> float | None:
    value = _number(text)
    return value if value is not None and _COLDEST_C < value < _HOTTEST_C else None


def _number(text: str) -> float | None:
    try:
        value = float(text.strip())
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def _truth(text: str | None) -> bool | None:
    return {"true": True, "false": False}.get(text or "")
