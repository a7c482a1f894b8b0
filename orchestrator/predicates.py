"""Claims about a device such as ``android >= 13 and soc = "sm8*"``, parsed and judged. Pure.

A claim is a fact, a system property (any name with a dot), ``pool`` or ``tag``, compared by ``=``,
``!=``, ``<``, ``<=``, ``>`` or ``>=`` with a word or a quoted text; or a fact that is true or false
alone, also after ``not``. Several are joined by ``and``. In texts, ``*`` and ``?`` stand for any
characters. A claim about what isn't known of a device doesn't hold.
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
#: An ``and`` by itself, outside quotes.
_AND: Final = re.compile(r"""(?<!\S)and(?!\S)(?=(?:[^"']|"[^"]*"|'[^']*')*\Z)""", re.IGNORECASE)
_CLAIM: Final = re.compile(
    r"""(?P<not>not\s+)?(?P<name>[^\s"'=<>!()]+)"""
    r"""(?:\s*(?P<symbol>==|!=|<=|>=|=|<|>)\s*"""
    r"""(?P<value>"[^"]*"|'[^']*'|[\d.]+\s+\w+|[^\s"'=<>!()]+))?""",
    re.IGNORECASE,
)


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


class Claim(NamedTuple):
    """One comparison of a fact of a device."""

    name: str
    #: A key of _READ.
    kind: str
    symbol: str
    value: Any

    def holds(self, facts: DeviceFacts, labels: Labels) -> bool:
        """Whether it is known to be true of a device."""
        if self.name in _LABELS:
            actual: Any = tuple(getattr(labels, _LABELS[self.name]))
        else:
            actual = value_of(self.name, facts)
        if actual is None:
            return False
        if self.kind in {"text", "texts"}:
            texts = actual if self.kind == "texts" else (str(actual),)
            pattern = self.value.casefold().replace("[", "[[]")
            fits = any(fnmatch.fnmatchcase(text.casefold(), pattern) for text in texts)
            return fits == (self.symbol == "=")
        if self.kind == "version":
            # 13 means all of 13: as many parts are compared as were asked for.
            parts = len(self.value)
            actual = (*actual, *(0,) * parts)[:parts]
        return _COMPARE[self.symbol](actual, self.value)


class Predicate(NamedTuple):
    """Claims that all hold of a device that is meant."""

    claims: tuple[Claim, ...]

    def holds(self, facts: DeviceFacts, labels: Labels) -> bool:
        """Whether all claims are known to be true of a device."""
        return all(claim.holds(facts, labels) for claim in self.claims)


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


def parse_predicate(text: str) -> Predicate:
    """Parse claims joined by ``and``; raises UsageError naming the one that is wrong."""
    if len(text) > _TEXT_MAX:
        raise UsageError(f"the predicate is longer than {_TEXT_MAX} characters")
    return Predicate(tuple(map(_claim, _AND.split(text))))


def _claim(text: str) -> Claim:
    text = text.strip()
    found = _CLAIM.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} isn't a claim about a device",
            hint="write claims such as android >= 13, joined by 'and'",
        )
    name = found["name"] if "." in found["name"] else found["name"].lower()
    if "." not in name and name not in _NAMES:
        known = nearest(name, _NAMES) or f"known are {', '.join(_NAMES)}"
        raise UsageError(f"unknown fact {name!r} in {text!r}; {known}")
    kind = "text" if "." in name else "texts" if name in _LABELS else FIELDS[name].kind
    symbol = (found["symbol"] or "").replace("==", "=")
    if kind == "truth" and not symbol:
        return Claim(name, kind, "=", not found["not"])
    if not symbol or found["not"]:
        raise UsageError(f"{text!r}: write {name}, one of = != < <= > >=, and a value")
    if kind in {"text", "texts", "truth"} and symbol not in {"=", "!="}:
        raise UsageError(f"{text!r}: {name} can only be compared by = and !=")
    value = found["value"].strip()
    if value[0] in "\"'":
        value = value[1:-1]
    try:
        return Claim(name, kind, symbol, _READ[kind](value))
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}") from error
