"""Packets of the adb protocol as they cross the link between an adb server and a phone.

A packet is a header of six little-endian 32-bit words (command, two arguments, payload length,
checksum, command with all bits turned over) and a payload. Source of the format: protocol.txt in
the Android Open Source Project's adb.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

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
