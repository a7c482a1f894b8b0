"""How many files are on their way from this computer to phones at the same time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import Final

from orchestrator.errors import InterruptedByUserError

_PUSHES_AT_ONCE: Final = 4
#: How often a push that waits checks whether all is cancelled.
_POLL_S: Final = 0.2


class PushSlots:
    """The slots that all phones of a process share."""

    def __init__(self, cancelled: threading.Event | None = None) -> None:
        """``cancelled`` ends all waiting."""
        self._free = threading.BoundedSemaphore(_PUSHES_AT_ONCE)
        self._cancelled = cancelled or threading.Event()

    @contextlib.contextmanager
    def pushing(self) -> Generator[None]:
        """Send one file while the context lasts.

        Raises InterruptedByUserError when cancelled while waiting.
        """
        while not self._free.acquire(timeout=_POLL_S):
            if self._cancelled.is_set():
                raise InterruptedByUserError
        try:
            yield
        finally:
            self._free.release()
