"""Frozen records as JSON documents and back: the one codec of the store, bundles and the farm's queue.

A document holds every field of a record under the field's name. Reading is lenient in one direction only: a key that
this version doesn't know is left out (a newer minor version wrote it), and a key that isn't there takes the field's
default (an older version wrote the document). Every value is checked against its field's type: text
is no number, a number no text, and nothing is converted. A value that can't be understood is an error, never a guess.

Non-finite numbers are written as Python writes them (``NaN``, ``Infinity``); the text is ASCII, so that no database and
no encoding can change it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from orchestrator.errors import StoreCorruptError, StoreError

Record = TypeVar("Record")

#: pydantic's JSON reader refuses lone surrogates, which names of files may hold; Python's takes them.
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
#: Of a value that is refused, in a message.
_SHOWN_CHARS: Final = 80


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in a document")


#: Plain values as JSON in ASCII.
to_text = json.JSONEncoder(ensure_ascii=True, check_circular=False, separators=(",", ":"), default=_plain).encode


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    # Making one takes a thousand times as long as using it.
    return TypeAdapter(cast("type[Any]", kind))


def adapter_of(kind: type[Record]) -> TypeAdapter[Record]:
    """Return what reads and writes a kind of record."""
    return cast("TypeAdapter[Record]", _adapter(cast(Hashable, kind)))


def dump_document(record: object) -> str:
    """Return a record (an instance of a frozen dataclass) as a JSON document in ASCII."""
    return to_text(adapter_of(type(record)).dump_python(record, warnings=False))


def load_document(kind: type[Record], document: str, *, where: str) -> Record:
    """Return the record that :func:`dump_document` wrote; ``where`` names its place for error messages.

    Raises:
        StoreCorruptError: the text isn't JSON.
        StoreError: a value isn't of its field's type or isn't known to this version of benchfarm, or a field without
            default is missing.
    """
    adapter = adapter_of(kind)
    try:
        if _SURROGATE.search(document) is None:
            return adapter.validate_json(document, strict=True)
        return adapter.validate_python(json.loads(document))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        if first["type"] == "json_invalid":
            raise StoreCorruptError(f"{where}: the stored document isn't JSON ({first['msg']})") from error
        raise StoreError(
            f"{where}: the stored document can't be read as {kind.__name__}: {describe(error)}",
            hint="a newer benchfarm may have written it; upgrade benchfarm and try again",
        ) from error
    except (ValueError, RecursionError) as error:
        raise StoreCorruptError(f"{where}: the stored document isn't JSON ({error})") from error


def describe(error: ValidationError) -> str:
    """Return the first fault of a document in one line: where, what, and the value."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    given = "" if first["type"] == "missing" else f", not {repr(first['input'])[:_SHOWN_CHARS]}"
    return f"{place or 'the whole'}: {first['msg']}{given}"
