"""From words as written to arguments: variables, substitutions, splitting, file names."""

from __future__ import annotations

import operator
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
_CONDITIONAL: Final = frozenset({"-", "=", "+"})


class ExpansionFaultError(Exception):
    """A bad substitution, functions nested too deeply: the shell ends with the message."""


def _joined(pieces: Pieces) -> str:
    return "".join(text for text, _ in pieces)


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
            pieces = tuple(field)
            found: Sequence[str] = ()
            if has_magic(pieces):
                found = matching_paths(
                    pieces, files=self._state.files, cwd=self._state.cwd, uid=self._state.uid
                )
            arguments += found or [_joined(pieces)]
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


@lru_cache(maxsize=1024)
def pattern_source(pieces: Pieces) -> str:
    """Return the regular expression for a pattern; quoted pieces stand for themselves."""
    characters = [(char, quoted) for text, quoted in pieces for char in text]
    source: list[str] = []
    at = 0
    while at < len(characters):
        char, quoted = characters[at]
        if quoted:
            source.append(re.escape(char))
        elif char == "*":
            source.append(".*")
        elif char == "?":
            source.append(".")
        elif char == "\\" and at + 1 < len(characters):
            at += 1
            source.append(re.escape(characters[at][0]))
        elif char == "[" and (end := _class_end(characters, at)):
            source.append(_class_source(characters[at + 1 : end]))
            at = end
        else:
            source.append(re.escape(char))
        at += 1
    return "".join(source)


def _class_end(characters: Sequence[tuple[str, bool]], at: int) -> int:
    place = at + 1
    if place < len(characters) and characters[place][0] in "!^":
        place += 1
    first = place
    while place < len(characters):
        if characters[place] == ("]", False) and place > first:
            return place
        place += 1
    return 0


def _class_source(inside: Sequence[tuple[str, bool]]) -> str:
    is_negated = inside[0] in {("!", False), ("^", False)}
    rest = inside[1:] if is_negated else inside
    if ("[", False) in rest and (":", False) in rest:
        raise ExpansionFaultError("a virtual phone knows no classes of characters")
    source = "".join(
        f"\\{char}" if char in "\\[]^&~|" or (quoted and char == "-") else char
        for char, quoted in rest
    )
    return f"[{'^' if is_negated else ''}{source}]"


def matches(pieces: Pieces, text: str) -> bool:
    """Say whether a whole text matches a pattern."""
    return re.compile(pattern_source(pieces), re.DOTALL).fullmatch(text) is not None


def trimmed(text: str, pieces: Pieces, operator: str) -> str:
    """Return ``${text#pattern}`` and its kin (``#``, ``##``, ``%``, ``%%``)."""
    pattern = re.compile(pattern_source(pieces), re.DOTALL)
    ends = range(len(text) + 1)
    if operator[0] == "#":
        order = ends if operator == "#" else reversed(ends)
        return next((text[end:] for end in order if pattern.fullmatch(text, 0, end)), text)
    order = reversed(ends) if operator == "%" else ends
    return next((text[:start] for start in order if pattern.fullmatch(text, start)), text)


def has_magic(pieces: Pieces) -> bool:
    """Say whether a word is a pattern at all."""
    opened = False
    for text, quoted in pieces:
        if quoted:
            continue
        if "*" in text or "?" in text:
            return True
        opened = opened or "[" in text
        # A bracket that nothing closes stands for itself: ``[`` is a command, too.
        if opened and "]" in text:
            return True
    return False


def matching_paths(pieces: Pieces, *, files: PhoneTree, cwd: str, uid: int) -> list[str]:
    """Return the paths that match, sorted; empty when there are none."""
    parts = _split(pieces)
    absolute = bool(parts) and not parts[0] and len(parts) > 1
    found = ["/"] if absolute else [""]
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if not part:
            if last and place:
                found = [
                    path.rstrip("/") + "/" for path in found if _is_folder(files, cwd, path, uid)
                ]
            continue
        if has_magic(part):
            found = [path for base in found for path in _children(files, cwd, base, part, uid)]
            continue
        # Whether a name in the middle is there shows at what follows it.
        name = "".join(text for text, _ in part)
        found = [_under(base) + name for base in found]
        if last:
            found = [path for path in found if _is_there(files, cwd, path, uid)]
    return sorted(found)


def _split(pieces: Pieces) -> list[Pieces]:
    parts: list[list[tuple[str, bool]]] = [[]]
    for text, quoted in pieces:
        for place, section in enumerate(text.split("/")):
            if place:
                parts.append([])
            if section:
                parts[-1].append((section, quoted))
    return [tuple(part) for part in parts]


