"""A YAML file as mappings, lists and the text of its scalars, each with its place in the file.

Scalars stay as they are written; the field that they are for decides what they mean. So a serial
number ``0123456`` keeps its zero, a flag's value ``true`` stays the word that the flag wants, and a
version ``1.10`` isn't ``1.1``.

libyaml's events are composed in Python: libyaml's own composer overflows its stack, and ends the
process, at a few kilobytes of ``[``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from yaml.composer import Composer

from orchestrator.errors import PlanError, closest
from orchestrator.fields import TEXTS, not_one_of
from orchestrator.units import counted

FILE_BYTES_MAX: Final = 1_000_000
_DEPTH_MAX: Final = 32
#: Values of a file, those of an alias as often as it stands there.
_VALUES_MAX: Final = 100_000

Value = str | list["Value"] | dict[str, "Value"]
Location = tuple[str | int, ...]
Place = tuple[int, int]

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
#: Stands where a node has its tag.
_NULL: Final = "null"
_MERGE_KEY: Final = "<<"


def format_location(location: Location) -> str:
    """Return a location as people write it: ``models[0].sha256``."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in location
    ).removeprefix(".")


def read_yaml(path: Path) -> YamlFile:
    """Read a YAML file whose top is a mapping.

    Raises:
        PlanError: it can't be read, is too large, no UTF-8, no YAML, or no mapping at the top.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise PlanError(
            f"{path}: can't be read: {reason}", hint="check the path and its permissions"
        ) from error
    if len(content) > FILE_BYTES_MAX:
        raise PlanError(f"{path}: is larger than {FILE_BYTES_MAX} bytes; was another file meant?")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise PlanError(f"{path}:{line}:{column}: isn't UTF-8 text; save it as UTF-8") from error
    return parse_yaml(text, label=str(path))


def parse_yaml(text: str, *, label: str) -> YamlFile:
    """Parse the text of a YAML file; ``label`` names it in messages.

    Raises PlanError as :func:`read_yaml` does.
    """
    try:
        root = _Loader(text.removeprefix("\ufeff")).get_single_node()
    except RecursionError:
        raise PlanError(f"{label}: is nested more than {_DEPTH_MAX} levels deep") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        if error.problem == "but found another document":
            raise PlanError(
                f"{label}:{line}:{column}: a second document begins here; one file, one document"
            ) from error
        raise PlanError(
            f"{label}:{line}:{column}: isn't YAML: {_explain(text, line, error)}"
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise PlanError(
            f"{label}:{line}: isn't YAML: character U+{code:04X} isn't allowed"
        ) from error
    if root is None or root.tag == _NULL:
        raise PlanError(f"{label}: is empty; it needs keys and values")
    if not isinstance(root, yaml.MappingNode):
        line, column = _place(root)
        what = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
        raise PlanError(
            f"{label}:{line}:{column}: must be keys and values (key: value), but is {what}"
        )
    return YamlFile(label, text, root)


def _explain(text: str, line: int, error: yaml.MarkedYAMLError) -> str:
    lines = text.splitlines()
    problem = str(error.problem or error.context or "it can't be read")
    if problem.startswith("found character") and 0 < line <= len(lines):
        indent = lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]
        if "\t" in indent:
            return "a tab can't be used to indent; use spaces"
    return f"{problem} ({error.context})" if error.context and error.context != problem else problem


class _Loader(Composer, yaml.CSafeLoader):
    """Nodes whose tag is empty, ``_NULL``, or one that was written and changes what the value is."""

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool] | bool) -> str:
        """Return the tag of a node for which none was written."""
        is_plain = isinstance(implicit, tuple) and implicit[0]
        return _NULL if kind is yaml.ScalarNode and is_plain and value in _NULLS else ""


def _place(node: yaml.Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1


class YamlFile:
    """A file that was read: plain values, aliases followed as often as they stand there, and where
    each stands.
    """

    def __init__(self, label: str, text: str, root: yaml.MappingNode) -> None:
        #: The file as it is named in messages.
        self.label = label
        self.text = text
        #: What is wrong with the file's form and doesn't keep it from being read on, one line each.
        self.faults: list[str] = []
        #: Where each value begins, and where the key of each value of a mapping stands: line and
        #: column, from 1.
        self.places: dict[Location, Place] = {(): _place(root)}
        self.key_places: dict[Location, Place] = {}
        self.value: dict[str, Value] = dict(self._entries(root, ()))

    def describe(self, location: Location, *, at_key: bool = False) -> str:
        """Return ``file:line:column: key.path`` of a location, or of the nearest one around it that
        the file has.
        """
        known: Location = ()
        for part in location:
            if (*known, part) in self.places:
                known = (*known, part)
            # A list of one may stand there as that one.
            elif not isinstance(part, int):
                break
        place = self.places[known]
        return self._line(known, self.key_places.get(known, place) if at_key else place)

    def _line(self, location: Location, place: Place) -> str:
        path = format_location(location)
        return f"{self.label}:{place[0]}:{place[1]}" + (f": {path}" if path else "")

    def _value(self, node: yaml.Node, location: Location) -> Value:
        if len(location) > _DEPTH_MAX:
            raise PlanError(
                f"{self._line((), _place(node))}: is nested more than {_DEPTH_MAX} levels deep"
            )
        self.places[location] = _place(node)
        if len(self.places) > _VALUES_MAX:
            raise PlanError(
                f"{self._line((), _place(node))}: the file holds more than {_VALUES_MAX} values",
                hint="an alias (*name) counts as often as it stands there; write less, or several files",
            )
        if node.tag:
            self._fault(
                location, f"tags such as {node.tag} aren't supported; write the plain value", node
            )
        if isinstance(node, yaml.SequenceNode):
            items = [item for item in node.value if self._has_value(item, location)]
            return [self._value(item, (*location, number)) for number, item in enumerate(items)]
        return (
            dict(self._entries(node, location))
            if isinstance(node, yaml.MappingNode)
            else str(node.value)
        )

    def _entries(
        self, mapping: yaml.MappingNode, location: Location
    ) -> Iterator[tuple[str, Value]]:
        for key, value in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(location, "a key must be a single word", key)
                continue
            here = (*location, key.value)
            if key.value == _MERGE_KEY:
                self._fault(location, "merge keys (<<) aren't supported; write the keys out", key)
            elif here in self.key_places:
                line = self.key_places[here][0]
                self._fault(here, f"is given twice, first in line {line}; keep one of them", key)
            else:
                self.key_places[here] = _place(key)
                if self._has_value(value, here):
                    yield key.value, self._value(value, here)

    def _has_value(self, node: yaml.Node, location: Location) -> bool:
        if node.tag == _NULL:
            self.places.setdefault(location, _place(node))
            self._fault(location, "has no value; give it one or remove it", node)
        return node.tag != _NULL

    def _fault(self, location: Location, message: str, node: yaml.Node) -> None:
        self.faults.append(f"{self._line(location, _place(node))}: {message}")


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


class _Named(Protocol):
    """The whole of a file that is called as it says."""

    @property
    def name(self) -> str: ...


ModelT = TypeVar("ModelT")
NamedT = TypeVar("NamedT", bound=_Named)
#: What pydantic calls a key that a section doesn't have, and a record.
_UNKNOWN: Final = {"extra_forbidden", "unexpected_keyword_argument"}
#: What it puts behind a mapping's key that was refused.
_KEY: Final = "[key]"


@cache
def adapter_of(model: type[Any]) -> TypeAdapter[Any]:
    """Return what reads values as a model; making it takes longer than reading a plan with it."""
    return TypeAdapter(model)


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
        result: ModelT = adapter_of(cast("Any", model)).validate_python(
            source.value, extra="forbid", context=rules
        )
    except ValidationError as error:
        details = error.errors(include_url=False)
        for detail in details:
            location = tuple(detail["loc"])
            if _follows(source, detail, details):
                continue
            refusal = _message(detail)
            if location[-1:] == (_KEY,):
                faults.add(location[:-1], _key_fault(model, location[:-1], refusal), at_key=True)
            elif detail["type"] in _UNKNOWN or _lacks_name(model, detail):
                faults.add(location, _key_fault(model, location), at_key=True)
            else:
                faults.add(location, refusal)
        faults.raise_if_any()
        raise
    faults.raise_if_any()
    return result


def read_named(
    path: Path, model: type[NamedT], *, context: Mapping[str, object] | None = None
) -> NamedT:
    """Return a file as a record whose name is the file's.

    Raises PlanError with one line for each fault.
    """
    file = read_yaml(path)
    found = checked(file, model, context=context)
    faults = Faults(file)
    if found.name != path.stem:
        faults.add(("name",), f"{found.name!r} must be the file's name, {path.stem!r}")
    faults.raise_if_any()
    return found


def load_each(
    folders: Sequence[Path], load: Callable[[Path], ModelT], problems: list[str]
) -> dict[Path, ModelT]:
    """Return what the files (``*.yaml``) of some folders hold; of two with one name the first
    folder's.

    The faults of all are added to ``problems``.
    """
    paths: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            paths.setdefault(path.stem, path)
    found: dict[Path, ModelT] = {}
    for path in paths.values():
        try:
            found[path] = load(path)
        except PlanError as error:
            problems += error.faults or [str(error)]
    return found


def _follows(source: Source, detail: ErrorDetails, others: Iterable[ErrorDetails]) -> bool:
    """Whether a fault is only what follows from another one."""
    location = tuple(detail["loc"])
    if any(tuple(other["loc"]) == (*location, _KEY) for other in others):
        return True  # Its key was refused.
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


def _key_fault(model: type, location: Location, refusal: str = "") -> str:
    """Return what is wrong with a key that isn't known where it stands, or was refused there."""
    word = str(location[-1])
    owners = _owners(model)
    if word in owners:
        return f"isn't a key here; it belongs {_home(owners[word])}"
    if refusal:
        return refusal
    here = [part for part in location[:-1] if not isinstance(part, int)]
    own = sorted(name for name, places in owners.items() if any(_is_at(here, at) for at in places))
    near = closest(word, own) or closest(word, sorted(owners))
    if not near and len(own) == 1 and any((*here, *own, _ANY_NAME) in at for at in owners.values()):
        return f"unknown key; names belong under {own[0]}:"
    if not near:
        return f"unknown key; known are {', '.join(own or sorted(owners))}"
    home = f" It belongs {_home(owners[near])}" if own and near not in own else ""
    return f"unknown key; did you mean {near!r}?{home}"


