"""Files that others see whole or not at all, and folders that others don't see at all."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path


def make_private(folder: Path) -> None:
    """Make a folder, and those above it, that nobody but this user may enter; what is there stays as it is.

    Raises OSError.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def write_whole(path: Path, content: bytes | str, *, is_private: bool = True) -> None:
    """Write a file and its folder; an older one stays, and nothing is left beside it, when this fails.

    A folder that has to be made is this user's alone, unless it isn't ``is_private``. Raises OSError.
    """
    draft = path.with_name(f".{path.name}.{threading.get_native_id()}.tmp")
    try:
        make_private(path.parent) if is_private else path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
