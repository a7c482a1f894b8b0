"""A script as it was parsed: its words and commands, and how control leaves the middle of it."""

from __future__ import annotations

from dataclasses import dataclass
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
    #: "", or one of :- # ## % %% and "length", "bad".
    operator: str = ""
    operand: Word | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """``$(script)``."""

    script: Block
    quoted: bool


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``$((expression))``; the expression is expanded as if it stood in double quotes."""

    expression: Word
    quoted: bool


Part = Text | Variable | Command | Arithmetic


@dataclass(frozen=True, slots=True)
class Word:
    """A word, in parts."""

    parts: tuple[Part, ...]


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
    """Statements one after another, as in ``{ ...; }``; those marked run in the background."""

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
    """``for``."""

    name: str
    words: tuple[Word, ...]
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
class Subshell:
    """``( ... )``."""

    body: Block


@dataclass(frozen=True, slots=True)
class Redirected:
    """A compound statement with redirections."""

    body: Statement
    redirects: tuple[Redirect, ...]


Statement = (
    Simple | Pipeline | AndOr | If | Loop | For | Case | Function | Block | Subshell | Redirected
)


class ShellKilledError(Exception):
    """The shell's own process was killed by a signal; unwind."""


class LeaveLoopError(Exception):
    """``break``, or with ``again`` ``continue``."""

    def __init__(self, *, again: bool) -> None:
        super().__init__()
        self.again = again


class ExitError(Exception):
    """``exit``."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


class ShellFaultError(Exception):
    """What the shell can't read, expand, calculate or print; it ends with the message."""