def _lacks_name(model: type, detail: ErrorDetails) -> bool:
    """Whether a key stands where a name must, under which that key belongs."""
    if detail["type"] not in _OF_MAPPINGS or not detail["loc"]:
        return False
    here = [part for part in detail["loc"][:-1] if not isinstance(part, int)]
    places = _owners(model).get(str(detail["loc"][-1]), ())
    return any(place[-1:] == (_ANY_NAME,) and _is_at(here, place[:-1]) for place in places)


def _owners(model: type) -> Mapping[str, list[Location]]:
    """Return the places of each key that a file may have."""
    owners: dict[str, list[Location]] = {}
    schema = adapter_of(model).json_schema()
    for place, names in _places(schema, schema):
        for name in names:
            owners.setdefault(name, []).append(place)
    return owners


#: A key of a place, which may be any name there.
_ANY_NAME: Final = ""


def _places(
    schema: Mapping[str, Any], part: Mapping[str, Any], place: Location = ()
) -> Iterator[tuple[Location, Iterable[str]]]:
    """Yield the places of a file where keys may stand, and the keys that are known there.

    A place is the keys around it; those of a list's items are at the place of the list.
    """
    if "$ref" in part:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    yield place, part.get("properties", {})
    yield place, part.get("propertyNames", {}).get("enum", ())
    for name, inner in part.get("properties", {}).items():
        yield from _places(schema, inner, (*place, name))
    if isinstance(inner := part.get("additionalProperties"), dict):
        yield from _places(schema, inner, (*place, _ANY_NAME))
    for same in filter(None, (part.get("items"), *part.get("anyOf", ()))):
        yield from _places(schema, same, place)


