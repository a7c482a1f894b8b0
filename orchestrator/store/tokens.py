"""Text taken apart into tokens (figures, hashes, truth values) and what stands between them."""

from __future__ import annotations

import re
from typing import Final

#: Text in its order: what stands before, between and after the tokens at even places, the tokens at odd ones.
Parts = list[bytes]

#: What of a hash or a UUID follows its first digit: 32, 16 or 36 characters in all, and no digit after them.
_HEX_FURTHER: Final = rb"[0-9a-f]{7}(?:[0-9a-f]{8}(?:[0-9a-f]{16})?|(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9a-f])"
# The same as hash|UUID|true|false|null|-?[0-9]+(\.[0-9]+)? where no hexadecimal digit stands before a hash. It begins
# with one character of a class, so that all other characters are skipped fast: four times as fast.
# Never changes: bodies couldn't be unpacked.
_TOKEN: Final = re.compile(
    rb"([-0-9a-fnt](?:"
    rb"(?<=[0-9])(?:(?<![0-9a-f]{2})" + _HEX_FURTHER + rb"|[0-9]*(?:\.[0-9]+)?)"
    rb"|(?=[0-9a-f]{3})(?<=[a-f])(?<![0-9a-f]{2})" + _HEX_FURTHER + rb""
    rb"|(?<=-)[0-9]+(?:\.[0-9]+)?"
    rb"|(?<=t)rue|(?<=f)alse|(?<=n)ull))"
)


def taken_apart(content: bytes) -> Parts:
    """Return text as its parts; joined they are the text."""
    return _TOKEN.split(content)
