"""What ``echo`` and ``printf`` print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_ESCAPES: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\x1b",
    "\\": "\\",
}
_ESCAPE: Final = re.compile(
    r"\\(0[0-7]{0,3}|[1-7][0-7]{0,2}|x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|.)", re.DOTALL
)
_FORMAT: Final = re.compile(r"%([-+ #0]*)(\d+)?(?:\.(\d*))?([dxs%])")
_MAX_WIDTH: Final = 10_000


class PrintfFaultError(Exception):
    """An argument isn't a number or the format is wrong; ``printed`` is what came out before."""

    def __init__(self, message: str, printed: bytes = b"") -> None:
        super().__init__(message)
        self.printed = printed


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def unescaped(text: str) -> tuple[str, bool]:
    r"""Return text with its escapes done, and whether a ``\c`` was left out of it."""
    stop = text.find("\\c")
    while stop > 0 and (len(text[:stop]) - len(text[:stop].rstrip("\\"))) % 2 == 1:
        stop = text.find("\\c", stop + 1)
    ended = stop >= 0
    return _ESCAPE.sub(_escape, text[:stop] + text[stop + 2 :] if ended else text), ended


def _escape(match: re.Match[str]) -> str:
    code = match.group(1)
    if code[0] in "01234567":
        return bytes([int(code, 8) & 0xFF]).decode("utf-8", "surrogateescape")
    if code[0] == "x" and len(code) > 1:
        return bytes([int(code[1:], 16)]).decode("utf-8", "surrogateescape")
    if code[0] == "u" and len(code) > 1:
        return chr(int(code[1:], 16))
    return _ESCAPES.get(code, "\\" + code)


def echoed(args: Sequence[str]) -> bytes:
    """Return what ``echo args`` prints: escapes are done unless ``-E`` is given, as mksh does."""
    newline, escapes, todo = True, True, list(args)
    while todo and re.fullmatch(r"-[neE]+", todo[0]):
        for letter in todo.pop(0)[1:]:
            newline = newline and letter != "n"
            escapes = {"e": True, "E": False}.get(letter, escapes)
    text = " ".join(todo)
    if escapes and "\\" in text:
        text, ended = unescaped(text)
        newline = newline and not ended
    return _encoded(text + ("\n" if newline else ""))


def printed(template: str, args: Sequence[str]) -> bytes:
    """Return what ``printf template args`` prints; the format is used again while arguments are
    left.
    """
    out: list[str] = []
    todo = list(args)
    while True:
        before = len(todo)
        try:
            _once(template, todo, out)
        except PrintfFaultError as exc:
            raise PrintfFaultError(str(exc), _encoded("".join(out))) from None
        if not todo or len(todo) == before:
            return _encoded("".join(out))


def _once(template: str, todo: list[str], out: list[str]) -> None:
    at = 0
    while at < len(template):
        if escape := _ESCAPE.match(template, at):
            out.append(_escape(escape))
            at = escape.end()
        elif match := _FORMAT.match(template, at):
            _conversion(match, todo, out)
            at = match.end()
        elif template[at] == "%":
            raise PrintfFaultError(f"bad %{template[at + 1 : at + 2]}@{at + 2}")
        else:
            following = next(
                (k for k in range(at + 1, len(template)) if template[k] in "%\\"), len(template)
            )
            out.append(template[at:following])
            at = following


def _conversion(match: re.Match[str], todo: list[str], out: list[str]) -> None:
    flags, width, precision, letter = match.groups()
    if letter == "%":
        out.append("%")
        return
    if int(width or 0) > _MAX_WIDTH or int(precision or 0) > _MAX_WIDTH:
        raise PrintfFaultError("width out of range")
    spec = f"%{flags}{width or ''}{'.' + precision if precision is not None else ''}"
    value = todo.pop(0) if todo else ""
    if letter == "s":
        out.append((spec + "s") % value)
        return
    try:
        number = int(value or "0", 0)
    except ValueError:
        raise PrintfFaultError(f"{value}: not a number") from None
    out.append((spec + letter) % (number if letter == "d" or number >= 0 else number + (1 << 64)))
