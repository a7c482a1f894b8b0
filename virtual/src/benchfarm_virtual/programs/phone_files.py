"""Files on the phone as programs open them, and libraries that they load."""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterable

from benchfarm_virtual.contract import PhoneFileError, ProcessContext
from benchfarm_virtual.elf import FakeNote, note_of


def absolute(process: ProcessContext, path: str) -> str:
    """Return a path as seen from the root."""
    return path if path.startswith("/") else f"{process.cwd.rstrip('/')}/{path}"


def read_whole(process: ProcessContext, path: str) -> bytes:
    """Return a file's bytes; raise PhoneFileError (ENODEV for a folder, which can't be mapped into
    memory).
    """
    place = absolute(process, path)
    if stat.S_ISDIR(process.files.stat(place, uid=process.uid).mode):
        raise PhoneFileError(errno.ENODEV, "No such device")
    source = process.files.open_read(place, uid=process.uid)
    parts: list[bytes] = []
    while part := source.read(1 << 20):
        parts.append(part)
    return b"".join(parts)


def size_of(process: ProcessContext, path: str) -> int | None:
    """Return a file's size, None when it isn't there."""
    try:
        return process.files.stat(absolute(process, path), uid=process.uid).size_bytes
    except PhoneFileError:
        return None


def write_whole(process: ProcessContext, path: str, content: bytes) -> bool:
    """Write a file; return False when that isn't possible."""
    try:
        process.files.open_write(absolute(process, path), uid=process.uid).write(content)
    except PhoneFileError:
        return False
    return True


#: Folders of installed apps; what an app brings with it isn't looked for there, its APK is taken to
#: be whole.
APP_FOLDERS = "/data/app/"


def linked_folders(process: ProcessContext) -> list[str]:
    """Return the folders that the linker searches before the system's."""
    return [folder for folder in process.env.get("LD_LIBRARY_PATH", "").split(":") if folder]


def find_library(process: ProcessContext, name: str, folders: Iterable[str]) -> FakeNote | None:
    """Return what a fake library says about itself, None when no folder has one of this name."""
    for folder in folders:
        try:
            note = note_of(read_whole(process, f"{folder}/{name}"))
        except PhoneFileError:
            continue
        if note is not None:
            return note
    return None
