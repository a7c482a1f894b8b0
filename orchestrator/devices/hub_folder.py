"""Where the processes of one computer tell each other of their hubs' turns: one folder for all homes of a user.

Turns are the computer's, and a home is not: two homes may measure on one hub. The folder is the user's own, in the
computer's own file system, where nobody else can lay anything into it. Several users need one that is made for them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from orchestrator.errors import UsageError

#: Local on every computer, also where a home is on a network, and the same one in every session.
_RUNTIME: Final = Path("/tmp")  # noqa: S108 - what is made there is checked
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def hub_folder(configured: str, own: Path, *, runtime: Path = _RUNTIME) -> Path:
    """Return the folder for the locks of hubs.

    Args:
        configured: what the user says, empty for nothing; made when it isn't there.
        own: of this home alone, for where no folder of the user's is to be had.
        runtime: where folders that don't outlive the computer's start are made.

    Raises UsageError for a configured folder that can't be used.
    """
    if configured:
        return _checked(Path(configured))
    folder = runtime / f"benchfarm-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Not what a link leads to: anybody may lay one there.
        found = folder.lstat()
    except OSError:
        return own
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & _OTHERS_WRITE
    return folder if is_ours else own


def _checked(folder: Path) -> Path:
    problem = "" if folder.is_absolute() else "it must begin with /"
    try:
        if not problem:
            folder.mkdir(parents=True, exist_ok=True)
            problem = "" if os.access(folder, os.W_OK | os.X_OK) else "this user may not write there"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        hint = "name a folder that all who measure here may write to: install -d -m 2770 -g GROUP FOLDER"
        raise UsageError(f"BENCHFARM_HUBS={folder}: {problem}", hint=hint)
    return folder
