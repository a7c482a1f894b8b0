"""Raw output, packed and checked."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StoreCorruptError
from orchestrator.store.blobs import PackedBlob, pack, unpack


def packed(content: bytes) -> PackedBlob:
    return pack(content, hashlib.sha256(content).hexdigest())


@given(st.binary(max_size=2000) | st.binary(max_size=20).map(lambda part: part * 300))
def test_content_comes_back_and_is_never_larger_than_it_was(content: bytes) -> None:
    blob = packed(content)

    assert unpack(blob) == content
    assert len(blob.data) <= len(content) == blob.size_bytes


@pytest.mark.parametrize("position", [0, 5, -1])
@pytest.mark.parametrize("content", [b"one line of a log\n" * 100, bytes(range(256))], ids=["zlib", "plain"])
def test_a_changed_byte_is_noticed(content: bytes, position: int) -> None:
    blob = packed(content)
    data = bytearray(blob.data)
    data[position] ^= 0x10

    # The last bytes of zlib's format are a checksum of its own, which may be wrong while the content is right.
    changed = dataclasses.replace(blob, data=bytes(data))
    if blob.packing == "zlib" and position == -1:
        changed = dataclasses.replace(blob, data=bytes(data[:-8]))
    with pytest.raises(StoreCorruptError, match=blob.sha256):
        unpack(changed)


@pytest.mark.slow
def test_data_that_would_unpack_to_more_than_was_kept_is_cut_short_and_refused() -> None:
    blob = dataclasses.replace(packed(b"short" * 100), data=zlib.compress(bytes(200_000_000), 9))

    with pytest.raises(StoreCorruptError):
        unpack(blob)


def test_a_packing_of_a_newer_version_is_refused() -> None:
    with pytest.raises(StoreCorruptError, match="zstd"):
        unpack(dataclasses.replace(packed(b"x"), packing="zstd"))
