"""Devices: declared (DeviceProfile), observed and fixed (DeviceFacts), observed and changing
(DeviceState); and rules on its facts such as ``android >= 13 and soc = "sm8*"``, parsed and judged.

A rule is a fact, a system property (any name with a dot), ``pool`` or ``tag``, compared by ``=``,
``!=``, ``<``, ``<=``, ``>`` or ``>=`` with a word or a quoted text; or a fact that is true or false
alone, also after ``not``. Several are joined by ``and``. In texts, ``*`` and ``?`` stand for any
characters. A rule on what isn't known of a device doesn't hold.
"""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, NamedTuple, assert_never

from pydantic import AfterValidator, Field

from orchestrator.errors import UsageError, choices
from orchestrator.fields import SOME, Celsius, OneOrMany, Text, unique
from orchestrator.records import frozen
from orchestrator.records.case import DelegateName, Serial, name_fits
from orchestrator.units import parse_bytes

#: The property with the USB path that a virtual phone emulates.
VIRTUAL_USB: Final = "ro.benchfarm.usb"
#: The serial number of this computer.
HOST_SERIAL: Final = Serial("host")


class DeviceKind(enum.StrEnum):
    """The kind of a device."""

    ANDROID = "android"
    HOST = "host"
    IOS = "ios"

    @property
    def noun(self) -> str:
        """A noun for a device of this kind."""
        match self:
            case DeviceKind.ANDROID:
                return "a phone"
            case DeviceKind.HOST:
                return "this computer"
            case DeviceKind.IOS:
                return "an iPhone"
            case _:
                assert_never(self)

    @property
    def system(self) -> str:
        """The name of its system; empty where the version includes it."""
        match self:
            case DeviceKind.ANDROID:
                return "Android"
            case DeviceKind.HOST:
                return ""
            case DeviceKind.IOS:
                return "iOS"
            case _:
                assert_never(self)


def _profile_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", text):
        raise ValueError(
            f"{text!r} isn't a name of small letters, digits, dots, dashes and underscores"
        )
    return text


def _zone_patterns(limits: dict[str, float]) -> dict[str, float]:
    for pattern in limits:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} isn't a regular expression: {error}") from error
    return limits


@frozen
class DeviceProfile:
    """The declaration of a kind of phone in device_profiles/<codename>.yaml
    (docs/reference/profiles.md).
    """

    name: Annotated[Text, AfterValidator(_profile_name)]
    title: Text
    kind: DeviceKind
    #: Property name -> value that must be equal (or one of several) for the profile to fit a phone.
    match: Annotated[dict[str, OneOrMany[tuple[Text, ...]]], SOME]
    soc: Text
    #: Number of cores in each cluster, slowest first.
    cluster_cores: Annotated[OneOrMany[tuple[Annotated[int, Field(ge=1, le=64)], ...]], SOME]
    delegates: Annotated[OneOrMany[tuple[DelegateName, ...]], SOME, AfterValidator(unique)]
    #: Zone name (regular expression) -> limit in degrees Celsius under which a run may start.
    thermal_limits_c: Annotated[
        dict[str, Annotated[Celsius, Field(gt=0, lt=150)]],
        AfterValidator(_zone_patterns),
        Field(alias="thermal_limits"),
    ] = field(default_factory=dict)


@frozen
class CpuCluster:
    """Equal cores that share a clock."""

    cpus: tuple[int, ...]
    min_khz: int | None
    max_khz: int | None


