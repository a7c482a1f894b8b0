"""A phone's listening end on 127.0.0.1: it accepts adb servers, and can go away and come back on
the same port.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from selectors import EVENT_READ
from typing import Final

from benchfarm_virtual.connection import Connection, LinkState
from benchfarm_virtual.loop import LinkLoop

#: The only address that a virtual phone ever listens on.
LOOPBACK: Final = "127.0.0.1"
#: Large enough that a whole payload of 1 MiB is received in few calls.
_SOCKET_BUFFER_BYTES: Final = 1024 * 1024
_ACCEPT_PAUSE_S: Final = 1.0


class PhoneServer:
    """Listens for one phone. All methods may be called from any thread; sockets are handled in the
    loop's.
    """

    def __init__(self, loop: LinkLoop, link: LinkState) -> None:
        self._loop = loop
        self._link = link
        self._listener: socket.socket | None = None
        self._reserved: socket.socket | None = None
        self._connections: set[Connection] = set()
        self.port = 0

    @property
    def listening(self) -> bool:
        """Whether an adb server could connect now."""
        return self._listener is not None

    @property
    def online_count(self) -> int:
        """How many adb servers have been let in."""
        return sum(connection.online for connection in tuple(self._connections))

    def listen(self, port: int = 0) -> int:
        """Listen on a port (0: a free one) and return it; raise OSError when it can't be had."""
        sock = _bound_socket(port)
        sock.listen(16)
        sock.setblocking(False)
        self._in_loop(lambda: self._take_listener(sock))
        return self.port

    def close(self) -> None:
        """Stop listening and close every connection."""
        self._in_loop(self._close)

    def go_away(self) -> None:
        """As close, but keep the port from being taken by others until come_back."""

        def away() -> None:
            self._close()
            try:
                self._reserved = _bound_socket(self.port)
            except OSError:
                self._reserved = None  # someone was faster; come_back will say so

        self._in_loop(away)

    def come_back(self) -> None:
        """Listen again on the port that go_away has kept; raise OSError when it was lost."""
        reserved, self._reserved = self._reserved, None
        if reserved is None:
            self.listen(self.port)
            return
        reserved.listen(16)
        reserved.setblocking(False)
        self._in_loop(lambda: self._take_listener(reserved))

    def drop_connections(self) -> None:
        """Close every connection; the phone goes on listening."""
        self._in_loop(lambda: self._each(Connection.close))

    def refresh(self) -> None:
        """Have every connection look at the link's state again (hung, slow)."""
        self._in_loop(lambda: self._each(Connection.refresh))

    def admit(self) -> None:
        """Let in the servers that had proved their key while the phone let nobody in."""
        self._in_loop(lambda: self._each(Connection.admit))

    def _in_loop(self, function: Callable[[], None]) -> None:
        self._loop.call_and_wait(function)

    def _each(self, action: Callable[[Connection], None]) -> None:
        for connection in tuple(self._connections):
            action(connection)

    def _take_listener(self, sock: socket.socket) -> None:
        self._stop_listening()
        self._listener = sock
        self.port = sock.getsockname()[1]
        self._loop.watch(sock, EVENT_READ, self._accept)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._loop.watch(self._listener, 0, self._accept)
            self._listener.close()
            self._listener = None

    def _close(self) -> None:
        self._stop_listening()
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None
        self._each(Connection.close)

    def _accept(self, events: int) -> None:
        if self._listener is None:
            return
        try:
            sock, _ = self._listener.accept()
        except OSError as fault:
            if fault.errno in (errno.EMFILE, errno.ENFILE):
                self._pause_accepting(
                    self._listener
                )  # no descriptor is left: trying on would only spin
            return
        self._connections.add(Connection(sock, self._loop, self._link, self._connections.discard))
        self._link.faults.reach("connect")

    def _pause_accepting(self, listener: socket.socket) -> None:
        def resume() -> None:
            if self._listener is listener:
                self._loop.watch(listener, EVENT_READ, self._accept)

        self._loop.watch(listener, 0, self._accept)
        self._loop.call_later(_ACCEPT_PAUSE_S, resume)


def _bound_socket(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        sock.bind((LOOPBACK, port))
    except BaseException:
        sock.close()
        raise
    return sock
