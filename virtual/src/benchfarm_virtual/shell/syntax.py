"""A script as it was parsed: its words and commands, where each stands in its text, and how control
leaves the middle of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Text:
    """Characters that stand for themselves; ``quoted`` ones are never split nor matched as
    patterns.
    """

    text: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Variable:
    """``$x``, ``${x:-word}``, ``${#x}``, ``${x#pattern}`` ..."""

    name: str
    quoted: bool
    #: "", or one of - := :- = :+ + # ## % %% and "length", "bad".
    operator: str = ""
    operand: Word | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """``$(script)`` or backquotes."""

    script: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``$((expression))``; the expression is expanded as if it stood in double quotes."""

    expression: Word
    quoted: bool


Part = Text | Variable | Command | Arithmetic


@dataclass(frozen=True, slots=True)
class Word:
    """A word, in parts, and as it was written."""

    parts: tuple[Part, ...]
    raw: str
    #: Its text without splitting, where that is always the same; else None.
    text: str | None = field(init=False, compare=False)
    #: What it is as an argument, where that is always the same: no expansion, no pattern, no home
    #: folder; else None.
    argument: str | None = field(init=False, compare=False)
    #: The variable or parameter that it is, where it is nothing else and in quotes: ``"$x"``; else
    #: None.
    variable: str | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        only = self.parts[0] if len(self.parts) == 1 else None
        text = argument = variable = None
        if isinstance(only, Text):
            text = only.text if only.quoted or not only.text.startswith("~") else None
            argument = only.text if only.quoted or not _is_more(only.text) else None
        elif (
            isinstance(only, Variable)
            and only.quoted
            and not only.operator
            and only.name not in {"@", "*"}
        ):
            variable = only.name
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "argument", argument)
        object.__setattr__(self, "variable", variable)


def _is_more(text: str) -> bool:
    """Say whether unquoted text stands for more than itself: a pattern or a home folder."""
    return any(char in text for char in "*?~") or ("[" in text and "]" in text)


@dataclass(frozen=True, slots=True)
class Redirect:
    """One redirection."""

    operator: str
    descriptor: int | None
    target: Word


@dataclass(frozen=True, slots=True)
class Simple:
    """A command with its words, the assignments before it and its redirections."""

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands joined by pipes, perhaps negated."""

    commands: tuple[Statement, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class AndOr:
    """``left && right`` or ``left || right``."""

    left: Statement
    operator: Literal["&&", "||"]
    right: Statement


@dataclass(frozen=True, slots=True)
class Block:
    """Statements one after another; those marked run in the background."""

    statements: tuple[tuple[Statement, bool], ...]


@dataclass(frozen=True, slots=True)
class If:
    """``if``: pairs of condition and body, and what happens otherwise."""

    branches: tuple[tuple[Block, Block], ...]
    otherwise: Block | None


@dataclass(frozen=True, slots=True)
class Loop:
    """``while`` and ``until``."""

    condition: Block
    body: Block
    until: bool


@dataclass(frozen=True, slots=True)
class For:
    """``for``; ``words`` is None when the positional parameters are meant."""

    name: str
    words: tuple[Word, ...] | None
    body: Block


@dataclass(frozen=True, slots=True)
class Case:
    """``case``: patterns and bodies."""

    value: Word
    items: tuple[tuple[tuple[Word, ...], Block], ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A function's definition."""

    name: str
    body: Statement


@dataclass(frozen=True, slots=True)
class Group:
    """``{ ...; }``."""

    body: Block


@dataclass(frozen=True, slots=True)
class Subshell:
    """``( ... )``."""

    body: Block


@dataclass(frozen=True, slots=True)
class Redirected:
    """A compound statement with redirections."""

    body: Statement
    redirects: tuple[Redirect, ...]


Statement = (
    Simple | Pipeline | AndOr | If | Loop | For | Case | Function | Group | Subshell | Redirected
)


class ShellKilledError(Exception):
    """The shell's own process was killed by a signal; unwind."""


class LeaveLoopError(Exception):
    """``break`` or ``continue`` through ``levels`` loops."""

    def __init__(self, levels: int, *, again: bool) -> None:
        super().__init__()
        self.levels = levels
        self.again = again


class ExitError(Exception):
    """``exit``."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


@dataclass(slots=True)
class Variables:
    """Variables of a shell; functions put local ones on top."""

    values: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)

    def copy(self) -> Variables:
        """Return a copy for a subshell."""
        return Variables(dict(self.values), set(self.exported))

    def environment(self) -> dict[str, str]:
        """Return what programs inherit."""
        return {name: self.values[name] for name in sorted(self.exported) if name in self.values}


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
