"""What benchfarm knows, as frozen records: declared, observed and judged are different types. Here
are the decorator of all records and the key of a field that people give.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

_RecordT = TypeVar("_RecordT")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(kind: type[_RecordT]) -> type[_RecordT]:
    """Make a class a record: a dataclass of ``dataclasses``, and all of its functions know it."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


@dataclass(frozen=True, slots=True)
class Key:
    """A key's help, option and default text; its type and default are those of the field."""

    #: Its line of help.
    about: str
    #: Its option's names; empty: no command has it as an option.
    option: str = ""
    #: The group of options that its option stands in.
    panel: str = ""
    #: Its name as a keyword of Python, where that isn't the key's own.
    keyword: str = ""
    #: Its meaning in the table of keys (Markdown), where the line of help is too short.
    means: str = ""
    #: Its default in words, where the value alone doesn't say it.
    default: str = ""
    #: Whether one text may hold several values, joined by commas.
    commas: bool = False
    #: The one pass that it means anything in; empty: any.
    only_in: str = ""
    #: The least number that its option takes.
    least: float | None = None
    #: The limits of a share, which its option takes as a percentage.
    share: tuple[float, float] | None = None

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:  # noqa: ANN401 - of pydantic
        return {**handler(schema), "description": self.about}
