"""How a farm knows a host again: by what lies in its state folder, and by its start."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from orchestrator.devices.liveness import own_boot
from orchestrator.errors import HostStorageError
from orchestrator.files import make_private


def host_id(state_folder: Path) -> str:
    """Return what no other computer has, the same one until this one is started anew; raises HostStorageError."""
    kept = state_folder / "farm-host"
    try:
        if not kept.exists():
            make_private(state_folder)
            draft = kept.with_name(f"{kept.name}.{os.getpid()}.part")
            draft.write_text(secrets.token_hex(16), "utf-8")
            draft.replace(kept)
        own = kept.read_text("utf-8")
    except OSError as error:
        raise HostStorageError(f"{error.filename or kept}: {error.strerror}") from error
    # Computers that are copies of each other differ by it.
    return f"{own} {own_boot()}".strip()
