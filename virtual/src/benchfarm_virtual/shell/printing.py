"""The output of ``echo`` and ``printf``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from benchfarm_virtual.contract import encoded
from benchfarm_virtual.shell.syntax import ShellFaultError

_ESCAPES: Final = dict(zip("abefnrtv\\", "\a\b\x1b\f\n\r\t\v\\", strict=True))
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_PART: Final = re.compile(r"%[sx%]|\\.|(?P<bad>%.?)", re.DOTALL)
#: After a backslash, what a shell of a phone does more with than a virtual one.
_UNKNOWN: Final = frozenset("01234567cux")


def _escaped(char: str) -> str:
    """Return the text of an escape: a backslash and this character."""
    if char in _UNKNOWN:
        raise ShellFaultError(f"a virtual phone knows no \\{char}")
    return _ESCAPES.get(char, f"\\{char}")


def echoed(args: Sequence[str]) -> bytes:
    """Return the output of ``echo args``, with options and escapes as in mksh. Raises ShellFaultError."""
    words, end = list(args), "\n"
    while words and re.fullmatch("-[en]+", words[0]):
        end = "" if "n" in words.pop(0) else end
    text = _ESCAPE.sub(lambda match: _escaped(match[1]), " ".join(words))
    return encoded(text + end)


def printed(template: str, args: Sequence[str]) -> bytes:
    """Return the output of ``printf template args``; the template repeats while arguments remain.
    Raises ShellFaultError.
    """
    todo, out = list(args), ""

    def part(match: re.Match[str]) -> str:
        text = match[0]
        if match["bad"]:
            raise ShellFaultError(f"a virtual phone knows %s, %x and %%, not {text}")
        if text[0] == "\\" or text == "%%":
            return _escaped(text[1]) if text[0] == "\\" else "%"
        value = todo.pop(0) if todo else ""
        return value if text == "%s" else f"{int(value or '0'):x}"

    while True:
        before = len(todo)
        out += _PART.sub(part, template)
        if not todo or len(todo) == before:
            return encoded(out)
