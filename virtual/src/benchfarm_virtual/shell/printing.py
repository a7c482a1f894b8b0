"""What ``echo`` and ``printf`` print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_ESCAPES: Final = dict(zip("abefnrtv\\", "\a\b\x1b\f\n\r\t\v\\", strict=True))
_ECHO_ESCAPE: Final = re.compile(
    r"\\(0[0-7]{0,3}|x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|[^1-7])", re.DOTALL
)
_SPEC: Final = r"[-+ #0]*\d{0,4}(?:\.\d{0,4})?"
_PART: Final = re.compile(
    rf"%(?P<spec>{_SPEC})(?P<letter>[dxs])|%%|(?P<bad>%{_SPEC})|(?P<end>\\c)|"
    r"\\(?P<escape>[0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)",
    re.DOTALL,
)
#: What a number begins with, as strtol reads it.
_NUMBER: Final = re.compile(r" *[-+]?(?:0[xX][0-9A-Fa-f]{1,16}|0[0-7]{0,21}|[1-9][0-9]{0,18})")


class PrintfFaultError(Exception):
    """An argument isn't a number or the format is wrong; ``printed`` is what came out before."""

    def __init__(self, message: str, printed: bytes) -> None:
        super().__init__(message)
        self.printed = printed


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
    left. Raises PrintfFaultError.
    """
    todo, out, faults = list(args), "", list[str]()
    ended = False
    while not ended:
        before, at = len(todo), 0
        for match in _PART.finditer(template):
            out += template[at : match.start()]
            at = match.end()
            if match["bad"]:
                faults.append(f"bad %{template[at : at + 1]}@{at + 1}")
            if ended := bool(match["end"] or match["bad"]):
                break
            if match["escape"]:
                out += _escaped(match["escape"])
            else:
                out += _converted(match, todo, faults) if match["letter"] else "%"
        else:
            out += template[at:]
        ended = ended or not todo or len(todo) == before
    if faults:
        raise PrintfFaultError("\nprintf: ".join(faults), _encoded(out))
    return _encoded(out)


def _converted(match: re.Match[str], todo: list[str], faults: list[str]) -> str:
    spec, letter = match["spec"], match["letter"]
    value = todo.pop(0) if todo else ""
    if letter == "s":
        return f"%{spec}s" % value
    found = _NUMBER.match(value)
    if value and (found is None or found.end() < len(value)):
        faults.append(f"bad %{letter} {value}")
    digits = found[0].lower() if found else "0"
    base = 16 if "x" in digits else 8 if digits.lstrip(" +-").startswith("0") else 10
    number = int(digits, base)
    return f"%{spec}{letter}" % (number & (1 << 64) - 1 if letter == "x" else number)
