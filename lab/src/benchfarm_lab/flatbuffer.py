"""Reading flatbuffers that may be damaged: every offset is checked before it is followed.

The format (https://flatbuffers.dev/internals): a table begins with a signed offset back to its vtable, which lists
where each field lies inside the table; strings, vectors and other tables are reached by unsigned offsets forward.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

#: How many tables one buffer may hold; a damaged file must not keep a phone busy. (The C++ verifier has such a limit.)
MAX_TABLES: Final = 1_000_000

_U16: Final = struct.Struct("<H")
_I32: Final = struct.Struct("<i")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


class MalformedBufferError(Exception):
    """The bytes are no flatbuffer of the expected shape; something points outside, or not where it may."""


class Buffer:
    """The bytes of one flatbuffer, and how many tables of it have been opened."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._tables = 0

    def root(self, identifier: bytes) -> Table:
        """Return the root table of a buffer that carries the four-byte ``identifier``."""
        if len(self.data) < 8 or self.data[4:8] != identifier:
            raise MalformedBufferError(f"no {identifier.decode()} identifier")
        return Table(self, self.u32(0))

    def count_table(self) -> None:
        """Count one opened table against the limit."""
        self._tables += 1
        if self._tables > MAX_TABLES:
            raise MalformedBufferError("too many tables")

    def check(self, start: int, size: int) -> None:
        """Raise unless ``size`` bytes from ``start`` lie inside."""
        if start < 0 or size < 0 or start + size > len(self.data):
            raise MalformedBufferError(f"{size} bytes at {start} reach outside {len(self.data)} bytes")

    def u32(self, at: int) -> int:
        """Return the unsigned 32-bit number at a place."""
        self.check(at, 4)
        return int(_U32.unpack_from(self.data, at)[0])

    def i32(self, at: int) -> int:
        """Return the signed 32-bit number at a place."""
        self.check(at, 4)
        return int(_I32.unpack_from(self.data, at)[0])


class Table:
    """One table; fields are named by their number in the schema, and absent ones give their default."""

    __slots__ = ("_buffer", "_offsets", "_start", "_vtable")

    def __init__(self, buffer: Buffer, start: int) -> None:
        buffer.count_table()
        if start % 4:
            raise MalformedBufferError(f"table at {start} isn't aligned")
        vtable = start - buffer.i32(start)
        buffer.check(vtable, 4)
        size = int(_U16.unpack_from(buffer.data, vtable)[0])
        inline_size = int(_U16.unpack_from(buffer.data, vtable + 2)[0])
        if size < 4 or size % 2 or vtable % 2:
            raise MalformedBufferError(f"vtable at {vtable} has size {size}")
        buffer.check(vtable, size)
        buffer.check(start, max(4, inline_size))
        self._buffer = buffer
        self._start = start
        self._vtable = vtable
        self._offsets = (size - 4) // 2

    def _field(self, number: int, size: int) -> int:
        """Return where a field lies, or 0 when it is absent."""
        if number >= self._offsets:
            return 0
        offset = int(_U16.unpack_from(self._buffer.data, self._vtable + 4 + 2 * number)[0])
        if offset == 0:
            return 0
        self._buffer.check(self._start + offset, size)
        return self._start + offset

    def scalar(self, number: int, layout: str, default: int = 0) -> int:
        """Return an integer field; ``layout`` is its struct letter (b, B, h, H, i, I, q, Q)."""
        unpacker = struct.Struct("<" + layout)
        at = self._field(number, unpacker.size)
        return int(unpacker.unpack_from(self._buffer.data, at)[0]) if at else default

    def _target(self, number: int) -> int:
        at = self._field(number, 4)
        return at + self._buffer.u32(at) if at else 0

    def table(self, number: int) -> Table | None:
        """Return a table field, or None."""
        target = self._target(number)
        return Table(self._buffer, target) if target else None

    def vector_size(self, number: int, item_size: int) -> int | None:
        """Return how many items a vector has (checked to lie inside), or None when it is absent."""
        target = self._target(number)
        if not target:
            return None
        length = self._buffer.u32(target)
        self._buffer.check(target + 4, length * item_size)
        return length

    def text(self, number: int) -> str:
        """Return a string field, "" when absent; bytes that are no UTF-8 are kept as escapes."""
        target = self._target(number)
        if not target:
            return ""
        length = self._buffer.u32(target)
        self._buffer.check(target + 4, length + 1)
        if self._buffer.data[target + 4 + length] != 0:
            raise MalformedBufferError(f"string at {target} has no end")
        return self._buffer.data[target + 4 : target + 4 + length].decode("utf-8", "backslashreplace")

    def numbers(self, number: int, layout: str) -> tuple[int, ...]:
        """Return a vector of integers, empty when absent."""
        item_size = struct.calcsize("<" + layout)
        length = self.vector_size(number, item_size)
        if not length:
            return ()
        start = self._target(number) + 4
        return struct.unpack_from(f"<{length}{layout}", self._buffer.data, start)

    def tables(self, number: int) -> Iterator[Table]:
        """Yield a vector of tables, nothing when absent."""
        length = self.vector_size(number, 4)
        if not length:
            return
        start = self._target(number) + 4
        for at in range(start, start + 4 * length, 4):
            yield Table(self._buffer, at + self._buffer.u32(at))

    def u64(self, number: int) -> int:
        """Return an unsigned 64-bit field, 0 when absent."""
        at = self._field(number, 8)
        return int(_U64.unpack_from(self._buffer.data, at)[0]) if at else 0
