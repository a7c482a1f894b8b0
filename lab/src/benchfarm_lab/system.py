"""All parts of one virtual phone's userland, as commands see them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchfarm_lab.contract import MomentHook

if TYPE_CHECKING:
    from benchfarm_lab.activities import ActivityService
    from benchfarm_lab.files import PhoneTree
    from benchfarm_lab.hardware import VirtualHardware
    from benchfarm_lab.logs import PhoneLogs
    from benchfarm_lab.packages import PackageStore
    from benchfarm_lab.processes import ProcessTable
    from benchfarm_lab.props import PhoneProps
    from benchfarm_lab.settings import PhoneSettings
    from benchfarm_lab.shelf import VirtualProgramShelf
    from benchfarm_lab.space import Storage
    from benchfarm_lab.state import PhoneState
    from benchfarm_lab.time import ScaledTime
    from benchfarm_lab.tracing import TraceService


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneBuild:
    """How a phone was built: what of it is there or allowed."""

    serial: str
    #: ``su`` works, and sysfs can be written through it.
    rooted: bool = False
    #: x86-64 programs that were pushed are run for real.
    execute: bool = False
    memory_bytes: int = 4 << 30
    #: The GLES line of SurfaceFlinger, without its ``GLES: ``.
    gles: str = ""
    #: The GPU's name in sysfs (kgsl) or ""; frequencies come from the hardware.
    gpu: str = ""
    #: One text per core for /proc/cpuinfo: implementer, variant, part, revision.
    cores: tuple[tuple[str, str, str, int], ...] = ()
    cpu_features: str = (
        "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
    )


@dataclass(slots=True, kw_only=True)
class PhoneSystem:
    """The parts. They are put together in ``userland``; nothing here does anything by itself."""

    build: PhoneBuild
    time: ScaledTime
    hardware: VirtualHardware
    shelf: VirtualProgramShelf
    props: PhoneProps
    processes: ProcessTable
    logs: PhoneLogs
    storage: Storage
    files: PhoneTree
    packages: PackageStore
    activities: ActivityService
    settings: PhoneSettings
    state: PhoneState
    tracing: TraceService
    on_reboot: Callable[[str], None]
    moment: MomentHook | None = None
    #: What the properties are after a boot.
    default_props: Mapping[str, str] = field(default_factory=dict)
    boot_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def new_boot(self) -> None:
        """Take a new boot id and the properties of a fresh boot."""
        self.boot_id = str(uuid.uuid4())
        self.props.forget_volatile(self.default_props)