@frozen
class DeviceFacts:
    """A device's fixed facts: they don't change while it stays booted with this system image."""

    serial: Serial
    kind: DeviceKind
    #: True for benchfarm's own virtual phone; its numbers are never measurements.
    is_virtual: bool
    #: True for an emulator of Android (not a phone, not our virtual phone).
    is_emulator: bool = False
    manufacturer: str = ""
    model: str = ""
    codename: str = ""
    #: Android release ("12") or the host's system ("Linux 6.1").
    os_version: str = ""
    sdk: int | None = None
    fingerprint: str = ""
    security_patch: str = ""
    soc: str = ""
    platform: str = ""
    abis: tuple[str, ...] = ()
    clusters: tuple[CpuCluster, ...] = ()
    memory_bytes: int | None = None
    gpu: str = ""
    gpu_driver: str = ""
    boot_id: str = ""
    #: Differs between two phones of one kind: made from what Android draws at its first start, and
    #: after a reset to factory settings. Empty when unknown.
    setup_id: str = ""
    #: Whether commands can be run as root.
    is_rooted: bool = False
    #: The name of the matching DeviceProfile, empty when none matches.
    profile: str = ""
    #: Whether it is known from another lab's bundle only.
    is_imported: bool = False
    #: All properties as read, for later questions.
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The device's name for people, with a mark for a virtual phone."""
        return f"{self.kind_title}{' (virtual)' if self.is_virtual else ''}"

    @property
    def kind_title(self) -> str:
        """The name of equal devices, without the mark for a virtual phone."""
        name = self.model or self.codename or str(self.serial)
        maker = self.manufacturer.strip()
        if maker and not name.lower().startswith(maker.lower()):
            name = f"{maker.capitalize() if maker.islower() else maker} {name}"
        return f"{name}{' (imported)' if self.is_imported else ''}"

    @property
    def system(self) -> str:
        """Its system and version for people; a computer's version includes the name."""
        return f"{self.kind.system} {self.os_version}".strip() if self.os_version else ""

    @property
    def names(self) -> tuple[str, ...]:
        """All names that a person may use for the device."""
        return str(self.serial), self.profile, self.model, self.codename, self.title

    @property
    def versions(self) -> dict[str, str]:
        """The known versions that an update changes, and figures with them: name -> value."""
        values = {
            self.kind.system or "system": self.os_version,
            "system image": self.fingerprint,
            "security patch": self.security_patch,
            "GPU driver": self.gpu_driver,
        }
        return {name: value for name, value in values.items() if value}

    @property
    def computes_with(self) -> str:
        """The system and driver that a model's outputs come from; empty when unknown."""
        return " ".join(filter(None, (self.fingerprint, self.gpu_driver)))

    @property
    def big_cores(self) -> tuple[int, ...]:
        """The cores of all clusters but the slowest; every core when there is one cluster or clocks
        are unknown.
        """
        clocked = [cluster for cluster in self.clusters if cluster.max_khz is not None]
        if len(clocked) < 2 or len(clocked) != len(self.clusters):
            return tuple(sorted(cpu for cluster in self.clusters for cpu in cluster.cpus))
        slowest = min(cluster.max_khz or 0 for cluster in clocked)
        return tuple(
            sorted(
                cpu
                for cluster in clocked
                if (cluster.max_khz or 0) > slowest
                for cpu in cluster.cpus
            )
        )


def device_matches(name: str, names: Sequence[str]) -> bool:
    """Whether a name from a person (``pixel-3``, a serial number, ``Pixel*``) is one of a device's
    names.
    """
    # An unknown name, or one without such letters, matches nothing.
    slugs = filter(None, map(_slug, names))
    return name in names or any(fnmatchcase(slug, _slug(name)) for slug in slugs)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9*?]+", "-", name.lower()).strip("-")


def phone_differences(facts: DeviceFacts, other: DeviceFacts, *, at_once: bool = False) -> str:
    """Return the names of the facts that differ between two phones of one serial number; empty when
    they may be the same phone.

    ``at_once``: both were seen at the same time, so that neither was updated or restarted in
    between.
    """
    pairs = {
        "manufacturer": (facts.manufacturer, other.manufacturer),
        "model": (facts.model, other.model),
        "codename": (facts.codename, other.codename),
        "first start": (facts.setup_id, other.setup_id),
        **({"fingerprint": (facts.fingerprint, other.fingerprint)} if at_once else {}),
    }
    differing = [
        name
        for name, (value, other_value) in pairs.items()
        if value and other_value and value != other_value
    ]
    if (
        not differing
        and at_once
        and facts.boot_id
        and other.boot_id
        and facts.boot_id != other.boot_id
    ):
        return "boot"
    return ", ".join(differing)


