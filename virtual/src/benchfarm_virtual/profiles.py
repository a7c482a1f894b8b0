"""Profiles of virtual phones: their properties, speeds and heat.

A profile is a YAML file in ``profiles/``. The speeds in it are effective rates of a model of a
phone, calibrated where figures were published; they make a virtual phone behave like that phone,
and are no statement about a real one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from benchfarm_virtual.data import as_record, read_yaml
from benchfarm_virtual.errors import UsageError

PROFILE_FOLDER: Final = Path(__file__).parent / "profiles"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster of equal cores.

    Rates are per core at the highest clock, in 10**9 multiply-adds a second.
    """

    name: str
    cpus: tuple[int, ...]
    available_khz: tuple[int, ...]
    f32_gmacs: float
    int8_gmacs: float
    watts: float
    implementer: str = "0x41"
    part: str = "0xd05"
    variant: str = "0x0"
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSpec:
    """What costs time on the CPU beside the multiply-adds."""

    memory_gbps: float
    op_overhead_us: float
    #: How much of each further core's rate is really gained.
    parallel_share: float = 0.9
    #: Speed of the builtin kernels as a share of XNNPACK's.
    builtin_f32_share: float = 0.6
    builtin_int8_share: float = 0.75
    #: Rate of k x k and of depthwise convolutions as a share of 1 x 1 ones.
    conv_share: float = 1.0
    depthwise_share: float = 0.35
    #: fp16 arithmetic (XNNPACK's force_fp16) as a multiple of f32; 1 when the cores have none.
    fp16_gain: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingSpec:
    """How a program's threads are placed when it is a shell command, and when it is the app on
    screen.
    """

    #: How likely one thread of an unpinned shell command stays on a small core for a whole process.
    shell_stray: float = 0.25
    #: Factor on the latency of an unpinned shell command (no boost), and of the app on screen.
    shell_factor: float = 1.08
    top_app_factor: float = 1.03


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSpec:
    """What computes beside the CPU, with a memory of its own."""

    name: str
    memory_gbps: float
    op_overhead_us: float
    #: What each inference costs there, whatever it computes.
    fixed_us: float
    watts: float
    compile_ms_per_op: float
    init_ms: float
    conv_share: float = 1.0
    depthwise_share: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec(UnitSpec):
    """A GPU as the GPU delegate uses it: OpenCL (cl) or, where that is missing, OpenGL (gl)."""

    gles: str
    available_khz: tuple[int, ...]
    fp16_gmacs: float
    fp32_gmacs: float
    backends: tuple[Literal["cl", "gl"], ...] = ("cl", "gl")
    #: Latency of OpenGL as a multiple of OpenCL's.
    gl_factor: float = 1.4


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorSpec(UnitSpec):
    """A device that NNAPI or another delegate drives.

    A rate of 0: it doesn't take that type.
    """

    f32_gmacs: float
    int8_gmacs: float
    #: It is listed and takes models, and then its compiler fails, as on phones with an outdated
    #: NNAPI driver.
    compilation_fails: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneSpec:
    """A thermal zone, and the part of the phone whose heat it shows."""

    name: str
    follows: Literal["soc", "gpu", "skin", "battery"]
    offset_c: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalSpec:
    """Heat: the chip sits on the body, the body gives its heat to the air."""

    ambient_c: float
    soc_c_per_watt: float
    soc_tau_s: float
    body_c_per_watt: float
    body_tau_s: float
    idle_watts: float
    #: The chip's temperature from which clocks go down one step a second.
    soc_trip_c: float
    #: Skin temperatures from which the thermal status is 1, 2, ... 6.
    status_c: tuple[float, float, float, float, float, float]
    zones: tuple[ZoneSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualProfile:
    """One kind of virtual phone."""

    name: str
    props: Mapping[str, str]
    clusters: tuple[ClusterSpec, ...]
    cpu: CpuSpec
    thermal: ThermalSpec
    memory_mb: int
    battery_mah: int
    gpu: GpuSpec | None = None
    nnapi: tuple[AcceleratorSpec, ...] = ()
    #: Delegate, by its record's name -> the device that it drives here.
    accelerators: Mapping[str, AcceleratorSpec] = field(default_factory=dict)
    scheduling: SchedulingSpec = field(default_factory=SchedulingSpec)
    governors: tuple[str, ...] = ("performance", "schedutil")
    cpu_features: str = ""
    #: Supply rail with a meter -> the part that it feeds: a cluster, "gpu", "accelerator", or
    #: "idle:0.3", a share of the phone's power at rest.
    rails: Mapping[str, str] = field(default_factory=dict)
    #: The gauge's count for a microampere that goes into the battery.
    gauge_scale: float = 1.0

    @property
    def abis(self) -> tuple[str, ...]:
        """The ABIs that it runs, best first."""
        return tuple(self.props["ro.product.cpu.abilist"].split(","))

    @property
    def cpu_count(self) -> int:
        """How many cores it has."""
        return sum(len(cluster.cpus) for cluster in self.clusters)

    def system_props(self, serial: str) -> dict[str, str]:
        """Return the properties of a phone with this serial number, marked as virtual."""
        return {
            **self.props,
            "ro.serialno": serial,
            "ro.boot.serialno": serial,
            "ro.benchfarm.virtual": "1",
            "ro.benchfarm.profile": self.name,
        }


def profile_names() -> list[str]:
    """Return the names of the profiles that benchfarm comes with, sorted."""
    return sorted(path.stem for path in PROFILE_FOLDER.glob("*.yaml"))


@functools.cache
def load_profile(name: str) -> VirtualProfile:
    """Return a profile by its name.

    Raise UsageError when there is none.
    """
    if name not in profile_names():
        raise UsageError(
            f"there is no virtual phone {name!r}; there are: {', '.join(profile_names())}"
        )
    content = read_yaml(PROFILE_FOLDER / f"{name}.yaml")
    profile: VirtualProfile = as_record(VirtualProfile, {"name": name, **content})
    return profile
