"""Claims about a device such as ``android >= 13 and soc = "sm8*"``, parsed and judged. Pure.

Grammar (words in any case; ``not`` binds tighter than ``and``, which binds tighter than ``or``)::

    claim      = claim "or" claim | claim "and" claim | "not" claim | "(" claim ")" | comparison | flag
    comparison = name ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=") value
    flag       = a name whose value is true or false:  rooted, virtual, emulator
    name       = one of FIELDS, ``pool``, ``tag``, or a system property (any name with a dot: ro.board.platform)
    value      = a word, or text in single or double quotes; for = and != of texts, * and ? stand for any characters

What isn't known of a device is neither true nor false: a claim that depends on it doesn't hold, nor does its opposite.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from orchestrator.errors import UsageError, nearest
from orchestrator.quantities import parse_bytes
from orchestrator.records.device import DeviceFacts, DeviceKind

_TEXT_MAX: Final = 1000
_DEPTH_MAX: Final = 20


class Labels(Protocol):
    """What people say about a device: none of it can be seen."""

    @property
    def pools(self) -> Sequence[str]:
        """Pools that it belongs to."""

    @property
    def tags(self) -> Sequence[str]:
        """What else is said of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLabels:
    """The labels of a device without any."""

    pools: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


#: Judges a device: None when what it depends on isn't known.
Claim = Callable[[DeviceFacts, Labels], bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """A claim about a device."""

    text: str
    claim: Claim

    def holds(self, facts: DeviceFacts, labels: Labels | None = None) -> bool:
        """Whether the claim is known to be true of a device; without labels it is in no pool and has no tag."""
        return self.claim(facts, labels or NoLabels()) is True


@dataclass(frozen=True, slots=True)
class Field:
    """A fact that can be asked for: how its value is compared (a key of _READ), and how it is read (None: unknown)."""

    kind: str
    read: Callable[[DeviceFacts], object]


def _version(text: str) -> tuple[int, ...] | None:
    return tuple(int(part) for part in text.split(".")) if re.fullmatch(r"\d{1,9}(\.\d{1,9}){0,5}", text) else None


FIELDS: Final[Mapping[str, Field]] = {
    "android": Field("version", lambda facts: _version(facts.os_version) if facts.kind is DeviceKind.ANDROID else None),
    "sdk": Field("number", lambda facts: facts.sdk),
    "soc": Field("text", lambda facts: facts.soc or None),
    "platform": Field("text", lambda facts: facts.platform or None),
    "abi": Field("texts", lambda facts: facts.abis or None),
    "cores": Field("number", lambda facts: sum(len(cluster.cpus) for cluster in facts.clusters) or None),
    "memory": Field("bytes", lambda facts: facts.memory_bytes),
    "gpu": Field("text", lambda facts: facts.gpu or None),
    "rooted": Field("truth", lambda facts: facts.is_rooted),
    "virtual": Field("truth", lambda facts: facts.is_virtual),
    "emulator": Field("truth", lambda facts: facts.is_emulator),
    "kind": Field("text", lambda facts: facts.kind.value),
    "profile": Field("text", lambda facts: facts.profile or None),
    "serial": Field("text", lambda facts: str(facts.serial) or None),
    "model": Field("text", lambda facts: facts.model or None),
    "manufacturer": Field("text", lambda facts: facts.manufacturer or None),
    "codename": Field("text", lambda facts: facts.codename or None),
}
#: What is said of a device rather than seen of it.
_LABELS: Final[Mapping[str, Callable[[Labels], Sequence[str]]]] = {
    "pool": lambda labels: labels.pools,
    "tag": lambda labels: labels.tags,
}
_NAMES: Final = (*FIELDS, *_LABELS)
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_TRUTHS: Final = {"true": True, "yes": True, "false": False, "no": False}


def _field(name: str) -> Field:
    if "." in name:
        return Field("text", lambda facts: facts.properties.get(name))
    return Field("texts", lambda facts: None) if name in _LABELS else FIELDS[name]


def value_of(name: str, facts: DeviceFacts) -> object:
    """Return a fact or a system property by its name in claims, None when it isn't known; KeyError for no such name."""
    return _field(name).read(facts)


def _read_number(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError(f"{text!r} isn't a whole number")
    return int(text)


def _read_version(text: str) -> tuple[int, ...]:
    version = _version(text)
    if version is None:
        raise ValueError(f"{text!r} isn't a version such as 13 or 8.1")
    return version


def _read_truth(text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise ValueError(f"{text!r} isn't true or false")
    return _TRUTHS[text.lower()]


#: Reads the value that a fact of this kind is compared with; raises ValueError.
_READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "text": str, "texts": str, "number": _read_number, "version": _read_version, "bytes": parse_bytes,
    "truth": _read_truth,
}  # fmt: skip


def _compared(name: str, symbol: str, wanted: Any) -> Claim:  # noqa: ANN401 - what _READ returns
    field = _field(name)

    def judge(facts: DeviceFacts, labels: Labels) -> bool | None:
        actual: Any = tuple(_LABELS[name](labels)) if name in _LABELS else field.read(facts)
        if actual is None:
            return None
        if field.kind in {"text", "texts"}:
            texts = actual if field.kind == "texts" else (str(actual),)
            pattern = wanted.casefold().replace("[", "[[]")
            return any(fnmatch.fnmatchcase(text.casefold(), pattern) for text in texts) == (symbol == "=")
        if field.kind == "version":
            # 13 means all of 13: as many parts are compared as were asked for.
            actual = (*actual, *(0,) * len(wanted))[: len(wanted)]
        return _COMPARE[symbol](actual, wanted)

    return judge


def _negated(claim: Claim) -> Claim:
    def judge(facts: DeviceFacts, labels: Labels) -> bool | None:
        result = claim(facts, labels)
        return None if result is None else not result

    return judge


def _joined(decisive: bool, claims: Sequence[Claim]) -> Claim:
    """Return claims joined by ``and`` (decided by the first false one) or ``or`` (decided by the first true one)."""

    def judge(facts: DeviceFacts, labels: Labels) -> bool | None:
        results = [claim(facts, labels) for claim in claims]
        if decisive in results:
            return decisive
        return None if None in results else not decisive

    return judge


class _Token(NamedTuple):
    #: ``word``, ``quoted``, ``symbol``, ``bracket`` or ``end``.
    kind: str
    text: str
    column: int


_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<quoted>"[^"]*"|'[^']*')|(?P<symbol>==|!=|<=|>=|=|<|>)|(?P<bracket>[()])|(?P<word>[^\s"'=<>!()]+))"""
)


