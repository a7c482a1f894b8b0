"""Who may do what with a file of the phone, who owns it, and computed files opened."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benchfarm_lab.contract import SHELL_UID, SYSTEM_UID, ByteSource, FileStat, PhoneFileError
from benchfarm_lab.streams_of_files import (
    ComputedWriter,
    DeviceSource,
    DeviceWriter,
    HostFileWriter,
    MemorySource,
)
from benchfarm_lab.trees.node import DeviceNode, FileNode, LinkNode, Node

Writer = HostFileWriter | ComputedWriter | DeviceWriter


_WORDS: Final[Mapping[int, str]] = {
    errno.ENOENT: "No such file or directory",
    errno.EACCES: "Permission denied",
    errno.EPERM: "Operation not permitted",
    errno.EEXIST: "File exists",
    errno.ENOTDIR: "Not a directory",
    errno.EISDIR: "Is a directory",
    errno.ENOTEMPTY: "Directory not empty",
    errno.ENOSPC: "No space left on device",
    errno.EROFS: "Read-only file system",
    errno.EINVAL: "Invalid argument",
    errno.ELOOP: "Too many symbolic links encountered",
    errno.ENAMETOOLONG: "File name too long",
    errno.EXDEV: "Cross-device link",
}


#: Group that every user of the phone is in, as far as shared storage goes.
SHARED_GID: Final = 1015


def file_error(number: int) -> PhoneFileError:
    """Return the error for an errno, with the words that bionic has for it."""
    return PhoneFileError(number, _WORDS.get(number) or os.strerror(number))


def no_new_names(parts: Sequence[str]) -> int:
    """Return why no file can be made in a computed folder: kernel trees refuse it, the system is read-only."""
    return errno.EACCES if parts and parts[0] in {"proc", "sys", "dev"} else errno.EROFS


def allowed(mode: int, owner: int, group: int, uid: int, want: int) -> bool:
    """Say whether a mode lets a user read (4), write (2) or search and execute (1)."""
    if uid == 0:
        return want != 1 or bool(mode & 0o111) or stat.S_ISDIR(mode)
    if uid == owner:
        return bool(mode >> 6 & want)
    if group in {uid, SHARED_GID}:
        return bool(mode >> 3 & want)
    return bool(mode & want)


def node_owner(node: Node) -> tuple[int, int, int]:
    """Return (mode with type bits, uid, size)."""
    if isinstance(node, FileNode):
        return stat.S_IFREG | node.mode, node.uid, node.size_bytes
    if isinstance(node, LinkNode):
        return stat.S_IFLNK | 0o777, 0, len(node.target())
    if isinstance(node, DeviceNode):
        return stat.S_IFCHR | node.mode, node.uid, 0
    return stat.S_IFDIR | node.mode, node.uid, 0


def node_stat(node: Node) -> FileStat:
    """Return what lstat says of a computed node."""
    mode, uid, size_bytes = node_owner(node)
    return FileStat(mode=mode, size_bytes=size_bytes, mtime_s=0, uid=uid, gid=uid)


def open_node(node: Node, uid: int) -> ByteSource:
    """Open a computed file or a device to read; raise PhoneFileError."""
    mode, owner, _ = node_owner(node)
    if stat.S_ISDIR(mode):
        raise file_error(errno.EISDIR)
    if not allowed(mode, owner, owner, uid, 4):
        raise file_error(errno.EACCES)
    if isinstance(node, FileNode):
        return MemorySource(node.read())
    if isinstance(node, DeviceNode):
        return DeviceSource(node.kind)
    raise file_error(errno.ELOOP)


def write_node(node: Node, uid: int) -> Writer:
    """Open a computed file or a device to write; raise PhoneFileError."""
    mode, owner, _ = node_owner(node)
    if stat.S_ISDIR(mode):
        raise file_error(errno.EISDIR)
    if not allowed(mode, owner, owner, uid, 2):
        raise file_error(errno.EACCES)
    if isinstance(node, DeviceNode):
        return DeviceWriter()
    if isinstance(node, FileNode) and node.write is not None:
        return ComputedWriter(node.write)
    raise file_error(errno.EACCES)


_MEDIA_UID: Final = 1023


class Ownership:
    """Owners and modes of one phone's real files.

    The host's files all belong to whom runs this program, and that user must be able to open them. So only what a path
    doesn't imply, and modes that would lock this program out, are remembered, by the host's inode.
    """

    def __init__(self, app_uid: Callable[[str], int | None]) -> None:
        self._app_uid = app_uid
        self._lock = threading.Lock()
        self._remembered: dict[int, tuple[int | None, int, int]] = {}

    def of(self, found: os.stat_result, parts: Sequence[str]) -> tuple[int, int, int]:
        """Return (permission bits, uid, gid) of what was found at a path, as the phone sees them."""
        mode = stat.S_IMODE(found.st_mode)
        is_folder = stat.S_ISDIR(found.st_mode)
        if parts and parts[0] == "storage":
            return (0o771 if is_folder else 0o660), _MEDIA_UID, SHARED_GID
        kept = self._remembered.get(found.st_ino)
        if kept is not None:
            return (mode if kept[0] is None else kept[0]), kept[1], kept[2]
        match tuple(parts[:3]):
            case ():
                return 0o755, 0, 0
            case ("data",):
                return 0o771, SYSTEM_UID, SYSTEM_UID
            case ("data", "local"):
                return 0o751, 0, 0
            case ("data", "local", _):
                return (0o771 if len(parts) == 3 and is_folder else mode), SHELL_UID, SHELL_UID
            case ("data", "data", package):
                owner = self._app_uid(package) or 0
                return (0o700 if len(parts) == 3 else mode), owner, owner
            case ("data", "misc", "perfetto-traces"):
                return (0o773 if len(parts) == 3 else mode), 0, SHELL_UID
            case ("data", _) | ("data", _, _):
                return (0o771 if is_folder else mode), SYSTEM_UID, SYSTEM_UID
        return mode, 0, 0

    def check(self, found: os.stat_result, parts: Sequence[str], uid: int, want: int) -> None:
        """Raise PhoneFileError unless a user may read (4), write (2) or search (1) what was found at a path."""
        mode, owner, group = self.of(found, parts)
        if not allowed(mode, owner, group, uid, want):
            raise file_error(errno.EACCES)

    def remember(self, found: os.stat_result, mode: int | None, uid: int, gid: int) -> None:
        """Keep an owner, and a mode where it isn't the host's."""
        with self._lock:
            self._remembered[found.st_ino] = (mode, uid, gid)

    def forget(self, found: os.stat_result) -> None:
        """Forget a file that is gone, or new."""
        with self._lock:
            self._remembered.pop(found.st_ino, None)
