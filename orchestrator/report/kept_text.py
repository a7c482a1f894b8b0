"""What reports have in common and takes long to make: kept in a folder for the next one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from orchestrator.files import make_private


def kept_text(folder: Path | None, name: str, *, is_whole: Callable[[str], bool], make: Callable[[], str]) -> str:
    """Return the text of a file of the folder, made and kept there when it isn't whole.

    A folder that can't be read or written is passed over. ``name`` has to name the versions of all that it is made of.
    """
    if folder is None:
        return make()
    path = folder / name
    try:
        kept = path.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        kept = ""
    if kept.endswith("\n") and is_whole(kept[:-1]):
        return kept[:-1]
    made = make()
    try:
        make_private(folder)
        # Another report may be made at the same time: whole under its name, or not at all.
        with tempfile.NamedTemporaryFile("w", dir=folder, encoding="ascii", delete=False) as stream:
            stream.write(f"{made}\n")
        os.replace(stream.name, path)  # noqa: PTH105
    except OSError:
        return made
    return made
