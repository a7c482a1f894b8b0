"""Frozen records as JSON documents and back: the one codec of the store, bundles and the farm's
queue.

A document holds every field of a record under the field's name. Reading is lenient in one direction
only: a key that this version doesn't know is left out (a newer minor version wrote it), and a key
that isn't there takes the field's default (an older version wrote the document). Every value is
checked against its field's type: text is no number, a number no text, and nothing is converted. A
value that can't be understood is an error, never a guess.

Every value is bounded, because whoever can write a document could otherwise stop each page that
shows it: integers have 64 bits, figures are at most 2^63, moments lie between 1970 and 2200, texts
have at most 16 Mi characters. Writing brings numbers of our own that are beyond these bounds, as a
program may print them, to the bound; what is no number is null. The text is ASCII, so that no
database and no encoding can change it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, SchemaSerializer, SchemaValidator
from pydantic_core.core_schema import plain_serializer_function_ser_schema

from orchestrator.errors import StoreCorruptError, StoreError

Record = TypeVar("Record")

#: pydantic's JSON reader refuses lone surrogates, which names of files may hold; Python's takes
#: them.
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_LARGEST_INTEGER: Final = 2**63 - 1
_LARGEST_FLOAT: Final = 2.0**63
#: Kind of value -> the bounds that pydantic checks, and its serialization.
_BOUNDS: Final[dict[str, dict[str, Any]]] = {
    "int": {"ge": -_LARGEST_INTEGER, "le": _LARGEST_INTEGER},
    "float": {"ge": -_LARGEST_FLOAT, "le": _LARGEST_FLOAT},
    "str": {"max_length": 1 << 24},
    "datetime": {
        "ge": datetime(1970, 1, 1, tzinfo=UTC),
        "le": datetime(2200, 1, 2, tzinfo=UTC),
        "serialization": plain_serializer_function_ser_schema(datetime.isoformat, when_used="json"),
    },
    "date": {"ge": date(1970, 1, 1), "le": date(2200, 1, 2)},
}
#: Signs of numbers beyond the bounds after each digit is replaced by a zero; other texts may match.
_OUT_OF_BOUNDS: Final = ("0" * 19, "e+", "NaN", "Infinity")
_TO_ZEROS: Final = str.maketrans("123456789", "0" * 9)
#: Characters of a refused value in a message, at most.
_SHOWN_CHARS: Final = 80


def _plain(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in a document")


#: Plain values as JSON in ASCII.
to_text = json.JSONEncoder(
    ensure_ascii=True, check_circular=False, separators=(",", ":"), default=_plain
).encode


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    # Making one takes a thousand times as long as using it.
    adapter = TypeAdapter(cast("type[Any]", kind))
    schema = _bounded(adapter.core_schema)
    adapter.validator = SchemaValidator(schema)
    # Also for a figure that may be a text instead, which a record's own setting doesn't reach.
    adapter.serializer = SchemaSerializer(schema, {"ser_json_inf_nan": "constants"})
    return adapter


@cache
def plain_adapter_of(kind: Hashable) -> TypeAdapter[Any]:
    """Return the adapter of a type without the bounds of documents, for values that people write."""
    return TypeAdapter(cast("type[Any]", kind))


def _bounded(schema: Any, *, is_standard: bool = False) -> Any:  # noqa: ANN401 - pydantic's description of a type
    """Return a type's pydantic schema with bounds for every value, without the rules for texts that
    people write.

    ``is_standard``: inside the schema of a standard Python type, such as a path, which stays.
    """
    if isinstance(schema, list | tuple):
        return type(schema)(_bounded(item, is_standard=is_standard) for item in schema)
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if kind in {"function-before", "function-after"} and not is_standard:
        return _bounded(schema["schema"])
    is_standard = is_standard or kind == "lax-or-strict"
    inner = {
        name: item
        if name in {"default", "metadata", "serialization"}
        else _bounded(item, is_standard=is_standard)
        for name, item in schema.items()
    }
    if kind in {"dataclass", "model"}:
        inner["config"] = {**schema.get("config", {}), "ser_json_inf_nan": "constants"}
    return {**inner, **_BOUNDS.get(kind, {})} if isinstance(kind, str) else inner


def _clamped(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    """Return a plain value whose numbers are within the bounds."""
    if isinstance(value, dict):
        return {key: _clamped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clamped(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-_LARGEST_INTEGER, min(_LARGEST_INTEGER, value))
    if isinstance(value, float):
        return None if math.isnan(value) else max(-_LARGEST_FLOAT, min(_LARGEST_FLOAT, value))
    return value


def adapter_of(kind: type[Record]) -> TypeAdapter[Record]:
    """Return the adapter that reads and writes a kind of record."""
    return cast("TypeAdapter[Record]", _adapter(cast(Hashable, kind)))


def dump_document(record: object, *, without: frozenset[str] = frozenset()) -> str:
    """Return a record (an instance of a frozen dataclass) as a JSON document in ASCII, without some
    of its fields.
    """
    adapter, left_out = adapter_of(type(record)), set(without) or None
    with suppress(PydanticSerializationError):  # of a lone surrogate
        text = adapter.dump_json(
            record, warnings=False, exclude=left_out, ensure_ascii=True
        ).decode("ascii")
        zeros = text.translate(_TO_ZEROS)
        if not any(word in zeros for word in _OUT_OF_BOUNDS):
            return text
    return to_text(_clamped(adapter.dump_python(record, warnings=False, exclude=left_out)))


def load_document(kind: type[Record], document: str, *, where: str) -> Record:
    """Return the record that :func:`dump_document` wrote; ``where`` names its place for error
    messages.

    Raises:
        StoreCorruptError: the text isn't JSON.
        StoreError: a value isn't of its field's type or isn't known to this version of benchfarm,
            or a field without default is missing.
    """
    adapter = adapter_of(kind)
    try:
        if _SURROGATE.search(document) is None:
            return adapter.validate_json(document, strict=True)
        value = json.loads(document)
        adapter.validate_json(
            json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), strict=True
        )
        # Now no value is converted but those that JSON has no type for.
        return cast("Record", plain_adapter_of(cast(Hashable, kind)).validate_python(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        if first["type"] == "json_invalid":
            raise StoreCorruptError(
                f"{where}: the stored document isn't JSON ({first['msg']})"
            ) from error
        raise StoreError(
            f"{where}: the stored document can't be read as {kind.__name__}: {fault_text(error)}",
            hint="a newer benchfarm may have written it; upgrade benchfarm and try again",
        ) from error
    except (ValueError, RecursionError) as error:
        raise StoreCorruptError(f"{where}: the stored document isn't JSON ({error})") from error


def fault_text(error: ValidationError, *, most: int = 1) -> str:
    """Return the first ``most`` faults of a document in one line: place, fault and value of each."""
    descriptions = []
    for fault in error.errors(include_url=False, include_context=False)[:most]:
        place = ".".join(str(part) for part in fault["loc"])
        got = "" if fault["type"] == "missing" else f", not {repr(fault['input'])[:_SHOWN_CHARS]}"
        descriptions.append(
            f"{place or 'the whole'}: {fault['msg'].removeprefix('Value error, ')}{got}"
        )
    return "; ".join(descriptions)
