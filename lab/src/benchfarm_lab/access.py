"""Who may do what with a file of the phone, and computed files opened."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Final

from benchfarm_lab.contract import ByteSource, FileStat, PhoneFileError
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
