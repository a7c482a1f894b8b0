"""The folder where nearly all that is done on a phone is done, kept open: a walk to it needn't be made each time."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from typing import Final

SHELL_FOLDER: Final = ("data", "local", "tmp")
FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class KeptFolder:
    """/data/local/tmp of one phone below the host's folder of its files. Any thread may use it."""

    def __init__(self, root_fd: int) -> None:
        """``root_fd`` is the host's folder, open; it stays its owner's."""
        self._root_fd = root_fd
        self._lock = threading.Lock()
        self._fd = -1
        #: Device and inode of what is open.
        self._which = (-1, -1)

    @staticmethod
    def is_above(parts: deque[str]) -> bool:
        """Whether a path's names lead into it, and nowhere out again."""
        depth = len(SHELL_FOLDER)
        return len(parts) > depth and tuple(itertools.islice(parts, depth)) == SHELL_FOLDER and ".." not in parts

    def open(self) -> int | None:
        """Return a descriptor of the folder for the caller to close; None when it isn't there as it should be."""
        try:
            there = os.stat("/".join(SHELL_FOLDER), dir_fd=self._root_fd, follow_symlinks=False)
            with self._lock:
                if self._which != (there.st_dev, there.st_ino):
                    self._walk()
                return os.dup(self._fd) if self._which == (there.st_dev, there.st_ino) else None
        except OSError:
            return None

    def close(self) -> None:
        """Let go of it."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd, self._which = -1, (-1, -1)

    def _walk(self) -> None:
        """Open it a name at a time without links, as every walk does."""
        above = os.dup(self._root_fd)
        try:
            for name in SHELL_FOLDER:
                following = os.open(name, FOLDER_FLAGS, dir_fd=above)
                os.close(above)
                above = following
        except OSError:
            os.close(above)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        found = os.fstat(above)
        self._fd, self._which = above, (found.st_dev, found.st_ino)
