"""Frozen records as JSON documents and back, exactly.

A document holds every field of a record under the field's name. Reading is lenient in one direction only: a key that
this version doesn't know is left out (a newer minor version wrote it), and a key that isn't there takes the field's
default (an older version wrote the document). A value that can't be understood is an error, never a guess.

The converters of a record class are built once, from its type hints. Non-finite numbers are written as Python writes
them (``NaN``, ``Infinity``); the text is ASCII, so that no database and no encoding can change it.
"""

# ruff: noqa: ANN401 (the converters take and return whatever a field may hold)

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.errors import StoreCorruptError, StoreError

Record = TypeVar("Record")
#: Turns one value into another; None stands for "leave it as it is", which spares a call per value.
_Convert = Callable[[Any], Any] | None

_from_text = json.JSONDecoder().decode
#: Plain values as JSON in ASCII.
to_text = json.JSONEncoder(ensure_ascii=True, check_circular=False, separators=(",", ":")).encode


def dump_document(record: object) -> str:
    """Return a record (an instance of a frozen dataclass) as a JSON document in ASCII."""
    return to_text(_record_encoder(typing.cast(Hashable, type(record)))(record))


def load_document(kind: type[Record], document: str, *, where: str) -> Record:
    """Return the record that :func:`dump_document` wrote; ``where`` names its place for error messages.

    Raises:
        StoreCorruptError: the text isn't JSON.
        StoreError: a value isn't known to this version of benchfarm, or a field without default is missing.
    """
    try:
        values = _from_text(document)
    except ValueError as error:
        raise StoreCorruptError(f"{where}: the stored document isn't JSON ({error})") from error
    try:
        record: Record = _record_decoder(typing.cast(Hashable, kind))(values)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise StoreError(
            f"{where}: the stored document can't be read as {kind.__name__}: {error}",
            hint="a newer benchfarm may have written it; upgrade benchfarm and try again",
        ) from error
    return record


@functools.cache
def _encoder(hint: Any) -> _Convert:
    """Return what turns a value of this type into values that json writes."""
    hint, arguments, kind = _taken_apart(hint)
    if kind is datetime:
        return datetime.isoformat
    if kind is Path:
        return str
    if dataclasses.is_dataclass(kind):
        return _record_encoder(typing.cast(Hashable, kind))
    if kind is types.UnionType:
        return _or_none([_encoder(item) for item in arguments], hint)
    inner = [_encoder(item) for item in arguments if item is not ...]
    if kind is Mapping:
        of_key, of_value = inner
        if of_key is not None:
            raise TypeError(f"{hint}: keys must be text or whole numbers")
        if of_value is None:
            return dict
        return lambda mapping: {key: of_value(value) for key, value in mapping.items()}
    if kind is tuple and any(inner):
        if arguments[1:] != (...,):
            raise TypeError(f"{hint}: a tuple of fixed length may hold plain values only")
        of_item = inner[0]
        return lambda items: [of_item(item) for item in items]  # type: ignore[misc]
    # Text, numbers, truth values, members of a StrEnum and tuples of them are written by json as they are.
    return None


@functools.cache
def _record_encoder(kind: Any) -> Callable[[Any], dict[str, Any]]:
    hints = typing.get_type_hints(kind)
    names = tuple(item.name for item in dataclasses.fields(kind))
    converted = tuple((name, convert) for name in names if (convert := _encoder(hints[name])) is not None)

    def encode(record: Any) -> dict[str, Any]:
        values = {name: getattr(record, name) for name in names}
        for name, convert in converted:
            values[name] = convert(values[name])
        return values

    return encode


@functools.cache
def _decoder(hint: Any) -> _Convert:
    """Return what turns values that json read into a value of this type."""
    hint, arguments, kind = _taken_apart(hint)
    if kind is datetime:
        return datetime.fromisoformat
    if kind is Path:
        return Path
    if dataclasses.is_dataclass(kind):
        return _record_decoder(typing.cast(Hashable, kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind
    if kind is types.UnionType:
        return _or_none([_decoder(item) for item in arguments], hint)
    inner = [_decoder(item) for item in arguments if item is not ...]
    if kind is Mapping:
        of_key = int if arguments[0] is int else None
        of_value = inner[1]
        if of_key is None and of_value is None:
            return None
        if of_value is None:
            return lambda values: {int(key): value for key, value in values.items()}
        return functools.partial(_decoded_mapping, of_key or str, of_value)
    if kind is tuple:
        of_item = inner[0]
        if arguments[1:] != (...,) or of_item is None:
            return tuple
        return lambda items: tuple([of_item(item) for item in items])
    return None


@functools.cache
def _record_decoder(kind: Any) -> Callable[[Any], Any]:
    hints = typing.get_type_hints(kind)
    names = frozenset(item.name for item in dataclasses.fields(kind))
    converted = tuple((name, convert) for name in names if (convert := _decoder(hints[name])) is not None)

    def decode(values: Any) -> Any:
        known = dict(values) if values.keys() <= names else {name: values[name] for name in names & values.keys()}
        for name, convert in converted:
            if name in known:
                known[name] = convert(known[name])
        return kind(**known)

    return decode


def _decoded_mapping(of_key: Callable[[Any], Any], of_value: Callable[[Any], Any], values: Any) -> dict[Any, Any]:
    return {of_key(key): of_value(value) for key, value in values.items()}


def _or_none(converts: list[_Convert], hint: Any) -> _Convert:
    """Return the converter of ``X | None``, or of a union of plain values."""
    needed = [convert for convert in converts if convert is not None]
    if not needed:
        return None
    if len(converts) != 2 or len(needed) != 1:
        raise TypeError(f"{hint}: a union of records can't be told apart in a document")
    convert = needed[0]
    return lambda value: None if value is None else convert(value)


def _taken_apart(hint: Any) -> tuple[Any, tuple[Any, ...], Any]:
    """Return a type hint without its NewType, its arguments, and the class that it is about."""
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    kind = typing.get_origin(hint) or hint
    return hint, typing.get_args(hint), types.UnionType if kind is typing.Union else kind
