"""Raw output, packed for the database and checked when it is read again."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass

from orchestrator.errors import StoreCorruptError

#: zlib's own default level: a log shrinks to a tenth at some 80 MB/s, and the next levels gain a few percent at best.
_LEVEL = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBlob:
    """Content as it lies in the database."""

    sha256: str
    size_bytes: int
    #: ``zlib``, or ``plain`` for content that packing doesn't make smaller.
    packing: str
    data: bytes


def pack(content: bytes, sha256: str) -> PackedBlob:
    """Return content as it is to be stored."""
    packed = zlib.compress(content, _LEVEL)
    if len(packed) < len(content):
        return PackedBlob(sha256=sha256, size_bytes=len(content), packing="zlib", data=packed)
    return PackedBlob(sha256=sha256, size_bytes=len(content), packing="plain", data=content)


def unpack(blob: PackedBlob) -> bytes:
    """Return the content, after its hash was checked; raises StoreCorruptError when it isn't what was stored."""
    if blob.packing == "plain":
        content = blob.data
    elif blob.packing == "zlib":
        content = _inflated(blob)
    else:
        raise StoreCorruptError(f"raw output {blob.sha256}: packed in a way that isn't known: {blob.packing!r}")
    if hashlib.sha256(content).hexdigest() != blob.sha256:
        raise StoreCorruptError(f"raw output {blob.sha256}: the stored bytes aren't the ones that were kept")
    return content


def _inflated(blob: PackedBlob) -> bytes:
    """Unpack no more than the size that was noted, so that damaged data can't fill the memory."""
    try:
        return zlib.decompressobj().decompress(blob.data, blob.size_bytes + 1)
    except zlib.error as error:
        raise StoreCorruptError(f"raw output {blob.sha256}: the stored bytes can't be unpacked ({error})") from error
