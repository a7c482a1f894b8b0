"""From words as written to arguments: variables, substitutions, splitting, file names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.shell.patterns import Pieces, has_magic, matching_paths, trimmed
from benchfarm_virtual.shell.syntax import Arithmetic, Command, Part, Text, Variable, Word

if TYPE_CHECKING:
    from benchfarm_virtual.shell.interpreter import Shell

_WHITE: Final = " \t\n"
_WORDS: Final = re.compile(r"[^ \t\n]+")
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
        return [argument for word in words for argument in self._arguments(word)]

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
        return _joined(self.pieces(word))

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
