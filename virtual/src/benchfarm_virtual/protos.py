"""Writing protocol buffers in their wire format, with field numbers from the public .proto files."""

from __future__ import annotations

import struct
from collections.abc import Mapping

#: A number, a float, a text, a message (or bytes), packed numbers, a repeated message.
Value = int | float | str | bytes | tuple[int, ...] | list[bytes]


def message(fields: Mapping[int, Value]) -> bytes:
    """Return a message's fields by their numbers, in this order.

    Fields that are set are written also when they are 0 (proto2, or explicit presence); a packed
    list without numbers isn't.
    """
    return b"".join(_field(number, value) for number, value in fields.items())


def _field(number: int, value: Value) -> bytes:
    match value:
        case int():
            return _varint(number << 3) + _varint(value)
        case float():
            return _varint(number << 3 | 5) + struct.pack("<f", value)
        case list():
            return b"".join(_field(number, item) for item in value)
        case ():
            return b""
        case tuple():
            data = b"".join(map(_varint, value))
        case str():
            data = value.encode("utf-8", "replace")
        case _:
            data = value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """Return a whole number in groups of seven bits; a negative one as one of 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
