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
            "devices": folder(
                {
                    "system": folder({"cpu": once(lambda: _cpu_folder(system))}),
                    "soc0": folder(
                        {
                            "machine": text_file(lambda: system.props.get("ro.soc.model", "")),
                            "family": text_file(lambda: system.props.get("ro.soc.manufacturer", "")),
                        }
                    ),
                    "virtual": folder({"thermal": once(lambda: _thermal_folder(system))}),
                }
            ),
            "class": once(lambda: DictFolder(_class_nodes(system))),
            "kernel": folder({"mm": folder({})}),
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
    count = cpu_count(system)
    everything = cpu_list(range(count))
    nodes: dict[str, Callable[[], Node]] = {
        "present": text_file(lambda: everything), "online": text_file(lambda: everything),
        "possible": text_file(lambda: everything), "offline": text_file(lambda: ""),
        "kernel_max": text_file(lambda: count - 1),
        "cpufreq": folder(
            {f"policy{cluster.cpus[0]}": _policy(system, number)
             for number, cluster in enumerate(system.hardware.clusters())}
        ),
    }  # fmt: skip
    for number, cluster in enumerate(system.hardware.clusters()):
        for cpu in cluster.cpus:
            nodes[f"cpu{cpu}"] = _core(system, number, cpu)
    return DictFolder(nodes)


def _core(system: PhoneSystem, cluster: int, cpu: int) -> Callable[[], Node]:
    def now() -> CpuCluster:
        return system.hardware.clusters()[cluster]

    return folder(
        {
            "cpufreq": lambda: LinkNode(lambda: f"../cpufreq/policy{now().cpus[0]}"),
            "online": text_file(lambda: 1, mode=0o644),
            "cpu_capacity": text_file(lambda: _capacity(system, now())),
            "topology": folder(
                {
                    "physical_package_id": text_file(lambda: cluster),
                    "core_id": text_file(lambda: cpu - now().cpus[0]),
                    "core_siblings_list": text_file(lambda: cpu_list(now().cpus)),
                    "cluster_cpus_list": text_file(lambda: cpu_list(now().cpus)),
                    "thread_siblings_list": text_file(lambda: cpu),
                }
            ),
        }
    )


def _capacity(system: PhoneSystem, cluster: CpuCluster) -> int:
    """The kernel's capacity: 1024 for the fastest cluster. By clock here; the physics know better but don't say."""
    fastest = max(max(other.available_khz) for other in system.hardware.clusters())
    return max(cluster.available_khz) * 1024 // fastest


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
            "cpuinfo_cur_freq": text_file(lambda: now().current_khz, mode=0o400),
            # What heat has taken shows in scaling_max_freq, as it does where the thermal driver caps the policy.
            "scaling_min_freq": settable(lambda: now().min_khz, limit("min")),
            "scaling_max_freq": settable(lambda: min(now().max_khz, now().limit_khz), limit("max")),
            "cpuinfo_min_freq": text_file(lambda: min(now().available_khz)),
            "cpuinfo_max_freq": text_file(lambda: max(now().available_khz)),
            "cpuinfo_transition_latency": text_file(lambda: 0),
            "scaling_governor": settable(lambda: now().governor, govern),
            "scaling_driver": text_file(lambda: "qcom-cpufreq-hw"),
            "scaling_available_governors": text_file(lambda: " ".join(reversed(_GOVERNORS)) + " "),
            "scaling_available_frequencies": text_file(lambda: " ".join(map(str, now().available_khz)) + " "),
            "related_cpus": text_file(lambda: " ".join(map(str, now().cpus))),
            "affected_cpus": text_file(lambda: " ".join(map(str, now().cpus))),
            "stats": folder(
                {
                    "time_in_state": lambda: FileNode(
                        lambda: "".join(f"{khz} {ticks}\n" for khz, ticks in sorted(now().ticks.items())).encode(),
                        size_bytes=4096,
                    ),
                    "total_trans": text_file(lambda: sum(now().ticks.values()) // 7),
                }
            ),
        }
    )


