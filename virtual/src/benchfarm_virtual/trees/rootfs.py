"""What else is at the root of the phone: /dev, /system, links, groups of processes."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from typing import Final

from benchfarm_virtual.commands.invocation import command_names, find_command
from benchfarm_virtual.contract import SYSTEM_UID, PhoneFileError
from benchfarm_virtual.processes import Group
from benchfarm_virtual.system import PhoneProps, PhoneSystem
from benchfarm_virtual.trees.node import ComputedFolder, DeviceNode, FileNode, LinkNode, Node
from benchfarm_virtual.trees.proc import proc_tree
from benchfarm_virtual.trees.sysfs import sysfs_tree


def cgroup_tree(system: PhoneSystem) -> Node:
    """Return one controller's tree; a shell user may read it, the system and root may write."""
    return ComputedFolder(
        lambda: {
            "top-app": _group(system, "top-app"),
            "foreground": _group(system, "shell"),
            "background": ComputedFolder(),
        },
        mode=0o755,
    )


def _group(system: PhoneSystem, group: Group) -> Node:
    def pids() -> bytes:
        return "".join(
            f"{process.pid}\n" for process in system.processes.live() if process.group == group
        ).encode()

    def move(data: bytes) -> None:
        text = data.decode("ascii", "replace").strip()
        process = system.processes.find(int(text)) if text.isdigit() else None
        if process is None:
            raise PhoneFileError(errno.ESRCH, "No such process")
        process.group = group

    file = FileNode(read=pids, write=move, mode=0o664, uid=SYSTEM_UID)
    return ComputedFolder(lambda: {"cgroup.procs": file, "tasks": file})


class _Commands:
    """/system/bin: one file for each command."""

    mode = 0o751
    uid = 0

    def __init__(self, props: PhoneProps) -> None:
        self._props = props

    def names(self) -> Iterable[str]:
        """Return the commands' names."""
        return [*command_names(self._props), "toybox"]

    def child(self, name: str) -> Node | None:
        """Return a command's file."""
        is_there = name == "toybox" or find_command(name, self._props) is not None
        return FileNode(mode=0o755) if is_there else None


def _build_prop(system: PhoneSystem) -> bytes:
    rows = (f"{key}={value}\n" for key, value in system.props.items() if key.startswith("ro."))
    return ("# begin build properties\n" + "".join(rows)).encode("utf-8", "surrogateescape")


_LIBRARIES: Final = ("libneuralnetworks.so", "libGLESv2.so", "libvulkan.so", "liblog.so", "libc.so")


def computed_trees(system: PhoneSystem) -> Mapping[str, Node]:
    """Return the computed entries of the root folder."""

    def folder(*names: str) -> Node:
        """Return a folder with empty files."""
        return ComputedFolder(lambda: {name: FileNode(mode=0o644) for name in names}, mode=0o555)

    def system_nodes() -> Mapping[str, Node]:
        hosts = {"hosts": FileNode(lambda: b"127.0.0.1       localhost\n", mode=0o644)}
        return {
            "bin": _Commands(system.props),
            "xbin": folder(),
            "lib": folder(*_LIBRARIES),
            "lib64": folder(*_LIBRARIES),
            "etc": ComputedFolder(lambda: hosts),
            "build.prop": FileNode(lambda: _build_prop(system), mode=0o600),
        }

    def devices() -> Mapping[str, Node]:
        return {
            "null": DeviceNode("null"),
            "zero": DeviceNode("zero"),
            "random": DeviceNode("random"),
            "urandom": DeviceNode("random"),
            "block": folder(),
            "cpuset": cgroup_tree(system),
            "cpuctl": cgroup_tree(system),
        }

    def vendor_nodes() -> Mapping[str, Node]:
        return {"lib64": folder("libOpenCL.so"), "bin": folder()}

    return {
        "proc": proc_tree(system),
        "sys": sysfs_tree(system),
        "dev": ComputedFolder(devices, mode=0o755),
        "system": ComputedFolder(system_nodes, mode=0o755),
        "vendor": ComputedFolder(vendor_nodes, mode=0o755),
        "bin": LinkNode("/system/bin"),
        "etc": LinkNode("/system/etc"),
        "d": LinkNode("/sys/kernel/debug"),
        "sdcard": LinkNode("/storage/self/primary"),
    }
