"""Folders below /data/local/tmp, where nearly all that is done on a phone is done, kept open after a walk to them.

A path that leads straight into one of them needs no walk: one look tells that the folder is still where it was.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Final

SHELL_FOLDER: Final = ("data", "local", "tmp")
FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: A lab has a hundred phones and, on many computers, a thousand open files.
_KEPT: Final = 4


class OpenFolder:
    """A folder of the host's, open; it is closed when nobody refers to it any more."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        """Close it now; what is done in it after that fails."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFolder:
    """A folder that a walk without links led to."""

    parts: tuple[str, ...]
    folder: OpenFolder
    #: Device, inode and mode.
    which: tuple[int, int, int]
    #: The users who may search it and all above it.
    searchers: set[int]


class KeptFolders:
    """The folders of one phone that were used last. Any thread may use them."""

    def __init__(self, root: OpenFolder) -> None:
        """``root`` is the host's folder of the phone's files."""
        self._root = root
        self._lock = threading.Lock()
        #: By path, the one that was used last at the end.
        self._kept: dict[str, KeptFolder] = {}

    def find(self, path: str, uid: int) -> KeptFolder | None:
        """Return the folder at a path if it is kept, still there, and this user may search it."""
        kept = self._kept.get(path)
        if kept is None or uid not in kept.searchers:
            return None
        try:
            # The host may follow links on the way. What it finds is the folder that the walk found, or isn't taken.
            there = os.stat(path[1:], dir_fd=self._root.fd, follow_symlinks=False)
        except OSError:
            there = None
        if there is None or (there.st_dev, there.st_ino, there.st_mode) != kept.which:
            self.forget(path)
            return None
        return kept

    def keep(self, parts: tuple[str, ...], folder: OpenFolder, uid: int) -> None:
        """Keep a folder that a walk without links led this user to, who may search it and all above it."""
        if parts[: len(SHELL_FOLDER)] != SHELL_FOLDER:
            return
        path = "/" + "/".join(parts)
        found = os.fstat(folder.fd)
        which = (found.st_dev, found.st_ino, found.st_mode)
        with self._lock:
            known = self._kept.pop(path, None)
            searchers = known.searchers if known is not None and known.which == which else set()
            self._kept[path] = KeptFolder(parts=parts, folder=folder, which=which, searchers={*searchers, uid})
            if len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]

    def forget(self, path: str) -> None:
        """Let go of a folder that is gone."""
        with self._lock:
            self._kept.pop(path, None)

    def forget_all(self) -> None:
        """Let go of all: somebody may do less now, or more."""
        with self._lock:
            self._kept.clear()
