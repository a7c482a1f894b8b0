"""Nodes of the phone's file tree: files and folders that are held in memory, and computed ones (/proc, /sys, /dev).

Each look at a computed file computes what is in it. What files there are is kept once it is known (`once`): a phone's
cores and sensors don't change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol


class FolderNode(Protocol):
    """A folder."""

    @property
    def mode(self) -> int:
        """Permission bits."""
        ...

    @property
    def uid(self) -> int:
        """Owner."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names in it."""
        ...

    def child(self, name: str) -> Node | None:
        """Return what is there under a name, or None."""
        ...


@dataclass(slots=True, eq=False)
class HeldFile:
    """A file that somebody wrote."""

    mode: int
    uid: int
    gid: int
    mtime_s: float = field(default_factory=time.time)
    data: bytearray = field(default_factory=bytearray)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(slots=True, eq=False)
class HeldFolder:
    """A folder in which names may come and go."""

    mode: int
    uid: int
    gid: int
    mtime_s: float = field(default_factory=time.time)
    nodes: dict[str, Node] = field(default_factory=dict)

    def names(self) -> Iterable[str]:
        """Return the names in it."""
        return list(self.nodes)

    def child(self, name: str) -> Node | None:
        """Return what is there under a name, or None."""
        return self.nodes.get(name)


@dataclass(frozen=True, slots=True)
class FileNode:
    """A computed file. Writing calls ``write`` with everything that one write carries; None: it can't be written."""

    read: Callable[[], bytes]
    write: Callable[[bytes], None] | None = None
    mode: int = 0o444
    uid: int = 0
    #: sysfs says 4096 for every file, procfs 0.
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LinkNode:
    """A symbolic link."""

    target: Callable[[], str]
    mode: int = 0o777
    uid: int = 0


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character device."""

    kind: Literal["null", "zero", "random"]
    mode: int = 0o666
    uid: int = 0


@dataclass(frozen=True, slots=True)
class DictFolder:
    """A computed folder whose names and kinds of nodes stay as they are; its nodes are made when somebody looks."""

    nodes: Mapping[str, Callable[[], Node]]
    mode: int = 0o555
    uid: int = 0

    def names(self) -> Iterable[str]:
        """Return the names in it."""
        return self.nodes

    def child(self, name: str) -> Node | None:
        """Return what is there under a name, or None."""
        make = self.nodes.get(name)
        return make() if make is not None else None


Node = FolderNode | HeldFile | FileNode | LinkNode | DeviceNode


def as_line(value: object) -> bytes:
    """Return a value as a line of a computed file."""
    return f"{value}\n".encode("utf-8", "surrogateescape")


def text_file(text: Callable[[], object], *, mode: int = 0o444) -> Callable[[], Node]:
    """Return a maker of a read-only file of one line."""
    return lambda: FileNode(read=lambda: as_line(text()), mode=mode, size_bytes=4096)


def once(make: Callable[[], Node]) -> Callable[[], Node]:
    """Return a maker whose node is made at the first look and kept: for a folder whose names stay the same."""
    kept: list[Node] = []

    def node() -> Node:
        if not kept:
            kept.append(make())
        return kept[0]

    return node


def folder(nodes: Mapping[str, Callable[[], Node]]) -> Callable[[], Node]:
    """Return a maker of a folder."""
    made = DictFolder(nodes)
    return lambda: made
