"""Arithmetic of ``$((...))``: 32-bit signed integers, as mksh has them; it changes no variables."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

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
_LEVEL_OF: Final = {
    operator: level for level, operators in enumerate(_LEVELS) for operator in operators
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
        while (place := _LEVEL_OF.get(operator := self.peek(), -1)) >= level:
            self.at += 1
            value = self.apply(operator, value, self.binary(place + 1))
        return value

    def apply(self, operator: str, left: int, right: int) -> int:
        match operator:
            case "+" | "-" | "*":
                value = (
                    left + right
                    if operator == "+"
                    else left - right
                    if operator == "-"
                    else left * right
                )
            case "/" | "%":
                if right == 0:
                    raise ArithmeticFaultError(f"{self.expression}: zero divisor")
                quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
                value = quotient if operator == "/" else left - quotient * right
            case "<<" | ">>":
                value = left << (right % 32) if operator == "<<" else left >> (right % 32)
            case "&" | "|" | "^":
                value = (
                    left & right
                    if operator == "&"
                    else left | right
                    if operator == "|"
                    else left ^ right
                )
            case _:
                value = int(
                    {
                        "==": left == right,
                        "!=": left != right,
                        "<": left < right,
                        "<=": left <= right,
                        ">": left > right,
                        ">=": left >= right,
                    }[operator]
                )
        return _wrapped(value)

    def unary(self) -> int:
        if (operator := self.peek()) in {"+", "-", "!", "~"}:
            self.at += 1
            value = self.unary()
            return _wrapped({"+": value, "-": -value, "!": int(value == 0), "~": ~value}[operator])
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
