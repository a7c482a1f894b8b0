"""/proc: the kernel's view of the phone and its processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from benchfarm_virtual.processes import Process, current_process
from benchfarm_virtual.system import PhoneSystem
from benchfarm_virtual.trees.node import (
    ComputedFolder,
    FileNode,
    LinkNode,
    Node,
    as_line,
    text_file,
)

_TICKS_PER_S: Final = 100


def proc_tree(system: PhoneSystem) -> Node:
    """Return /proc."""
    return _ProcFolder(system)


class _ProcFolder:
    mode = 0o555
    uid = 0

    def __init__(self, system: PhoneSystem) -> None:
        self._system = system
        random = {"boot_id": text_file(lambda: system.boot_id)}
        kernel = {"random": ComputedFolder(lambda: random)}
        self._nodes: Mapping[str, Node] = {
            "cpuinfo": FileNode(lambda: _cpuinfo(system)),
            "meminfo": FileNode(lambda: meminfo(system)),
            "uptime": FileNode(lambda: _uptime(system)),
            "loadavg": FileNode(lambda: _loadavg(system)),
            "stat": FileNode(lambda: _stat(system)),
            "version": FileNode(lambda: as_line(kernel_version(system))),
            "self": LinkNode("1"),
            "sys": ComputedFolder(lambda: {"kernel": ComputedFolder(lambda: kernel)}),
        }

    def names(self) -> Iterable[str]:
        """Return the fixed names and the pids."""
        return [*self._nodes, *(str(process.pid) for process in self._system.processes.rows())]

    def child(self, name: str) -> Node | None:
        """Return a fixed node or a process's folder."""
        if name == "self":
            current = current_process()
            return LinkNode(str(current.pid)) if current is not None else None
        if name.isdigit():
            process = self._system.processes.find(int(name))
            return _process_folder(process, self._system) if process is not None else None
        return self._nodes.get(name)


def kernel_release(system: PhoneSystem) -> str:
    """Return what ``uname -r`` says."""
    return system.props.get("ro.kernel.version", "4.9.270-g862f51bac900-ab7613625")


def kernel_version(system: PhoneSystem) -> str:
    """Return the line of /proc/version."""
    return (
        f"Linux version {kernel_release(system)} (android-build@abfarm) (Android clang) "
        "#0 SMP PREEMPT Mon Aug 2 10:12:18 UTC 2021"
    )


def cpu_count(system: PhoneSystem) -> int:
    """Return how many cores the phone has."""
    return system.processes.all_cpus.bit_length()


def _cpuinfo(system: PhoneSystem) -> bytes:
    """One paragraph per core, and the chip's name, as arm64 kernels print them."""
    profile = system.hardware.profile
    paragraphs = [
        f"processor\t: {number}\nBogoMIPS\t: 38.40\nFeatures\t: {profile.cpu_features}\n"
        f"CPU implementer\t: {spec.implementer}\nCPU architecture: 8\nCPU variant\t: {spec.variant}\n"
        f"CPU part\t: {spec.part}\nCPU revision\t: {spec.revision}\n\n"
        for number, spec in sorted((cpu, spec) for spec in profile.clusters for cpu in spec.cpus)
    ]
    chip = system.props.get("ro.soc.model") or system.props.get("ro.board.platform", "")
    return (
        "Processor\t: AArch64 Processor rev 13 (aarch64)\n"
        + "".join(paragraphs)
        + f"Hardware\t: {chip}\n"
    ).encode()


