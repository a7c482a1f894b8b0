"""From words as written to arguments: variables, substitutions, splitting, file names."""

from __future__ import annotations

import ast
import fnmatch
import glob
import operator
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.shell.syntax import (
    Arithmetic,
    Command,
    Part,
    ShellFaultError,
    Text,
    Variable,
    Word,
)

if TYPE_CHECKING:
    from benchfarm_virtual.shell.interpreter import Shell

_WHITE: Final = " \t\n"
_WORDS: Final = re.compile(r"[^ \t\n]+")


class _Fields:
    """Arguments under construction: pieces of text, each quoted or not."""

    def __init__(self) -> None:
        self.fields: list[list[tuple[str, bool]]] = []
        self.open = False

    def add(self, text: str, *, quoted: bool) -> None:
        if not self.open:
            self.fields.append([])
            self.open = True
        self.fields[-1].append((text, quoted))

    def cut(self) -> None:
        self.open = False

    def add_split(self, text: str) -> None:
        """Add the result of an unquoted expansion: split at white space."""
        words = _WORDS.findall(text)
        if not words:
            self.open = self.open and not text
            return
        if text[0] in _WHITE:
            self.cut()
        self.add(words[0], quoted=False)
        self.fields += [[(word, False)] for word in words[1:]]
        if text[-1] in _WHITE:
            self.cut()


class Expander:
    """Expands words for one shell."""

    def __init__(self, state: Shell) -> None:
        self._state = state

    def arguments(self, words: Sequence[Word]) -> list[str]:
        """Return the arguments that words stand for, split and with file names filled in."""
        arguments: list[str] = []
        for word in words:
            only = word.parts[0] if len(word.parts) == 1 else None
            if isinstance(only, Text) and (only.quoted or not _MAGIC.search(only.text)):
                arguments.append(only.text)
            else:
                arguments += self._arguments(word)
        return arguments

    def _arguments(self, word: Word) -> list[str]:
        arguments: list[str] = []
        for field in self._fields(word):
            paths: Sequence[str] = ()
            if _MAGIC.search("".join(text for text, quoted in field if not quoted)):
                paths = _matching_paths(_pattern(field), self._state)
            arguments += paths or ["".join(text for text, _ in field)]
        return arguments

    def text(self, word: Word) -> str:
        """Return a word's text without splitting or file names."""
        return "".join(self._part_text(part) for part in word.parts)

    def pieces(self, word: Word) -> Pieces:
        """Return a word's text in pieces that know whether they were quoted: for patterns."""
        return tuple((self._part_text(part), part.quoted) for part in word.parts)

    def _fields(self, word: Word) -> list[list[tuple[str, bool]]]:
        fields = _Fields()
        for part in word.parts:
            if isinstance(part, Text):
                if part.text or part.quoted:
                    fields.add(part.text, quoted=part.quoted)
            elif isinstance(part, Variable) and part.name == "@" and not part.operator:
                self._add_positional(fields, quoted=part.quoted)
            elif part.quoted:
                fields.add(self._part_text(part), quoted=True)
            else:
                fields.add_split(self._part_text(part))
        return fields.fields

    def _add_positional(self, fields: _Fields, *, quoted: bool) -> None:
        for place, value in enumerate(self._state.positional):
            if place:
                fields.cut()
            if quoted:
                fields.add(value, quoted=True)
            else:
                fields.add_split(value)

    def _part_text(self, part: Part) -> str:
        match part:
            case Text():
                return part.text
            case Command():
                return self._state.substitute(part.script)
            case Arithmetic():
                return str(self._state.calculate(self.text(part.expression)))
            case Variable():
                return self._variable(part)

    def _variable(self, part: Variable) -> str:
        if part.operator == "bad":
            raise ShellFaultError(f"${{{part.name}}}: bad substitution")
        if part.name in {"@", "*"}:
            return " ".join(self._state.positional)
        value = self._state.lookup(part.name)
        if part.operator == "length":
            return str(len(value))
        if part.operand is None:
            return value
        if part.operator == ":-":
            return value or self.text(part.operand)
        return trimmed(value, self.pieces(part.operand), part.operator)