@frozen
class Moment:
    """The clocks, heat and work of a device at one moment; None or an empty mapping is unknown,
    never a guess.
    """

    uptime_s: float | None = None
    #: Of all cores together since boot: time in which they worked.
    cpu_busy_s: float | None = None
    #: First cpu of each cluster -> current clock, and the clock that it may reach now.
    clock_khz: Mapping[int, int] = field(default_factory=dict)
    clock_limit_khz: Mapping[int, int] = field(default_factory=dict)
    #: First cpu of each cluster -> {frequency in kHz: time in 10 ms ticks}.
    time_in_state: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    #: Thermal zone name -> degrees Celsius.
    heat_c: Mapping[str, float] = field(default_factory=dict)
    #: The GPU's clock now, the highest that it may have now, and how busy it was over its driver's
    #: last moment.
    gpu_khz: int | None = None
    gpu_limit_khz: int | None = None
    gpu_busy_percent: float | None = None
    #: The GPU's frequency in kHz -> time in milliseconds.
    gpu_time_in_state: Mapping[int, int] = field(default_factory=dict)


@frozen
class DeviceState(Moment):
    """A device's state before or after a run."""

    at: datetime
    boot_id: str = ""
    #: PowerManager's thermal status: 0 none, 1 light, 2 moderate, 3 severe, 4 critical, 5
    #: emergency, 6 shutdown.
    thermal_status: int | None = None
    #: Cooling device of the CPU, GPU or NPU -> steps by which it lowers clocks because of heat, as
    #: the thermal HAL reports it.
    cooling: Mapping[str, int] = field(default_factory=dict)
    battery_percent: int | None = None
    battery_heat_c: float | None = None
    #: "good", "overheated", "dead", "over voltage", "failing", "cold", as its charger says; empty
    #: when unknown.
    battery_health: str = ""
    #: "none", "ac", "usb", "wireless", "dock".
    plugged: str = ""
    #: First cpu of each cluster -> the clock that it isn't let below, and its governor.
    clock_floor_khz: Mapping[int, int] = field(default_factory=dict)
    governors: Mapping[int, str] = field(default_factory=dict)
    #: Of all cores together since boot: all time, worked or not.
    cpu_total_s: float | None = None
    context_switches: int | None = None
    #: When the device was booted, in Unix seconds by its own wall clock: it moves only when that
    #: clock is set.
    boot_at_s: int | None = None
    #: The app that has the screen, as far as that is known cheaply.
    foreground: str = ""
    load_1min: float | None = None
    #: Cores that all processes together kept busy over the last moment, read where that costs
    #: nothing.
    busy_cores: float | None = None
    memory_available_bytes: int | None = None
    screen_on: bool | None = None


_TEXT_MAX: Final = 1000
#: An ``and`` by itself, outside quotes.
_AND: Final = re.compile(r"""(?<!\S)and(?!\S)(?=(?:[^"']|"[^"]*"|'[^']*')*\Z)""", re.IGNORECASE)
_FACT_RULE: Final = re.compile(
    r"""(?P<not>not\s+)?(?P<name>[^\s"'=<>!()]+)"""
    r"""(?:\s*(?P<symbol>!=|<=|>=|=|<|>)\s*"""
    r"""(?P<value>"[^"]*"|'[^']*'|[\d.]+\s+\w+|[^\s"'=<>!()]+))?""",
    re.IGNORECASE,
)


@frozen
class Labels:
    """Labels that people give a device: the pools that it belongs to, and others."""

    pools: OneOrMany[tuple[Text, ...]] = ()
    tags: OneOrMany[tuple[Text, ...]] = ()


class FactRule(NamedTuple):
    """One comparison of a fact of a device."""

    name: str
    #: A key of _READ.
    kind: str
    symbol: str
    value: Any

    def holds(self, facts: DeviceFacts, labels: Labels) -> bool:
        """Whether it is known to hold for a device."""
        if self.name in _LABELS:
            actual: Any = tuple(getattr(labels, _LABELS[self.name]))
        else:
            actual = value_of(self.name, facts)
        if actual is None:
            return False
        if self.kind in {"text", "texts"}:
            texts = actual if self.kind == "texts" else (str(actual),)
            return name_fits(self.value, texts) == (self.symbol == "=")
        if self.kind == "version":
            # 13 means all of 13: as many parts are compared as were asked for.
            parts = len(self.value)
            actual = (*actual, *(0,) * parts)[:parts]
        return _COMPARE[self.symbol](actual, self.value)


