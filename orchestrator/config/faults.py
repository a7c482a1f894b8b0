"""Checks plain values against a pydantic model and tells all faults at once, each with its place
and what would do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.config.yaml_file import Location, YamlFile, format_location
from orchestrator.errors import PlanError, nearest
from orchestrator.fields import NO_KEY, TEXTS, not_one_of
from orchestrator.units import counted


class Section(BaseModel):
    """A mapping of a file, all of whose keys are known."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


@dataclass(slots=True, kw_only=True)
class OptionSource:
    """Values given as options; a location is shown as the option that it came from."""

    label: str
    #: Where a value of the plan comes from; others are called as in a file.
    names: Mapping[Location, str]
    value: dict[str, Any] = field(default_factory=dict)

    def describe(self, location: Location, *, at_key: bool = False) -> str:
        """Return the option that a location came from."""
        for length in range(len(location), 0, -1):
            if location[:length] in self.names:
                return self.names[location[:length]]
        last = next((part for part in reversed(location) if isinstance(part, str)), "")
        return f"--{last.replace('_', '-')}" if last else format_location(location)


#: Where values come from, and how a location in it is shown to people.
Source = YamlFile | OptionSource


class Faults:
    """Collects what is wrong with one source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lines = [*source.faults] if isinstance(source, YamlFile) else []

    def add(self, location: Location, message: str, *, at_key: bool = False) -> None:
        """Note one fault."""
        self._lines.append(f"{self._source.describe(location, at_key=at_key)}: {message}")

    def raise_if_any(self) -> None:
        """Raise PlanError with all that was noted, in the order in which it stands in the file."""
        lines = sorted(set(self._lines), key=_order)
        if lines:
            raise PlanError(f"{self._source.label}: {counted(len(lines), 'fault')}:", faults=lines)


def _order(line: str) -> tuple[list[int], str]:
    place = re.search(r":(\d+):(\d+):", line)
    return ([int(place[1]), int(place[2])] if place else [0, 0]), line


ModelT = TypeVar("ModelT")
#: What pydantic calls a key that a section doesn't have, and a record.
_UNKNOWN: Final = {"extra_forbidden", "unexpected_keyword_argument"}


def checked(
    source: Source, model: type[ModelT], *, context: Mapping[str, object] | None = None
) -> ModelT:
    """Return a source's values as a model: a section, or a record whose fields say how they are
    written.

    Raises:
        PlanError: with one line for each fault.
    """
    faults = Faults(source)
    try:
        rules = {TEXTS: True, **(context or {})}
        result = TypeAdapter(model).validate_python(source.value, extra="forbid", context=rules)
    except ValidationError as error:
        details = error.errors(include_url=False)
        for detail in details:
            location = tuple(detail["loc"])
            if _follows(source, detail, details):
                continue
            unknown = detail["type"] in _UNKNOWN
            faults.add(
                location,
                _unknown_key(model, location) if unknown else _message(detail),
                at_key=unknown,
            )
        faults.raise_if_any()
        raise
    faults.raise_if_any()
    return result


def _follows(source: Source, detail: ErrorDetails, others: Iterable[ErrorDetails]) -> bool:
    """Whether a fault is only what follows from another one."""
    location = tuple(detail["loc"])
    match detail["type"]:
        case "missing":  # It is there without a value, which is a fault of the file's form.
            return isinstance(source, YamlFile) and location in source.places
        case "too_short":  # Its items were refused, and nothing was left.
            return any(
                len(other["loc"]) > len(location) and other["loc"][: len(location)] == location
                for other in others
            )
        case _:
            return False


def _unknown_key(model: type, location: Location) -> str:
    known = list(_fields_at(model, location[:-1]))
    hint = nearest(str(location[-1]), known)
    return f"unknown key; {hint or 'known are ' + ', '.join(known)}"


def _fields_at(model: type, location: Location) -> dict[str, Any]:
    """Return the types of the keys of the mapping at a location; empty where no section is."""
    found: Any = model
    for part in location:
        found = _bare(found)
        # Else an item of tuple[Item, ...], or a value of dict[str, Value].
        inner = get_args(found)[get_origin(found) is dict] if get_args(found) else None
        found = _fields(found).get(str(part), inner)
    return _fields(_bare(found))


def _fields(section: Any) -> dict[str, Any]:  # noqa: ANN401 - any type expression
    if isinstance(section, type) and issubclass(section, BaseModel):
        return {name: item.annotation for name, item in section.model_fields.items()}
    if not isinstance(section, type) or not is_dataclass(section):
        return {}
    hints = get_type_hints(section, include_extras=True)
    names = [item.name for item in fields(section)]
    return {
        name: hints[name]
        for name in names
        if NO_KEY not in getattr(hints[name], "__metadata__", ())
    }


def _bare(annotation: Any) -> Any:  # noqa: ANN401 - any type expression
    """Return a type without Annotated and without None."""
    while get_origin(annotation) in {Annotated, Union, UnionType}:
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def _message(detail: ErrorDetails) -> str:
    """Return what is wrong, in this program's words."""
    given, context = detail["input"], detail.get("ctx", {})
    shown = _shown(given)
    match detail["type"]:
        case "missing":
            return f"{detail['loc'][-1]} is missing"
        case "enum" | "literal_error":
            return not_one_of(str(given), re.findall(r"'([^']*)'", context["expected"]))
        case "value_error":
            return str(context["error"])
        case "int_parsing" | "int_type" | "int_from_float":
            return f"{shown} isn't a whole number"
        case "float_parsing" | "float_type" | "finite_number":
            return f"{shown} isn't a number"
        case "bool_parsing" | "bool_type":
            return f"{shown} isn't true or false"
        case "string_type":
            return f"must be a single value, but is {shown}"
        case "list_type" | "tuple_type":
            return f"must be a list, but is {shown}"
        case "dict_type" | "model_type" | "dataclass_type":
            return f"must be keys and values (key: value), but is {shown}"
        case "greater_than_equal":
            return f"{given} is too small; the minimum is {context['ge']}"
        case "greater_than":
            return f"{given} is too small; it must be more than {context['gt']}"
        case "less_than_equal":
            return f"{given} is too large; the maximum is {context['le']}"
        case "less_than":
            return f"{given} is too large; it must be less than {context['lt']}"
        case "too_short":
            return "must not be empty"
        case _:
            return detail["msg"]


def _shown(given: object) -> str:
    if isinstance(given, str):
        return repr(given)
    if isinstance(given, list | tuple):
        return "a list"
    return "keys and values" if isinstance(given, dict) else str(given)