#: Pieces of an expanded word: text, and whether it was quoted.
Pieces = Sequence[tuple[str, bool]]
#: What makes a name a pattern: a bracket that nothing closes stands for itself.
_MAGIC: Final = re.compile(r"[*?]|\[.+\]")


def _pattern(pieces: Pieces) -> str:
    """Return a pattern in which what was quoted stands for itself."""
    return "".join(glob.escape(text) if quoted else text for text, quoted in pieces)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    if "[[:" in pattern:
        raise ShellFaultError("a virtual phone knows no classes of characters")
    return re.compile(fnmatch.translate(pattern))


def matches(pieces: Pieces, text: str) -> bool:
    """Say whether a whole text matches a pattern."""
    return _compiled(_pattern(pieces)).fullmatch(text) is not None


def trimmed(text: str, pieces: Pieces, operator: str) -> str:
    """Return ``${text#pattern}`` and its kin (``#``, ``##``, ``%``, ``%%``)."""
    pattern = _compiled(_pattern(pieces))
    ends = range(len(text) + 1)
    if operator[0] == "#":
        order = ends if operator == "#" else reversed(ends)
        return next((text[end:] for end in order if pattern.fullmatch(text, 0, end)), text)
    order = reversed(ends) if operator == "%" else ends
    return next((text[:start] for start in order if pattern.fullmatch(text, start)), text)


def _matching_paths(pattern: str, shell: Shell) -> list[str]:
    """Return the paths that match, sorted; empty when there are none."""
    paths, is_listed = [""], False
    for depth, name in enumerate(pattern.split("/")):
        folders = [f"{path}/" if depth else path for path in paths]
        is_listed = bool(_MAGIC.search(name))
        if is_listed:
            paths = [
                folder + inside
                for folder in folders
                for inside in _names_in(shell, folder)
                if _compiled(name).fullmatch(inside) and (name[0] == "." or inside[0] != ".")
            ]
        else:
            paths = [f"{folder}{name}" for folder in folders]
    if is_listed:  # whatever a name that is listed leads to
        return sorted(paths)
    where = ((path, shell.absolute(path)) for path in paths)
    return sorted(path for path, full in where if shell.files.find(full, follow=False))


def _names_in(shell: Shell, folder: str) -> Sequence[str]:
    try:
        return shell.files.list(shell.absolute(folder))
    except PhoneFileError:
        return ()


_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitOr: operator.or_,
    ast.LShift: lambda left, right: left << right % 32,
}
_LEADING_ZEROS: Final = re.compile(r"\b0+(?=[0-9])")
#: CPython 3.11 counts the depth of all threads that parse at once as one (gh-106905): SystemError.
_PARSING: Final = threading.Lock()


@lru_cache(maxsize=256)
def _syntax(expression: str) -> ast.expr:
    """Return an expression's syntax: Python's operators bind as the shell's do."""
    text = _LEADING_ZEROS.sub("", expression).strip() or "0"
    try:
        with _PARSING:
            return ast.parse(text, mode="eval").body
    except SyntaxError:
        raise ShellFaultError(f"{expression}: no expression") from None


def calculated(expression: str, variable: Callable[[str], str]) -> int:
    """Return an expression's value, in 32 bits; raise ShellFaultError."""

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(int() as number):
                result = number
            case ast.Name(name):  # its text is an expression itself
                result = calculated(variable(name), variable)
            case ast.UnaryOp(ast.USub(), inner):
                result = -value(inner)
            case ast.BinOp(left, sign, right) if type(sign) in _OPERATIONS:
                result = _OPERATIONS[type(sign)](value(left), value(right))
            case _:
                raise ShellFaultError(f"{expression}: a virtual phone knows + - * | <<")
        return (result + (1 << 31)) % (1 << 32) - (1 << 31)

    return value(_syntax(expression))