# Heat


def _thermal_folder(system: PhoneSystem) -> Node:
    nodes: dict[str, Callable[[], Node]] = {}
    for number in range(len(system.hardware.zones())):
        nodes[f"thermal_zone{number}"] = _zone(system, number)
    for number in range(len(system.hardware.clusters())):
        nodes[f"cooling_device{number}"] = _cooling(system, number)
    return DictFolder(nodes)


def _cooling(system: PhoneSystem, number: int) -> Callable[[], Node]:
    def now() -> CpuCluster:
        return system.hardware.clusters()[number]

    return folder(
        {
            "type": text_file(lambda: f"thermal-cpufreq-{now().cpus[0]}"),
            "cur_state": text_file(lambda: now().cooling_steps),
            "max_state": text_file(lambda: len(now().available_khz) - 1),
        }
    )


def _zone(system: PhoneSystem, number: int) -> Callable[[], Node]:
    zone = system.hardware.zones()[number]
    nodes = {
        "type": text_file(lambda: zone.name),
        "temp": text_file(lambda: round(system.hardware.zones()[number].heat_c * 1000)),
        "mode": text_file(lambda: "enabled"),
        "policy": text_file(lambda: "step_wise"),
    }
    if zone.trip_c is not None:
        trip_c = zone.trip_c
        nodes["trip_point_0_temp"] = text_file(lambda: round(trip_c * 1000))
        nodes["trip_point_0_type"] = text_file(lambda: "passive")
    return folder(nodes)


# GPU and battery


def _adreno_folder(system: PhoneSystem) -> Node:
    def now_hz() -> int:
        return system.hardware.gpu_khz()[0] * 1000

    def set_least(data: bytes) -> None:
        text = data.strip()
        if not text.isdigit():
            raise PhoneFileError(errno.EINVAL, "Invalid argument")
        system.hardware.set_gpu_least(int(text) // 1000)

    def all_hz() -> list[int]:
        return sorted((khz * 1000 for khz in system.hardware.gpu_khz()[1]), reverse=True)

    return DictFolder(
        {
            "gpuclk": text_file(now_hz),
            "max_gpuclk": text_file(lambda: all_hz()[0]),
            "gpu_model": text_file(lambda: system.build.gpu.replace(" (TM)", "").replace(" ", "")),
            "gpu_available_frequencies": text_file(lambda: " ".join(map(str, all_hz())) + " "),
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
                    "available_frequencies": text_file(lambda: " ".join(map(str, sorted(all_hz())))),
                    "governor": text_file(lambda: "msm-adreno-tz"),
                    "available_governors": text_file(lambda: "msm-adreno-tz performance simple_ondemand"),
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
            "available_frequencies": text_file(
                lambda: " ".join(map(str, sorted(system.hardware.gpu_khz()[1], reverse=True)))
            ),
            "gpuinfo": text_file(lambda: system.build.gpu),
        }
    )


def _battery_folder(system: PhoneSystem) -> Node:
    def battery(text: Callable[[], object]) -> Callable[[], Node]:
        return text_file(text)

    hardware = system.hardware
    return DictFolder(
        {
            "capacity": battery(lambda: hardware.battery().level_percent),
            "temp": battery(lambda: round(hardware.battery().heat_c * 10)),
            "current_now": battery(lambda: hardware.battery().current_ua),
            "voltage_now": battery(lambda: hardware.battery().voltage_mv * 1000),
            "charge_counter": battery(lambda: hardware.battery().charge_counter_uah),
            "status": battery(lambda: charging_word(hardware.battery().plugged, hardware.battery().level_percent)),
            "health": battery(lambda: "Good"),
            "present": battery(lambda: 1),
            "technology": battery(lambda: "Li-ion"),
            "type": battery(lambda: "Battery"),
        }
    )


def charging_word(plugged: str, level_percent: int) -> str:
    """Return the kernel's word for what the battery does."""
    if plugged == "none":
        return "Discharging"
    return "Full" if level_percent >= 100 else "Charging"
