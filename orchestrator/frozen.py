"""The decorator of all records: frozen, without further attributes, with fields by keyword."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_RecordT = TypeVar("_RecordT")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(kind: type[_RecordT]) -> type[_RecordT]:
    """Make a class a record: a dataclass of ``dataclasses``, and all of its functions know it."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)
