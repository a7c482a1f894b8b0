"""/sys: cores and their clocks, thermal zones, GPU, battery, from the phone's physics."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.hardware import VirtualHardware
from benchfarm_virtual.heat import Clocks
from benchfarm_virtual.trees.node import FileNode, Folder, LinkNode, Node, text_file, tree


def sysfs_tree(hardware: VirtualHardware) -> Folder:
    """Return /sys."""
    cpu = "devices/system/cpu"
    nodes: dict[str, Node] = {"class/devfreq": Folder()}

    def put(folder: str, inside: Mapping[str, Node]) -> None:
        nodes.update({f"{folder}/{name}": node for name, node in inside.items()})

    for number, cluster in enumerate(hardware.clusters()):
        policy = f"policy{cluster.cpus[0]}"
        put(f"{cpu}/cpufreq/{policy}", _policy(hardware, number, cluster))
        for core in cluster.cpus:
            nodes[f"{cpu}/cpu{core}/cpufreq"] = LinkNode(f"../cpufreq/{policy}")
    for number, name in enumerate(hardware.zones()):
        put(f"class/thermal/thermal_zone{number}", _zone(hardware, name))
    put("class/power_supply/battery", _battery(hardware))
    if hardware.profile.gpu is not None:
        is_adreno = "adreno" in hardware.profile.gpu.name.lower()
        folder = "class/kgsl/kgsl-3d0" if is_adreno else "class/misc/mali0/device"
        put(folder, _gpu(hardware, is_adreno=is_adreno))
    return tree(nodes)


def _number(data: bytes) -> int:
    """Return the number that is written to a file; raise PhoneFileError for any other text."""
    if not data.strip().isdigit():
        raise PhoneFileError(errno.EINVAL)
    return int(data)


def _policy(hardware: VirtualHardware, number: int, clocks: Clocks) -> Mapping[str, Node]:
    def now() -> Clocks:
        return hardware.clusters()[number]

    def govern(data: bytes) -> None:
        governor = data.decode("ascii", "replace").strip()
        if governor not in hardware.profile.governors:
            raise PhoneFileError(errno.EINVAL)
        hardware.set_limits(now(), governor=governor)

    return {
        "scaling_cur_freq": text_file(lambda: now().current_khz),
        # What heat has taken shows in scaling_max_freq, as it does where the thermal driver caps
        # the policy.
        "scaling_min_freq": text_file(
            lambda: now().min_khz,
            lambda data: hardware.set_limits(now(), min_khz=_number(data)),
        ),
        "scaling_max_freq": text_file(
            lambda: now().limit_khz,
            lambda data: hardware.set_limits(now(), max_khz=_number(data)),
        ),
        "cpuinfo_min_freq": text_file(lambda: min(clocks.available_khz)),
        "cpuinfo_max_freq": text_file(lambda: max(clocks.available_khz)),
        "scaling_governor": text_file(lambda: now().governor, govern),
        "related_cpus": text_file(lambda: " ".join(map(str, clocks.cpus))),
        "stats/time_in_state": _times(now, 100),
    }


def _times(clocks: Callable[[], Clocks], per_s: int) -> Node:
    """Return a file with the time at each clock, in so many parts of a second."""
    return FileNode(
        lambda: "".join(
            f"{khz} {int(held_s * per_s)}\n" for khz, held_s in clocks().held_s.items()
        ).encode(),
        size_bytes=4096,
    )


def _zone(hardware: VirtualHardware, name: str) -> Mapping[str, Node]:
    return {
        "type": text_file(lambda: name),
        "temp": text_file(lambda: round(hardware.zones()[name] * 1000)),
    }


def _gpu(hardware: VirtualHardware, *, is_adreno: bool) -> Mapping[str, Node]:
    def now() -> Clocks:
        state = hardware.gpu()
        assert state is not None
        return state

    if not is_adreno:
        return {
            "scaling_max_freq": text_file(lambda: now().limit_khz),
            "utilization": text_file(lambda: round(100 * hardware.gpu_load())),
            "time_in_state": _times(now, 1000),
            "cur_freq": text_file(lambda: now().current_khz),
        }
    return {
        "gpuclk": text_file(lambda: now().current_khz * 1000),
        "gpu_busy_percentage": text_file(lambda: f"{round(100 * hardware.gpu_load())} %"),
        "devfreq/cur_freq": text_file(lambda: now().current_khz * 1000),
        "devfreq/max_freq": text_file(lambda: now().limit_khz * 1000),
        "devfreq/trans_stat": FileNode(lambda: _transitions(now()), size_bytes=4096),
        "devfreq/min_freq": text_file(
            lambda: now().min_khz * 1000,
            lambda data: hardware.set_limits(now(), min_khz=_number(data) // 1000),
        ),
    }


def _transitions(clocks: Clocks) -> bytes:
    """The table of devfreq; how often clocks changed isn't counted here, how long each was held is."""
    head = "".join(f"{khz * 1000:>10}" for khz in clocks.held_s)
    none = "         0" * len(clocks.held_s)
    rows = [
        f"{khz * 1000:>12}:{none}{int(held_s * 1000):>10}\n"
        for khz, held_s in clocks.held_s.items()
    ]
    return f"     From  :   To\n           :{head}   time(ms)\n{''.join(rows)}".encode()


def _battery(hardware: VirtualHardware) -> Mapping[str, Node]:
    return {
        "type": text_file(lambda: "Battery"),
        "current_now": text_file(lambda: hardware.gauge()[0]),
        "voltage_now": text_file(lambda: hardware.gauge()[1]),
        "charge_counter": text_file(lambda: hardware.gauge()[2]),
    }
