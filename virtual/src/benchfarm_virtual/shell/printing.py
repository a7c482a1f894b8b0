"""What ``echo`` and ``printf`` print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_ESCAPES: Final = dict(zip("abefnrtv\\", "\a\b\x1b\f\n\r\t\v\\", strict=True))
_ESCAPE: Final = re.compile(r"\\(0?[0-7]{1,3}|.)", re.DOTALL)
_CONVERSION: Final = re.compile(r"%([-+ #0]*\d*(?:\.\d*)?)([dxs%]?)")


class PrintfFaultError(Exception):
    """An argument isn't a number or the format is wrong."""


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _escape(match: re.Match[str]) -> str:
    code = match[1]
    if code.isdigit():
        return bytes([int(code, 8) & 0xFF]).decode("utf-8", "surrogateescape")
    return _ESCAPES.get(code, match[0])


def echoed(args: Sequence[str]) -> bytes:
    """Return what ``echo args`` prints: escapes are done unless ``-E`` is given, as mksh does."""
    newline, escapes, todo = True, True, list(args)
    while todo and re.fullmatch(r"-[neE]+", todo[0]):
        for letter in todo.pop(0)[1:]:
            newline = newline and letter != "n"
            escapes = {"e": True, "E": False}.get(letter, escapes)
    text = " ".join(todo)
    return _encoded((_ESCAPE.sub(_escape, text) if escapes else text) + "\n" * newline)


def printed(template: str, args: Sequence[str]) -> bytes:
    """Return what ``printf template args`` prints; the format is used again while arguments are
    left. Raises PrintfFaultError.
    """
    todo = list(args)

    def converted(match: re.Match[str]) -> str:
        spec, letter = match.groups()
        if letter in {"%", ""}:
            if not letter:
                raise PrintfFaultError(f"bad {match[0]}")
            return "%"
        value = todo.pop(0) if todo else ""
        if letter == "s":
            return f"%{spec}s" % value
        try:
            number = int(value or "0", 0)
        except ValueError:
            raise PrintfFaultError(f"{value}: not a number") from None
        return f"%{spec}{letter}" % (number & (1 << 64) - 1 if letter == "x" else number)

    # Escapes first: none of them makes a conversion, and a value's own stay.
    form, out = _ESCAPE.sub(_escape, template), ""
    while True:
        before = len(todo)
        out += _CONVERSION.sub(converted, form)
        if not todo or len(todo) == before:
            return _encoded(out)
