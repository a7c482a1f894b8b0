"""/sys: cores and their clocks, thermal zones, GPU, battery, from the phone's physics."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from benchfarm_lab.contract import CpuCluster, PhoneFileError
from benchfarm_lab.system import PhoneSystem
from benchfarm_lab.trees.node import DictFolder, FileNode, LinkNode, Node, as_line, folder, once, text_file
from benchfarm_lab.trees.proc import cpu_count, cpu_list

_GOVERNORS = (
    "schedutil", "performance", "powersave", "userspace", "ondemand", "conservative", "sched_pixel", "walt",
    "interactive", "energy_step",
)  # fmt: skip


def sysfs_tree(system: PhoneSystem) -> Node:
    """Return /sys."""
    return DictFolder(
        {
            "devices": folder({"system": folder({"cpu": once(lambda: _cpu_folder(system))})}),
            "class": once(lambda: DictFolder(_class_nodes(system))),
        }
    )


def _class_nodes(system: PhoneSystem) -> Mapping[str, Callable[[], Node]]:
    nodes: dict[str, Callable[[], Node]] = {
        "thermal": once(lambda: _thermal_folder(system)),
        "power_supply": folder({"battery": once(lambda: _battery_folder(system))}),
        "devfreq": folder({}),
    }
    frequencies = system.hardware.gpu_khz()[1]
    if "adreno" in system.build.gpu.lower() and frequencies:
        nodes["kgsl"] = folder({"kgsl-3d0": once(lambda: _adreno_folder(system))})
    elif frequencies:
        nodes["misc"] = folder({"mali0": folder({"device": once(lambda: _mali_folder(system))})})
    return nodes


# Cores


def _cpu_folder(system: PhoneSystem) -> Node:
    everything = cpu_list(range(cpu_count(system)))
    nodes: dict[str, Callable[[], Node]] = {
        "present": text_file(lambda: everything), "online": text_file(lambda: everything),
        "cpufreq": folder(
            {f"policy{cluster.cpus[0]}": _policy(system, number)
             for number, cluster in enumerate(system.hardware.clusters())}
        ),
    }  # fmt: skip
    for cluster in system.hardware.clusters():
        for cpu in cluster.cpus:
            nodes[f"cpu{cpu}"] = folder({"cpufreq": _policy_link(cluster)})
    return DictFolder(nodes)


def _policy_link(cluster: CpuCluster) -> Callable[[], Node]:
    return lambda: LinkNode(lambda: f"../cpufreq/policy{cluster.cpus[0]}")


def _policy(system: PhoneSystem, number: int) -> Callable[[], Node]:
    def now() -> CpuCluster:
        return system.hardware.clusters()[number]

    def limit(name: str) -> Callable[[bytes], None]:
        def write(data: bytes) -> None:
            text = data.strip()
            if not text.isdigit():
                raise PhoneFileError(errno.EINVAL, "Invalid argument")
            khz = int(text)
            if name == "min":
                system.hardware.set_cluster_limits(number, min_khz=khz)
            else:
                system.hardware.set_cluster_limits(number, max_khz=khz)

        return write

    def govern(data: bytes) -> None:
        governor = data.decode("ascii", "replace").strip()
        if governor not in _GOVERNORS:
            raise PhoneFileError(errno.EINVAL, "Invalid argument")
        system.hardware.set_cluster_limits(number, governor=governor)

    def settable(text: Callable[[], object], write: Callable[[bytes], None]) -> Callable[[], Node]:
        return lambda: FileNode(lambda: as_line(text()), write=write, mode=0o644, size_bytes=4096)

    return folder(
        {
            "scaling_cur_freq": text_file(lambda: now().current_khz),
            # What heat has taken shows in scaling_max_freq, as it does where the thermal driver caps the policy.
            "scaling_min_freq": settable(lambda: now().min_khz, limit("min")),
            "scaling_max_freq": settable(lambda: min(now().max_khz, now().limit_khz), limit("max")),
            "cpuinfo_min_freq": text_file(lambda: min(now().available_khz)),
            "cpuinfo_max_freq": text_file(lambda: max(now().available_khz)),
            "scaling_governor": settable(lambda: now().governor, govern),
            "scaling_available_frequencies": text_file(lambda: " ".join(map(str, now().available_khz)) + " "),
            "related_cpus": text_file(lambda: " ".join(map(str, now().cpus))),
            "stats": folder(
                {
                    "time_in_state": lambda: FileNode(
                        lambda: "".join(f"{khz} {ticks}\n" for khz, ticks in sorted(now().ticks.items())).encode(),
                        size_bytes=4096,
                    ),
                }
            ),
        }
    )


# Heat


def _thermal_folder(system: PhoneSystem) -> Node:
    count = len(system.hardware.zones())
    return DictFolder({f"thermal_zone{number}": _zone(system, number) for number in range(count)})


def _zone(system: PhoneSystem, number: int) -> Callable[[], Node]:
    zone = system.hardware.zones()[number]
    return folder(
        {
            "type": text_file(lambda: zone.name),
            "temp": text_file(lambda: round(system.hardware.zones()[number].heat_c * 1000)),
        }
    )


# GPU and battery


def _adreno_folder(system: PhoneSystem) -> Node:
    def now_hz() -> int:
        return system.hardware.gpu_khz()[0] * 1000

    def set_least(data: bytes) -> None:
        text = data.strip()
        if not text.isdigit():
            raise PhoneFileError(errno.EINVAL, "Invalid argument")
        system.hardware.set_gpu_least(int(text) // 1000)

    return DictFolder(
        {
            "gpuclk": text_file(now_hz),
            "gpu_busy_percentage": text_file(lambda: f"{round(100 * system.hardware.gpu_activity().busy_share)} %"),
            "devfreq": folder(
                {
                    "cur_freq": text_file(now_hz),
                    "max_freq": text_file(lambda: system.hardware.gpu_activity().limit_khz * 1000),
                    "trans_stat": lambda: FileNode(lambda: _transitions(system), size_bytes=4096),
                    "min_freq": lambda: FileNode(
                        lambda: as_line(system.hardware.gpu_least_khz() * 1000),
                        write=set_least,
                        mode=0o644,
                        size_bytes=4096,
                    ),
                }
            ),
        }
    )


def _transitions(system: PhoneSystem) -> bytes:
    """The table of devfreq; how often clocks changed isn't counted here, how long each was held is."""
    ticks = system.hardware.gpu_activity().ticks_ms
    rows = [f"{khz * 1000:>12}:{'         0' * len(ticks)}{held_ms:>10}" for khz, held_ms in sorted(ticks.items())]
    head = "".join(f"{khz * 1000:>10}" for khz in sorted(ticks))
    return ("     From  :   To\n           :" + head + "   time(ms)\n" + "\n".join(rows) + "\n").encode()


def _mali_folder(system: PhoneSystem) -> Node:
    return DictFolder(
        {
            "scaling_max_freq": text_file(lambda: system.hardware.gpu_activity().limit_khz),
            "utilization": text_file(lambda: round(100 * system.hardware.gpu_activity().busy_share)),
            "time_in_state": lambda: FileNode(
                lambda: "".join(
                    f"{khz} {held_ms}\n" for khz, held_ms in sorted(system.hardware.gpu_activity().ticks_ms.items())
                ).encode(),
                size_bytes=4096,
            ),
            "cur_freq": text_file(lambda: system.hardware.gpu_khz()[0]),
        }
    )


def _battery_folder(system: PhoneSystem) -> Node:
    hardware = system.hardware
    return DictFolder(
        {
            "capacity": text_file(lambda: hardware.battery().level_percent),
            "temp": text_file(lambda: round(hardware.battery().heat_c * 10)),
            "type": text_file(lambda: "Battery"),
            "current_now": text_file(lambda: hardware.gauge()[0]),
            "voltage_now": text_file(lambda: hardware.gauge()[1]),
            "charge_counter": text_file(lambda: hardware.gauge()[2]),
        }
    )
