"""/proc: the kernel's view of the phone and its processes; and what else is at the phone's root:
/dev with the groups of processes, /system, links.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import SYSTEM_UID, PhoneFileError, encoded
from benchfarm_virtual.processes import Group, Process, current_process
from benchfarm_virtual.trees.node import (
    DeviceNode,
    FileNode,
    Folder,
    LinkNode,
    Node,
    text_file,
    tree,
)
from benchfarm_virtual.trees.sysfs import sysfs_tree

if TYPE_CHECKING:
    from benchfarm_virtual.userland import PhoneSystem

_TICKS_PER_S: Final = 100


def computed_trees(system: PhoneSystem) -> Mapping[str, Node]:
    """Return the computed entries of the root folder."""
    return {
        "proc": _ProcFolder(system),
        "sys": sysfs_tree(system.hardware),
        "dev": tree(
            {
                "null": DeviceNode(lambda limit: b""),
                "zero": DeviceNode(bytes),
                **_groups(system),
            },
            0o755,
        ),
        "system": tree({f"bin/{name}": FileNode(mode=0o755) for name in system.commands}, 0o755),
        "bin": LinkNode("/system/bin"),
    }


def _groups(system: PhoneSystem) -> Mapping[str, Node]:
    """Return the controllers' files; a shell user may read them, the system and root may write."""

    def members(group: Group) -> FileNode:
        def pids() -> bytes:
            live = system.processes.live()
            return b"".join(b"%d\n" % process.pid for process in live if process.group == group)

        def move(data: bytes) -> None:
            process = system.processes.named(data.decode("ascii", "replace").strip())
            if process is None:
                raise PhoneFileError(errno.ESRCH)
            process.group = group

        return FileNode(read=pids, write=move, mode=0o664, uid=SYSTEM_UID)

    return {
        f"{controller}/{name}/cgroup.procs": members(group)
        for controller in ("cpuset", "cpuctl")
        for name, group in _GROUPS.items()
    }


_GROUPS: Final[Mapping[str, Group]] = {"top-app": "top-app", "foreground": "shell"}


class _ProcFolder(Folder):
    def __init__(self, system: PhoneSystem) -> None:
        fixed = tree(
            {
                "cpuinfo": FileNode(lambda: _cpuinfo(system)),
                "meminfo": FileNode(lambda: _meminfo(system)),
                "uptime": FileNode(lambda: _uptime(system)),
                "loadavg": FileNode(lambda: _loadavg(system)),
                "stat": FileNode(lambda: _stat(system)),
                "version": text_file(lambda: "Linux version 4.9.270"),
                "self": LinkNode("1"),
                "sys/kernel/random/boot_id": text_file(lambda: system.boot_id),
            }
        )
        super().__init__(nodes=fixed.nodes)
        self._system = system

    def names(self) -> Iterable[str]:
        """Return the fixed names and the pids."""
        return [*self.nodes, *(str(process.pid) for process in self._system.processes.rows())]

    def child(self, name: str) -> Node | None:
        """Return a fixed node or a process's folder."""
        if name == "self":
            current = current_process()
            return LinkNode(str(current.pid)) if current is not None else None
        process = self._system.processes.named(name)
        return _process_folder(process, self._system) if process else self.nodes.get(name)


def _cpuinfo(system: PhoneSystem) -> bytes:
    """One paragraph per core, and the chip's name, as arm64 kernels print them."""
    profile = system.hardware.profile
    paragraphs = [
        f"processor\t: {number}\nBogoMIPS\t: 38.40\nFeatures\t: {profile.cpu_features}\n"
        f"CPU implementer\t: {spec.implementer}\nCPU architecture: 8\nCPU variant\t: {spec.variant}\n"
        f"CPU part\t: {spec.part}\nCPU revision\t: {spec.revision}\n\n"
        for spec in profile.clusters
        for number in spec.cpus
    ]
    chip = system.props.get("ro.soc.model") or system.props.get("ro.board.platform", "")
    return (
        "Processor\t: AArch64 Processor rev 13 (aarch64)\n"
        + "".join(paragraphs)
        + f"Hardware\t: {chip}\n"
    ).encode()


def _meminfo(system: PhoneSystem) -> bytes:
    total_kb = system.hardware.profile.memory_mb << 10
    rows = {"MemTotal": total_kb, "MemFree": total_kb // 5, "MemAvailable": total_kb * 2 // 3}
    return "".join(f"{name + ':':<16}{kb:>8} kB\n" for name, kb in rows.items()).encode()


def _running(system: PhoneSystem) -> int:
    """Return the number of running programs."""
    return sum(process.computes for process in system.processes.live())


def _uptime(system: PhoneSystem) -> bytes:
    uptime_s = system.time.uptime_s()
    return f"{uptime_s:.2f} {uptime_s * system.hardware.profile.cpu_count * 0.9:.2f}\n".encode()


def _loadavg(system: PhoneSystem) -> bytes:
    load = 2 * min(1.0, 0.03 + 0.5 * _running(system))
    live = len(system.processes.live())
    return f"{load:.2f} {load * 0.9:.2f} {load * 0.8:.2f} {max(1, live)}/{1400 + live} {4210 + live}\n".encode()


#: What an idle phone's own services take of each core, the kernel's part included.
_SERVICES_SHARE: Final = 0.015


def _stat(system: PhoneSystem) -> bytes:
    """Registered work, spread over the cores, on top of the time of the phone's own services."""
    ticks = int(system.time.uptime_s() * _TICKS_PER_S)
    cores = system.hardware.profile.cpu_count
    loaded = int(system.hardware.busy_s() * _TICKS_PER_S)
    lines = []
    for name, share in (("cpu ", cores), *((f"cpu{n}", 1) for n in range(cores))):
        services = int(ticks * share * _SERVICES_SHARE)
        user, kernel = services * 2 // 3 + loaded * share // cores, services - services * 2 // 3
        lines.append(
            f"{name} {user} 0 {kernel} {max(0, ticks * share - user - kernel)} 0 0 0 0 0 0"
        )
    lines += [
        f"ctxt {ticks * 40 + loaded * 3}",
        f"btime {int(system.time.wall_s() - system.time.uptime_s())}",
        f"processes {system.processes.started}\n",
    ]
    return "\n".join(lines).encode()


def _process_folder(process: Process, system: PhoneSystem) -> Node:
    def cmdline() -> bytes:
        return b"".join(encoded(word) + b"\0" for word in process.argv)

    group = "top-app" if process.group == "top-app" else "foreground"
    nodes: dict[str, Node] = {
        "cmdline": FileNode(cmdline),
        "comm": text_file(lambda: process.name[:15]),
        "stat": FileNode(lambda: _process_stat(process, system)),
        "cgroup": text_file(lambda: f"3:cpuset:/{group}"),
    }
    return Folder(uid=process.uid, nodes=nodes)


def _process_stat(process: Process, system: PhoneSystem) -> bytes:
    used = 12 + int(system.hardware.cpu_s(process.pid) * _TICKS_PER_S)
    waited = int(sum(map(system.hardware.cpu_s, process.ended_children)) * _TICKS_PER_S)
    start = int(process.started_s * _TICKS_PER_S)
    return (
        f"{process.pid} ({process.name[:15]}) {process.state} {process.ppid} {process.pid} {process.pid} 0 -1 "
        f"4194560 500 0 0 0 {used} 6 {waited} 0 {20 + process.nice} {process.nice} 1 0 {start} 12582912 "
        "768 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
    ).encode()
