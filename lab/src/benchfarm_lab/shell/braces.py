"""Brace groups: ``a{b,c}d`` is two words."""

from __future__ import annotations

from benchfarm_lab.shell.spans import dollar_end


def brace_words(raw: str) -> list[str]:
    """Return the words that a word with braces stands for, itself when there are none."""
    if "{" not in raw:
        return [raw]
    at = 0
    while (start := _find(raw, at)) is not None:
        options = _options(raw, start)
        if options is not None:
            inner, end = options
            head, tail = raw[:start], raw[end:]
            return [word for option in inner for rest in brace_words(tail) for word in _all(head, option, rest)]
        at = start + 1
    return [raw]


def _all(head: str, option: str, rest: str) -> list[str]:
    return [head + inner + rest for inner in brace_words(option)]


def _skip(raw: str, at: int) -> int:
    """Return the position after the character, quote or expansion at ``at``."""
    char = raw[at]
    if char == "\\":
        return at + 2
    if char in "'\"`":
        place = at + 1
        while place < len(raw) and raw[place] != char:
            place += 2 if raw[place] == "\\" and char != "'" else 1
        return place + 1
    if char == "$":
        return dollar_end(raw, at)
    return at + 1


def _find(raw: str, at: int) -> int | None:
    while at < len(raw):
        if raw[at] == "{":
            return at
        at = _skip(raw, at)
    return None


def _options(raw: str, start: int) -> tuple[list[str], int] | None:
    """Return the options of the group at ``start`` and where it ends; None when it is no group."""
    options: list[str] = []
    depth, begin, at = 0, start + 1, start + 1
    while at < len(raw):
        char = raw[at]
        if char == "{":
            depth += 1
        elif char == "}":
            if depth == 0:
                options.append(raw[begin:at])
                return (options, at + 1) if len(options) > 1 else None
            depth -= 1
        elif char == "," and depth == 0:
            options.append(raw[begin:at])
            begin = at + 1
        at = _skip(raw, at)
    return None
