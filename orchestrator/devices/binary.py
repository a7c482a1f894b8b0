"""Which adb program is used: the one that was named, the one in the adbutils wheel, or the one in PATH."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from orchestrator.errors import AdbUnavailableError


def find_adb(setting: str = "", *, search_path: str | None = None) -> Path:
    """Return the adb program: ``setting`` ($BENCHFARM_ADB), else the adbutils wheel's, else the one in PATH.

    The wheel's own finder prefers PATH, which mixes versions on one farm; and importing adbutils takes 0.2 s, so the
    program is looked up in its folder without importing it. ``search_path`` stands for $PATH (None: the system's).
    Raises AdbUnavailableError.
    """
    if setting:
        named = shutil.which(setting, path=search_path)
        if named is None:
            raise AdbUnavailableError(
                f"$BENCHFARM_ADB is {setting!r}, which isn't a program", hint="name an adb binary, or unset it"
            )
        return Path(named)
    if (bundled := bundled_adb()) is not None:
        return bundled
    if (found := shutil.which("adb", path=search_path)) is not None:
        return Path(found)
    raise AdbUnavailableError(
        "there is no adb program: the adbutils wheel of this platform has none, and PATH has none",
        hint="install Android's platform-tools, or set $BENCHFARM_ADB to an adb binary",
    )


def bundled_adb() -> Path | None:
    """Return the adb program inside the adbutils wheel, None when this platform's wheel has none."""
    spec = importlib.util.find_spec("adbutils")
    name = "adb.exe" if sys.platform == "win32" else "adb"
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        program = Path(folder) / "binaries" / name
        if program.is_file() and os.access(program, os.X_OK):
            return program
    return None
