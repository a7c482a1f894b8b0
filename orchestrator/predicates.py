"""Claims about a device such as ``android >= 13 and soc = "sm8*"``, parsed and judged. Pure.

Grammar (words in any case; ``not`` binds tighter than ``and``, which binds tighter than ``or``)::

    claim      = claim "or" claim | claim "and" claim | "not" claim | "(" claim ")" | comparison |
    flag comparison = name ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=") value flag       = a name
    whose value is true or false:  rooted, virtual, emulator name       = one of FIELDS, ``pool``,
    ``tag``, or a system property (any name with a dot: ro.board.platform) value      = a word, or
    text in single or double quotes; for = and != of texts, * and ? stand for any characters

What isn't known of a device is neither true nor false: a claim that depends on it doesn't hold, nor
does its opposite.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from orchestrator.errors import UsageError, nearest
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.units import parse_bytes

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


class NoLabels(NamedTuple):
    """The labels of a device without any."""

    pools: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


#: Judges a device: None when what it depends on isn't known.
Claim = Callable[[DeviceFacts, Labels], bool | None]


class Predicate(NamedTuple):
    """A claim about a device."""

    text: str
    claim: Claim

    def holds(self, facts: DeviceFacts, labels: Labels | None = None) -> bool:
        """Whether the claim is known to be true of a device; without labels it is in no pool and
        has no tag.
        """
        return self.claim(facts, labels or NoLabels()) is True


class Field(NamedTuple):
    """A fact that can be asked for: how its value is compared (a key of _READ), and how it is read
    (None: unknown).
    """

    kind: str
    read: Callable[[DeviceFacts], object]


def _version(text: str) -> tuple[int, ...] | None:
    return (
        tuple(int(part) for part in text.split("."))
        if re.fullmatch(r"\d{1,9}(\.\d{1,9}){0,5}", text)
        else None
    )


def _text(name: str) -> Field:
    return Field("text", lambda facts: str(getattr(facts, name)) or None)


FIELDS: Final[Mapping[str, Field]] = {
    "android": Field(
        "version",
        lambda facts: _version(facts.os_version) if facts.kind is DeviceKind.ANDROID else None,
    ),
    "sdk": Field("number", lambda facts: facts.sdk),
    **{name: _text(name) for name in ("soc", "platform")},
    "abi": Field("texts", lambda facts: facts.abis or None),
    "cores": Field(
        "number", lambda facts: sum(len(cluster.cpus) for cluster in facts.clusters) or None
    ),
    "memory": Field("bytes", lambda facts: facts.memory_bytes),
    "rooted": Field("truth", lambda facts: facts.is_rooted),
    "virtual": Field("truth", lambda facts: facts.is_virtual),
    "emulator": Field("truth", lambda facts: facts.is_emulator),
    **{
        name: _text(name)
        for name in ("kind", "gpu", "profile", "serial", "model", "manufacturer", "codename")
    },
}
#: What is said of a device rather than seen of it -> its attribute of labels.
_LABELS: Final = {"pool": "pools", "tag": "tags"}
_NAMES: Final = (*FIELDS, *_LABELS)
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def value_of(name: str, facts: DeviceFacts) -> object:
    """Return a fact or a system property by its name in claims, None when it isn't known.

    KeyError for no such name.
    """
    return facts.properties.get(name) if "." in name else FIELDS[name].read(facts)


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
    if text.lower() not in {"true", "yes", "false", "no"}:
        raise ValueError(f"{text!r} isn't true or false")
    return text.lower() in {"true", "yes"}


#: Reads the value that a fact of this kind is compared with; raises ValueError.
_READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "text": str,
    "texts": str,
    "number": _read_number,
    "version": _read_version,
    "bytes": parse_bytes,
    "truth": _read_truth,
}


def _compared(name: str, kind: str, symbol: str, wanted: Any) -> Claim:  # noqa: ANN401 - what _READ returns
    def judge(facts: DeviceFacts, labels: Labels) -> bool | None:
        actual: Any = (
            tuple(getattr(labels, _LABELS[name])) if name in _LABELS else value_of(name, facts)
        )
        if actual is None:
            return None
        if kind in {"text", "texts"}:
            texts = actual if kind == "texts" else (str(actual),)
            pattern = wanted.casefold().replace("[", "[[]")
            return any(fnmatch.fnmatchcase(text.casefold(), pattern) for text in texts) == (
                symbol == "="
            )
        if kind == "version":
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
    """Return claims joined by ``and`` (decided by the first false one) or ``or`` (decided by the
    first true one).
    """

    def judge(facts: DeviceFacts, labels: Labels) -> bool | None:
        results = [claim(facts, labels) for claim in claims]
        if decisive in results:
            return decisive
        return None if None in results else not decisive

    return judge


class _Token(NamedTuple):
    #: ``word``, ``quoted``, ``symbol``, ``bracket``, ``end``, or ``other`` for what is none of
    #: them.
    kind: str
    text: str
    column: int


_WORDING: Final = (
    r"""\s*(?:(?P<quoted>"[^"]*"|'[^']*')|(?P<symbol>==|!=|<=|>=|=|<|>)|(?P<bracket>[()])|(?P<word>[^\s"'=<>!()]+)"""
    r"""|(?P<other>\S))"""
)


