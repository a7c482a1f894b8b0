"""The steps that lead from a pattern to a run, as hexadecimal digits: numbers, and tokens that differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from orchestrator.store.tokens import Parts

_END, _REFERENCE, _REFERENCE_POINT_0, _RAW = "b", "c", "d", "e"
_FIGURE: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?\Z")
_TO_DIGITS: Final = str.maketrans(".-", "af")
_FROM_DIGITS: Final = str.maketrans("af", ".-")
_VALUES: Final = {digit: value for value, digit in enumerate("0123456789abcdef")}


def number(value: int) -> str:
    """Return a number as digits of three bits, the lowest first; the fourth bit says that more follow."""
    digits = ""
    while value >= 8:
        digits += f"{value & 7 | 8:x}"
        value >>= 3
    return digits + str(value)


def changed_tokens(tokens: Sequence[bytes], others: Sequence[bytes], seen: dict[bytes, int]) -> str:
    """Return as steps the tokens that differ from as many others; ``seen`` grows by those that are written out."""
    steps: list[str] = []
    same = 0
    for token, was in zip(tokens, others, strict=True):
        if token == was:
            same += 1
            continue
        steps.append(number(same + 1))
        same = 0
        if token in seen:
            steps.append(_REFERENCE + number(len(seen) - seen[token]))
        elif token.endswith(b".0") and token[:-2] in seen:
            steps.append(_REFERENCE_POINT_0 + number(len(seen) - seen[token[:-2]]))
        else:
            seen[token] = len(seen)
            if _FIGURE.match(token):
                steps.append(token.decode().translate(_TO_DIGITS) + _END)
            else:
                steps.append(_RAW + number(len(token)) + token.hex())
    return "".join(steps) + number(0)


class Steps:
    """Reads steps one after the other; raises ValueError, KeyError or IndexError where they don't fit."""

    def __init__(self, digits: str) -> None:
        self._digits = digits
        self._at = 0

    def take(self) -> str:
        """Return the next digit."""
        self._at += 1
        return self._digits[self._at - 1]

    def number(self) -> int:
        """Return the next number."""
        digit = _VALUES[self._digits[self._at]]
        self._at += 1
        if digit < 8:
            return digit
        value, shift = digit & 7, 3
        while True:
            digit = _VALUES[self._digits[self._at]]
            self._at += 1
            value |= (digit & 7) << shift
            if digit < 8:
                return value
            shift += 3

    def with_changed_tokens(self, pattern: Parts, seen: list[bytes]) -> bytes:
        """Return parts of the pattern, joined, with the tokens that the next steps say."""
        parts = list(pattern)
        place = -1
        while (skip := self.number()) > 0:
            # Tokens are at the odd places.
            place += 2 * skip
            parts[place] = self._token(seen)
        return b"".join(parts)

    def _token(self, seen: list[bytes]) -> bytes:
        step = self.take()
        if step in (_REFERENCE, _REFERENCE_POINT_0):
            back = self.number()
            if not 0 < back <= len(seen):
                raise ValueError("a reference leads nowhere")
            return seen[-back] + (b".0" if step == _REFERENCE_POINT_0 else b"")
        if step == _RAW:
            length = 2 * self.number()
            token = bytes.fromhex(self._digits[self._at : self._at + length])
            self._at += length
        else:
            end = self._digits.index(_END, self._at)
            token = self._digits[self._at - 1 : end].translate(_FROM_DIGITS).encode()
            self._at = end + 1
        seen.append(token)
        return token
