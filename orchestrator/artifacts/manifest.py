"""Android's binary XML, as far as a manifest needs it: elements and their attributes, each offset checked.

The layout is that of ResourceTypes.h in the Android Open Source Project (frameworks/base, libs/androidfw): chunks of
type, header size and size; a pool of strings; a map from attribute names to resource numbers; then the elements.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


class _Chunk(enum.IntEnum):
    STRING_POOL = 0x0001
    XML = 0x0003
    START_ELEMENT = 0x0102
    END_ELEMENT = 0x0103
    RESOURCE_MAP = 0x0180


_UTF8_FLAG: Final = 1 << 8
_NONE: Final = 0xFFFFFFFF
_TYPE_STRING, _TYPE_INT, _TYPE_HEX, _TYPE_BOOL = 0x03, 0x10, 0x11, 0x12
#: Attributes are known by their resource number: tools that shrink an app drop or change their names.
_ATTRIBUTES: Final = {
    0x01010003: "name", 0x0101000F: "debuggable", 0x0101020C: "minSdkVersion", 0x0101021B: "versionCode",
    0x0101021C: "versionName",
}  # fmt: skip
_STRINGS_MAX: Final = 100_000
_ELEMENTS_MAX: Final = 100_000


class DamagedManifestError(Exception):
    """The bytes aren't Android's binary XML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One element: its path of names from the root, and those attributes whose value isn't a reference."""

    path: tuple[str, ...]
    attributes: dict[str, str | int | bool]


def read_manifest(data: bytes) -> list[Element]:
    """Return the elements of a binary XML file in their order; raises DamagedManifestError."""
    try:
        return list(_elements(data))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DamagedManifestError(str(error)) from error


def _elements(data: bytes) -> Iterator[Element]:
    kind, header_size, size = struct.unpack_from("<HHI", data)
    if kind != _Chunk.XML or size > len(data):
        raise DamagedManifestError("it doesn't begin as binary XML does")
    strings: list[str] = []
    names: dict[int, str] = {}
    path: list[str] = []
    for number, (chunk, head, at, end) in enumerate(_chunks(data, header_size, size)):
        if number > _ELEMENTS_MAX:
            raise DamagedManifestError(f"it has more than {_ELEMENTS_MAX} chunks")
        match chunk:
            case _Chunk.STRING_POOL:
                strings = _strings(data[at:end])
            case _Chunk.RESOURCE_MAP:
                ids = struct.unpack_from(f"<{(end - at - head) // 4}I", data, at + head)
                names = {index: _ATTRIBUTES[value] for index, value in enumerate(ids) if value in _ATTRIBUTES}
            case _Chunk.START_ELEMENT:
                name, attributes = _element(data[at + head : end], strings, names)
                path.append(name)
                yield Element(path=tuple(path), attributes=attributes)
            case _Chunk.END_ELEMENT:
                if not path:
                    raise DamagedManifestError("an element ends that didn't begin")
                path.pop()


def _chunks(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield type, header size, begin and end of each chunk."""
    while start + 8 <= end:
        kind, head, size = struct.unpack_from("<HHI", data, start)
        if head < 8 or size < head or start + size > end:
            raise DamagedManifestError(f"the chunk at byte {start} has size {size}")
        yield kind, head, start, start + size
        start += size


def _strings(pool: bytes) -> list[str]:
    head = struct.unpack_from("<H", pool, 2)[0]
    count, _, flags, strings_start, _ = struct.unpack_from("<5I", pool, 8)
    if count > _STRINGS_MAX:
        raise DamagedManifestError(f"it has {count} strings")
    offsets = struct.unpack_from(f"<{count}I", pool, head)
    read = _utf8 if flags & _UTF8_FLAG else _utf16
    return [read(pool, strings_start + offset) for offset in offsets]


def _utf8(pool: bytes, at: int) -> str:
    # Two lengths, in characters and in bytes; each takes two bytes when its first has the high bit.
    at += 2 if pool[at] & 0x80 else 1
    length = pool[at]
    at += 1
    if length & 0x80:
        length = (length & 0x7F) << 8 | pool[at]
        at += 1
    return _cut(pool, at, length).decode("utf-8", "replace")


def _utf16(pool: bytes, at: int) -> str:
    length = struct.unpack_from("<H", pool, at)[0]
    at += 2
    if length & 0x8000:
        length = (length & 0x7FFF) << 16 | struct.unpack_from("<H", pool, at)[0]
        at += 2
    return _cut(pool, at, 2 * length).decode("utf-16-le", "replace")


def _cut(pool: bytes, at: int, size: int) -> bytes:
    if at + size > len(pool):
        raise DamagedManifestError("a string reaches beyond its pool")
    return pool[at : at + size]


def _element(body: bytes, strings: list[str], names: dict[int, str]) -> tuple[str, dict[str, str | int | bool]]:
    _, name, start, size, count = struct.unpack_from("<IIHHH", body)
    attributes: dict[str, str | int | bool] = {}
    if size < 20:
        raise DamagedManifestError(f"attributes of {size} bytes")
    for number in range(count):
        _, key, raw, _, _, kind, value = struct.unpack_from("<IIIHBBI", body, start + number * size)
        known = names.get(key) or strings[key]
        if kind == _TYPE_STRING:
            attributes[known] = strings[value]
        elif kind in {_TYPE_INT, _TYPE_HEX}:
            attributes[known] = int(value)
        elif kind == _TYPE_BOOL:
            attributes[known] = value != 0
        elif raw != _NONE:
            attributes[known] = strings[raw]
    return strings[name], attributes
