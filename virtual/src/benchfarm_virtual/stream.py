"""One stream of a connection: bytes both ways between a service on the phone and a client of the
adb server.

Each side may have one unacknowledged WRTE under way. What a service writes meanwhile is collected
and goes out as one packet when the OKAY comes, so many small writes cost few round trips.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from benchfarm_virtual.contract import Hangup, StreamClosedError

#: A service this far ahead of the link waits; a client this far ahead of the service isn't
#: acknowledged.
_AHEAD_BYTES: Final = 2 * 1024 * 1024

#: Sends one packet: command, arg0 (our id), arg1 (their id), payload.
SendPacket = Callable[[int, int, int, bytes], None]

#: The commands of packets.
CNXN, AUTH, OPEN, OKAY, WRTE, CLSE = (
    int.from_bytes(name, "little")
    for name in (b"CNXN", b"AUTH", b"OPEN", b"OKAY", b"WRTE", b"CLSE")
)


class Stream:
    """A stream as the service's thread and the loop's thread see it."""

    def __init__(
        self, local_id: int, remote_id: int, send: SendPacket, max_payload_bytes: int
    ) -> None:
        self.local_id = local_id
        self.remote_id = remote_id
        self.max_payload_bytes = max_payload_bytes
        #: Set when the client, the link or the service has closed the stream.
        self.hangup = Hangup()
        self._send = send
        self._changed = threading.Condition()
        self._incoming: deque[memoryview] = deque()
        self._incoming_bytes = 0
        self._owes_okay = False
        self._outgoing = bytearray()
        self._may_write = True
        self._ending = False
        self._closed = False

    # What the service's thread calls

    def read(self, limit: int) -> bytes:
        """Block until at least one byte is there, return ``limit`` at the most; ``b""`` is the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._incoming or self._closed)
            piece = self._incoming.popleft() if self._incoming else memoryview(b"")
            if len(piece) > limit:
                self._incoming.appendleft(piece[limit:])
            data = bytes(piece[:limit])
            self._incoming_bytes -= len(data)
            owed = self._owes_okay and self._incoming_bytes < _AHEAD_BYTES and not self._closed
            self._owes_okay = self._owes_okay and not owed
        if owed:
            self._send(OKAY, self.local_id, self.remote_id, b"")
        return data

    def exactly(self, count: int) -> bytes:
        """Return exactly ``count`` bytes; raise EOFError when the stream ends before."""
        data = self.read(count) if count else b""
        while len(data) < count:
            piece = self.read(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def write(self, data: bytes) -> None:
        """Write all of ``data``; block while the client is far behind; raise StreamClosedError when
        it is gone.
        """
        if not data:
            return
        with self._changed:
            self._changed.wait_for(lambda: len(self._outgoing) <= _AHEAD_BYTES or self._closed)
            if self._closed or self._ending:
                raise StreamClosedError("the client has closed the stream")
            self._outgoing += data
            payload = self._next_payload()
        if payload:
            self._send(WRTE, self.local_id, self.remote_id, payload)

    def finish(self) -> None:
        """Close after everything written has gone out."""
        with self._changed:
            if self._closed or self._ending:
                return
            self._ending = True
            is_over = self._may_write and not self._outgoing
        if is_over:
            self._end()

    # What the loop's thread calls

    def deliver(self, payload: bytes | bytearray) -> None:
        """Take what the client wrote; acknowledge it now or, when the service is far behind, later."""
        with self._changed:
            if self._closed:
                return
            if payload:
                self._incoming.append(memoryview(payload))
            self._incoming_bytes += len(payload)
            self._owes_okay = self._incoming_bytes >= _AHEAD_BYTES
            now = not self._owes_okay
            self._changed.notify_all()
        if now:
            self._send(OKAY, self.local_id, self.remote_id, b"")

    def acknowledged(self) -> None:
        """The client took our last packet: send the next."""
        with self._changed:
            self._may_write = True
            payload = self._next_payload()
            is_over = self._ending and not payload and not self._closed
        if payload:
            self._send(WRTE, self.local_id, self.remote_id, payload)
        elif is_over:
            self._end()

    def abandon(self) -> None:
        """Handle the client's close or a lost link: readers get the received data, then the end."""
        with self._changed:
            self._closed = True
            self._outgoing.clear()
            self._changed.notify_all()
        self.hangup.set()

    def _end(self) -> None:
        self.abandon()
        self._send(CLSE, self.local_id, self.remote_id, b"")

    def _next_payload(self) -> bytes:
        """Return the payload that may be sent now, or ``b""``; called under the lock."""
        if not self._may_write or not self._outgoing or self._closed:
            return b""
        self._may_write = False
        payload = bytes(self._outgoing[: self.max_payload_bytes])
        del self._outgoing[: self.max_payload_bytes]
        self._changed.notify_all()
        return payload
