"""Whole numbers as protobuf writes them."""

from __future__ import annotations

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
