"""Regular expressions that somebody else wrote, searched for in a bounded time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from orchestrator.errors import OutputParseError

#: Characters of an expression, at most.
LONGEST: Final = 600
#: A line is searched up to here; its rest is dropped.
LONGEST_LINE: Final = 8192
#: CPU seconds that one search may take.
_TIMEOUT_S: Final = 1.0
#: What makes matching more than a walk over the line, or looks outside what is matched.
_REFUSED: Final = re.compile(r"\\[1-9]|\\[gGKLXpPRN]|\(\?(?!:|P<\w+>|i\))|[*+?}]\+|\[\[")
_FEATURES: Final = "groups, named groups (?P<name>...), classes, alternatives and repeats"


class Pattern:
    """One expression. A search that takes too long is an error of the expression, never a wait."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        """Raise ValueError for an expression that isn't one of the simple kind."""
        if len(text) > LONGEST:
            raise ValueError(f"is an expression of {len(text)} characters; {LONGEST} are allowed")
        if odd := _REFUSED.search(text.replace("\\\\", "")):
            raise ValueError(
                f"{odd[0]!r} isn't allowed in an expression here; it may have {_FEATURES}"
            )
        import regex

        try:
            self._compiled = regex.compile(text, regex.V0)
        except regex.error as error:
            raise ValueError(f"isn't a regular expression: {error}") from None
        self.text = text

    @property
    def groups(self) -> frozenset[str]:
        """The names of its groups."""
        return frozenset(self._compiled.groupindex)

    def find(self, text: str) -> Mapping[str, str] | None:
        """Return the named groups that took part where the expression is found, None where it
        isn't.

        Raises OutputParseError where the search took too long.
        """
        try:
            found = self._compiled.search(text[:LONGEST_LINE], timeout=_TIMEOUT_S)
        except TimeoutError:
            raise OutputParseError(
                f"the expression {self.text!r} took more than {_TIMEOUT_S:g} s on one line",
                hint="write it without repeats inside repeats",
            ) from None
        if found is None:
            return None
        return {name: value for name, value in found.groupdict().items() if value is not None}

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def read(value: Any) -> Pattern:  # noqa: ANN401 - whatever stands in the file
            if not isinstance(value, str):
                raise ValueError("must be a regular expression in one line")
            return cls(value)

        return core_schema.no_info_plain_validator_function(read)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string"}