def _children(files: PhoneTree, cwd: str, base: str, part: Pieces, uid: int) -> list[str]:
    prefix = _under(base)
    pattern = re.compile(pattern_source(part), re.DOTALL)
    hidden_too = part[0][0].startswith(".")
    try:
        names = files.list(_within(cwd, base), uid=uid)
    except PhoneFileError:
        return []
    return [
        prefix + name
        for name in names
        if (hidden_too or not name.startswith(".")) and pattern.fullmatch(name)
    ]


def _under(base: str) -> str:
    return base if not base or base.endswith("/") else base + "/"


def _is_there(files: PhoneTree, cwd: str, path: str, uid: int) -> bool:
    try:
        files.stat(_within(cwd, path), follow=False, uid=uid)
    except PhoneFileError:
        return False
    return True


def _is_folder(files: PhoneTree, cwd: str, path: str, uid: int) -> bool:
    try:
        return files.stat(_within(cwd, path), uid=uid).mode & 0o170000 == 0o040000
    except PhoneFileError:
        return False


def _within(cwd: str, path: str) -> str:
    if path.startswith("/"):
        return path
    return f"{cwd.rstrip('/')}/{path}" if path else cwd


_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9A-Fa-f]+|[0-9]+)|(?P<name>[A-Za-z_]\w*)|"
    r"(?P<operator><<|>>|<=|>=|==|!=|[-+*/%<>!~&|^()]))",
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
_MAX_DEPTH: Final = 60


class ArithmeticFaultError(Exception):
    """The expression can't be calculated."""


def _wrapped(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


class Calculator:
    """Calculates expressions over a shell's variables."""

    def __init__(self, get: Callable[[str], str]) -> None:
        self._get = get
        self._depth = 0

    def value(self, expression: str) -> int:
        """Return an expression's value; an empty one is 0. Raises ArithmeticFaultError."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ArithmeticFaultError(f"{expression}: recursive parameter")
        try:
            return _Reader(expression, self).read()
        finally:
            self._depth -= 1

    def variable(self, name: str) -> int:
        """Return a variable's value; its text is an expression itself."""
        text = self._get(name).strip()
        if not text:
            return 0
        if re.fullmatch(r"-?[1-9][0-9]*|0", text):
            return _wrapped(int(text))
        return self.value(text)


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
        tokens.append((match.lastgroup or "", match.group(match.lastgroup or 0)))
        at = match.end()
    return tuple(tokens)


class _Reader:
    def __init__(self, expression: str, calculator: Calculator) -> None:
        self.expression = expression
        self.calculator = calculator
        self.tokens = _tokens(expression)
        self.at = 0

    def read(self) -> int:
        if not self.tokens:
            return 0
        value = self.binary(0)
        if self.at < len(self.tokens):
            raise self.fault()
        return value

    def fault(self) -> ArithmeticFaultError:
        token = self.tokens[self.at][1] if self.at < len(self.tokens) else ""
        shown = f"'{token}'" if token else "'end of expression'"
        return ArithmeticFaultError(f"{self.expression}: unexpected {shown}")

    def peek(self) -> str:
        return (
            self.tokens[self.at][1]
            if self.at < len(self.tokens) and self.tokens[self.at][0] == "operator"
            else ""
        )

    def binary(self, level: int) -> int:
        """Return the value of what follows, as far as its operators bind as tightly as those of a
        level.
        """
        value = self.unary()
        while (place := _LEVEL_OF.get(name := self.peek(), -1)) >= level:
            self.at += 1
            value = self.apply(name, value, self.binary(place + 1))
        return value

    def apply(self, name: str, left: int, right: int) -> int:
        if name not in {"/", "%"}:
            return _wrapped(int(_OPERATIONS[name](left, right)))
        if right == 0:
            raise ArithmeticFaultError(f"{self.expression}: zero divisor")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return _wrapped(quotient if name == "/" else left - quotient * right)

    def unary(self) -> int:
        if (name := self.peek()) in {"+", "-", "!", "~"}:
            self.at += 1
            value = self.unary()
            return _wrapped({"+": value, "-": -value, "!": int(value == 0), "~": ~value}[name])
        return self.primary()

    def primary(self) -> int:
        if self.at >= len(self.tokens):
            raise self.fault()
        kind, text = self.tokens[self.at]
        if kind == "operator" and text != "(":
            raise self.fault()
        self.at += 1
        if kind == "number":
            return _wrapped(int(text, 16) if text[:2].lower() == "0x" else int(text))
        if kind == "name":
            return self.calculator.variable(text)
        value = self.binary(0)
        if self.peek() != ")":
            raise self.fault()
        self.at += 1
        return value
