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
SendPacket = Callable[[int, int, int, bytes | memoryview], None]

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
        self._incoming: deque[bytes | bytearray] = deque()
        self._incoming_bytes = 0
        self._owes_okay = False
        self._outgoing: deque[memoryview] = deque()
        self._outgoing_bytes = 0
        self._may_write = True
        self._ending = False
        self._closed = False

    # What the service's thread calls

    def read_piece(self) -> bytes | bytearray:
        """Block until a packet's payload is there and return it whole; ``b""`` when the client has
        closed.
        """
        with self._changed:
            while not self._incoming and not self._closed:
                self._changed.wait()
            if not self._incoming:
                return b""
            piece = self._incoming.popleft()
            self._incoming_bytes -= len(piece)
            owed = self._owes_okay and self._incoming_bytes < _AHEAD_BYTES and not self._closed
            if owed:
                self._owes_okay = False
        if owed:
            self._send(OKAY, self.local_id, self.remote_id, b"")
        return piece

    def write(self, data: bytes) -> None:
        """Write all of ``data``; block while the client is far behind; raise StreamClosedError when
        it is gone.
        """
        if not data:
            return
        with self._changed:
            while self._outgoing_bytes > _AHEAD_BYTES and not self._closed:
                self._changed.wait()
            if self._closed or self._ending:
                raise StreamClosedError("the client has closed the stream")
            self._outgoing.append(memoryview(data))
            self._outgoing_bytes += len(data)
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
                self._incoming.append(payload)
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
        """The client has closed the stream, or the link is gone: readers get what is there, then
        the end.
        """
        with self._changed:
            self._closed = True
            self._outgoing.clear()
            self._outgoing_bytes = 0
            self._changed.notify_all()
        self.hangup.set()

    def _end(self) -> None:
        self.abandon()
        self._send(CLSE, self.local_id, self.remote_id, b"")

    def _next_payload(self) -> bytes | memoryview:
        """Return what may go out now, called under the lock; ``b""`` when nothing may or is there."""
        if not self._may_write or not self._outgoing or self._closed:
            return b""
        self._may_write = False
        limit = self.max_payload_bytes
        pieces: list[memoryview] = []
        size = 0
        while self._outgoing and size < limit:
            piece = self._outgoing.popleft()
            if len(piece) > limit - size:
                self._outgoing.appendleft(piece[limit - size :])
                piece = piece[: limit - size]
            pieces.append(piece)
            size += len(piece)
        self._outgoing_bytes -= size
        self._changed.notify_all()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class StreamReader:
    """A stream read as a run of bytes, whatever packets they came in."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._rest = memoryview(b"")

    def read(self, limit: int = -1) -> bytes:
        """Block until at least one byte is there; ``b""`` is the end.

        A negative limit reads to the end.
        """
        if limit < 0:
            pieces = [bytes(self._rest)]
            while piece := self._stream.read_piece():
                pieces.append(bytes(piece))
            self._rest = memoryview(b"")
            return b"".join(pieces)
        return bytes(self.take(limit))

    def take(self, limit: int) -> memoryview:
        """Return 1 to ``limit`` bytes without copying them; empty at the end."""
        if not self._rest:
            self._rest = memoryview(self._stream.read_piece())
        taken, self._rest = self._rest[:limit], self._rest[limit:]
        return taken

    def exactly(self, count: int) -> bytes:
        """Return exactly ``count`` bytes; raise EOFError when the stream ends before."""
        taken = self.take(count)
        if len(taken) == count:
            return bytes(taken)
        pieces = [bytes(taken)]
        missing = count - len(taken)
        while missing:
            taken = self.take(missing)
            if not taken:
                raise EOFError
            pieces.append(bytes(taken))
            missing -= len(taken)
        return b"".join(pieces)
