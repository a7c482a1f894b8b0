"""The phone's file tree: real files below one folder of the host, computed trees beside them."""
# pathlib has no calls relative to an open folder:
# ruff: noqa: PTH208

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from benchfarm_lab.access import (
    Ownership,
    Writer,
    allowed,
    file_error,
    no_new_names,
    node_owner,
    node_stat,
    open_node,
    write_node,
)
from benchfarm_lab.contract import SHELL_UID, ByteSource, FileStat, PhoneFileError
from benchfarm_lab.kept_folder import FOLDER_FLAGS, KeptFolders, OpenFolder
from benchfarm_lab.space import Storage
from benchfarm_lab.streams_of_files import HostFileReader, HostFileWriter
from benchfarm_lab.trees.node import DeviceNode, FileNode, LinkNode, Node
from benchfarm_lab.walking import PathWalker, Place

#: Says why an access must fail although it would be allowed (for faults): (operation, path) -> errno or 0.
AccessHook = Callable[[str, str], int]
#: Says how many of the bytes that are about to be written to a path still fit (for faults).
SpaceHook = Callable[[str, int], int]


class _HostErrors:
    """Inside the ``with``, what the host says of a file becomes what the phone says."""

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(fault, OSError):
            raise file_error(fault.errno or errno.EIO) from fault


_AS_ON_A_PHONE: Final = _HostErrors()


