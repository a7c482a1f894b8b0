"""Writing Android's binary XML, as AndroidManifest.xml has it in an APK.

Layout (frameworks/base/libs/androidfw/include/androidfw/ResourceTypes.h): chunks of type, header
size, size; a string pool, the resource ids of attribute names, then elements whose attributes hold
string numbers or typed values.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_XML, _STRING_POOL, _RESOURCE_MAP = 0x0003, 0x0001, 0x0180
_START_NAMESPACE, _END_NAMESPACE, _START_ELEMENT, _END_ELEMENT = 0x0100, 0x0101, 0x0102, 0x0103
_TYPE_STRING, _TYPE_INT, _TYPE_BOOL = 0x03, 0x10, 0x12
_NONE: Final = 0xFFFFFFFF
ANDROID_NAMESPACE: Final = "http://schemas.android.com/apk/res/android"
#: Resource ids of the attributes that are written (android.R.attr).
_ATTRIBUTE_IDS: Final = {
    "name": 0x01010003,
    "exported": 0x01010010,
    "debuggable": 0x0101000F,
    "minSdkVersion": 0x0101020C,
    "targetSdkVersion": 0x01010270,
    "versionCode": 0x0101021B,
    "versionName": 0x0101021C,
}

Value = str | int | bool


@dataclass(slots=True, kw_only=True)
class Element:
    """An element with its attributes (by local name; android: ones too) and children."""

    name: str
    attributes: dict[str, Value] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)


def encode(root: Element) -> bytes:
    """Return an element tree as binary XML; attributes with a resource id are written as android:
    ones.
    """
    names = sorted({a for e in [root, *_all(root)] for a in e.attributes if a in _ATTRIBUTE_IDS})
    texts = [*names]
    for element in [root, *_all(root)]:
        texts += [
            element.name,
            *element.attributes,
            *(v for v in element.attributes.values() if isinstance(v, str)),
        ]
    texts += ["android", ANDROID_NAMESPACE]
    pool = list(dict.fromkeys(texts))
    numbers = {text: number for number, text in enumerate(pool)}
    ids = struct.pack("<HHI", _RESOURCE_MAP, 8, 8 + 4 * len(names)) + b"".join(
        struct.pack("<I", _ATTRIBUTE_IDS[name]) for name in names
    )
    space = struct.pack("<II", numbers["android"], numbers[ANDROID_NAMESPACE])
    body = _strings_chunk(pool) + ids + _node(_START_NAMESPACE, space)
    body += _element_chunks(root, numbers) + _node(_END_NAMESPACE, space)
    return struct.pack("<HHI", _XML, 8, 8 + len(body)) + body


def _all(element: Element) -> list[Element]:
    return [inner for child in element.children for inner in (child, *_all(child))]


def _strings_chunk(pool: Sequence[str]) -> bytes:
    offsets, data = b"", b""
    for text in pool:
        offsets += struct.pack("<I", len(data))
        encoded = text.encode("utf-16-le")
        data += struct.pack("<H", len(encoded) // 2) + encoded + b"\0\0"
    data = data.ljust((len(data) + 3) // 4 * 4, b"\0")
    start = 28 + len(offsets)
    return (
        struct.pack("<HHIIIIII", _STRING_POOL, 28, start + len(data), len(pool), 0, 0, start, 0)
        + offsets
        + data
    )


def _node(kind: int, body: bytes) -> bytes:
    return struct.pack("<HHIII", kind, 16, 16 + len(body), 1, _NONE) + body


def _element_chunks(element: Element, numbers: Mapping[str, int]) -> bytes:
    attributes = b""
    for name, value in element.attributes.items():
        namespace = numbers[ANDROID_NAMESPACE] if name in _ATTRIBUTE_IDS else _NONE
        if isinstance(value, str):
            raw, kind, data = numbers[value], _TYPE_STRING, numbers[value]
        elif isinstance(value, bool):
            raw, kind, data = _NONE, _TYPE_BOOL, _NONE if value else 0
        else:
            raw, kind, data = _NONE, _TYPE_INT, value
        attributes += struct.pack("<IIIHBBI", namespace, numbers[name], raw, 8, 0, kind, data)
    head = struct.pack(
        "<IIHHHHHH", _NONE, numbers[element.name], 20, 20, len(element.attributes), 0, 0, 0
    )
    inner = b"".join(_element_chunks(child, numbers) for child in element.children)
    end = struct.pack("<II", _NONE, numbers[element.name])
    return _node(_START_ELEMENT, head + attributes) + inner + _node(_END_ELEMENT, end)
