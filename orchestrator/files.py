"""Files of this computer that others see whole or not at all."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file and its folder; an older one stays, and nothing is left beside it, when this fails.

    Raises OSError.
    """
    draft = path.with_name(f".{path.name}.{threading.get_native_id()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
