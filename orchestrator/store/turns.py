"""Who writes next: one at a time, in the order in which they asked."""

from __future__ import annotations

import threading
from collections import deque


class Turns:
    """A lock that is handed on in order. A plain one may pass over whoever waits, again and again.

    Who waits gives up when nobody's turn has ended for too long, not when there are many before him: a hundred phones
    may end a run in the same second.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Event] = deque()
        #: How many turns have ended.
        self._ended = 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        with self._lock:
            return len(self._waiting)

    def take(self, *, patience_s: float) -> bool:
        """Wait for one's turn; False when no turn has ended for that long.

        Who is interrupted (Ctrl-C) leaves the queue; a turn that has come meanwhile is handed on.
        """
        turn = threading.Event()
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return True
            self._waiting.append(turn)
            ended = self._ended
        try:
            while not turn.wait(patience_s):
                with self._lock:
                    if turn.is_set():
                        return True
                    if ended == self._ended:
                        self._waiting.remove(turn)
                        return False
                    ended = self._ended
        except BaseException:
            with self._lock:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                elif turn.is_set():
                    self._hand_on()
            raise
        return True

    def end(self) -> None:
        """End one's turn."""
        with self._lock:
            self._ended += 1
            self._hand_on()

    def _hand_on(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._is_taken = False
