"""One stream of a connection: bytes both ways between a service on the phone and a client of the
adb server.

Each side may have one unacknowledged WRTE under way. What a service writes meanwhile is collected
and goes out as one packet when the OKAY comes, so many small writes cost few round trips.

A packet of the link is a header of six little-endian 32-bit words (command, two arguments, payload
length, checksum, command with all bits turned over), then the payload; protocol.txt of the Android Open
Source Project says so.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from benchfarm_virtual.contract import Hangup, StreamClosedError

#: A service this far ahead of the link waits; a client this far ahead of the service isn't
#: acknowledged.
_AHEAD_BYTES: Final = 2 * 1024 * 1024

#: Sends one packet: command, arg0 (our id), arg1 (their id), payload.
SendPacket = Callable[[int, int, int, bytes | memoryview], None]


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
            now = self._may_write and not self._outgoing
            if now:
                self._close()
        if now:
            self.hangup.set()
            self._send(CLSE, self.local_id, self.remote_id, b"")

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
            closes = self._ending and not payload and not self._closed
            if closes:
                self._close()
            self._changed.notify_all()
        if payload:
            self._send(WRTE, self.local_id, self.remote_id, payload)
        elif closes:
            self.hangup.set()
            self._send(CLSE, self.local_id, self.remote_id, b"")

    def abandon(self) -> None:
        """The client has closed the stream, or the link is gone: readers get what is there, then
        the end.
        """
        with self._changed:
            self._close()
        self.hangup.set()

    @property
    def closed(self) -> bool:
        """Whether nothing more will be sent or received."""
        return self._closed

    def _close(self) -> None:
        self._closed = True
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._changed.notify_all()

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


HEADER: Final = struct.Struct("<6I")

#: The version that still needs a checksum in every packet, and the first one that does without.
VERSION_CHECKSUM: Final = 0x01000000
VERSION_NO_CHECKSUM: Final = 0x01000001
#: The largest payload that this side takes, and what a peer gets that says nothing sensible.
MAX_PAYLOAD_BYTES: Final = 1024 * 1024
OLD_MAX_PAYLOAD_BYTES: Final = 4096

AUTH_TOKEN: Final = 1
AUTH_SIGNATURE: Final = 2


def _command(name: bytes) -> int:
    return int.from_bytes(name, "little")


CNXN: Final = _command(b"CNXN")
AUTH: Final = _command(b"AUTH")
OPEN: Final = _command(b"OPEN")
OKAY: Final = _command(b"OKAY")
WRTE: Final = _command(b"WRTE")
CLSE: Final = _command(b"CLSE")


class WireError(Exception):
    """What came over the link is no packet; the connection can only be closed."""


class Packet(NamedTuple):
    """One packet as it was received."""

    command: int
    arg0: int
    arg1: int
    payload: bytes | bytearray


def checksum(payload: bytes | bytearray | memoryview) -> int:
    """Return the sum of all bytes, as versions before 0x01000001 want it in the header."""
    return sum(payload) & 0xFFFFFFFF


def header_for(
    command: int, arg0: int, arg1: int, length_bytes: int, payload_sum: int = 0
) -> bytes:
    """Return a packet's header."""
    return HEADER.pack(command, arg0, arg1, length_bytes, payload_sum, command ^ 0xFFFFFFFF)


class PacketReader:
    """Cuts the bytes of one connection into packets, with one copy at most.

    The owner asks :meth:`room` where the next bytes are to be received into and reports them with
    :meth:`received`. A large payload is received in place; the buffer for headers and small packets
    belongs to the caller's thread and is shared between connections, so an idle connection holds no
    buffer.
    """

    def __init__(self, on_packet: Callable[[Packet], None], shared: bytearray) -> None:
        self._on_packet = on_packet
        self._shared = memoryview(shared)
        self._header = bytearray()
        self._head: tuple[int, int, int] | None = None
        self._sum = 0
        self._payload = bytearray()
        self._filled_bytes = 0
        #: Set once the handshake has settled on a version with checksums.
        self.verify = False

    def room(self) -> memoryview:
        """Return the memory that the next bytes are to be received into."""
        if self._head is not None:
            return memoryview(self._payload)[self._filled_bytes :]
        return self._shared

    def received(self, count: int) -> None:
        """Take ``count`` bytes that were received into :meth:`room`; raise WireError when they are
        no packet.
        """
        if self._head is not None:
            self._filled_bytes += count
            self._deliver_when_whole()
            return
        at = 0
        while at < count:
            wanted = HEADER.size - len(self._header)
            self._header += self._shared[at : min(count, at + wanted)]
            at += wanted
            if len(self._header) < HEADER.size:
                return
            self._start_payload()
            piece = self._shared[at : min(count, at + len(self._payload))] if at < count else b""
            self._payload[: len(piece)] = piece
            self._filled_bytes = len(piece)
            at += len(piece)
            self._deliver_when_whole()

    def _start_payload(self) -> None:
        command, arg0, arg1, length, payload_sum, magic = HEADER.unpack(self._header)
        self._header.clear()
        if magic != command ^ 0xFFFFFFFF or length > MAX_PAYLOAD_BYTES:
            raise WireError(
                f"no adb packet: command {command:#x}, magic {magic:#x}, {length} bytes"
            )
        self._head, self._sum = (command, arg0, arg1), payload_sum
        self._payload = bytearray(length)

    def _deliver_when_whole(self) -> None:
        if self._head is None or self._filled_bytes < len(self._payload):
            return
        payload, head = self._payload, self._head
        self._payload, self._head, self._filled_bytes = bytearray(), None, 0
        if self.verify and checksum(payload) != self._sum:
            raise WireError("a packet's checksum is wrong")
        self._on_packet(Packet(*head, payload))
