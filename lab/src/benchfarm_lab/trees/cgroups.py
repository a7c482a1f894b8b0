"""/dev/cpuset and /dev/cpuctl: the groups that Android's scheduler knows processes by."""

from __future__ import annotations

import errno
from collections.abc import Callable

from benchfarm_lab.contract import SYSTEM_UID, PhoneFileError
from benchfarm_lab.processes import Group
from benchfarm_lab.system import PhoneSystem
from benchfarm_lab.trees.node import DictFolder, FileNode, Node, folder


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
