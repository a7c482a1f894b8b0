"""Text taken apart: the tokens are those that stored bodies were written with, also where text is cut into lines."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.store.pattern import Lines, split_lines, split_pieces
from orchestrator.store.tokens import taken_apart

#: As it was when the first bodies were written, and as it reads.
PLAIN = re.compile(
    rb"(?<![0-9a-f])(?:[0-9a-f]{32}|[0-9a-f]{16}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9a-f])"
    rb"|true|false|null|-?[0-9]+(?:\.[0-9]+)?"
)
UUID = b"b5889c00-ac49-4e1b-af4a-b319a10d4a21"
WORDS = (b"true", b"false", b"null", b"ff", b"12.5", b"-7", b"a" * 15, b"1" * 16, b"0f" * 16, b"d99b8bbf337a4938")
HASHES = (b"7d1a3946d9b54c38bb1a8c818da9c4f1", UUID, UUID[:-1])
PIECES = st.sampled_from([*(bytes([code]) for code in b"0123456789abcdef-. ,\n\rtfn"), *WORDS, *HASHES])
TEXTS = st.lists(PIECES | st.binary(max_size=3), max_size=40).map(b"".join)


@given(TEXTS)
def test_tokens_are_those_that_bodies_were_written_with(text: bytes) -> None:
    parts = taken_apart(text)

    assert parts[1::2] == PLAIN.findall(text)
    assert parts[::2] == PLAIN.split(text)


@given(TEXTS, st.sampled_from([split_lines, split_pieces]), st.data())
def test_a_stretch_of_lines_has_the_parts_of_its_text(text: bytes, split: type, data: st.DataObject) -> None:
    lines = split(text)
    start = data.draw(st.integers(0, len(lines)))
    length = data.draw(st.integers(0, len(lines) - start))

    assert Lines(lines).stretch(start, length) == taken_apart(b"".join(lines[start : start + length]))
