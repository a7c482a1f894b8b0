"""Types of fields that several kinds of file share."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from orchestrator.quantities import parse_celsius, parse_percent, parse_seconds

ItemT = TypeVar("ItemT")


class _OneOrMany:
    """Lets a list of one be written as that one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        return core_schema.no_info_before_validator_function(
            lambda value: value if isinstance(value, list) else [value], handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        array = handler(schema)
        return {"anyOf": [array["items"], array]}


class _Written:
    """Reads a value from its text; editors are told that numbers may stand there without quotes."""

    def __init__(self, parse: Callable[[str], Any], *json_types: str) -> None:
        self._parse = parse
        self._json_types = json_types

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        def read(value: object) -> object:
            if not isinstance(value, str):
                what = "a list" if isinstance(value, list) else "keys and values"
                raise ValueError(f"must be a single value, but is {what}")
            return self._parse(value)

        return core_schema.no_info_before_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": list(self._json_types)}


def _filled(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _sha256(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", value.lower()):
        raise ValueError(f"{value!r} isn't a sha256 (64 hexadecimal digits)")
    return value.lower()


def _as_written(value: str) -> str:
    return value


#: ``OneOrMany[tuple[str, ...]]``: a list, or a single item without its brackets.
OneOrMany = Annotated[ItemT, _OneOrMany()]
#: Text that isn't empty, as it is written, also when it looks like a number or a truth value.
Text = Annotated[str, _Written(_as_written, "string", "number", "boolean"), AfterValidator(_filled)]
#: The same, where an empty text means something.
AnyText = Annotated[str, _Written(_as_written, "string", "number", "boolean")]
Sha256 = Annotated[str, _Written(_sha256, "string")]
Seconds = Annotated[float, _Written(parse_seconds, "number", "string")]
Percent = Annotated[float, _Written(parse_percent, "number", "string")]
#: The same, under a key that says that it is a percentage.
NamedPercent = Annotated[float, _Written(partial(parse_percent, is_named=True), "number", "string")]
Celsius = Annotated[float, _Written(parse_celsius, "number", "string")]


def unique(values: tuple[ItemT, ...]) -> tuple[ItemT, ...]:
    """Refuse a list that names something twice."""
    for number, value in enumerate(values):
        if value in values[:number]:
            raise ValueError(f"names {str(value)!r} twice")
    return values
