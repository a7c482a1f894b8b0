"""Hang-ups of adb sessions reach the shells that run for them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: How often open sessions are looked at, in real seconds.
_LOOK_EVERY_S: Final = 0.05


class HangupWatch:
    """Looks at the hang-up events of the sessions that run now; its thread lives only while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._watched: dict[int, tuple[threading.Event, Callable[[], None]]] = {}
        self._running = False

    @contextmanager
    def watching(self, hangup: threading.Event, then: Callable[[], None]) -> Iterator[None]:
        """Call ``then`` once when ``hangup`` is set inside the ``with``."""
        number = next(self._numbers)
        with self._lock:
            self._watched[number] = (hangup, then)
            if not self._running:
                self._running = True
                threading.Thread(target=self._look, daemon=True, name="phone-hangups").start()
        try:
            yield
        finally:
            with self._lock:
                self._watched.pop(number, None)

    def _look(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_LOOK_EVERY_S)
            with self._lock:
                if not self._watched:
                    self._running = False
                    return
                gone = [number for number, (hangup, _) in self._watched.items() if hangup.is_set()]
                calls = [self._watched.pop(number)[1] for number in gone]
            for call in calls:
                call()
