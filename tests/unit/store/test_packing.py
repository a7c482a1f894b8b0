"""What a store compresses comes back exactly, and damage is noticed."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StoreCorruptError
from orchestrator.records.run import Attachment
from orchestrator.store import schema
from orchestrator.store.schema import pack, pack_output, unpack, unpack_large, unpack_output

LOG = (
    b"INFO: count=369 first=2721 curr=2798 min=2688 max=3260 avg=2713.36 std=47 p5=2691 median=2704 p95=2754\n"
    * 20
)
NAMES = st.sampled_from(["stdout", "\u00e9\ud800", "", "a\nb"])
PROGRAMS = st.sampled_from(["", "native", "apk", "quite another"])


@given(
    st.lists(st.builds(Attachment, name=NAMES, data=st.binary(max_size=80)), max_size=5), PROGRAMS
)
def test_any_output_comes_back(attachments: list[Attachment], program: str) -> None:
    packed = pack_output(attachments, program)
    assert unpack_output(packed, where="here") == [(item.name, item.data) for item in attachments]


@pytest.mark.parametrize("program", ["", "native"])
def test_a_flipped_bit_is_noticed(program: str) -> None:
    packed = pack(LOG + bytes(range(256)), program)
    for place in range(0, 400, 7):
        data = bytearray(packed)
        data[place % len(data)] ^= 1 << place % 8
        with pytest.raises(StoreCorruptError, match="run 7"):
            unpack(bytes(data), where="run 7")


@pytest.mark.parametrize("data", [b"", b"nothing of ours", pack(LOG, "native")[:-4]])
def test_what_is_no_frame_is_noticed(data: bytes) -> None:
    with pytest.raises(StoreCorruptError, match="run 7"):
        unpack(data, where="run 7")


def test_what_claims_to_be_enormous_takes_no_memory() -> None:
    # A frame header that names 2^60 bytes of content.
    claims = b"\x28\xb5\x2f\xfd\xe4" + (1 << 60).to_bytes(8, "little")
    with pytest.raises(StoreCorruptError, match="MiB"):
        unpack(claims, where="run 7")


def test_large_content_of_another_sum_is_noticed() -> None:
    sha256 = hashlib.sha256(LOG).hexdigest()
    assert unpack_large(pack(LOG), sha256) == LOG
    with pytest.raises(StoreCorruptError, match=sha256):
        unpack_large(pack(LOG + b"x"), sha256)


def test_no_dictionary_is_ever_changed() -> None:
    known = schema._dictionaries()
    sums = {name: hashlib.sha256(one.dict_content).hexdigest()[:16] for name, one in known.items()}
    assert sums == SUMS
    assert len({one.dict_id for one in known.values()}) == len(SUMS)


#: Stored runs can be read by the very same dictionary only.
SUMS = {
    "apk.1.zdict": "09b4c6af4c73ae1f",
    "litert-native.1.zdict": "f14d74eff268f64a",
    "litert.1.zdict": "d4bbeedddd15060f",
    "native.1.zdict": "9a8c8620dc6a815c",
    "perf-options.1.zdict": "54d8900ca5293215",
}
