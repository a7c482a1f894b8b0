"""The phone's file tree, held in memory: written files below /data, computed trees beside it."""

from __future__ import annotations

import errno
import io
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchfarm_virtual.contract import SHELL_UID, FileStat, PhoneFileError, encoded
from benchfarm_virtual.open_files import OpenFile
from benchfarm_virtual.processes import current_uid
from benchfarm_virtual.trees.node import DeviceNode, FileNode, Folder, HeldFile, LinkNode, Node

#: Says why an access must fail although it would be allowed (for faults): (operation, path) ->
#: errno or 0.
AccessHook = Callable[[str, str], int]
#: Says how many of the bytes that are about to be written to a path still fit (for faults).
SpaceHook = Callable[[str, int], int]

_OPERATIONS: Final[Mapping[int, str]] = {1: "execute", 2: "write", 4: "read"}
#: How kernel trees refuse a new name; the system is read-only.
_REFUSED: Final[Mapping[tuple[str, ...], int]] = {
    ("proc",): errno.ENOENT,
    ("sys",): errno.EACCES,
    ("dev",): errno.EACCES,
}
_NAME_BYTES: Final = 255


class Storage:
    """The space of the phone's data partition, in bytes.

    ``used_bytes`` counts what the phone ships with too.
    """

    def __init__(self, *, total_bytes: int, shipped_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = shipped_bytes
        self._lock = threading.Lock()

    @property
    def free_bytes(self) -> int:
        """The free space."""
        return self.total_bytes - self.used_bytes

    def take_most(self, size_bytes: int) -> int:
        """Take at most the free space (negative: give it back); return the size that was taken."""
        with self._lock:
            taken = min(size_bytes, self.free_bytes)
            self.used_bytes += taken
            return taken


def _allowed(node: Node, want: int) -> bool:
    """Return whether a node's mode lets the current user read (4), write (2) or execute (1)."""
    uid = current_uid()
    if uid == 0:
        return want != 1 or bool(node.mode & 0o111) or isinstance(node, Folder)
    return bool(node.mode >> (6 if uid == node.uid else 0) & want)


def _check(node: Node, want: int) -> None:
    if not _allowed(node, want):
        raise PhoneFileError(errno.EACCES)


def _held(node: Node) -> HeldFile | Folder:
    """Return a node whose mode and time can be set; raise PhoneFileError for another."""
    if isinstance(node, HeldFile) or (isinstance(node, Folder) and not node.fixed):
        return node
    raise PhoneFileError(errno.EROFS)


def _file_stat(node: Node) -> FileStat:
    match node:
        case HeldFile():
            kind, size_bytes = stat.S_IFREG, len(node.data)
        case FileNode():
            kind, size_bytes = stat.S_IFREG, node.size_bytes
        case LinkNode():
            kind, size_bytes = stat.S_IFLNK, len(node.target)
        case DeviceNode():
            kind, size_bytes = stat.S_IFCHR, 0
        case _:
            kind, size_bytes = stat.S_IFDIR, 0 if node.fixed else 4096
    mtime_s = int(node.mtime_s) if isinstance(node, HeldFile | Folder) else 0
    return FileStat(mode=kind | node.mode, size_bytes=size_bytes, mtime_s=mtime_s, uid=node.uid)


def _reader(file: HeldFile) -> Callable[[int], bytes]:
    """Return a function that reads the next bytes of a file."""
    place = 0

    def take(limit: int) -> bytes:
        nonlocal place
        with file.lock:
            piece = bytes(memoryview(file.data)[place : place + limit])
            place += len(piece)
        return piece

    return take


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a path: the names on the way, the folder of the last one, and its node, if any."""

    names: tuple[str, ...]
    above: Node | None
    node: Node | None

    @property
    def path(self) -> str:
        """The phone path without links, ``.`` and ``..``."""
        return "/" + "/".join(self.names)

    def existing(self) -> Node:
        """Return the node; raise PhoneFileError when there is none."""
        if self.node is None:
            raise PhoneFileError(errno.ENOENT)
        return self.node

    def changeable(self) -> Folder:
        """Return the folder in which the name may be made or taken away; raise PhoneFileError when
        it mayn't.
        """
        if not isinstance(self.above, Folder) or self.above.fixed or len(self.names) == 1:
            raise PhoneFileError(_REFUSED.get(self.names[:1], errno.EROFS))
        _check(self.above, 2)
        return self.above


class PhoneTree:
    """One phone's files. Every method may be called from any thread and raises PhoneFileError.

    Who asks is the user of the process that acts (:func:`acting_for`), or the shell user, unless
    :func:`as_user` says otherwise.
    """

    def __init__(self, *, storage: Storage, denied: AccessHook, passing: SpaceHook) -> None:
        self.storage = storage
        #: The root folder; the computed trees are put in by name.
        self.root = Folder(0o755, fixed=False)
        self._denied = denied
        self._passing = passing
        #: Held while names come or go.
        self._changing = threading.RLock()

    def lay(self, path: str, mode: int = 0o771, uid: int = SHELL_UID) -> Folder:
        """Return the folder at a path without links; create it and those above it where missing."""
        folder = self.root
        for name in path.strip("/").split("/"):
            node = folder.nodes.setdefault(name, Folder(mode, uid, fixed=False))
            assert isinstance(node, Folder)
            folder = node
        return folder

    def _find(self, path: str, *, follow: bool = True, operation: str = "stat") -> _Place:
        """Return where a path leads; raise PhoneFileError, also when a fault denies it."""
        if "\0" in path:
            raise PhoneFileError(errno.EINVAL)
        place = self._walk(path, follow=follow)
        if place.node is None and (not isinstance(place.above, Folder) or place.above.fixed):
            if operation == "write":
                place.changeable()
            raise PhoneFileError(errno.ENOENT)
        number = self._denied(operation, place.path)
        if number:
            raise PhoneFileError(number)
        return place

    def _walk(self, path: str, *, follow: bool) -> _Place:
        todo = [name for name in reversed(path.split("/")) if name and name != "."]
        is_folder = path.endswith(("/", "/."))
        names: list[str] = []
        node: Node = self.root
        nodes = [node]
        while todo:
            name = todo.pop()
            if not isinstance(node, Folder):
                raise PhoneFileError(errno.ENOTDIR)
            if len(encoded(name)) > _NAME_BYTES:
                raise PhoneFileError(errno.ENAMETOOLONG)
            if name == "..":
                if names:
                    names.pop()
                    nodes.pop()
                    node = nodes[-1]
                continue
            _check(node, 1)
            child = node.child(name)
            if child is None:
                if todo:
                    raise PhoneFileError(errno.ENOENT)
                return _Place((*names, name), node, None)
            if isinstance(child, LinkNode) and (follow or todo or is_folder):
                if child.target.startswith("/"):
                    names.clear()
                    del nodes[1:]
                    node = self.root
                todo += [part for part in reversed(child.target.split("/")) if part and part != "."]
                continue
            names.append(name)
            node = child
            nodes.append(node)
        if is_folder and not isinstance(node, Folder):
            raise PhoneFileError(errno.ENOTDIR)
        return _Place(tuple(names), nodes[-2] if names else None, node)

    # The contract

    def stat(self, path: str, *, follow: bool = True) -> FileStat:
        """Return the status of a path; raise PhoneFileError (ENOENT, EACCES ...)."""
        return _file_stat(self._find(path, follow=follow).existing())

    def find(self, path: str, *, follow: bool = True) -> FileStat | None:
        """Return the status of a path, None where it is missing or not allowed."""
        try:
            return self.stat(path, follow=follow)
        except PhoneFileError:
            return None

    def list(self, path: str) -> Sequence[str]:
        """Return the names in a folder, sorted."""
        node = self._find(path, operation="list").existing()
        if not isinstance(node, Folder):
            raise PhoneFileError(errno.ENOTDIR)
        _check(node, 4)
        return sorted(node.names())

    def open_read(self, path: str) -> OpenFile:
        """Open a file to read."""
        node = self._find(path, operation="read").existing()
        _check(node, 4)
        match node:
            case HeldFile():
                return OpenFile(take=_reader(node))
            case FileNode():
                return OpenFile(take=io.BytesIO(node.read()).read)
            case DeviceNode():
                return OpenFile(take=node.take, put=lambda data: None)
        raise PhoneFileError(errno.EISDIR)

    def open_write(self, path: str, *, mode: int = 0o644, append: bool = False) -> OpenFile:
        """Create or truncate a file; folders above it must exist.

        Several that append never write over each other.
        """
        with self._changing:
            place = self._find(path, operation="write")
            node = place.node
            if isinstance(node, Folder) or path.endswith("/"):
                raise PhoneFileError(errno.EISDIR)
            if node is None:
                node = HeldFile(mode & 0o777, current_uid())
                self._enter(place, node)
            else:
                _check(node, 2)
        match node:
            case HeldFile():
                if not append:
                    with node.lock:
                        self.storage.take_most(-len(node.data))
                        node.data.clear()
                return OpenFile(put=self._writer(node, place.path, append=append))
            case FileNode() if node.write is not None:
                return OpenFile(put=node.write)
            case DeviceNode():
                return OpenFile(take=node.take, put=lambda data: None)
        raise PhoneFileError(errno.EACCES)

    def _writer(self, file: HeldFile, path: str, *, append: bool) -> Callable[[bytes], None]:
        """Return a function that appends bytes to a file; of too many it writes those that fit."""
        place = 0

        def write(data: bytes) -> None:
            nonlocal place
            size = min(len(data), self._passing(path, len(data)))
            with file.lock:
                start = len(file.data) if append else place
                growth = max(0, start + size - len(file.data))
                size = max(0, size - growth + self.storage.take_most(growth))
                file.data += bytes(max(0, start - len(file.data)))
                file.data[start : start + size] = data[:size]
                place = start + size
                file.mtime_s = time.time()
            if size < len(data):
                raise PhoneFileError(errno.ENOSPC)

        return write

    @staticmethod
    def _enter(place: _Place, node: HeldFile | Folder) -> None:
        """Put a new node in its place."""
        place.changeable().nodes[place.names[-1]] = node

    def make_folders(self, path: str) -> None:
        """Create a folder and those above it; existing ones stay as they are."""
        parts = path.rstrip("/").split("/")
        with self._changing:
            for count in range(1, len(parts) + 1):
                above = "/".join(parts[:count]) or "/"
                file_stat = self.find(above)
                if file_stat is None:
                    self.make_folder(above)
                elif not stat.S_ISDIR(file_stat.mode):
                    raise PhoneFileError(errno.EEXIST if count == len(parts) else errno.ENOTDIR)

    def make_folder(self, path: str) -> None:
        """Create one folder; the one above must exist."""
        with self._changing:
            place = self._find(path.rstrip("/") or "/", follow=False, operation="write")
            if place.node is not None:
                raise PhoneFileError(errno.EEXIST)
            self._enter(place, Folder(0o755, current_uid(), fixed=False))

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        with self._changing:
            place = self._find(path, follow=False, operation="write")
            node = place.existing()
            folder = place.changeable()
            if isinstance(node, Folder) and node.nodes:
                raise PhoneFileError(errno.ENOTEMPTY)
            del folder.nodes[place.names[-1]]
            self._forget(node)

    def _forget(self, node: Node) -> None:
        if isinstance(node, HeldFile):
            self.storage.take_most(-len(node.data))

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing the target."""
        with self._changing:
            old = self._find(source, follow=False, operation="write")
            new = self._find(target, follow=False, operation="write")
            node, replaced = old.existing(), new.node
            from_folder, to_folder = old.changeable(), new.changeable()
            if replaced is node:
                return
            if isinstance(node, Folder):
                if new.names[: len(old.names)] == old.names:
                    raise PhoneFileError(errno.EINVAL)
                if not isinstance(replaced, Folder | None):
                    raise PhoneFileError(errno.ENOTDIR)
                if replaced is not None and replaced.nodes:
                    raise PhoneFileError(errno.ENOTEMPTY)
            elif isinstance(replaced, Folder):
                raise PhoneFileError(errno.EISDIR)
            if replaced is not None:
                self._forget(replaced)
            to_folder.nodes[new.names[-1]] = from_folder.nodes.pop(old.names[-1])

    def set_times(self, path: str, mtime_s: float) -> None:
        """Set the modification time."""
        _held(self._find(path).existing()).mtime_s = mtime_s

    def set_mode(self, path: str, mode: int) -> None:
        """Set the permission bits, which only the owner and root may."""
        place = self._find(path)
        node = _held(place.existing())
        if not place.names:
            raise PhoneFileError(errno.EROFS)
        if current_uid() not in {0, node.uid}:
            raise PhoneFileError(errno.EPERM)
        node.mode = mode & 0o7777

    # Beyond the contract

    def may(self, path: str, want: int) -> bool:
        """Return whether the current user may read (4), write (2) or execute (1) a path."""
        try:
            node = self._find(path, operation=_OPERATIONS.get(want, "stat")).node
        except PhoneFileError:
            return False
        return node is not None and _allowed(node, want)