def parse_predicate(text: str) -> Predicate:
    """Parse a claim.

    Raises:
        UsageError: says at which character, and what is possible there.
    """
    if len(text) > _TEXT_MAX:
        raise UsageError(f"the predicate is longer than {_TEXT_MAX} characters")
    parser = _Parser(text)
    claim = parser.any_of(0)
    if (token := parser.peek()).kind != "end":
        raise parser.fault(token, f"{token.text!r} isn't expected; join claims with 'and' or 'or'")
    return Predicate(text=text, claim=claim)


class _Parser:
    """Reads a claim from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def peek(self) -> _Token:
        """Return the next token; raises UsageError for what is none."""
        found = _TOKEN.match(self._text, self._at)
        if found:
            kind = str(found.lastgroup)
            return _Token(kind, found[kind], found.start(kind) + 1)
        rest = self._text[self._at :].lstrip()
        column = len(self._text) - len(rest) + 1
        if rest:
            problem = "the quote isn't closed" if rest[0] in "\"'" else f"{rest[0]!r} isn't expected"
            raise UsageError(f"{problem} at character {column} of the predicate {self._text!r}")
        return _Token("end", "", column)

    def fault(self, token: _Token, problem: str) -> UsageError:
        """Return the error for a token."""
        where = "at its end" if token.kind == "end" else f"at character {token.column}"
        return UsageError(f"{problem} ({where} of the predicate {self._text!r})")

    def any_of(self, depth: int) -> Claim:
        """Return claims joined by ``or``."""
        claims = [self._all_of(depth)]
        while self._took("or"):
            claims.append(self._all_of(depth))
        return _joined(True, claims)

    def _all_of(self, depth: int) -> Claim:
        claims = [self._one(depth + 1)]
        while self._took("and"):
            claims.append(self._one(depth + 1))
        return _joined(False, claims)

    def _one(self, depth: int) -> Claim:
        if depth > _DEPTH_MAX:
            raise self.fault(self.peek(), f"the predicate is nested more than {_DEPTH_MAX} levels deep")
        if self._took("not"):
            return _negated(self._one(depth + 1))
        if not self._took("("):
            return self._comparison()
        claim = self.any_of(depth)
        if not self._took(")"):
            raise self.fault(self.peek(), "a closing bracket is missing")
        return claim

    def _next(self) -> _Token:
        token = self.peek()
        found = _TOKEN.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return token

    def _took(self, word: str) -> bool:
        """Whether a word or bracket came next, and go on behind it."""
        token = self.peek()
        if token.kind in {"word", "bracket"} and token.text.lower() == word:
            self._next()
            return True
        return False

    def _comparison(self) -> Claim:
        token = self._next()
        if token.kind != "word":
            raise self.fault(token, "the name of a fact is expected")
        name = token.text if "." in token.text else token.text.lower()
        if "." not in name and name not in _NAMES:
            hint = nearest(name, _NAMES) or f"known are {', '.join(_NAMES)}"
            raise self.fault(token, f"unknown fact {token.text!r}; {hint}")
        kind = _field(name).kind
        if self.peek().kind != "symbol":
            if kind == "truth":
                return _compared(name, "=", True)
            raise self.fault(self.peek(), f"one of = != < <= > >= is expected after {name}")
        symbol_token = self._next()
        symbol = "=" if symbol_token.text == "==" else symbol_token.text
        if kind in {"text", "texts", "truth"} and symbol not in {"=", "!="}:
            raise self.fault(symbol_token, f"{name} can only be compared by = and !=")
        return _compared(name, symbol, self._value(name, kind))

    def _value(self, name: str, kind: str) -> object:
        token = self._next()
        if token.kind not in {"word", "quoted"}:
            raise self.fault(token, f"a value is expected for {name}")
        text = token.text[1:-1] if token.kind == "quoted" else token.text
        following = self.peek()
        if kind == "bytes" and {token.kind, following.kind} == {"word"} and following.text.lower() not in {"and", "or"}:
            text = f"{text} {self._next().text}"
        try:
            return _READ[kind](text)
        except ValueError as error:
            raise self.fault(token, f"{name}: {error}") from error
