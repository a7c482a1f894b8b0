"""The patterns that a store has at hand, for all its threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Generic, TypeVar

from orchestrator.records.identity import CaseKey
from orchestrator.store.pattern import Pattern

Key = TypeVar("Key")
Value = TypeVar("Value")

#: Patterns, some 30 kB each, and 100 kB when all of one was asked for.
_PATTERNS: Final = 512
#: Numbers of patterns, by what runs are kept by them.
_NUMBERS: Final = 8192

#: Case, pass and outcome.
Kind = tuple[CaseKey, str, str]


class Newest(Generic[Key, Value]):
    """The values used last.

    Several threads may use it without a lock: each step is one of a dictionary's, and what is missed is read again.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """Return a value, None for one that isn't held."""
        found = self._values.get(key)
        if found is not None:
            with suppress(KeyError):
                self._values.move_to_end(key)
        return found

    def keep(self, values: Mapping[Key, Value]) -> None:
        """Hold values, in the place of those used least lately."""
        for key, value in values.items():
            self._values[key] = value
            with suppress(KeyError):
                self._values.move_to_end(key)
        while len(self._values) > self._limit:
            with suppress(KeyError):
                self._values.popitem(last=False)

    def all(self) -> dict[Key, Value]:
        """Return all that is held."""
        return dict(self._values)


class HeldPatterns:
    """Patterns that are stored for good; one never changes but by learning its usual steps, once.

    What is held may be behind another process's work, and is checked against the database by whoever writes.
    """

    def __init__(self) -> None:
        self._patterns: Newest[int, Pattern] = Newest(_PATTERNS)
        self._numbers: Newest[Kind, int] = Newest(_NUMBERS)

    def get(self, pattern_no: int) -> Pattern | None:
        """Return a pattern, None for one that isn't at hand."""
        return self._patterns.get(pattern_no)

    def of(self, kind: Kind) -> tuple[int, Pattern] | None:
        """Return the pattern by which the last run of a kind was kept, with its number; None when it isn't at hand."""
        number = self._numbers.get(kind)
        pattern = None if number is None else self._patterns.get(number)
        return None if number is None or pattern is None else (number, pattern)

    def keep(self, patterns: Mapping[int, Pattern], kinds: Mapping[Kind, int]) -> None:
        """Hold patterns that are stored, and by which the last runs were kept."""
        # One that was read before it learned its usual steps doesn't take the place of one that knows them.
        self._patterns.keep({no: item for no, item in patterns.items() if item.usual or self.get(no) is None})
        self._numbers.keep(kinds)
