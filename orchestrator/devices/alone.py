"""What is the same for devices that share nothing with others and have no log: this computer and iPhones."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn

from orchestrator.errors import TransferError


class AloneDevice:
    """A device on no hub, with nothing to close."""

    hub = ""

    def measuring(self, *, cancelled: threading.Event | None = None) -> AbstractContextManager[None]:
        """See Device.measuring: it keeps nobody waiting."""
        del cancelled
        return contextlib.nullcontext()

    def close(self) -> None:
        """See Device.close: nothing is held."""

    def follow_log(self, *, buffers: Sequence[str] = ("main", "crash")) -> AbstractContextManager[Iterator[bytes]]:
        """Not possible; raises UsageError."""
        self.refuse(f"has no logcat ({', '.join(buffers)})")

    def refuse(self, what: str) -> NoReturn:
        """Raise UsageError for what the device has not."""
        raise NotImplementedError(what)


def check_content(source: Path, sha256: str, *, serial: str) -> None:
    """Raise TransferError when a file isn't what it was; OSError when it can't be read."""
    with source.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise TransferError(
            f"{source} has checksum {found} instead of {sha256}: it was changed meanwhile", serial=serial
        )