def parse_predicate(text: str) -> Predicate:
    """Parse a claim.

    Raises:
        UsageError: says at which character, and what is possible there.
    """
    if len(text) > _TEXT_MAX:
        raise UsageError(f"the predicate is longer than {_TEXT_MAX} characters")
    parser = _Parser(text)
    claim = parser.claim(0)
    if (token := parser.next).kind != "end":
        raise parser.fault(token, f"{token.text!r} isn't expected; join claims with 'and' or 'or'")
    return Predicate(text=text, claim=claim)


class _Parser:
    """Reads a claim from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        found = [(str(item.lastgroup), item) for item in re.finditer(_WORDING, text)]
        self._tokens = [_Token(kind, item[kind], item.start(kind) + 1) for kind, item in found]
        for token in self._tokens:
            if token.kind == "other":
                problem = (
                    "the quote isn't closed"
                    if token.text in "\"'"
                    else f"{token.text!r} isn't expected"
                )
                raise UsageError(f"{problem} at character {token.column} of the predicate {text!r}")
        self._tokens.append(_Token("end", "", len(text) + 1))

    @property
    def next(self) -> _Token:
        """The next token."""
        return self._tokens[0]

    def fault(self, token: _Token, problem: str) -> UsageError:
        """Return the error for a token."""
        where = "at its end" if token.kind == "end" else f"at character {token.column}"
        return UsageError(f"{problem} ({where} of the predicate {self._text!r})")

    def claim(self, depth: int) -> Claim:
        """Return claims joined by ``or``, of which each may be several joined by ``and``."""
        return self._several("or", lambda: self._several("and", lambda: self._one(depth + 1)))

    def _several(self, word: str, read: Callable[[], Claim]) -> Claim:
        claims = [read()]
        while self._took(word):
            claims.append(read())
        return _joined(word == "or", claims)

    def _one(self, depth: int) -> Claim:
        if depth > _DEPTH_MAX:
            raise self.fault(
                self.next, f"the predicate is nested more than {_DEPTH_MAX} levels deep"
            )
        if self._took("not"):
            return _negated(self._one(depth + 1))
        if not self._took("("):
            return self._comparison()
        claim = self.claim(depth)
        if not self._took(")"):
            raise self.fault(self.next, "a closing bracket is missing")
        return claim

    def _take(self) -> _Token:
        return self._tokens.pop(0) if len(self._tokens) > 1 else self.next

    def _took(self, word: str) -> bool:
        """Whether a word or bracket came next; it is taken then."""
        is_next = self.next.kind in {"word", "bracket"} and self.next.text.lower() == word
        if is_next:
            self._take()
        return is_next

    def _comparison(self) -> Claim:
        token = self._take()
        if token.kind != "word":
            raise self.fault(token, "the name of a fact is expected")
        name = token.text if "." in token.text else token.text.lower()
        if "." not in name and name not in _NAMES:
            hint = nearest(name, _NAMES) or f"known are {', '.join(_NAMES)}"
            raise self.fault(token, f"unknown fact {token.text!r}; {hint}")
        kind = "text" if "." in name else "texts" if name in _LABELS else FIELDS[name].kind
        if self.next.kind != "symbol":
            if kind == "truth":
                return _compared(name, kind, "=", True)
            raise self.fault(self.next, f"one of = != < <= > >= is expected after {name}")
        symbol_token = self._take()
        symbol = symbol_token.text.replace("==", "=")
        if kind in {"text", "texts", "truth"} and symbol not in {"=", "!="}:
            raise self.fault(symbol_token, f"{name} can only be compared by = and !=")
        return _compared(name, kind, symbol, self._value(name, kind))

    def _value(self, name: str, kind: str) -> object:
        token = self._take()
        if token.kind not in {"word", "quoted"}:
            raise self.fault(token, f"a value is expected for {name}")
        text = token.text[1:-1] if token.kind == "quoted" else token.text
        if (
            kind == "bytes"
            and token.kind == self.next.kind == "word"
            and self.next.text.lower() not in {"and", "or"}
        ):
            text = f"{text} {self._take().text}"
        try:
            return _READ[kind](text)
        except ValueError as error:
            raise self.fault(token, f"{name}: {error}") from error
