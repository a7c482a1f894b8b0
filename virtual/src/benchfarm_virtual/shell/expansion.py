"""From words as written to arguments: variables, substitutions, splitting, file names."""

from __future__ import annotations

import ast
import glob
import math
import operator
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.files import PhoneTree
from benchfarm_virtual.shell.syntax import Arithmetic, Command, Part, Text, Variable, Word

if TYPE_CHECKING:
    from benchfarm_virtual.shell.interpreter import Shell

_WHITE: Final = " \t\n"
_WORDS: Final = re.compile(r"[^ \t\n]+")
#: In unquoted text: what may stand for more than itself.
_MORE: Final = re.compile(r"[*?~\[]")
_CONDITIONAL: Final = frozenset({"-", "=", "+"})


class ExpansionFaultError(Exception):
    """A bad substitution, functions nested too deeply: the shell ends with the message."""


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
            if isinstance(only, Text) and (only.quoted or not _MORE.search(only.text)):
                arguments.append(only.text)
            else:
                arguments += self._arguments(word)
        return arguments

    def _arguments(self, word: Word) -> list[str]:
        arguments: list[str] = []
        for field in self._fields(word):
            found: Sequence[str] = ()
            if _MAGIC.search("".join(text for text, quoted in field if not quoted)):
                shell = self._state
                found = _matching_paths(
                    _pattern(tuple(field)), files=shell.files, cwd=shell.cwd, uid=shell.uid
                )
            arguments += found or ["".join(text for text, _ in field)]
        return arguments

    def text(self, word: Word) -> str:
        """Return a word's text without splitting or file names (assignments, redirections,
        here-documents).
        """
        parts = self._with_home(word.parts)
        return "".join(self._part_text(part) for part in parts)

    def pieces(self, word: Word) -> Pieces:
        """Return a word's text in pieces that know whether they were quoted: for patterns."""
        return tuple((self._part_text(part), part.quoted) for part in self._with_home(word.parts))

    def _with_home(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        first = parts[0] if parts else None
        if (
            isinstance(first, Text)
            and not first.quoted
            and (first.text == "~" or first.text.startswith("~/"))
        ):
            home = self._state.lookup("HOME") or "/"
            rest = first.text[1:]
            return (Text(home, quoted=True), Text(rest, quoted=False), *parts[1:])
        return parts

    def _fields(self, word: Word) -> list[list[tuple[str, bool]]]:
        fields = _Fields()
        for part in self._with_home(word.parts):
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
                return str(self._state.calculator.value(self.text(part.expression)))
            case Variable():
                return self._variable(part)

    def _variable(self, part: Variable) -> str:
        if part.operator == "bad":
            raise ExpansionFaultError(f"${{{part.name}}}: bad substitution")
        if part.name in {"@", "*"}:
            return " ".join(self._state.positional)
        value = self._state.lookup(part.name)
        if part.operator.lstrip(":") in _CONDITIONAL:
            return self._conditional(part, value)
        if part.operator == "length":
            return str(len(value or ""))
        return (
            trimmed(value or "", self.pieces(part.operand), part.operator)
            if part.operand
            else value or ""
        )

    def _conditional(self, part: Variable, value: str | None) -> str:
        is_set = bool(value) if part.operator.startswith(":") else value is not None
        operand = (
            self.text(part.operand)
            if part.operand is not None and is_set == part.operator.endswith("+")
            else ""
        )
        match part.operator[-1]:
            case "+":
                return operand if is_set else ""
            case "=" if not is_set:
                if not part.name.isidentifier():
                    raise ExpansionFaultError(
                        f"${{{part.name}{part.operator}{operand}}}: bad substitution"
                    )
                self._state.assign(part.name, operand)
                return operand
            case "-" if not is_set:
                return operand
        return value or ""


#: Pieces of an expanded word: text, and whether it was quoted.
Pieces = tuple[tuple[str, bool], ...]
#: What makes a name a pattern: a bracket that nothing closes stands for itself.
_MAGIC: Final = re.compile(r"[*?]|\[.+\]")


def _pattern(pieces: Pieces) -> str:
    """Return a pattern as fnmatch reads it; quoted pieces stand for themselves."""
    pattern = "".join(glob.escape(text) if quoted else text for text, quoted in pieces)
    if "[:" in pattern:
        raise ExpansionFaultError("a virtual phone knows no classes of characters")
    return pattern


def matches(pieces: Pieces, text: str) -> bool:
    """Say whether a whole text matches a pattern."""
    return fnmatchcase(text, _pattern(pieces))


def trimmed(text: str, pieces: Pieces, operator: str) -> str:
    """Return ``${text#pattern}`` and its kin (``#``, ``##``, ``%``, ``%%``)."""
    pattern = re.compile(translate(_pattern(pieces)))
    ends = range(len(text) + 1)
    if operator[0] == "#":
        order = ends if operator == "#" else reversed(ends)
        return next((text[end:] for end in order if pattern.match(text, 0, end)), text)
    order = reversed(ends) if operator == "%" else ends
    return next((text[:start] for start in order if pattern.match(text, start)), text)


def _matching_paths(pattern: str, *, files: PhoneTree, cwd: str, uid: int) -> list[str]:
    """Return the paths that match, sorted; empty when there are none."""
    found = [""]
    for depth, name in enumerate(pattern.split("/")):
        folders = [f"{path}/" if depth else path for path in found]
        if _MAGIC.search(name):
            found = [
                folder + inside
                for folder in folders
                for inside in _names_in(files, posixpath.join(cwd, folder), uid)
                if fnmatchcase(inside, name) and (name[0] == "." or inside[0] != ".")
            ]
        else:
            found = [folder + name for folder in folders]
    return sorted(path for path in found if files.find(posixpath.join(cwd, path), uid=uid))


def _names_in(files: PhoneTree, folder: str, uid: int) -> Sequence[str]:
    try:
        return files.list(folder, uid=uid)
    except PhoneFileError:
        return ()


_LEADING_ZEROS: Final = re.compile(r"\b0+(?=\d)", re.ASCII)
_OPERATIONS: Final[Mapping[type[ast.AST], Callable[..., int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: int(left / right),
    ast.Mod: lambda left, right: int(math.fmod(left, right)),
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: lambda left, right: left << right % 32,
    ast.RShift: lambda left, right: left >> right % 32,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}


class ArithmeticFaultError(Exception):
    """The expression can't be calculated."""


@lru_cache(maxsize=256)
def _tree(expression: str) -> ast.expr:
    """Return an expression's tree; what scripts calculate is written in Python as in C, but for
    ``!`` and leading zeros.
    """
    text = re.sub(r"!(?!=)", " not ", _LEADING_ZEROS.sub("", expression))
    try:
        return ast.parse(text.strip() or "0", mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        raise ArithmeticFaultError(f"{expression}: bad expression") from None


class Calculator:
    """Calculates expressions over a shell's variables, in 32 bits."""

    def __init__(self, get: Callable[[str], str]) -> None:
        self._get = get

    def value(self, expression: str) -> int:
        """Return an expression's value; an empty one is 0. Raises ArithmeticFaultError."""
        try:
            number = (
                int(expression)
                if expression.isdecimal()
                else self._result(_tree(expression), expression)
            )
        except (ArithmeticError, ValueError):
            raise ArithmeticFaultError(f"{expression}: zero divisor") from None
        except RecursionError:
            raise ArithmeticFaultError(f"{expression}: recursive parameter") from None
        return (number + (1 << 31)) % (1 << 32) - (1 << 31)

    def _result(self, node: ast.expr, expression: str) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return self.value(self._get(name))  # its text is an expression itself
            case ast.UnaryOp(op=kind, operand=operand):
                return int(_OPERATIONS[type(kind)](self._result(operand, expression)))
            case (
                ast.BinOp(left=left, op=kind, right=right)
                | ast.Compare(left=left, ops=[kind], comparators=[right])
            ) if type(kind) in _OPERATIONS:
                values = (self._result(side, expression) for side in (left, right))
                return int(_OPERATIONS[type(kind)](*values))
        raise ArithmeticFaultError(f"{expression}: bad expression")
