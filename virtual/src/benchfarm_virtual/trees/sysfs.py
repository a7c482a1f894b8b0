"""/sys: cores and their clocks, thermal zones, GPU, battery, from the phone's physics."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from benchfarm_virtual.contract import ClockState, PhoneFileError
from benchfarm_virtual.hardware import VirtualHardware
from benchfarm_virtual.trees.node import FileNode, Folder, LinkNode, Node, text_file, tree


def sysfs_tree(hardware: VirtualHardware) -> Folder:
    """Return /sys."""
    cpu, everything = "devices/system/cpu", f"0-{hardware.profile.cpu_count - 1}"
    nodes: dict[str, Node] = {
        f"{cpu}/present": text_file(lambda: everything),
        f"{cpu}/online": text_file(lambda: everything),
        "class/devfreq": Folder(),
    }

    def put(folder: str, inside: Mapping[str, Node]) -> None:
        nodes.update({f"{folder}/{name}": node for name, node in inside.items()})

    for number, cluster in enumerate(hardware.clusters()):
        policy = f"policy{cluster.cpus[0]}"
        put(f"{cpu}/cpufreq/{policy}", _policy(hardware, number, cluster))
        for core in cluster.cpus:
            nodes[f"{cpu}/cpu{core}/cpufreq"] = LinkNode(f"../cpufreq/{policy}")
    for number in range(len(hardware.zones())):
        put(f"class/thermal/thermal_zone{number}", _zone(hardware, number))
    put("class/power_supply/battery", _battery(hardware))
    if hardware.profile.gpu is not None:
        is_adreno = "adreno" in hardware.profile.gpu.name.lower()
        folder = "class/kgsl/kgsl-3d0" if is_adreno else "class/misc/mali0/device"
        put(folder, _gpu(hardware, is_adreno=is_adreno))
    return tree(nodes)


def _number(data: bytes) -> int:
    """Return what is written to a file; raise PhoneFileError when it is no number."""
    if not data.strip().isdigit():
        raise PhoneFileError(errno.EINVAL, "Invalid argument")
    return int(data)


def _policy(hardware: VirtualHardware, number: int, known: ClockState) -> Mapping[str, Node]:
    def now() -> ClockState:
        return hardware.clusters()[number]

    def govern(data: bytes) -> None:
        governor = data.decode("ascii", "replace").strip()
        if governor not in (*hardware.profile.governors, "powersave"):
            raise PhoneFileError(errno.EINVAL, "Invalid argument")
        hardware.set_cluster_limits(number, governor=governor)

    return {
        "scaling_cur_freq": text_file(lambda: now().current_khz),
        # What heat has taken shows in scaling_max_freq, as it does where the thermal driver caps
        # the policy.
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
        "stats/time_in_state": _times(lambda: now().ticks),
    }


def _times(ticks: Callable[[], Mapping[int, int]]) -> Node:
    """Return a file with the time at each clock."""
    return FileNode(
        lambda: "".join(f"{khz} {held}\n" for khz, held in sorted(ticks().items())).encode(),
        size_bytes=4096,
    )


def _zone(hardware: VirtualHardware, number: int) -> Mapping[str, Node]:
    return {
        "type": text_file(lambda: hardware.zones()[number].name),
        "temp": text_file(lambda: round(hardware.zones()[number].heat_c * 1000)),
    }


def _gpu(hardware: VirtualHardware, *, is_adreno: bool) -> Mapping[str, Node]:
    def now() -> ClockState:
        state = hardware.gpu()
        assert state is not None
        return state

    def held_ms() -> Mapping[int, int]:
        return {khz: 10 * ticks for khz, ticks in now().ticks.items()}

    if not is_adreno:
        return {
            "scaling_max_freq": text_file(lambda: now().limit_khz),
            "utilization": text_file(lambda: round(100 * hardware.gpu_load())),
            "time_in_state": _times(held_ms),
            "cur_freq": text_file(lambda: now().current_khz),
        }
    return {
        "gpuclk": text_file(lambda: now().current_khz * 1000),
        "gpu_busy_percentage": text_file(lambda: f"{round(100 * hardware.gpu_load())} %"),
        "devfreq/cur_freq": text_file(lambda: now().current_khz * 1000),
        "devfreq/max_freq": text_file(lambda: now().limit_khz * 1000),
        "devfreq/trans_stat": FileNode(lambda: _transitions(held_ms()), size_bytes=4096),
        "devfreq/min_freq": text_file(
            lambda: now().min_khz * 1000,
            lambda data: hardware.set_gpu_least(_number(data) // 1000),
        ),
    }


def _transitions(held_ms: Mapping[int, int]) -> bytes:
    """The table of devfreq; how often clocks changed isn't counted here, how long each was held is."""
    ticks = sorted(held_ms.items())
    head = "".join(f"{khz * 1000:>10}" for khz, _ in ticks)
    rows = [f"{khz * 1000:>12}:{'         0' * len(ticks)}{held:>10}\n" for khz, held in ticks]
    return f"     From  :   To\n           :{head}   time(ms)\n{''.join(rows)}".encode()


def _battery(hardware: VirtualHardware) -> Mapping[str, Node]:
    return {
        "capacity": text_file(lambda: hardware.battery().level_percent),
        "temp": text_file(lambda: round(hardware.battery().heat_c * 10)),
        "type": text_file(lambda: "Battery"),
        "current_now": text_file(lambda: hardware.gauge()[0]),
        "voltage_now": text_file(lambda: hardware.gauge()[1]),
        "charge_counter": text_file(lambda: hardware.gauge()[2]),
    }
