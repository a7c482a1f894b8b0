"""Writing what a command made: whole or not at all, never over a half."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from orchestrator.errors import HostStorageError, UsageError
from orchestrator.files import write_whole

#: Ending of a file's name -> the formats that belong into such a file, the usual one first.
_ENDINGS: Final[Mapping[str, tuple[str, ...]]] = {
    ".html": ("html", "html-section"),
    ".htm": ("html", "html-section"),
    ".md": ("markdown",),
    ".txt": ("text", "markdown", "github"),
    ".csv": ("csv",),
    ".json": ("json", "bencher"),
    ".xml": ("junit",),
    ".tex": ("latex",),
    ".parquet": ("parquet",),
    ".zip": ("bundle",),
}


def format_of(chosen: str, out: Path | None, known: Collection[str], *, default: str) -> str:
    """Return the format to write: the chosen one, else the one that the ending of ``out`` means, else the default.

    Raises UsageError for a format that isn't known, and for an ending that belongs to another format.
    """
    if chosen and chosen not in known:
        raise UsageError(f"there is no format {chosen!r}", hint=f"choose one of {', '.join(known)}")
    fitting = _ENDINGS.get(out.suffix.lower()) if out is not None else None
    if fitting is None:
        return chosen or default
    if chosen and chosen not in fitting:
        raise UsageError(f"{out}: the file's name ends as {fitting[0]} does, and --format is {chosen}")
    possible = [item for item in (chosen, default, *fitting) if item in fitting and item in known]
    if not possible:
        raise UsageError(f"{out}: this command writes {', '.join(known)}, not {fitting[0]}", hint="name another file")
    return possible[0]


def write_file(path: Path, data: bytes | str) -> None:
    """Write a file whole; an older one stays when this fails. Raises UsageError, HostStorageError."""
    content = data.encode() if isinstance(data, str) else data
    try:
        write_whole(path, content, is_private=False)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise HostStorageError(f"{path}: no space left to write {len(content)} bytes") from error
        raise UsageError(f"{path}: {error.strerror}") from error


def check_writable(path: Path) -> None:
    """Make sure that a file can be written here, before the work for it is done; raises as :func:`write_file`."""
    probe = path.with_name(f".{path.name}.{os.getpid()}.probe")
    write_file(probe, b"")
    probe.unlink()
    if path.is_dir():
        raise UsageError(f"{path}: is a folder")
