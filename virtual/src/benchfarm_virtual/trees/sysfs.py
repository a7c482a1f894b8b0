"""/sys: cores and their clocks, thermal zones, GPU, battery, from the phone's physics."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from benchfarm_virtual.contract import CpuCluster, PhoneFileError
from benchfarm_virtual.system import PhoneSystem
from benchfarm_virtual.trees.node import ComputedFolder, FileNode, LinkNode, Node, text_file
from benchfarm_virtual.trees.proc import cpu_count, cpu_list

_GOVERNORS = (
    "schedutil",
    "performance",
    "powersave",
    "userspace",
    "ondemand",
    "conservative",
    "sched_pixel",
    "walt",
    "interactive",
    "energy_step",
)


def sysfs_tree(system: PhoneSystem) -> Node:
    """Return /sys."""
    cpu = ComputedFolder(lambda: _cpu_nodes(system))
    parts = ComputedFolder(lambda: {"system": ComputedFolder(lambda: {"cpu": cpu})})
    return ComputedFolder(
        lambda: {"devices": parts, "class": ComputedFolder(lambda: _class_nodes(system))}
    )


def _class_nodes(system: PhoneSystem) -> Mapping[str, Node]:
    battery = ComputedFolder(lambda: _battery_nodes(system))
    nodes: dict[str, Node] = {
        "thermal": ComputedFolder(lambda: _thermal_nodes(system)),
        "power_supply": ComputedFolder(lambda: {"battery": battery}),
        "devfreq": ComputedFolder(),
    }
    gpu = system.hardware.profile.gpu
    if gpu is not None and "adreno" in gpu.name.lower():
        adreno = ComputedFolder(lambda: _adreno_nodes(system))
        nodes["kgsl"] = ComputedFolder(lambda: {"kgsl-3d0": adreno})
    elif gpu is not None:
        mali = ComputedFolder(lambda: {"device": ComputedFolder(lambda: _mali_nodes(system))})
        nodes["misc"] = ComputedFolder(lambda: {"mali0": mali})
    return nodes


def _number(data: bytes) -> int:
    """Return what is written to a file; raise PhoneFileError when it is no number."""
    if not data.strip().isdigit():
        raise PhoneFileError(errno.EINVAL, "Invalid argument")
    return int(data)


# Cores


def _cpu_nodes(system: PhoneSystem) -> Mapping[str, Node]:
    everything = cpu_list(range(cpu_count(system)))
    clusters = system.hardware.clusters()
    policies = {
        f"policy{cluster.cpus[0]}": _policy(system, number, cluster)
        for number, cluster in enumerate(clusters)
    }
    links = {
        cpu: LinkNode(f"../cpufreq/policy{cluster.cpus[0]}")
        for cluster in clusters
        for cpu in cluster.cpus
    }
    return {
        "present": text_file(lambda: everything),
        "online": text_file(lambda: everything),
        "cpufreq": ComputedFolder(lambda: policies),
        **{f"cpu{cpu}": _folder({"cpufreq": link}) for cpu, link in links.items()},
    }


def _folder(nodes: Mapping[str, Node]) -> Node:
    return ComputedFolder(lambda: nodes)


def _policy(system: PhoneSystem, number: int, known: CpuCluster) -> Node:
    hardware = system.hardware

    def now() -> CpuCluster:
        return hardware.clusters()[number]

    def govern(data: bytes) -> None:
        governor = data.decode("ascii", "replace").strip()
        if governor not in _GOVERNORS:
            raise PhoneFileError(errno.EINVAL, "Invalid argument")
        hardware.set_cluster_limits(number, governor=governor)

    return _folder(
        {
            "scaling_cur_freq": text_file(lambda: now().current_khz),
            # What heat has taken shows in scaling_max_freq, as it does where the thermal driver
            # caps the policy.
            "scaling_min_freq": text_file(
                lambda: now().min_khz,
                lambda data: hardware.set_cluster_limits(number, min_khz=_number(data)),
            ),
            "scaling_max_freq": text_file(
                lambda: min(now().max_khz, now().limit_khz),
                lambda data: hardware.set_cluster_limits(number, max_khz=_number(data)),
            ),
            "cpuinfo_min_freq": text_file(lambda: min(known.available_khz)),
            "cpuinfo_max_freq": text_file(lambda: max(known.available_khz)),
            "scaling_governor": text_file(lambda: now().governor, govern),
            "scaling_available_frequencies": text_file(
                lambda: " ".join(map(str, known.available_khz)) + " "
            ),
            "related_cpus": text_file(lambda: " ".join(map(str, known.cpus))),
            "stats": _folder({"time_in_state": _times(lambda: now().ticks)}),
        }
    )


def _times(ticks: Callable[[], Mapping[int, int]]) -> Node:
    """Return a file with the time at each clock."""
    return FileNode(
        lambda: "".join(f"{khz} {held}\n" for khz, held in sorted(ticks().items())).encode(),
        size_bytes=4096,
    )


# Heat


def _thermal_nodes(system: PhoneSystem) -> Mapping[str, Node]:
    return {
        f"thermal_zone{number}": _zone(system, number)
        for number in range(len(system.hardware.zones()))
    }


def _zone(system: PhoneSystem, number: int) -> Node:
    name = system.hardware.zones()[number].name
    return _folder(
        {
            "type": text_file(lambda: name),
            "temp": text_file(lambda: round(system.hardware.zones()[number].heat_c * 1000)),
        }
    )


# GPU and battery


def _adreno_nodes(system: PhoneSystem) -> Mapping[str, Node]:
    hardware = system.hardware

    def now_hz() -> int:
        return hardware.gpu_khz()[0] * 1000

    clocks = {
        "cur_freq": text_file(now_hz),
        "max_freq": text_file(lambda: hardware.gpu_activity().limit_khz * 1000),
        "trans_stat": FileNode(lambda: _transitions(system), size_bytes=4096),
        "min_freq": text_file(
            lambda: hardware.gpu_least_khz() * 1000,
            lambda data: hardware.set_gpu_least(_number(data) // 1000),
        ),
    }
    return {
        "gpuclk": text_file(now_hz),
        "gpu_busy_percentage": text_file(
            lambda: f"{round(100 * hardware.gpu_activity().busy_share)} %"
        ),
        "devfreq": _folder(clocks),
    }


def _transitions(system: PhoneSystem) -> bytes:
    """The table of devfreq; how often clocks changed isn't counted here, how long each was held is."""
    ticks = system.hardware.gpu_activity().ticks_ms
    rows = [
        f"{khz * 1000:>12}:{'         0' * len(ticks)}{held_ms:>10}"
        for khz, held_ms in sorted(ticks.items())
    ]
    head = "".join(f"{khz * 1000:>10}" for khz in sorted(ticks))
    return (
        "     From  :   To\n           :" + head + "   time(ms)\n" + "\n".join(rows) + "\n"
    ).encode()


def _mali_nodes(system: PhoneSystem) -> Mapping[str, Node]:
    hardware = system.hardware
    return {
        "scaling_max_freq": text_file(lambda: hardware.gpu_activity().limit_khz),
        "utilization": text_file(lambda: round(100 * hardware.gpu_activity().busy_share)),
        "time_in_state": _times(lambda: hardware.gpu_activity().ticks_ms),
        "cur_freq": text_file(lambda: hardware.gpu_khz()[0]),
    }


def _battery_nodes(system: PhoneSystem) -> Mapping[str, Node]:
    hardware = system.hardware
    return {
        "capacity": text_file(lambda: hardware.battery().level_percent),
        "temp": text_file(lambda: round(hardware.battery().heat_c * 10)),
        "type": text_file(lambda: "Battery"),
        "current_now": text_file(lambda: hardware.gauge()[0]),
        "voltage_now": text_file(lambda: hardware.gauge()[1]),
        "charge_counter": text_file(lambda: hardware.gauge()[2]),
    }
