"""Nodes of the phone's file tree: files and folders that are held in memory, and computed ones
(/proc, /sys, /dev), each look at which computes what is in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from benchfarm_virtual.contract import encoded


@dataclass(slots=True, eq=False)
class HeldFile:
    """A written file, held in memory."""

    mode: int
    uid: int
    mtime_s: float = field(default_factory=time.time)
    data: bytearray = field(default_factory=bytearray)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(eq=False)
class Folder:
    """A folder; fixed ones, as the kernel's and the system's, take no new names."""

    mode: int = 0o555
    uid: int = 0
    fixed: bool = True
    mtime_s: float = field(default_factory=time.time)
    nodes: dict[str, Node] = field(default_factory=dict)

    def names(self) -> Iterable[str]:
        """Return the names in it."""
        return list(self.nodes)

    def child(self, name: str) -> Node | None:
        """Return the node under a name, or None."""
        return self.nodes.get(name)


@dataclass(slots=True, eq=False)
class FileNode:
    """A computed file. Writing calls ``write`` with everything that one write carries.

    None: it can't be written.
    """

    read: Callable[[], bytes] = bytes
    write: Callable[[bytes], None] | None = None
    mode: int = 0o444
    uid: int = 0
    #: sysfs says 4096 for every file, procfs 0.
    size_bytes: int = 0


@dataclass(slots=True, eq=False)
class LinkNode:
    """A symbolic link."""

    target: str
    mode: int = 0o777
    uid: int = 0


@dataclass(slots=True, eq=False)
class DeviceNode:
    """A character device."""

    #: Returns so many bytes of it; there is room for everything.
    take: Callable[[int], bytes]
    mode: int = 0o666
    uid: int = 0


Node = Folder | HeldFile | FileNode | LinkNode | DeviceNode


def tree(nodes: Mapping[str, Node], mode: int = 0o555) -> Folder:
    """Return a fixed folder that has each node at its path, and the folders on the way."""
    root = Folder(mode)
    for path, node in nodes.items():
        *above, name = path.split("/")
        folder = root
        for part in above:
            inner = folder.nodes.setdefault(part, Folder(mode))
            assert isinstance(inner, Folder)
            folder = inner
        folder.nodes[name] = node
    return root


def text_file(text: Callable[[], object], write: Callable[[bytes], None] | None = None) -> FileNode:
    """Return a file of one line, which root may write where there is a ``write``."""

    def line() -> bytes:
        return encoded(f"{text()}\n")

    return FileNode(line, write, 0o444 if write is None else 0o644, size_bytes=4096)
