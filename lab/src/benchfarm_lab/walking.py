"""Where a path of the phone leads: a computed node, or a name in a real folder of the host's.

Nothing leads out of the phone's folder: a path is walked name by name, each folder opened relative to the one above
without following links of the host's, and links are resolved here, as phone paths. So neither ``..`` nor a link nor a
race between the two can reach another file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchfarm_lab.access import Ownership, allowed, file_error, no_new_names
from benchfarm_lab.kept_folder import FOLDER_FLAGS, KeptFolders, OpenFolder
from benchfarm_lab.trees.node import DeviceNode, DictFolder, FileNode, LinkNode, Node

_MAX_LINKS: Final = 40
_MAX_PATH_BYTES: Final = 4096
_MAX_NAME_BYTES: Final = 255
_NO_NAMES: Final = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: a computed node, or a name (perhaps of nothing yet) in a real folder."""

    parts: tuple[str, ...]
    node: Node | None
    #: The real folder that holds the name: open for as long as this place is referred to.
    folder: OpenFolder
    name: str = ""
    found: os.stat_result | None = None

    @property
    def path(self) -> str:
        """The phone path without links, ``.`` and ``..``."""
        return "/" + "/".join(self.parts)


class PathWalker:
    """Walks the paths of one phone. Its methods raise PhoneFileError, and OSError for what the host says."""

    def __init__(
        self, root: OpenFolder, mounts: Mapping[str, Callable[[], Node]], ownership: Ownership, kept: KeptFolders
    ) -> None:
        """``mounts`` are the computed trees by their names in the root folder."""
        self._root = root
        self._mounts = mounts
        self._ownership = ownership
        self._kept = kept
        #: What lies in folders that stay as they are, by its path.
        self._fixed: dict[str, Place] = {}

    def find(self, path: str, uid: int, *, follow: bool = True, creating: bool = False) -> Place:
        """Return where a path leads for a user; ``creating``: its last name may be a new one."""
        if "\0" in path or _longer(path, _MAX_PATH_BYTES - 1):
            raise file_error(errno.EINVAL if "\0" in path else errno.ENAMETOOLONG)
        return (
            self._fixed.get(path)
            or self._find_straight(path, uid, follow=follow)
            or self._find_computed(path, uid, creating=creating)
            or self._walk(path, uid, follow=follow, creating=creating)
        )

    def _find_straight(self, path: str, uid: int, *, follow: bool) -> Place | None:
        """Return a place in a folder that is kept open; None when it takes a walk."""
        above, _, name = path.rpartition("/")
        if name in _NO_NAMES or _longer(name, _MAX_NAME_BYTES):
            return None
        kept = self._kept.find(above, uid)
        if kept is None:
            return None
        found = lstat(name, kept.folder)
        if follow and found is not None and stat.S_ISLNK(found.st_mode):
            return None
        return Place((*kept.parts, name), None, kept.folder, name, found)

    def _find_computed(self, path: str, uid: int, *, creating: bool) -> Place | None:
        """Return a place in a computed tree; None when it isn't in one, or there are links or dots on the way."""
        start, *names = path.split("/")
        make = self._mounts.get(names[0]) if names and not start else None
        if make is None:
            return None
        node = make()
        last = len(names) - 1
        is_fixed = True
        for depth in range(1, len(names)):
            name = names[depth]
            is_fixed = is_fixed and isinstance(node, DictFolder) and node.mode & 0o111 == 0o111
            if name in _NO_NAMES or isinstance(node, FileNode | LinkNode | DeviceNode):
                return None
            child = _child(node, name, uid)
            if child is None:
                if _longer(name, _MAX_NAME_BYTES):
                    return None
                raise file_error(no_new_names(names[:depth]) if creating and depth == last else errno.ENOENT)
            node = child
        if isinstance(node, LinkNode):
            return None
        place = Place(tuple(names), node, self._root)
        if is_fixed:
            self._fixed[path] = place
        return place

    def _walk(self, path: str, uid: int, *, follow: bool, creating: bool, from_root: bool = False) -> Place:
        todo = deque(part for part in path.split("/") if part not in {"", "."})
        must_be_folder = path.endswith(("/", "/.")) and bool(todo)
        done: list[str] = []
        nodes: list[Node] = []  # the computed nodes above, when the walk is inside a computed tree
        folders: list[OpenFolder] = []  # the real ones
        links = 0
        straight = ".." not in todo
        if straight and not from_root:
            self._start(todo, done, folders, uid)
        from_root = len(folders) == 0
        while todo:
            part = todo.popleft()
            last = not todo
            if part == "..":
                if done:
                    done.pop()
                if nodes:
                    nodes.pop()
                elif folders:
                    folders.pop()
                continue
            if _longer(part, _MAX_NAME_BYTES):
                raise file_error(errno.ENAMETOOLONG)
            target: str | None = None
            if nodes or (not done and part in self._mounts):
                node = self._computed_child(nodes, part, uid)
                if isinstance(node, LinkNode) and (follow or not last or must_be_folder):
                    target = node.target()
                elif node is None:
                    raise file_error(no_new_names(done) if creating and last else errno.ENOENT)
                else:
                    nodes.append(node)
                    done.append(part)
            else:
                above = folders[-1] if folders else self._root
                self._check_search(above, done, uid)
                found = lstat(part, above)
                if found is not None and stat.S_ISLNK(found.st_mode) and (follow or not last or must_be_folder):
                    target = os.readlink(part, dir_fd=above.fd)
                elif last:
                    if must_be_folder and found is not None and not stat.S_ISDIR(found.st_mode):
                        raise file_error(errno.ENOTDIR)
                    if straight:
                        self._kept.keep(tuple(done), above, uid)
                    return Place((*done, part), None, above, part, found)
                else:
                    if found is None:
                        raise file_error(errno.ENOENT)
                    folders.append(OpenFolder(os.open(part, FOLDER_FLAGS, dir_fd=above.fd)))
                    done.append(part)
            if target is not None:
                links += 1
                straight = False
                if links > _MAX_LINKS:
                    raise file_error(errno.ELOOP)
                if target.startswith("/"):
                    done.clear()
                    nodes.clear()
                    folders.clear()
                    from_root = True
                elif not from_root and ".." in target.split("/"):
                    # It may lead above the folder that this walk began in.
                    return self._walk(path, uid, follow=follow, creating=creating, from_root=True)
                todo.extendleft(reversed([name for name in target.split("/") if name not in {"", "."}]))
        if nodes:
            return Place(tuple(done), nodes[-1], self._root)
        above = folders[-1] if folders else self._root
        return Place(tuple(done), None, above, ".", os.fstat(above.fd))

    def _start(self, todo: deque[str], done: list[str], folders: list[OpenFolder], uid: int) -> None:
        """Begin a walk in the deepest folder above its end that is kept open."""
        names = list(todo)
        for count in range(len(names) - 1, 0, -1):
            kept = self._kept.find("/" + "/".join(names[:count]), uid)
            if kept is not None:
                done += kept.parts
                folders.append(kept.folder)
                for _ in kept.parts:
                    todo.popleft()
                return

    def _computed_child(self, nodes: list[Node], part: str, uid: int) -> Node | None:
        if not nodes:
            return self._mounts[part]()
        return _child(nodes[-1], part, uid)

    def _check_search(self, folder: OpenFolder, parts: Sequence[str], uid: int) -> None:
        if uid != 0:
            self._ownership.check(os.fstat(folder.fd), parts, uid, 1)


def _child(parent: Node, name: str, uid: int) -> Node | None:
    if isinstance(parent, FileNode | LinkNode | DeviceNode):
        raise file_error(errno.ENOTDIR)
    mode = parent.mode
    if uid != 0 and mode & 0o111 != 0o111 and not allowed(mode, parent.uid, 0, uid, 1):
        raise file_error(errno.EACCES)
    return parent.child(name)


def lstat(name: str, folder: OpenFolder) -> os.stat_result | None:
    """Return what a name in a folder is, without following links; None when there is nothing."""
    try:
        return os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _longer(text: str, limit_bytes: int) -> bool:
    """Say whether a path or name has more bytes than that; no character has more than four."""
    return len(text) * 4 > limit_bytes and len(os.fsencode(text)) > limit_bytes
