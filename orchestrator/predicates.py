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
from typing import Any, Final, Literal, Protocol

from orchestrator.errors import UsageError, nearest
from orchestrator.quantities import parse_bytes
from orchestrator.records.device import DeviceFacts, DeviceKind

Kind = Literal["text", "texts", "number", "version", "bytes", "truth"]
_TEXT_MAX: Final = 1000
_DEPTH_MAX: Final = 20


class Labels(Protocol):
    """What people say about a device: none of it can be seen."""

    @property
    def pools(self) -> Sequence[str]:
        """Pools that it belongs to."""
        ...

    @property
    def tags(self) -> Sequence[str]:
        """What else is said of it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLabels:
    """A device of which nobody said anything."""

    pools: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Field:
    """A fact that can be asked for: how its value is compared, and where it is (None: unknown)."""

    kind: Kind
    read: Callable[[DeviceFacts], object]


def _android_version(facts: DeviceFacts) -> tuple[int, ...] | None:
    return _version(facts.os_version) if facts.kind is DeviceKind.ANDROID else None


def _version(text: str) -> tuple[int, ...] | None:
    return tuple(int(part) for part in text.split(".")) if re.fullmatch(r"\d{1,9}(\.\d{1,9}){0,5}", text) else None


FIELDS: Final[Mapping[str, _Field]] = {
    "android": _Field("version", _android_version),
    "sdk": _Field("number", lambda facts: facts.sdk),
    "soc": _Field("text", lambda facts: facts.soc or None),
    "platform": _Field("text", lambda facts: facts.platform or None),
    "abi": _Field("texts", lambda facts: facts.abis or None),
    "cores": _Field("number", lambda facts: sum(len(cluster.cpus) for cluster in facts.clusters) or None),
    "memory": _Field("bytes", lambda facts: facts.memory_bytes),
    "gpu": _Field("text", lambda facts: facts.gpu or None),
    "rooted": _Field("truth", lambda facts: facts.is_rooted),
    "virtual": _Field("truth", lambda facts: facts.is_virtual),
    "emulator": _Field("truth", lambda facts: facts.is_emulator),
    "kind": _Field("text", lambda facts: facts.kind.value),
    "profile": _Field("text", lambda facts: facts.profile or None),
    "serial": _Field("text", lambda facts: str(facts.serial) or None),
    "model": _Field("text", lambda facts: facts.model or None),
    "manufacturer": _Field("text", lambda facts: facts.manufacturer or None),
    "codename": _Field("text", lambda facts: facts.codename or None),
}
#: What is said of a device rather than seen of it.
_LABELS: Final[Mapping[str, Callable[[Labels], Sequence[str]]]] = {
    "pool": lambda labels: labels.pools,
    "tag": lambda labels: labels.tags,
}

_ORDERED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_TRUTHS: Final = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class _Comparison:
    name: str
    symbol: str
    value: object

    def judge(self, facts: DeviceFacts, labels: Labels) -> bool | None:
        field = _field(self.name)
        actual = tuple(_LABELS[self.name](labels)) if self.name in _LABELS else field.read(facts)
        if actual is None:
            return None
        if field.kind == "text":
            return _matches(str(actual), str(self.value)) == (self.symbol == "=")
        if field.kind == "texts":
            assert isinstance(actual, tuple)
            return any(_matches(text, str(self.value)) for text in actual) == (self.symbol == "=")
        if field.kind == "version":
            assert isinstance(actual, tuple)
            assert isinstance(self.value, tuple)
            # 13 means all of 13: as many parts are compared as were asked for.
            actual = (*actual, *(0,) * len(self.value))[: len(self.value)]
        return _ORDERED[self.symbol](actual, self.value)


@dataclass(frozen=True, slots=True)
class _Not:
    claim: _Claim

    def judge(self, facts: DeviceFacts, labels: Labels) -> bool | None:
        result = self.claim.judge(facts, labels)
        return None if result is None else not result


@dataclass(frozen=True, slots=True)
class _Join:
    """Claims joined by ``and`` (decided by the first false one) or ``or`` (decided by the first true one)."""

    decisive: bool
    claims: tuple[_Claim, ...]

    def judge(self, facts: DeviceFacts, labels: Labels) -> bool | None:
        results = [claim.judge(facts, labels) for claim in self.claims]
        if self.decisive in results:
            return self.decisive
        return None if None in results else not self.decisive


_Claim = _Comparison | _Not | _Join


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """A claim about a device."""

    text: str
    claim: _Claim

    def holds(self, facts: DeviceFacts, labels: Labels | None = None) -> bool:
        """Whether the claim is known to be true of a device; without labels it is in no pool and has no tag."""
        return self.claim.judge(facts, labels or NoLabels()) is True


def value_of(name: str, facts: DeviceFacts) -> object:
    """Return a fact or a system property by its name in claims, None when it isn't known; KeyError for no such name."""
    return _field(name).read(facts)


