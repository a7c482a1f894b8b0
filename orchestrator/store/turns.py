"""Who writes next: one at a time, in the order in which they asked."""

from __future__ import annotations

import threading
from collections import deque

from orchestrator.store.patience import Patience


class Turns:
    """A lock that is handed on in order. A plain one may pass over whoever waits, again and again."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Event] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        with self._lock:
            return len(self._waiting)

    def take(self, since_s: float) -> bool:
        """Wait for one's turn, as somebody who has waited since a moment; False when the patience is over.

        Who is interrupted (Ctrl-C) leaves the queue; a turn that has come meanwhile is handed on.
        """
        turn, is_first = threading.Event(), False
        # Interrupted at any moment: also between joining the queue and waiting.
        try:
            with self._lock:
                is_first = not self._is_taken
                if is_first:
                    self._is_taken = True
                    return True
                self._waiting.append(turn)
            while not turn.wait(self._patience.left_s(since_s)):
                with self._lock:
                    if turn.is_set():
                        return True
                    if not self._patience.left_s(since_s):
                        self._waiting.remove(turn)
                        return False
        except BaseException:
            with self._lock:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                elif is_first or turn.is_set():
                    self._hand_on()
            raise
        return True

    def end(self) -> None:
        """End one's turn."""
        with self._lock:
            self._hand_on()

    def _hand_on(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._is_taken = False
