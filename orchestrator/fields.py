"""Types of fields that people write: how a value is read from its text, and its schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from orchestrator.errors import nearest
from orchestrator.units import parse_celsius, parse_percent, parse_seconds

ItemT = TypeVar("ItemT")
#: The key of a validation's context under which texts are read; a stored document holds values.
TEXTS: Final = "texts"


def is_written(info: ValidationInfo) -> bool:
    """Whether a person wrote the value, so that it may be a text in place of its type."""
    return bool((info.context or {}).get(TEXTS))


def by_rule(rule: str) -> BeforeValidator:
    """Return a validator that applies a rule of the file's reader (from the validation's context)."""

    def check(value: object, info: ValidationInfo) -> object:
        convert: Callable[[object], object] | None = (info.context or {}).get(rule)
        return value if convert is None else convert(_single(value))

    return BeforeValidator(check)


def _no_key(value: object, info: ValidationInfo) -> object:
    if is_written(info):
        raise PydanticCustomError("extra_forbidden", "unknown key")
    return value


#: A field of a record that no file can set.
NO_KEY: Final = BeforeValidator(_no_key)


def _not_empty(value: ItemT, info: ValidationInfo) -> ItemT:
    if not value and is_written(info):
        raise PydanticCustomError("too_short", "must not be empty")
    return value


#: A list that isn't written empty, though empty is its default.
SOME: Final = AfterValidator(_not_empty)


class Short:
    """Lets a value be written in a shorter form, which the schema for editors has too."""

    def __init__(
        self,
        lengthened: Callable[[Any], object],
        schema: Callable[[JsonSchemaValue], JsonSchemaValue],
    ) -> None:
        """``lengthened`` returns the full form; ``schema`` returns the short form's schema for the
        full one's.
        """
        self._lengthened = lengthened
        self._schema = schema

    def __get_pydantic_core_schema__(
        self,
        source: Any,  # noqa: ANN401
        handler: GetCoreSchemaHandler,
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._lengthened, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        full = handler(schema)
        return {"anyOf": [self._schema(full), full]}


def _read(parse: Callable[[str], Any]) -> BeforeValidator:
    """Return a validator that parses a value from its text; a value that isn't text is unchanged."""

    def read(value: object, info: ValidationInfo) -> object:
        if not is_written(info):
            return value
        value = _single(value)
        return parse(value) if isinstance(value, str) else value

    return BeforeValidator(read)


def _single(value: object) -> object:
    """Return a scalar value unchanged; raises ValueError for a list or mapping."""
    if isinstance(value, list | tuple | dict):
        kind = "keys and values" if isinstance(value, dict) else "a list"
        raise ValueError(f"must be a single value, but is {kind}")
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def is_sha256(text: str) -> bool:
    """Whether a text is a sha256 as benchfarm writes it."""
    return bool(re.fullmatch(r"[0-9a-f]{64}", text))


def _sha256(value: str) -> str:
    if not is_sha256(value.lower()):
        raise ValueError(f"{value!r} isn't a sha256 (64 hexadecimal digits)")
    return value.lower()


_ANY: Final = WithJsonSchema({"type": ["string", "number", "boolean"]})
_NUMBER: Final = WithJsonSchema({"type": ["number", "string"]})

#: ``OneOrMany[tuple[str, ...]]``: a list, or a single item without its brackets.
OneOrMany = Annotated[
    ItemT,
    Short(
        lambda value: value if isinstance(value, list | tuple) else [value],
        lambda full: full["items"],
    ),
]
#: Text that isn't empty, unchanged, also when it looks like a number or a truth value.
Text = Annotated[str, _read(_not_blank), _ANY]
#: The same, where an empty text means something.
AnyText = Annotated[str, _read(str), _ANY]
Sha256 = Annotated[str, _read(_sha256), WithJsonSchema({"type": ["string"]})]
Seconds = Annotated[float, _read(parse_seconds), _NUMBER]
Percent = Annotated[float, _read(parse_percent), _NUMBER]
#: The same, under a key with "percent" in its name.
NamedPercent = Annotated[float, _read(partial(parse_percent, is_named=True)), _NUMBER]
#: A path under the key ``file``.
FilePath = Annotated[Path, Field(alias="file")]
Celsius = Annotated[float, _read(parse_celsius), _NUMBER]


def unique(values: tuple[ItemT, ...]) -> tuple[ItemT, ...]:
    """Refuse a list that names something twice."""
    for number, value in enumerate(values):
        if value in values[:number]:
            raise ValueError(f"names {str(value)!r} twice")
    return values


def unknown_word_message(word: str, words: Iterable[str]) -> str:
    """Return the message for a word that isn't one of ``words``."""
    names = list(words)
    hint = nearest(word, names)
    return f"{word!r} isn't one of {', '.join(names)}" + (f"; {hint}" if hint else "")