def memory_figures(system: PhoneSystem) -> tuple[int, int, int]:
    """Return total, free and available memory in bytes."""
    total = system.hardware.profile.memory_mb << 20
    used = total // 3 + sum(process.rss_bytes for process in system.processes.live())
    free = max(total // 20, total // 4 - used // 8)
    return total, free, max(free, total - used)


def meminfo(system: PhoneSystem) -> bytes:
    """Return /proc/meminfo."""
    total, free, available = memory_figures(system)
    rows = {
        "MemTotal": total,
        "MemFree": free,
        "MemAvailable": available,
        "Buffers": 5 << 20,
        "Cached": total // 4,
        "SwapCached": 0,
        "Active": total // 4,
        "Inactive": total // 5,
        "SwapTotal": total // 2,
        "SwapFree": total // 3,
        "Dirty": 84 << 10,
        "AnonPages": total // 5,
        "Mapped": total // 8,
        "Shmem": 12 << 20,
        "Slab": total // 20,
        "CmaTotal": 180 << 20,
        "CmaFree": 1 << 20,
    }
    return "".join(
        f"{name + ':':<16}{value // 1024:>8} kB\n" for name, value in rows.items()
    ).encode()


def busy_share(system: PhoneSystem) -> float:
    """Return how busy the cores are, from programs that run now."""
    running = sum(1 for process in system.processes.live() if process.context is not None)
    return min(1.0, 0.03 + 0.5 * running)


def _uptime(system: PhoneSystem) -> bytes:
    uptime_s = system.time.uptime_s()
    return f"{uptime_s:.2f} {uptime_s * cpu_count(system) * 0.9:.2f}\n".encode()


def _loadavg(system: PhoneSystem) -> bytes:
    load = busy_share(system) * 2
    live = len(system.processes.live())
    return f"{load:.2f} {load * 0.9:.2f} {load * 0.8:.2f} {max(1, live)}/{1400 + live} {4210 + live}\n".encode()


#: What an idle phone's own services take of each core, the kernel's part included.
_SERVICES_SHARE: Final = 0.015


def _stat(system: PhoneSystem) -> bytes:
    """Work that was registered, spread over the cores, on top of what the phone's own services
    take.
    """
    ticks = int(system.time.uptime_s() * _TICKS_PER_S)
    cores = cpu_count(system)
    loaded = int(system.hardware.busy_s() * _TICKS_PER_S)
    lines = []
    for name, share in (("cpu ", cores), *((f"cpu{n}", 1) for n in range(cores))):
        services = int(ticks * share * _SERVICES_SHARE)
        user, kernel = services * 2 // 3 + loaded * share // cores, services - services * 2 // 3
        lines.append(
            f"{name} {user} 0 {kernel} {max(0, ticks * share - user - kernel)} 0 0 0 0 0 0"
        )
    boot_s = int(system.time.wall_s() - system.time.uptime_s())
    running = 1 + sum(1 for process in system.processes.live() if process.context is not None)
    lines += [
        f"ctxt {ticks * 40 + loaded * 3}",
        f"btime {boot_s}",
        f"processes {system.processes.started}",
        f"procs_running {running}",
        "procs_blocked 0",
    ]
    return ("\n".join(lines) + "\n").encode()


def _process_folder(process: Process, system: PhoneSystem) -> Node:
    def cmdline() -> bytes:
        return b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in process.argv)

    group = "top-app" if process.group == "top-app" else "foreground"
    nodes = {
        "cmdline": FileNode(cmdline),
        "comm": text_file(lambda: process.name[:15]),
        "stat": FileNode(lambda: _process_stat(process, system)),
        "cgroup": text_file(lambda: f"3:cpuset:/{group}"),
    }
    return ComputedFolder(lambda: nodes, uid=process.uid)


def _process_stat(process: Process, system: PhoneSystem) -> bytes:
    used = 12 + int(system.hardware.cpu_s(process.pid) * _TICKS_PER_S)
    waited = int(sum(map(system.hardware.cpu_s, process.ended_children)) * _TICKS_PER_S)
    start = int(process.started_s * _TICKS_PER_S)
    return (
        f"{process.pid} ({process.name[:15]}) {process.state} {process.ppid} {process.pid} {process.pid} 0 -1 "
        f"4194560 500 0 0 0 {used} 6 {waited} 0 {20 + process.nice} {process.nice} 1 0 {start} {process.rss_bytes * 4} "
        f"{process.rss_bytes // 4096} 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
    ).encode()


def cpu_list(cpus: Iterable[int]) -> str:
    """Return core numbers as the kernel lists them: ``0-3,7``."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
