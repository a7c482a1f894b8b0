"""What a script means: statements and words, as the interpreter walks them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


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
