"""Runs compressed by an earlier run of their series, and large output: exact, and damage is noticed."""

from __future__ import annotations

import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StoreCorruptError
from orchestrator.store.bodies import pack, pack_blob, pattern_of, unpack, unpack_blob

LOG = (
    b"INFO: count=369 first=2721 curr=2798 min=2688 max=3260 avg=2713.36 std=47 p5=2691 median=2704 p95=2754\n"
    b"Inference timings in us: Init: 930753, First inference: 4209, Inference (avg): 2713.36\n"
    b"saved to runs/d99b8bbf337a49388aaee58dc5f254e0/result.pb boot b5889c00-ac49-4e1b-af4a-b319a10d4a21\n"
) * 20
SECTIONS = st.lists(
    st.tuples(st.sampled_from(["stdout", "report", "é\ud800", "", "a\nb"]), st.binary(max_size=80)), max_size=5
)


@given(SECTIONS, SECTIONS)
def test_any_run_comes_back_whatever_it_is_compressed_by(
    sections: list[tuple[str, bytes]], other: list[tuple[str, bytes]]
) -> None:
    pattern = pattern_of(b"".join(content for _, content in other))
    assert unpack(pack(sections, pattern), pattern, where="here") == sections
    assert unpack(pack(sections), where="here") == sections


@pytest.mark.parametrize("place", range(0, 400, 7))
def test_a_flipped_bit_is_noticed(place: int) -> None:
    pattern = pattern_of(LOG)
    body = bytearray(pack([("stdout", LOG), ("pb", bytes(range(256)))], pattern))
    body[place % len(body)] ^= 1 << place % 8
    with pytest.raises(StoreCorruptError, match="run 7"):
        unpack(bytes(body), pattern, where="run 7")


@pytest.mark.parametrize("given", [b"", b"no body", pack([("stdout", LOG)], pattern_of(LOG))[:-4]])
def test_what_is_no_body_and_another_pattern_are_noticed(given: bytes) -> None:
    with pytest.raises(StoreCorruptError, match="run 7"):
        unpack(given, pattern_of(LOG), where="run 7")
    with pytest.raises(StoreCorruptError, match="run 7"):
        unpack(pack([("stdout", LOG)], pattern_of(LOG)), pattern_of(LOG[::-1]), where="run 7")


def test_a_body_that_claims_to_be_enormous_takes_no_memory() -> None:
    # A frame header that names 2^60 bytes of content.
    claims = b"\x28\xb5\x2f\xfd\xe4" + (1 << 60).to_bytes(8, "little")
    with pytest.raises(StoreCorruptError, match="MiB"):
        unpack(claims, where="run 7")


def blob(content: bytes) -> dict[str, object]:
    return pack_blob(content, hashlib.sha256(content).hexdigest())


@given(st.binary(max_size=2000) | st.binary(max_size=20).map(lambda part: part * 300))
def test_large_output_comes_back_and_is_never_larger_than_it_was(content: bytes) -> None:
    row = blob(content)
    assert unpack_blob(row) == content
    assert len(row["data"]) <= len(content) == row["size_bytes"]


@pytest.mark.parametrize("content", [b"one line of a log\n" * 100, bytes(range(256))], ids=["zlib", "plain"])
def test_large_output_that_changed_is_noticed(content: bytes) -> None:
    row = blob(content)
    for position in (0, 5):
        data = bytearray(row["data"])
        data[position] ^= 0x10
        with pytest.raises(StoreCorruptError, match=row["sha256"]):
            unpack_blob(row | {"data": bytes(data)})
    with pytest.raises(StoreCorruptError, match="zstd"):
        unpack_blob(row | {"packing": "zstd"})


@pytest.mark.slow
def test_data_that_would_unpack_to_more_than_was_kept_is_cut_short_and_refused() -> None:
    with pytest.raises(StoreCorruptError):
        unpack_blob(blob(b"short" * 100) | {"data": zlib.compress(bytes(200_000_000), 9)})
