"""To whom the phone's files belong, and with which permissions: implied by the path, or remembered."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Sequence
from typing import Final

from benchfarm_lab.access import SHARED_GID, allowed, file_error
from benchfarm_lab.contract import SHELL_UID, SYSTEM_UID

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
