"""What ``echo`` and ``printf`` print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_ESCAPES: Final = dict(zip("abefnrtv\\", "\a\b\x1b\f\n\r\t\v\\", strict=True))
_ECHO_ESCAPE: Final = re.compile(
    r"\\(0[0-7]{0,3}|x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|[^1-7])", re.DOTALL
)
_PART: Final = re.compile(
    r"%(?P<spec>[-+ #0]*\d{0,4}(?:\.\d{0,4})?)(?P<letter>[dxs%])|\\(?P<escape>[0-7]{1,3}|.)|%",
    re.DOTALL,
)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _escaped(code: str) -> str:
    """Return what a backslash and what follows it stand for."""
    if code[0] in "01234567":
        return bytes([min(255, int(code, 8))]).decode("utf-8", "surrogateescape")
    if code[0] == "x" and code[1:]:
        return bytes([int(code[1:], 16)]).decode("utf-8", "surrogateescape")
    if code[0] == "u" and code[1:]:
        point = chr(int(code[1:], 16)).encode("utf-8", "surrogatepass")
        return point.decode("utf-8", "surrogateescape")
    return _ESCAPES.get(code, f"\\{code}")


def echoed(args: Sequence[str]) -> bytes:
    r"""Return what ``echo args`` prints: escapes are done unless ``-E`` is given, as mksh does;
    a ``\c`` takes the newline away.
    """
    newline, escapes, todo = True, True, list(args)
    while todo and re.fullmatch(r"-[neE]+", todo[0]):
        for letter in todo.pop(0)[1:]:
            newline = newline and letter != "n"
            escapes = {"e": True, "E": False}.get(letter, escapes)

    def escape(match: re.Match[str]) -> str:
        nonlocal newline
        newline = newline and match[1] != "c"
        return "" if match[1] == "c" else _escaped(match[1])

    text = " ".join(todo)
    text = _ECHO_ESCAPE.sub(escape, text) if escapes else text
    return _encoded(text + "\n" * newline)


def printed(template: str, args: Sequence[str]) -> bytes:
    """Return what ``printf template args`` prints; the format is used again while arguments are
    left. Raises ValueError for another conversion than %s, %d and %x, and for what is no number.
    """
    todo, out = list(args), ""

    def converted(match: re.Match[str]) -> str:
        if match["escape"]:
            return _escaped(match["escape"])
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
            return _encoded(out)
