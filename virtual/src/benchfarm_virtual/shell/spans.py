"""Where a word, a quote or an expansion that begins somewhere in a script ends."""

from __future__ import annotations

import re
from typing import Final

ENDS_WORD: Final = frozenset(" \t\n;&|()<>")
#: What begins nothing and ends nothing, in a word and in double quotes.
_PLAIN_IN_WORD: Final = re.compile(r"""[^ \t\n;&|()<>\\'"`$]+""")
_CASE: Final = re.compile(r"(case|esac)(?=[\s;)])")
_PLAIN_IN_QUOTES: Final = re.compile(r"""[^"\\`$]+""")


NO_BACKQUOTES: Final = "a virtual phone knows no backquotes: write $(...)"


class ShellSyntaxError(Exception):
    """The script can't be read; the message is what mksh would say after ``syntax error: ``."""


def word_end(text: str, at: int) -> int:
    """Return where the word that begins at ``at`` ends; raise ShellSyntaxError for something not
    closed.
    """
    while at < len(text) and text[at] not in ENDS_WORD:
        plain = _PLAIN_IN_WORD.match(text, at)
        at = plain.end() if plain is not None else _element_end(text, at)
    return min(at, len(text))


def _element_end(text: str, at: int) -> int:
    """Return the end of the quote, expansion or character that begins at ``at``."""
    char = text[at]
    if char == "\\":
        return at + 2
    if char == "'":
        return _find(text, "'", at + 1, "no closing quote") + 1
    if char == '"':
        return double_quote_end(text, at + 1)
    if char == "`":
        raise ShellSyntaxError(NO_BACKQUOTES)
    if char == "$":
        return dollar_end(text, at)
    return at + 1


def _find(text: str, what: str, at: int, fault: str) -> int:
    found = text.find(what, at)
    if found < 0:
        raise ShellSyntaxError(fault)
    return found


def double_quote_end(text: str, at: int) -> int:
    """Return the position after the closing double quote of a string whose text begins at ``at``."""
    while at < len(text):
        char = text[at]
        if char == '"':
            return at + 1
        if char == "\\":
            at += 2
        elif char == "`":
            raise ShellSyntaxError(NO_BACKQUOTES)
        elif char == "$":
            at = (
                dollar_end(text, at, quoted=True) if text[at + 1 : at + 2] in {"(", "{"} else at + 1
            )
        else:
            plain = _PLAIN_IN_QUOTES.match(text, at)
            assert plain is not None
            at = plain.end()
    raise ShellSyntaxError("no closing quote")


def dollar_end(text: str, at: int, *, quoted: bool = False) -> int:
    """Return the end of what the ``$`` at ``at`` begins: an expansion, a quote, or only itself.

    ``quoted``: it stands in double quotes, where a single quote is an ordinary character.
    """
    following = text[at + 1 : at + 2]
    if following == "(":
        return closing_parenthesis(text, at + 2)
    if following == "{":
        return closing_brace(text, at + 2, quoted=quoted)
    return at + 1


def closing_parenthesis(text: str, at: int) -> int:
    """Return the position after the ``)`` that closes the ``$(`` or ``((`` whose inside begins at
    ``at``.
    """
    depth = 1
    in_case = 0
    word_may_begin = True
    while at < len(text):
        char = text[at]
        if char == ")":
            if not in_case or depth > 1:  # else it is the end of a pattern
                depth -= 1
            at += 1
            if depth == 0:
                return at
        elif char == "(":
            depth += 1
            at += 1
        elif char == "#" and word_may_begin:
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif char in ENDS_WORD:
            at += 1
        else:
            end = _element_end(text, at)
            if word_may_begin:
                keyword = _CASE.match(text, at)
                if keyword:
                    in_case = in_case + 1 if keyword.group(1) == "case" else max(0, in_case - 1)
                    end = keyword.end()
            at = end
        word_may_begin = text[at - 1 : at] in ENDS_WORD
    raise ShellSyntaxError("unmatched '('")


def closing_brace(text: str, at: int, *, quoted: bool = False) -> int:
    """Return the position after the ``}`` that closes the ``${`` whose inside begins at ``at``."""
    while at < len(text):
        if text[at] == "}":
            return at + 1
        if text[at] == "$":
            at = dollar_end(text, at, quoted=quoted)
        else:
            at = at + 1 if quoted and text[at] == "'" else _element_end(text, at)
    raise ShellSyntaxError("unexpected EOF, expecting '}'")