class PhoneTree:
    """One phone's files. Every method may be called from any thread and raises PhoneFileError."""

    def __init__(
        self, folder: Path, *, mounts: Mapping[str, Callable[[], Node]], storage: Storage,
        app_uid: Callable[[str], int | None], denied: AccessHook, passing: SpaceHook,
    ) -> None:  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.storage = storage
        self._root = OpenFolder(os.open(folder, FOLDER_FLAGS))
        self._kept = KeptFolders(self._root)
        self._mounts = mounts
        self._ownership = Ownership(app_uid)
        self._walker = PathWalker(self._root, mounts, self._ownership, self._kept)
        self._denied = denied
        self._passing = passing
        storage.take(sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file()))

    def close(self) -> None:
        """Let go of the host's folder."""
        self._kept.forget_all()
        self._root.close()

    def _find(self, path: str, uid: int, *, follow: bool = True, operation: str = "stat") -> Place:
        """Return where a path leads; raise PhoneFileError, also when a fault denies it."""
        try:
            place = self._walker.find(path, uid, follow=follow, creating=operation == "write")
        except OSError as exc:
            raise file_error(exc.errno or errno.EIO) from exc
        number = self._denied(operation, place.path)
        if number:
            raise file_error(number)
        return place

    # Owners and permissions

    def _check_change(self, place: Place, uid: int) -> None:
        """Check that names may be made or taken away in the folder of a place."""
        if place.node is not None or not place.name or place.name == ".":
            raise file_error(no_new_names(place.parts))
        above = place.parts[:-1]
        if not above:
            raise file_error(errno.EROFS)
        if uid != 0:
            self._ownership.check(os.fstat(place.folder.fd), above, uid, 2)

    def _new_owner(self, fd: int, parts: Sequence[str], mode: int, uid: int) -> None:
        """Give a new file its mode, and remember its owner where the path doesn't imply it."""
        found = os.fstat(fd)
        needed = 0o700 if stat.S_ISDIR(found.st_mode) else 0o600
        bits = mode & 0o777
        if stat.S_IMODE(found.st_mode) != bits | needed:
            os.fchmod(fd, bits | needed)
        lost = bits if bits & needed != needed else None
        self._ownership.forget(found)
        if lost is not None or self._ownership.of(found, parts)[1] != uid:
            self._ownership.remember(found, lost, uid, uid)

    # The contract

    def stat(self, path: str, *, follow: bool = True, uid: int = SHELL_UID) -> FileStat:
        """Return what the path is; raise PhoneFileError (ENOENT, EACCES ...)."""
        place = self._find(path, uid, follow=follow)
        if place.node is not None:
            return node_stat(place.node)
        if place.found is None:
            raise file_error(errno.ENOENT)
        return self._as_stat(place.found, place.parts)

    def _as_stat(self, found: os.stat_result, parts: Sequence[str]) -> FileStat:
        if stat.S_ISLNK(found.st_mode):
            mode, owner, group = 0o777, *self._ownership.of(found, parts)[1:]
        else:
            mode, owner, group = self._ownership.of(found, parts)
        return FileStat(
            mode=stat.S_IFMT(found.st_mode) | mode, size_bytes=found.st_size, mtime_s=int(found.st_mtime), uid=owner,
            gid=group, inode=found.st_ino, nlink=found.st_nlink,
        )  # fmt: skip

    def list(self, path: str, *, uid: int = SHELL_UID) -> Sequence[str]:
        """Return the names in a folder, sorted."""
        with _AS_ON_A_PHONE:
            place = self._find(path, uid, operation="list")
            if place.node is not None:
                if isinstance(place.node, FileNode | LinkNode | DeviceNode):
                    raise file_error(errno.ENOTDIR)
                if not allowed(place.node.mode, place.node.uid, 0, uid, 4):
                    raise file_error(errno.EACCES)
                return sorted(place.node.names())
            if place.found is None:
                raise file_error(errno.ENOENT)
            if not stat.S_ISDIR(place.found.st_mode):
                raise file_error(errno.ENOTDIR)
            self._ownership.check(place.found, place.parts, uid, 4)
            fd = os.open(place.name, FOLDER_FLAGS, dir_fd=place.folder.fd)
            try:
                names = os.listdir(fd)
            finally:
                os.close(fd)
            return sorted([*names, *self._mounts] if not place.parts else names)

    def open_read(self, path: str, *, uid: int = SHELL_UID) -> ByteSource:
        """Open a file to read."""
        with _AS_ON_A_PHONE:
            place = self._find(path, uid, operation="read")
            if place.node is not None:
                return open_node(place.node, uid)
            if place.found is None:
                raise file_error(errno.ENOENT)
            self._ownership.check(place.found, place.parts, uid, 4)
            if stat.S_ISDIR(place.found.st_mode):
                raise file_error(errno.EISDIR)
            return HostFileReader(self._open(place, os.O_RDONLY), place.found.st_size)

    @staticmethod
    def _open(place: Place, flags: int, mode: int = 0o600) -> int:
        return os.open(place.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=place.folder.fd)

    def open_write(self, path: str, *, mode: int = 0o644, append: bool = False, uid: int = SHELL_UID) -> Writer:
        """Create or truncate a file; folders above it must exist. Several that append never write over each other."""
        at_end = os.O_APPEND if append else 0
        with _AS_ON_A_PHONE:
            place = self._find(path, uid, operation="write")
            if place.node is not None:
                return write_node(place.node, uid)
            if place.found is None:
                self._check_change(place, uid)
                fd = self._open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | at_end, mode & 0o777 | 0o600)
                self._new_owner(fd, place.parts, mode, uid)
            else:
                if stat.S_ISDIR(place.found.st_mode):
                    raise file_error(errno.EISDIR)
                self._ownership.check(place.found, place.parts, uid, 2)
                fd = self._open(place, os.O_WRONLY | (at_end if append else os.O_TRUNC))
                if not append:
                    self.storage.take(-place.found.st_size)
            phone_path = place.path
            return HostFileWriter(fd, self.storage, lambda size: self._passing(phone_path, size))

    def make_folders(self, path: str, *, mode: int = 0o755, uid: int = SHELL_UID) -> None:
        """Create a folder and those above it; one that is there already is left as it is."""
        parts = path.rstrip("/").split("/")
        for count in range(1, len(parts) + 1):
            above = "/".join(parts[:count])
            if above in {"", ".", ".."}:
                continue
            try:
                self.make_folder(above, mode=mode, uid=uid)
            except PhoneFileError as exc:
                if exc.errno not in {errno.EEXIST, errno.EROFS, errno.EACCES}:
                    raise
                try:
                    is_folder = stat.S_ISDIR(self.stat(above, uid=uid).mode)
                except PhoneFileError as missing:
                    raise exc from missing
                if not is_folder:
                    raise file_error(errno.EEXIST if count == len(parts) else errno.ENOTDIR) from exc

    def make_folder(self, path: str, *, mode: int = 0o755, uid: int = SHELL_UID) -> None:
        """Create one folder; the one above must exist."""
        with _AS_ON_A_PHONE:
            place = self._find(path.rstrip("/") or "/", uid, follow=False, operation="write")
            if place.node is not None or place.found is not None:
                raise file_error(errno.EEXIST)
            self._check_change(place, uid)
            os.mkdir(place.name, 0o700, dir_fd=place.folder.fd)
            fd = os.open(place.name, FOLDER_FLAGS, dir_fd=place.folder.fd)
            try:
                self._new_owner(fd, place.parts, mode, uid)
            finally:
                os.close(fd)

    def remove(self, path: str, *, uid: int = SHELL_UID) -> None:
        """Remove a file or an empty folder."""
        with _AS_ON_A_PHONE:
            place = self._find(path, uid, follow=False, operation="write")
            if place.node is None and place.found is None:
                raise file_error(errno.ENOENT)
            self._check_change(place, uid)
            if place.found is not None:
                if stat.S_ISDIR(place.found.st_mode):
                    os.rmdir(place.name, dir_fd=place.folder.fd)
                    self._kept.forget(place.path)
                else:
                    os.unlink(place.name, dir_fd=place.folder.fd)
                self._forget(place.found)

    def _forget(self, found: os.stat_result) -> None:
        if found.st_nlink <= 1 or stat.S_ISDIR(found.st_mode):
            self._ownership.forget(found)
            if stat.S_ISREG(found.st_mode):
                self.storage.take(-found.st_size)

    def rename(self, source: str, target: str, *, uid: int = SHELL_UID) -> None:
        """Rename, replacing the target."""
        with _AS_ON_A_PHONE:
            old = self._find(source, uid, follow=False, operation="write")
            new = self._find(target, uid, follow=False, operation="write")
            if old.node is None and old.found is None:
                raise file_error(errno.ENOENT)
            self._check_change(old, uid)
            self._check_change(new, uid)
            if new.parts[: len(old.parts)] == old.parts and new.parts != old.parts:
                raise file_error(errno.EINVAL)
            if old.parts[0] != new.parts[0]:
                raise file_error(errno.EXDEV)
            os.rename(old.name, new.name, src_dir_fd=old.folder.fd, dst_dir_fd=new.folder.fd)
            if new.found is not None and old.found is not None and new.found.st_ino != old.found.st_ino:
                self._forget(new.found)

    def set_times(self, path: str, mtime_s: float) -> None:
        """Set the modification time."""
        with _AS_ON_A_PHONE:
            place = self._find(path, 0)
            if place.found is None:
                raise file_error(errno.EROFS if place.node is not None else errno.ENOENT)
            if stat.S_ISLNK(place.found.st_mode):
                raise file_error(errno.ELOOP)
            nanoseconds = int(mtime_s * 1_000_000_000)
            os.utime(place.name, ns=(nanoseconds, nanoseconds), dir_fd=place.folder.fd, follow_symlinks=False)

    def set_mode(self, path: str, mode: int) -> None:
        """Set the permission bits."""
        with _AS_ON_A_PHONE:
            place = self._find(path, 0)
            if place.found is None:
                raise file_error(errno.EPERM if place.node is not None else errno.ENOENT)
            uid, gid = self._ownership.of(place.found, place.parts)[1:]
            self._set_owner(place, mode & 0o7777, uid, gid)

    # Beyond the contract

    def _set_owner(self, place: Place, mode: int, uid: int, gid: int) -> None:
        found = place.found
        if found is None or stat.S_ISLNK(found.st_mode):
            raise file_error(errno.EPERM)
        needed = 0o700 if stat.S_ISDIR(found.st_mode) else 0o600
        fd = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.folder.fd)
        try:
            os.fchmod(fd, (mode & 0o777) | needed)
        finally:
            os.close(fd)
        self._ownership.remember(found, mode, uid, gid)
        if stat.S_ISDIR(found.st_mode):
            self._kept.forget_all()

    def change_mode(self, path: str, mode: int, *, uid: int) -> None:
        """Set the permission bits as a user; only the owner and root may."""
        owner = self.stat(path, uid=uid).uid
        if uid not in {0, owner}:
            raise file_error(errno.EPERM)
        self.set_mode(path, mode)

    def change_owner(self, path: str, owner: int | None, group: int | None, *, uid: int) -> None:
        """Give a file to another user; only root may."""
        with _AS_ON_A_PHONE:
            place = self._find(path, uid)
            if place.found is None:
                raise file_error(errno.ENOENT)
            mode, old_owner, old_group = self._ownership.of(place.found, place.parts)
            owner, group = old_owner if owner is None else owner, old_group if group is None else group
            if uid != 0 and (owner, group) != (old_owner, old_group):
                raise file_error(errno.EPERM)
            self._set_owner(place, mode, owner, group)

    def touch(self, path: str, mtime_s: float | None, *, create: bool, uid: int) -> None:
        """Set the modification time as a user, creating an empty file where there is none."""
        try:
            found = self.stat(path, uid=uid)
        except PhoneFileError as exc:
            if exc.errno != errno.ENOENT or not create:
                raise
            self.open_write(path, mode=0o644, append=True, uid=uid).close()
        else:
            if not self.may(path, 2, uid=uid) and uid != found.uid:
                raise file_error(errno.EACCES)
        self.set_times(path, time.time() if mtime_s is None else mtime_s)

    def real_path(self, path: str, *, uid: int) -> str:
        """Return the phone path without links, ``.`` and ``..``; the last name needn't exist."""
        return self._find(path, uid).path

    def may(self, path: str, want: int, *, uid: int) -> bool:
        """Say whether a user may read (4), write (2) or execute (1) what is there."""
        try:
            place = self._find(path, uid, operation=_OPERATIONS.get(want, "stat"))
        except PhoneFileError:
            return False
        if place.node is not None:
            node_mode, owner, _ = node_owner(place.node)
            return allowed(node_mode, owner, owner, uid, want)
        if place.found is None:
            return False
        mode, owner, group = self._ownership.of(place.found, place.parts)
        return allowed(mode, owner, group, uid, want)


_OPERATIONS: Final[Mapping[int, str]] = {1: "execute", 2: "write", 4: "read"}
