"""Writing protocol buffers in their wire format, with field numbers from the public .proto files.

Fields that are set are written also when they are 0 (proto2, or explicit presence).
"""

from __future__ import annotations

import struct
from typing import Final

_SMALL: Final = [bytes([value]) for value in range(0x80)]


def varint(value: int) -> bytes:
    """Return a whole number in groups of seven bits; a negative one as one of 64 bits."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(number: int, value: int) -> bytes:
    """Return an integer field."""
    return varint(number << 3) + varint(value)


def bytes_field(number: int, value: bytes | str) -> bytes:
    """Return a string, bytes or message field."""
    data = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
    return varint(number << 3 | 2) + varint(len(data)) + data


class Message:
    """A message being built, field by field; the fields' names are for readers."""

    def __init__(self) -> None:
        self._out = bytearray()

    def _add(self, field: bytes) -> Message:
        self._out += field
        return self

    def integer(self, number: int, name: str, value: int) -> Message:
        """Add an integer or enum field."""
        return self._add(number_field(number, value))

    def single(self, number: int, name: str, value: float) -> Message:
        """Add a float field."""
        return self._add(varint(number << 3 | 5) + struct.pack("<f", value))

    def text(self, number: int, name: str, value: str | bytes) -> Message:
        """Add a string or bytes field."""
        return self._add(bytes_field(number, value))

    def child(self, number: int, name: str, value: Message) -> Message:
        """Add a message field, as the message is now."""
        return self._add(bytes_field(number, value.to_bytes()))

    def packed(self, number: int, name: str, values: tuple[int, ...]) -> Message:
        """Add a packed list of integers; nothing when it is empty."""
        return self._add(bytes_field(number, b"".join(map(varint, values)))) if values else self

    def to_bytes(self) -> bytes:
        """Return the message in the wire format."""
        return bytes(self._out)