def parse_predicate(text: str) -> Predicate:
    """Parse a claim.

    Raises:
        UsageError: says at which character, and what is possible there.
    """
    if len(text) > _TEXT_MAX:
        raise UsageError(f"the predicate is longer than {_TEXT_MAX} characters")
    return _Parser(text).predicate()


def _matches(actual: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(actual.casefold(), pattern.casefold().replace("[", "[[]"))


def _field(name: str) -> _Field:
    if "." in name:
        return _Field("text", lambda facts: facts.properties.get(name))
    if name in _LABELS:
        return _Field("texts", lambda facts: None)
    return FIELDS[name]


@dataclass(frozen=True, slots=True)
class _Token:
    kind: Literal["word", "quoted", "symbol", "bracket", "end"]
    text: str
    column: int


_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<quoted>"[^"]*"|'[^']*')|(?P<symbol>==|!=|<=|>=|=|<|>)|(?P<bracket>[()])|(?P<word>[^\s"'=<>!()]+))"""
)


class _Parser:
    """Reads a claim from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._scan()
        self._at = 0
        self._depth = 0

    def predicate(self) -> Predicate:
        claim = self._any()
        if (token := self._peek()).kind != "end":
            raise self._fault(token, f"{token.text!r} isn't expected; join claims with 'and' or 'or'")
        return Predicate(text=self._text, claim=claim)

    def _scan(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while self._text[at:].strip():
            found = _TOKEN.match(self._text, at)
            if not found:
                rest = self._text[at:].lstrip()
                column = len(self._text) - len(rest) + 1
                problem = "the quote isn't closed" if rest[0] in "\"'" else f"{rest[0]!r} isn't expected"
                raise UsageError(f"{problem} at character {column} of the predicate {self._text!r}")
            kind = found.lastgroup
            assert kind in {"word", "quoted", "symbol", "bracket"}
            tokens.append(_Token(kind, found[kind], found.start(kind) + 1))  # type: ignore[arg-type]
            at = found.end()
        return [*tokens, _Token("end", "", len(self._text) + 1)]

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._peek()
        self._at += token.kind != "end"
        return token

    def _take_word(self, *words: str) -> str:
        token = self._peek()
        if token.kind == "word" and token.text.lower() in words:
            self._next()
            return token.text.lower()
        return ""

    def _any(self) -> _Claim:
        claims = [self._all()]
        while self._take_word("or"):
            claims.append(self._all())
        return claims[0] if len(claims) == 1 else _Join(True, tuple(claims))

    def _all(self) -> _Claim:
        claims = [self._one()]
        while self._take_word("and"):
            claims.append(self._one())
        return claims[0] if len(claims) == 1 else _Join(False, tuple(claims))

    def _one(self) -> _Claim:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._fault(self._peek(), f"the predicate is nested more than {_DEPTH_MAX} levels deep")
        try:
            if self._take_word("not"):
                return _Not(self._one())
            if self._peek().text == "(" and self._peek().kind == "bracket":
                self._next()
                claim = self._any()
                if (token := self._next()).text != ")":
                    raise self._fault(token, "a closing bracket is missing")
                return claim
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> _Comparison:
        token = self._next()
        name = token.text.lower() if "." not in token.text else token.text
        if token.kind != "word":
            raise self._fault(token, "the name of a fact is expected")
        if "." not in name and name not in FIELDS and name not in _LABELS:
            hint = nearest(name, [*FIELDS, *_LABELS]) or f"known are {', '.join([*FIELDS, *_LABELS])}"
            raise self._fault(token, f"unknown fact {token.text!r}; {hint}")
        field = _field(name)
        if self._peek().kind != "symbol":
            if field.kind == "truth":
                return _Comparison(name, "=", True)
            raise self._fault(self._peek(), f"one of = != < <= > >= is expected after {name}")
        symbol_token = self._next()
        symbol = "=" if symbol_token.text == "==" else symbol_token.text
        if field.kind in {"text", "texts", "truth"} and symbol not in {"=", "!="}:
            raise self._fault(symbol_token, f"{name} can only be compared by = and !=")
        return _Comparison(name, symbol, self._value(name, field.kind))

    def _value(self, name: str, kind: Kind) -> object:
        token = self._next()
        if token.kind not in {"word", "quoted"}:
            raise self._fault(token, f"a value is expected for {name}")
        text = token.text[1:-1] if token.kind == "quoted" else token.text
        if kind == "bytes" and token.kind == "word" and self._peek().kind == "word":
            following = self._peek().text
            if following.lower() not in {"and", "or"}:
                text = f"{text} {self._next().text}"
        try:
            return _READ[kind](text)
        except ValueError as error:
            raise self._fault(token, f"{name}: {error}") from error

    def _fault(self, token: _Token, problem: str) -> UsageError:
        where = "at its end" if token.kind == "end" else f"at character {token.column}"
        return UsageError(f"{problem} ({where} of the predicate {self._text!r})")


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


_READ: Final[Mapping[Kind, Callable[[str], object]]] = {
    "text": str, "texts": str, "number": _read_number, "version": _read_version, "bytes": parse_bytes,
    "truth": _read_truth,
}  # fmt: skip
