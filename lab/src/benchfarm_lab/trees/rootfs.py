"""What else is at the root of the phone: /dev, /system, links, groups of processes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping

from benchfarm_lab.commands.registry import command_names, find_command
from benchfarm_lab.contract import SYSTEM_UID, PhoneFileError
from benchfarm_lab.processes import Group
from benchfarm_lab.props import PhoneProps
from benchfarm_lab.system import PhoneSystem
from benchfarm_lab.trees.node import DeviceNode, DictFolder, FileNode, LinkNode, Node, folder, once
from benchfarm_lab.trees.proc import proc_tree
from benchfarm_lab.trees.sysfs import sysfs_tree


def cgroup_tree(system: PhoneSystem) -> Node:
    """Return one controller's tree; a shell user may read it, the system and root may write."""
    return DictFolder(
        {"top-app": _group(system, "top-app"), "foreground": _group(system, "shell"), "background": folder({})},
        mode=0o755,
    )


def _group(system: PhoneSystem, group: Group) -> Callable[[], Node]:
    def pids() -> bytes:
        return "".join(f"{process.pid}\n" for process in system.processes.live() if process.group == group).encode()

    def move(data: bytes) -> None:
        text = data.decode("ascii", "replace").strip()
        process = system.processes.find(int(text)) if text.isdigit() else None
        if process is None:
            raise PhoneFileError(errno.ESRCH, "No such process")
        process.group = group

    def file() -> Node:
        return FileNode(read=pids, write=move, mode=0o664, uid=SYSTEM_UID)

    return folder({"cgroup.procs": file, "tasks": file})


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
        if name == "toybox":
            return FileNode(lambda: b"", mode=0o755)
        return FileNode(lambda: b"", mode=0o755) if find_command(name, self._props) is not None else None


def _build_prop(system: PhoneSystem) -> bytes:
    rows = (f"{key}={value}\n" for key, value in system.props.items() if key.startswith("ro."))
    return ("# begin build properties\n" + "".join(rows)).encode("utf-8", "surrogateescape")


def computed_trees(system: PhoneSystem) -> Mapping[str, Node]:
    """Return the computed entries of the root folder."""
    libraries = {
        name: (lambda: FileNode(lambda: b"", mode=0o644))
        for name in ("libneuralnetworks.so", "libGLESv2.so", "libvulkan.so", "liblog.so", "libc.so")
    }

    def system_folder() -> Node:
        return DictFolder(
            {
                "bin": lambda: _Commands(system.props),
                "xbin": folder({}),
                "lib": folder(libraries),
                "lib64": folder(libraries),
                "etc": folder({"hosts": lambda: FileNode(lambda: b"127.0.0.1       localhost\n", mode=0o644)}),
                "build.prop": lambda: FileNode(lambda: _build_prop(system), mode=0o600),
            },
            mode=0o755,
        )

    def dev_folder() -> Node:
        return DictFolder(
            {
                "null": lambda: DeviceNode("null"), "zero": lambda: DeviceNode("zero"),
                "random": lambda: DeviceNode("random"), "urandom": lambda: DeviceNode("random"),
                "block": folder({}), "cpuset": once(lambda: cgroup_tree(system)),
                "cpuctl": once(lambda: cgroup_tree(system)),
            },
            mode=0o755,
        )  # fmt: skip

    def link(target: str) -> Node:
        return LinkNode(lambda: target)

    return {
        "proc": proc_tree(system), "sys": sysfs_tree(system), "dev": dev_folder(), "system": system_folder(),
        "bin": link("/system/bin"), "etc": link("/system/etc"),
        "d": link("/sys/kernel/debug"), "sdcard": link("/storage/self/primary"),
        "vendor": DictFolder(
            {"lib64": folder({"libOpenCL.so": lambda: FileNode(lambda: b"", mode=0o644)}), "bin": folder({})},
            mode=0o755,
        ),
    }  # fmt: skip
