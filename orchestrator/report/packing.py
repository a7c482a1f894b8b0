"""Data and text folded into a page: small, the same bytes each time, and harmless inside of a script element."""

from __future__ import annotations

import base64
import gzip
import json

#: Enough for text that repeats itself; higher levels take several times as long for some percent.
_LEVEL = 5
#: What is folded is made here, and holds itself nowhere.
_to_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False).encode


def pack(value: object) -> str:
    """Return a JSON value as base64 of gzip; the page's script reads it when it is needed.

    Raises ValueError for figures that JSON has no word for (infinity, not a number).
    """
    return pack_bytes(_to_text(value).encode(errors="replace"))


def pack_bytes(data: bytes, level: int = _LEVEL) -> str:
    """Return bytes as base64 of gzip."""
    return base64.b64encode(gzip.compress(data, level, mtime=0)).decode("ascii")
