"""Checks plain values against a pydantic model and tells all faults at once, each with its place and what would do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.config.yaml_file import Location, Value, YamlFile, format_location
from orchestrator.errors import PlanError, nearest
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
    value: dict[str, Value] = field(default_factory=dict)

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


ModelT = TypeVar("ModelT", bound=BaseModel)


def checked(source: Source, model: type[ModelT], *, context: Mapping[str, object] | None = None) -> ModelT:
    """Return a source's values as a model.

    Raises:
        PlanError: with one line for each fault.
    """
    faults = Faults(source)
    try:
        result = model.model_validate(source.value, context=dict(context or {}))
    except ValidationError as error:
        details = error.errors(include_url=False)
        for detail in details:
            location = tuple(detail["loc"])
            if _follows(source, detail, details):
                continue
            unknown = detail["type"] == "extra_forbidden"
            faults.add(location, _unknown_key(model, location) if unknown else _message(detail), at_key=unknown)
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
                len(other["loc"]) > len(location) and other["loc"][: len(location)] == location for other in others
            )
        case _:
            return False


def not_one_of(word: str, known: Iterable[str]) -> str:
    """Return what to say about a word that isn't one of those known."""
    names = list(known)
    hint = nearest(word, names)
    return f"{word!r} isn't one of {', '.join(names)}" + (f"; {hint}" if hint else "")


def _unknown_key(model: type[BaseModel], location: Location) -> str:
    section = _section_at(model, location[:-1])
    known = list(section.model_fields) if section else []
    hint = nearest(str(location[-1]), known)
    return f"unknown key; {hint or 'known are ' + ', '.join(known)}"


def _section_at(model: type[BaseModel], location: Location) -> type[BaseModel] | None:
    """Return the model of the mapping at a location."""
    found: Any = model
    for part in location:
        found = _bare(found)
        if _is_model(found):
            field = found.model_fields.get(part)
            found = field.annotation if field else None
        else:  # An item of tuple[Item, ...], or a value of dict[str, Value].
            found = get_args(found)[get_origin(found) is dict] if get_args(found) else None
    found = _bare(found)
    return found if _is_model(found) else None


def _bare(annotation: Any) -> Any:  # noqa: ANN401 - any type expression
    """Return a type without Annotated and without None."""
    while get_origin(annotation) in {Annotated, Union, UnionType}:
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


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
        case "dict_type" | "model_type":
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
    return "a list" if isinstance(given, list) else "keys and values"
