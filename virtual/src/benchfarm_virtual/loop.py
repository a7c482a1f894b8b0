"""The one thread that all links of a process share: it waits for sockets, timers, and calls from
other threads.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

#: Called with the events (selectors.EVENT_READ | EVENT_WRITE) that a socket is ready for.
ReadyHandler = Callable[[int], None]

_LOG: Final = logging.getLogger(__name__)
_RECEIVE_BYTES: Final = 64 * 1024
_SWITCH_S: Final = 0.001


def take_short_turns() -> None:
    """Have this process's threads compute in short turns: the loop, which all phones wait for, is
    one of them.
    """
    sys.setswitchinterval(_SWITCH_S)


class LinkLoop:
    """Runs handlers of sockets and timers one after the other in a thread of its own; idle it uses
    no CPU.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_from, self._wake_to = socket.socketpair()
        self._wake_from.setblocking(False)
        self._wake_to.setblocking(False)
        self._selector.register(self._wake_from, selectors.EVENT_READ, None)
        self._calls: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_numbers = itertools.count()
        self._stopping = False
        #: Where all links receive headers and small packets; only touched in the loop's thread.
        self.shared_buffer = bytearray(_RECEIVE_BYTES)
        self._thread = threading.Thread(target=self._run, name="virtual phones", daemon=True)
        self._thread.start()

    @property
    def inside(self) -> bool:
        """Whether the caller runs in the loop's thread."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], None]) -> None:
        """Have a function called soon in the loop's thread."""
        self._calls.append(function)
        if not self.inside:
            self._wake()

    def call_and_wait(self, function: Callable[[], None]) -> None:
        """Have a function called in the loop's thread, at once when that is the caller's; return
        when it is done.
        """
        if self.inside or not self._thread.is_alive():
            function()
            return
        done = threading.Event()

        def run() -> None:
            try:
                function()
            finally:
                done.set()

        self.call(run)
        while not done.wait(1.0):
            if not self._thread.is_alive():
                return

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Have a function called in the loop's thread after a while."""
        due_s = time.monotonic() + seconds

        def enter() -> None:
            heapq.heappush(self._timers, (due_s, next(self._timer_numbers), function))

        self.call(enter)

    def watch(self, sock: socket.socket, events: int, handler: ReadyHandler) -> None:
        """Watch a socket for events, 0 being none; only in the loop's thread."""
        watched = sock.fileno() in self._selector.get_map()
        if watched and events:
            self._selector.modify(sock, events, handler)
        elif events:
            self._selector.register(sock, events, handler)
        elif watched:
            self._selector.unregister(sock)

    def close(self) -> None:
        """Stop the thread; sockets belong to their owners, who have closed them."""
        if not self._thread.is_alive():
            return
        self._stopping = True
        self._wake()
        if not self.inside:
            self._thread.join()
        self._selector.close()
        self._wake_from.close()
        self._wake_to.close()

    def _wake(self) -> None:
        try:
            self._wake_to.send(b"\0")
        except BlockingIOError:
            pass  # it is being woken already

    def _run(self) -> None:
        while not self._stopping:
            while self._calls:
                self._run_safely(self._calls.popleft())
            wait_s = None
            if self._timers:
                wait_s = max(0.0, self._timers[0][0] - time.monotonic())
            for key, events in self._selector.select(wait_s):
                if key.data is None:
                    self._drain_wakes()
                else:
                    self._run_safely(partial(key.data, events))
            while self._timers and self._timers[0][0] <= time.monotonic():
                self._run_safely(heapq.heappop(self._timers)[2])

    @staticmethod
    def _run_safely(function: Callable[[], None]) -> None:
        try:
            function()
        except Exception:  # noqa: BLE001 - logged whole; the other phones go on
            _LOG.exception("a link of a virtual phone failed")

    def _drain_wakes(self) -> None:
        try:
            while self._wake_from.recv(4096):
                pass
        except BlockingIOError:
            pass
