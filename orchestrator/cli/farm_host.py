"""How a farm knows a host again: by what lies in its state folder, and by its start."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from orchestrator.errors import HostStorageError

#: Another one after each start of the computer; computers that are copies of each other differ by it.
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def host_id(state_folder: Path) -> str:
    """Return what no other computer has, the same one until this one is started anew; raises HostStorageError."""
    kept = state_folder / "farm-host"
    try:
        if not kept.exists():
            state_folder.mkdir(parents=True, exist_ok=True)
            draft = kept.with_name(f"{kept.name}.{os.getpid()}.part")
            draft.write_text(secrets.token_hex(16), "utf-8")
            draft.replace(kept)
        own = kept.read_text("utf-8")
    except OSError as error:
        raise HostStorageError(f"{error.filename or kept}: {error.strerror}") from error
    boot = ""
    with suppress(OSError):
        boot = _BOOT.read_text("ascii").strip()
    return f"{own} {boot}".strip()
