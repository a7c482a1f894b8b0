"""Nodes of the phone's file tree: files and folders that are held in memory, and computed ones
(/proc, /sys, /dev).

Each look at a computed file computes what is in it. What files there are is kept once it is known:
a phone's cores and sensors don't change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
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

    def part(self, start: int, end: int) -> bytes:
        """Return what is there between two places."""
        with self.lock:
            return bytes(memoryview(self.data)[start:end])


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

    kind: Literal["null", "zero", "random"]
    mode: int = 0o666
    uid: int = 0


class ComputedFolder:
    """A computed folder whose nodes are made when somebody first looks: what there is doesn't
    change.
    """

    def __init__(
        self, make: Callable[[], Mapping[str, Node]] = dict, *, mode: int = 0o555, uid: int = 0
    ) -> None:
        self._make = make
        self.mode = mode
        self.uid = uid

    @cached_property
    def _nodes(self) -> Mapping[str, Node]:
        return self._make()

    def names(self) -> Iterable[str]:
        """Return the names in it."""
        return self._nodes

    def child(self, name: str) -> Node | None:
        """Return what is there under a name, or None."""
        return self._nodes.get(name)


Node = FolderNode | HeldFile | FileNode | LinkNode | DeviceNode


def as_line(value: object) -> bytes:
    """Return a value as a line of a computed file."""
    return f"{value}\n".encode("utf-8", "surrogateescape")


def text_file(text: Callable[[], object], write: Callable[[bytes], None] | None = None) -> FileNode:
    """Return a file of one line, which root may write where there is a ``write``."""
    return FileNode(
        lambda: as_line(text()), write, 0o444 if write is None else 0o644, size_bytes=4096
    )
