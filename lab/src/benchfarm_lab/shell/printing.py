"""What ``echo`` and ``printf`` print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "\\": "\\"}
_ESCAPE: Final = re.compile(r"\\(0[0-7]{0,3}|[1-7][0-7]{0,2}|x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|.)", re.DOTALL)
_FORMAT: Final = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?([diouxXeEfFgGcsb%q])|\\", re.DOTALL)
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
    """Return what ``printf template args`` prints; the format is used again while arguments are left."""
    out: list[str] = []
    todo = list(args)
    while True:
        before = len(todo)
        try:
            ended = _once(template, todo, out)
        except PrintfFaultError as exc:
            raise PrintfFaultError(str(exc), _encoded("".join(out))) from None
        if ended or not todo or len(todo) == before:
            return _encoded("".join(out))


def _once(template: str, todo: list[str], out: list[str]) -> bool:
    at = 0
    while at < len(template):
        match = _FORMAT.match(template, at)
        if template[at] == "\\":
            escape = _ESCAPE.match(template, at)
            if escape is None:
                out.append("\\")
                at += 1
                continue
            if escape.group(1) == "c":
                return True
            out.append(_escape(escape) if escape.group(1) != '"' else '"')
            at = escape.end()
        elif match is not None:
            if _conversion(match, todo, out):
                return True
            at = match.end()
        elif template[at] == "%":
            raise PrintfFaultError(f"bad %{template[at + 1 : at + 2]}@{at + 2}")
        else:
            following = next((k for k in range(at, len(template)) if template[k] in "%\\"), len(template))
            out.append(template[at:following])
            at = following
    return False


def _conversion(match: re.Match[str], todo: list[str], out: list[str]) -> bool:
    flags, width, precision, letter = match.groups()
    if letter == "%":
        out.append("%")
        return False
    if width == "*":
        width = str(_number(todo.pop(0)) if todo else 0)
    if precision == "*":
        precision = str(_number(todo.pop(0)) if todo else 0)
    if int(width or 0) > _MAX_WIDTH or int(precision or 0) > _MAX_WIDTH:
        raise PrintfFaultError("width out of range")
    spec = f"%{flags}{width or ''}{'.' + precision if precision is not None else ''}"
    value = todo.pop(0) if todo else ""
    if letter in "diouxX":
        number = _number(value)
        if letter in "ouxX" and number < 0:
            number += 1 << 64
        out.append((spec + ("d" if letter in "iu" else letter)) % number)
    elif letter in "eEfFgG":
        try:
            out.append((spec + letter) % float(value or 0))
        except ValueError:
            raise PrintfFaultError(f"{value}: not a number") from None
    elif letter == "c":
        out.append((f"%{flags}{width or ''}s") % value[:1])
    elif letter == "b":
        text, ended = unescaped(value)
        out.append((spec + "s") % text)
        return ended
    elif letter == "q":
        out.append(value if re.fullmatch(r"[\w./:=,@%+-]+", value) else "'" + value.replace("'", "'\\''") + "'")
    else:
        out.append((spec + "s") % value)
    return False


def _number(text: str) -> int:
    text = text.strip()
    if not text:
        return 0
    if text[0] in "'\"":
        return ord(text[1]) if len(text) > 1 else 0
    try:
        return int(text, 8) if re.fullmatch(r"[-+]?0[0-7]+", text) else int(text, 0)
    except ValueError:
        raise PrintfFaultError(f"{text}: not a number") from None
