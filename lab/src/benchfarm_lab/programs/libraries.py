"""Libraries beside a program: found as a phone's linker and its DSP's loader find them."""

from __future__ import annotations

from collections.abc import Iterable

from benchfarm_lab.contract import PhoneFileError, ProcessContext
from benchfarm_lab.elf import StandInNote, note_of
from benchfarm_lab.programs.phone_files import read_whole

#: Folders of installed apps; what an app brings with it isn't looked for there, its APK is taken to be whole.
APP_FOLDERS = "/data/app/"


def linked_folders(process: ProcessContext) -> list[str]:
    """Return the folders that the linker searches before the system's."""
    return [folder for folder in process.env.get("LD_LIBRARY_PATH", "").split(":") if folder]


def find_library(process: ProcessContext, name: str, folders: Iterable[str]) -> StandInNote | None:
    """Return what a stand-in library says about itself, None when no folder has one of this name."""
    for folder in folders:
        try:
            note = note_of(read_whole(process, f"{folder}/{name}"))
        except PhoneFileError:
            continue
        if note is not None:
            return note
    return None
