"""Writing what a command made: whole or not at all, never over a half."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from orchestrator.errors import HostStorageError, UsageError
from orchestrator.files import write_whole


def write_file(path: Path, data: bytes | str) -> None:
    """Write a file whole; an older one stays when this fails. Raises UsageError, HostStorageError."""
    content = data.encode() if isinstance(data, str) else data
    try:
        write_whole(path, content)
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