def _is_at(here: Sequence[str], place: Location) -> bool:
    return len(here) == len(place) and all(
        known in (_ANY_NAME, own) for own, known in zip(here, place, strict=True)
    )


def _home(places: Sequence[Location]) -> str:
    """Return where a key belongs that is known at some places: at those nearest to the top."""
    depth = min(map(len, places))
    if not depth:
        return "at the top"
    homes = (
        f"{place[-1]}:" if place[-1] != _ANY_NAME else f"a name in {place[-2]}:"
        for place in places
        if len(place) == depth
    )
    return f"under {' or '.join(dict.fromkeys(homes))}"


_OF_WHOLE: Final = {"int_parsing", "int_type", "int_from_float"}
_OF_MAPPINGS: Final = {"dict_type", "model_type", "dataclass_type"}
_OF_SCALARS: Final = _OF_WHOLE | {"enum", "literal_error", "bool_type", "bool_parsing"}


def _message(detail: ErrorDetails) -> str:
    """Return what is wrong, in this program's words where pydantic's need any."""
    given, context = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return f"{detail['loc'][-1]} is missing"
        case kind if kind in _OF_SCALARS and isinstance(given, list | tuple | dict):
            return f"must be a single value, but is {_shown(given)}"
        case "enum" | "literal_error":
            return not_one_of(str(given), re.findall(r"'([^']*)'", context["expected"]))
        case "value_error":
            return str(context["error"])
        case "too_short":
            return "must not be empty"
        case kind if kind in _OF_MAPPINGS:
            return f"must be keys and values (key: value), but is {_shown(given)}"
        case kind if kind in _OF_WHOLE:
            return f"{_shown(given)} isn't a whole number"
        case _:
            return re.sub(r"^Input", _shown(given), detail["msg"])


def _shown(given: object) -> str:
    match given:
        case str():
            return repr(given)
        case list() | tuple():
            return "a list"
        case dict():
            return "keys and values"
        case _:
            return str(given)
