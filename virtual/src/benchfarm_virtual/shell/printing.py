"""What ``printf`` prints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
_PART: Final = re.compile(
    r"%(?P<spec>[-+ #0]*\d{0,4}(?:\.\d{0,4})?)(?P<letter>[dxs%])|\\(?P<escape>[0-7]{1,3}|.)|%",
    re.DOTALL,
)


def _byte(number: int) -> str:
    return bytes([number]).decode("utf-8", "surrogateescape")


def printed(template: str, args: Sequence[str]) -> bytes:
    """Return what ``printf template args`` prints; the format is used again while arguments are
    left. Raises ValueError for another conversion than %s, %d and %x, for another escape than those
    that scripts need, and for what is no number.
    """
    todo, out = list(args), ""

    def converted(match: re.Match[str]) -> str:
        if match["escape"]:
            return _ESCAPES.get(match["escape"]) or _byte(int(match["escape"], 8))
        if match["letter"] in {None, "%"}:
            if not match["letter"]:
                raise ValueError(f"bad {template}")
            return "%"
        value = todo.pop(0) if todo else ""
        form = f"%{match['spec']}{match['letter']}"
        return form % (value if match["letter"] == "s" else int(value or "0", 0))

    while True:
        before = len(todo)
        out += _PART.sub(converted, template)
        if len(todo) in {0, before}:
            return out.encode("utf-8", "surrogateescape")
