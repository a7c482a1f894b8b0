"""POSIX regular expressions, basic and extended, as Python writes them."""

from __future__ import annotations

import re

from benchfarm_lab.commands.invocation import CommandFaultError
from benchfarm_lab.shell.patterns import CLASSES


def translated(pattern: str, *, extended: bool) -> str:
    """Return a POSIX regular expression (basic or extended) as Python writes it."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "[":
            piece, at = _bracket(pattern, at)
            out.append(piece)
            continue
        if char == "\\":
            following = pattern[at + 1 : at + 2]
            if not extended and following in "(){}|+?" and following:
                out.append(following)
            elif following in {"<", ">"}:
                out.append(r"\b")
            elif following.isalnum() and following not in "wWsSbBnt123456789":
                out.append(re.escape(following))
            elif following == "`":
                out.append(r"\A")
            else:
                out.append("\\" + following if following else r"\\")
            at += 2
            continue
        if not extended and char in "(){}|+?":
            out.append("\\" + char)
        elif char == "*" and (not out or (out[-1] in {"(", "|", "^"} and not extended)):
            out.append(r"\*")
        elif char == "^" and not extended and out and out[-1] not in {"(", "|"}:
            out.append(r"\^")
        elif char == "$" and not extended and at + 1 < len(pattern) and pattern[at + 1 : at + 3] not in {"\\)", "\\|"}:
            out.append(r"\$")
        elif char == "$":
            out.append(r"(?=\n?\Z)(?!\n)")
        elif char == "{" and extended and not re.match(r"\{\d*,?\d*\}", pattern[at:]):
            out.append(r"\{")
        else:
            out.append(char)
        at += 1
    return "".join(out)


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    place = at + 1
    negated = pattern[place : place + 1] == "^"
    place += negated
    out: list[str] = []
    first = True
    while place < len(pattern):
        char = pattern[place]
        if char == "]" and not first:
            return f"[{'^' if negated else ''}{''.join(out)}]", place + 1
        first = False
        if pattern.startswith("[:", place) and (end := pattern.find(":]", place)) > 0:
            out.append(CLASSES.get(pattern[place + 2 : end], ""))
            place = end + 2
            continue
        out.append("\\" + char if char in "\\[]^&~|" else char)
        place += 1
    raise CommandFaultError(f"bad regex '{pattern}': Unmatched [")
