"""From words as written to arguments: variables, substitutions, splitting, file names."""

from __future__ import annotations

import math
import operator
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
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
        """Return a word's text without splitting or file names (assignments,
        redirections).
        """
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
                return str(self._state.calculator.value(self.text(part.expression)))
            case Variable():
                return self._variable(part)

    def _variable(self, part: Variable) -> str:
        if part.operator == "bad":
            raise ExpansionFaultError(f"${{{part.name}}}: bad substitution")
        if part.name in {"@", "*"}:
            return " ".join(self._state.positional)
        value = self._state.lookup(part.name) or ""
        if part.operator == "length":
            return str(len(value))
        if part.operand is None:
            return value
        if part.operator == ":-":
            return value or self.text(part.operand)
        return trimmed(value, self.pieces(part.operand), part.operator)


#: Pieces of an expanded word: text, and whether it was quoted.
Pieces = tuple[tuple[str, bool], ...]
#: What makes a name a pattern: a bracket that nothing closes stands for itself.
_MAGIC: Final = re.compile(r"[*?]|\[.+\]")
_SPECIAL: Final = re.compile(r"[][!*?\\:-]")
_TOKEN_OF_PATTERN: Final = re.compile(
    r"(?P<many>\*)|(?P<one>\?)|"
    r"\[(?:(?P<other>!)|(?!!))(?P<among>(?:\\.|[^\\])(?:\\.|[^]\\])*)\]|\\?(?P<itself>.)",
    re.DOTALL,
)


def _pattern(pieces: Pieces) -> str:
    """Return a pattern with a backslash before what is quoted or stands for itself."""
    return "".join(
        _SPECIAL.sub(r"\\\g<0>", text) if quoted else text.replace("\\", r"\\")
        for text, quoted in pieces
    )


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    source = "".join(map(_token_source, _TOKEN_OF_PATTERN.finditer(pattern)))
    try:
        return re.compile(source, re.DOTALL)
    except re.error:  # a range that ends before it begins
        return re.compile("(?!)")


def _token_source(match: re.Match[str]) -> str:
    if match["many"] or match["one"]:
        return ".*" if match["many"] else "."
    if not match["among"]:
        return re.escape(match["itself"])
    if "[:" in match["among"]:
        raise ExpansionFaultError("a virtual phone knows no classes of characters")
    among = (
        char if char == "-" else re.escape(char[-1])
        for char in re.findall(r"\\?.", match["among"], re.DOTALL)
    )
    return f"[{'^' * bool(match['other'])}{''.join(among)}]"


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


def _matching_paths(pattern: str, *, files: PhoneTree, cwd: str, uid: int) -> list[str]:
    """Return the paths that match, sorted; empty when there are none."""
    found, is_listed = [""], False
    for depth, (name, literal) in enumerate(_steps(pattern)):
        folders = [f"{path}/" if depth else path for path in found]
        is_listed = literal is None
        if is_listed:
            found = [
                folder + inside
                for folder in folders
                for inside in _names_in(files, posixpath.join(cwd, folder), uid)
                if _compiled(name).fullmatch(inside) and (name[0] == "." or inside[0] != ".")
            ]
        else:
            found = [f"{folder}{literal}" for folder in folders]
    if is_listed:  # whatever a name that is listed leads to
        return sorted(found)
    return sorted(
        path for path in found if files.find(posixpath.join(cwd, path), follow=False, uid=uid)
    )


@lru_cache(maxsize=256)
def _steps(pattern: str) -> Sequence[tuple[str, str | None]]:
    """Return each name of a path's pattern, with the text that it stands for, None where folders
    are looked into.
    """
    return [
        (
            name,
            None if _MAGIC.search(re.sub(r"\\.", "", name)) else re.sub(r"\\(.)", r"\1", name),
        )
        for name in pattern.split("/")
    ]


def _names_in(files: PhoneTree, folder: str, uid: int) -> Sequence[str]:
    try:
        return files.list(folder, uid=uid)
    except PhoneFileError:
        return ()


_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9A-Fa-f]+|[0-9]{1,999})|(?P<name>[A-Za-z_]\w*)|"
    r"(?P<operator>\+\+|--|<<|>>|<=|>=|==|!=|[-+*/%<>!~&|^()]))",
    re.ASCII,
)
_LEVELS: Final = (
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_LEVEL_OF: Final = {name: level for level, names in enumerate(_LEVELS) for name in names}
_OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: int(left / right),  # exact: 32 bits fit a float's 53
    "%": lambda left, right: int(math.fmod(left, right)),
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<<": lambda left, right: left << right % 32,
    ">>": lambda left, right: left >> right % 32,
}
_SIGNS: Final[Mapping[str, Callable[[int], int]]] = {
    "+": operator.pos,
    "-": operator.neg,
    "!": operator.not_,
    "~": operator.invert,
}


class ArithmeticFaultError(Exception):
    """The expression can't be calculated."""


def _wrapped(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


class Calculator:
    """Calculates expressions over a shell's variables, in 32 bits."""

    def __init__(self, get: Callable[[str], str]) -> None:
        self.variable = get

    def value(self, expression: str) -> int:
        """Return an expression's value; an empty one is 0. Raises ArithmeticFaultError."""
        try:
            return _Reader(expression, self).read()
        except RecursionError:
            raise ArithmeticFaultError(f"{expression}: recursive parameter") from None


@lru_cache(maxsize=256)
def _tokens(expression: str) -> tuple[tuple[str, str], ...]:
    """Return the tokens of an expression, each with its kind."""
    tokens: list[tuple[str, str]] = []
    at = 0
    text = expression.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ArithmeticFaultError(f"{expression}: unexpected '{text[at:].strip()[:1]}'")
        tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
        at = match.end()
    return tuple(tokens)


class _Reader:
    """Reads one expression with C's precedence."""

    def __init__(self, expression: str, calculator: Calculator) -> None:
        self.expression = expression
        self.calculator = calculator
        self.tokens = _tokens(expression)
        self.at = 0

    def read(self) -> int:
        value = self.binary(0) if self.tokens else 0
        if self.at < len(self.tokens):
            raise self.fault()
        return value

    def fault(self) -> ArithmeticFaultError:
        token = self.tokens[self.at][1] if self.at < len(self.tokens) else "end of expression"
        if token in {"++", "--"}:
            return ArithmeticFaultError(f"{self.expression}: {token} requires lvalue")
        return ArithmeticFaultError(f"{self.expression}: unexpected '{token}'")

    def peek(self) -> str:
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        return text if kind == "operator" else ""

    def binary(self, level: int) -> int:
        """Return the value of what follows, as far as its operators bind as tightly as those of a
        level.
        """
        value = self.unary()
        while (place := _LEVEL_OF.get(name := self.peek(), -1)) >= level:
            self.at += 1
            right = self.binary(place + 1)
            if name in {"/", "%"} and right == 0:
                raise ArithmeticFaultError(f"{self.expression}: zero divisor")
            value = _wrapped(int(_OPERATIONS[name](value, right)))
        return value

    def unary(self) -> int:
        if sign := _SIGNS.get(self.peek()):
            self.at += 1
            return _wrapped(int(sign(self.unary())))
        return self.primary()

    def primary(self) -> int:
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if text != "(" and kind not in {"number", "name"}:
            raise self.fault()
        self.at += 1
        if kind == "number":
            return _wrapped(int(text, 16 if text[:2] in {"0x", "0X"} else 10))
        if kind == "name":  # its text is an expression itself
            return self.calculator.value(self.calculator.variable(text))
        value = self.binary(0)
        if self.peek() != ")":
            raise self.fault()
        self.at += 1
        return value