class _Askable(NamedTuple):
    """A fact that can be asked for: how its value is compared (a key of _READ), and how it is read
    (None: unknown).
    """

    kind: str
    read: Callable[[DeviceFacts], object]


def _version(text: str) -> tuple[int, ...] | None:
    return (
        tuple(int(part) for part in text.split("."))
        if re.fullmatch(r"\d{1,9}(\.\d{1,9}){0,5}", text)
        else None
    )


def _text(name: str) -> _Askable:
    return _Askable("text", lambda facts: str(getattr(facts, name)) or None)


FIELDS: Final[Mapping[str, _Askable]] = {
    "android": _Askable(
        "version",
        lambda facts: _version(facts.os_version) if facts.kind is DeviceKind.ANDROID else None,
    ),
    "sdk": _Askable("number", lambda facts: facts.sdk),
    **{name: _text(name) for name in ("soc", "platform")},
    "abi": _Askable("texts", lambda facts: facts.abis or None),
    "cores": _Askable(
        "number", lambda facts: sum(len(cluster.cpus) for cluster in facts.clusters) or None
    ),
    "memory": _Askable("bytes", lambda facts: facts.memory_bytes),
    "rooted": _Askable("truth", lambda facts: facts.is_rooted),
    "virtual": _Askable("truth", lambda facts: facts.is_virtual),
    "emulator": _Askable("truth", lambda facts: facts.is_emulator),
    **{
        name: _text(name)
        for name in ("kind", "gpu", "profile", "serial", "model", "manufacturer", "codename")
    },
}
#: Labels by their names in rules -> their attributes.
_LABELS: Final = {"pool": "pools", "tag": "tags"}
_NAMES: Final = (*FIELDS, *_LABELS)
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def value_of(name: str, facts: DeviceFacts) -> object:
    """Return a fact or a system property by its name in rules, None when unknown.

    KeyError for no such name.
    """
    return facts.properties.get(name) if "." in name else FIELDS[name].read(facts)


def _read_number(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError(f"{text!r} isn't a whole number")
    return int(text)


def _read_version(text: str) -> tuple[int, ...]:
    version = _version(text)
    if version is None:
        raise ValueError(f"{text!r} isn't a version such as 13 or 8.1")
    return version


def _read_truth(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(f"{text!r} isn't true or false")
    return text.lower() == "true"


#: Reads the value that a fact of this kind is compared with; raises ValueError.
_READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "text": str,
    "texts": str,
    "number": _read_number,
    "version": _read_version,
    "bytes": parse_bytes,
    "truth": _read_truth,
}


def parse_predicate(text: str) -> tuple[FactRule, ...]:
    """Parse rules joined by ``and``; raises UsageError naming the one that is wrong."""
    if len(text) > _TEXT_MAX:
        raise UsageError(f"the predicate is longer than {_TEXT_MAX} characters")
    return tuple(map(_fact_rule, _AND.split(text)))


def _fact_rule(text: str) -> FactRule:
    text = text.strip()
    match = _FACT_RULE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} isn't a rule on device facts",
            hint="write rules such as android >= 13, joined by 'and'",
        )
    name = match["name"] if "." in match["name"] else match["name"].lower()
    if "." not in name and name not in _NAMES:
        raise UsageError(f"unknown fact {name!r} in {text!r}; {choices(name, _NAMES)}")
    kind = "text" if "." in name else "texts" if name in _LABELS else FIELDS[name].kind
    symbol = match["symbol"] or ""
    if kind == "truth" and not symbol:
        return FactRule(name, kind, "=", not match["not"])
    if not symbol or match["not"]:
        raise UsageError(f"{text!r}: write {name}, one of = != < <= > >=, and a value")
    if kind in {"text", "texts", "truth"} and symbol not in {"=", "!="}:
        raise UsageError(f"{text!r}: {name} can only be compared by = and !=")
    value = match["value"].strip()
    if value[0] in "\"'":
        value = value[1:-1]
    try:
        return FactRule(name, kind, symbol, _READ[kind](value))
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}") from error
