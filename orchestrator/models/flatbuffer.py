"""Reads tables of a flatbuffer that nobody vouches for: each offset is checked before it is followed.

The layout (https://flatbuffers.dev/internals): a table starts with the signed distance back to its vtable, which says
where in the table each field lies; strings, vectors and further tables are unsigned distances ahead. The generated
readers trust all of them: a negative index reads from the other end, a shared vector is walked a million times.
So a budget bounds the work that one file can ask for. The file is read in blocks, few of which are kept: a model of
gigabytes costs no memory, and one that is cut short by another process while it is read is an error, where a memory map
would end the whole process by SIGBUS.
"""

from __future__ import annotations

import functools
import os
import struct
from typing import Final

#: Tables, vector items and pieces of text that one file may make us read. The largest published models need some
#: hundred thousand (tens of thousands of tensors in several signatures).
BUDGET: Final = 1_000_000
_TEXT_BYTES_MAX: Final = 1 << 20
_BLOCK_BYTES: Final = 1 << 16
_BLOCKS_KEPT: Final = 64


class DamagedBufferError(Exception):
    """The bytes aren't a flatbuffer of the expected form; the message says where."""


class FlatBuffer:
    """One open file; ``size_bytes`` is what it had when it was opened."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._budget = BUDGET
        self._block = functools.lru_cache(maxsize=_BLOCKS_KEPT)(functools.partial(_read_block, descriptor))

    def root(self) -> FlatTable:
        """Return the table that the file begins with."""
        return FlatTable(self, self.number("<I", 0))

    def number(self, layout: str, at: int) -> int:
        """Return one integer, given its struct layout."""
        return int(struct.unpack(layout, self.content(at, struct.calcsize(layout)))[0])

    def content(self, at: int, size: int) -> bytes:
        """Return ``size`` bytes from ``at``."""
        self.check(at, size)
        number, start = divmod(at, _BLOCK_BYTES)
        parts = [self._block(number)[start : start + size]]
        while (have := sum(map(len, parts))) < size:
            number += 1
            part = self._block(number)[: size - have]
            if not part:
                raise DamagedBufferError("the file was cut short while it was read")
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def check(self, at: int, size: int) -> None:
        """Raise unless ``size`` bytes from ``at`` lie within the file."""
        if at < 0 or size < 0 or at + size > self.size_bytes:
            raise DamagedBufferError(f"it refers to byte {at + max(0, size)}, the file has {self.size_bytes}")

    def spend(self, steps: int) -> None:
        """Take steps from the budget; raise when it is used up."""
        self._budget -= steps
        if self._budget < 0:
            raise DamagedBufferError(f"it asks for more than {BUDGET} steps to be read")


def _read_block(descriptor: int, number: int) -> bytes:
    return os.pread(descriptor, _BLOCK_BYTES, number * _BLOCK_BYTES)


class FlatTable:
    """One table; a field is named by its number in the schema, and an absent one has its default."""

    __slots__ = ("_buffer", "_fields", "_start", "_vtable")

    def __init__(self, buffer: FlatBuffer, start: int) -> None:
        buffer.spend(1)
        vtable = start - buffer.number("<i", start)
        size = buffer.number("<H", vtable)
        if size < 4 or size % 2:
            raise DamagedBufferError(f"the table at byte {start} has a field list of {size} bytes")
        buffer.check(vtable, size)
        self._buffer = buffer
        self._start = start
        self._vtable = vtable
        self._fields = (size - 4) // 2

    def _place(self, field: int) -> int | None:
        """Return where a field's bytes lie, None when it is absent."""
        if field >= self._fields:
            return None
        distance = self._buffer.number("<H", self._vtable + 4 + 2 * field)
        return self._start + distance if distance else None

    def _target(self, field: int) -> int | None:
        """Return where a field's string, vector or table lies, None when it is absent."""
        place = self._place(field)
        return None if place is None else place + self._buffer.number("<I", place)

    def integer(self, field: int, layout: str, default: int = 0) -> int:
        """Return an integer field by its struct layout, for example ``<i``."""
        place = self._place(field)
        return default if place is None else self._buffer.number(layout, place)

    def real(self, field: int, default: float = 0.0) -> float:
        """Return a float32 field; it may be infinite or no number."""
        place = self._place(field)
        return default if place is None else float(struct.unpack("<f", self._buffer.content(place, 4))[0])

    def table(self, field: int) -> FlatTable | None:
        """Return a table field."""
        target = self._target(field)
        return None if target is None else FlatTable(self._buffer, target)

    def length(self, field: int, item_size: int = 1) -> int:
        """Return how many items a vector has, all of them within the file; 0 when it is absent."""
        target = self._target(field)
        if target is None:
            return 0
        length = self._buffer.number("<I", target)
        self._buffer.check(target + 4, length * item_size)
        return length

    def tables(self, field: int) -> list[FlatTable]:
        """Return the tables of a vector."""
        return [FlatTable(self._buffer, at + self._buffer.number("<I", at)) for at in self._items(field, 4)]

    def integers(self, field: int, layout: str) -> tuple[int, ...]:
        """Return the integers of a vector by the struct layout of one."""
        item_size = struct.calcsize(layout)
        return tuple(self._buffer.number(layout, at) for at in self._items(field, item_size))

    def floats(self, field: int) -> tuple[float, ...]:
        """Return the float32 numbers of a vector."""
        return tuple(struct.unpack("<f", self._buffer.content(at, 4))[0] for at in self._items(field, 4))

    def _items(self, field: int, item_size: int) -> range:
        target = self._target(field)
        if target is None:
            return range(0)
        length = self.length(field, item_size)
        self._buffer.spend(length)
        return range(target + 4, target + 4 + length * item_size, item_size)

    def text(self, field: int) -> str:
        """Return a string field, empty when it is absent; what isn't UTF-8 is shown as escapes."""
        target = self._target(field)
        if target is None:
            return ""
        length = self.length(field)
        if length > _TEXT_BYTES_MAX:
            raise DamagedBufferError(f"the text at byte {target} has {length} bytes")
        self._buffer.spend(1 + length // 64)
        return self._buffer.content(target + 4, length).decode("utf-8", "backslashreplace")

    def content(self, field: int, limit: int) -> bytes:
        """Return the first ``limit`` bytes of a byte vector, none when it is absent."""
        target = self._target(field)
        if target is None:
            return b""
        length = min(self.length(field), limit)
        return self._buffer.content(target + 4, length)
