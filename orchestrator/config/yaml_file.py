"""A YAML file as mappings, lists and the text of its scalars, each with its place in the file.

Scalars stay as they are written; the field that they are for decides what they mean. So a serial
number ``0123456`` keeps its zero, a flag's value ``true`` stays the word that the flag wants, and a
version ``1.10`` isn't ``1.1``.

libyaml's events are composed in Python: libyaml's own composer overflows its stack, and ends the
process, at a few kilobytes of ``[``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from yaml.composer import Composer

from orchestrator.documents import plain_adapter_of
from orchestrator.errors import PlanError, closest
from orchestrator.fields import TEXTS
from orchestrator.units import counted

FILE_BYTES_MAX: Final = 1_000_000
_DEPTH_MAX: Final = 32
#: Values of a file, those of an alias once for each use.
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
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: isn't UTF-8 text: {error}") from error
    except (OSError, ValueError) as error:
        raise PlanError(f"{path}: can't be read: {error}") from error
    if len(content) > FILE_BYTES_MAX:
        raise PlanError(f"{path}: is larger than {FILE_BYTES_MAX} bytes; was another file meant?")
    return parse_yaml(text, label=str(path))


def parse_yaml(text: str, *, label: str) -> YamlFile:
    """Parse the text of a YAML file; ``label`` names it in messages.

    Raises PlanError as :func:`read_yaml` does.
    """
    try:
        root = _Loader(text).get_single_node()
    except RecursionError:
        raise PlanError(f"{label}: is nested more than {_DEPTH_MAX} levels deep") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{label}:{mark.line + 1}:{mark.column + 1}" if mark else label
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise PlanError(f"{place}: isn't YAML: {reason}") from error
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise PlanError(f"{label}: isn't YAML: {reason}") from error
    if not isinstance(root, yaml.MappingNode):
        raise PlanError(f"{label}:1:1: must be keys and values (key: value)")
    return YamlFile(label, text, root)


class _Loader(Composer, yaml.CSafeLoader):
    """Nodes whose tag is empty, ``_NULL``, or an explicit one, which changes the value's type."""

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool] | bool) -> str:
        """Return the tag of a node for which none was written."""
        is_plain = isinstance(implicit, tuple) and implicit[0]
        return _NULL if kind is yaml.ScalarNode and is_plain and value in _NULLS else ""


class YamlFile:
    """A parsed file: its plain values, with aliases expanded, and each value's place."""

    def __init__(self, label: str, text: str, root: yaml.MappingNode) -> None:
        #: The file's name in messages.
        self.label = label
        self.text = text
        #: Faults of the file's form after which reading goes on.
        self.faults: list[tuple[Place, str]] = []
        #: Their locations; other faults there follow from them.
        self.refused: set[Location] = set()
        #: Where each item of a list and each key of a mapping begins: line and column, from 1.
        self.places: dict[Location, Place] = {(): (1, 1)}
        self.value: dict[str, Value] = dict(self._entries(root, ()))

    def describe(self, location: Location) -> tuple[Place, str]:
        """Return the place, and ``file:line:column: key.path``, of a location, or of the nearest one
        around it that the file has.
        """
        nearest: Location = ()
        for part in location:
            if (*nearest, part) in self.places:
                nearest = (*nearest, part)
            # A list of one item may be written as the item.
            elif not isinstance(part, int):
                break
        line, column = self.places[nearest]
        path = format_location(nearest)
        return (line, column), f"{self.label}:{line}:{column}" + (f": {path}" if path else "")

    def _line(self, node: yaml.Node, message: str) -> tuple[Place, str]:
        line, column = _place(node)
        return (line, column), f"{self.label}:{line}:{column}: {message}"

    def _fault(self, node: yaml.Node, location: Location, message: str) -> None:
        path = format_location(location)
        self.refused.add(location)
        self.faults.append(self._line(node, f"{path}: {message}" if path else message))

    def _value(self, node: yaml.Node, location: Location) -> Value:
        if len(location) > _DEPTH_MAX:
            raise PlanError(self._line(node, f"is nested more than {_DEPTH_MAX} levels deep")[1])
        if len(self.places) > _VALUES_MAX:
            raise PlanError(self._line(node, f"the file holds more than {_VALUES_MAX} values")[1])
        if node.tag == _NULL:
            self._fault(node, location, "has no value; give it one or remove it")
        elif node.tag:
            message = f"tags such as {node.tag} aren't supported; write the plain value"
            self._fault(node, location, message)
        if isinstance(node, yaml.MappingNode):
            return dict(self._entries(node, location))
        if not isinstance(node, yaml.SequenceNode):
            return str(node.value)
        items = []
        for number, item in enumerate(node.value):
            self.places[*location, number] = _place(item)
            items.append(self._value(item, (*location, number)))
        return items

    def _entries(
        self, mapping: yaml.MappingNode, location: Location
    ) -> Iterator[tuple[str, Value]]:
        for key, value in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(key, location, "a key must be a single word")
                continue
            entry_location = (*location, key.value)
            if key.value == _MERGE_KEY:
                self._fault(key, location, "merge keys (<<) aren't supported; write the keys out")
            elif entry_location in self.places:
                line, _ = self.places[entry_location]
                self._fault(
                    key, entry_location, f"is given twice, first in line {line}; keep one of them"
                )
            else:
                self.places[entry_location] = _place(key)
                yield key.value, self._value(value, entry_location)


def _place(node: yaml.Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1


@dataclass(slots=True, kw_only=True)
class OptionSource:
    """Values of options; messages name the option of a location."""

    label: str
    #: The options' names by location; other locations are named as in a file.
    names: Mapping[Location, str]
    value: dict[str, Any] = field(default_factory=dict)

    def describe(self, location: Location) -> tuple[Place, str]:
        """Return no place, and the option that a location came from."""
        around = (location[:length] for length in range(len(location), 0, -1))
        name = next((self.names[part] for part in around if part in self.names), None)
        return (0, 0), name or format_location(location)


#: Where values come from, and how a location in it is shown to people.
Source = YamlFile | OptionSource


class Faults:
    """Collects the faults of one source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._refused: set[Location] = set()
        self._found: set[tuple[Place, str]] = set()
        if isinstance(source, YamlFile):
            self._refused |= source.refused
            self._found |= set(source.faults)

    def add(self, location: Location, message: str) -> None:
        """Add a fault, unless the file's form is at fault there already."""
        if any(location[:length] in self._refused for length in range(1, len(location) + 1)):
            return
        place, where = self._source.describe(location)
        self._found.add((place, f"{where}: {message}"))

    def raise_if_any(self) -> None:
        """Raise PlanError with all faults, in the file's order."""
        lines = [line for _, line in sorted(self._found)]
        if lines:
            raise PlanError(f"{self._source.label}: {counted(len(lines), 'fault')}:", faults=lines)


class _Named(Protocol):
    """A file's record with the file's own name."""

    @property
    def name(self) -> str: ...


ModelT = TypeVar("ModelT")
NamedT = TypeVar("NamedT", bound=_Named)
#: pydantic's error types for a key that no file may set, and for an unknown one.
_UNKNOWN: Final = {"extra_forbidden", "unexpected_keyword_argument"}
_NOT_A_MAPPING: Final = {"dict_type", "dataclass_type"}


def checked(
    source: Source, model: type[ModelT], *, context: Mapping[str, object] | None = None
) -> ModelT:
    """Return a source's values as a record.

    Raises:
        PlanError: with one line for each fault.
    """
    adapter = plain_adapter_of(cast("Any", model))
    rules = {TEXTS: True, **(context or {})}
    faults = Faults(source)
    try:
        record: ModelT = adapter.validate_python(source.value, extra="forbid", context=rules)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            # pydantic adds "[key]" to the location of a mapping's refused key.
            location = tuple(part for part in detail["loc"] if part != "[key]")
            is_unknown = detail["type"] in _UNKNOWN
            faults.add(
                location, _unknown_key(adapter, location) if is_unknown else _message(detail)
            )
        faults.raise_if_any()
        raise
    faults.raise_if_any()
    return record


def read_named(
    path: Path, model: type[NamedT], *, context: Mapping[str, object] | None = None
) -> NamedT:
    """Return a file as a record whose name is the file's.

    Raises PlanError with one line for each fault.
    """
    file = read_yaml(path)
    record = checked(file, model, context=context)
    faults = Faults(file)
    if record.name != path.stem:
        faults.add(("name",), f"{record.name!r} must be the file's name, {path.stem!r}")
    faults.raise_if_any()
    return record


def load_each(
    folders: Sequence[Path], load: Callable[[Path], ModelT], *, label: str
) -> dict[str, ModelT]:
    """Return the loaded files (``*.yaml``) of some folders, sorted by name; of two with one name
    the first folder's is taken. A folder may be missing.

    Raises PlanError with one line for each fault of all files; ``label`` names the files.
    """
    paths: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            paths.setdefault(path.stem, path)
    loaded: dict[str, ModelT] = {}
    faults: list[str] = []
    for name, path in sorted(paths.items()):
        try:
            loaded[name] = load(path)
        except PlanError as error:
            faults += error.faults or [str(error)]
    if faults:
        raise PlanError(f"the {label} have faults:", faults=faults)
    return loaded


def _unknown_key(adapter: TypeAdapter[Any], location: Location) -> str:
    """Return the message for an unknown key; suggests a known one, also of another section."""
    schema = adapter.json_schema()
    paths = sorted(_key_paths(schema, schema), key=lambda path: path.count("."), reverse=True)
    section = ".".join(part for part in location[:-1] if isinstance(part, str))
    siblings = [path for path in paths if path.rpartition(".")[0] == section]
    for candidates in (siblings, paths):
        by_word = {path.rpartition(".")[2]: path for path in candidates}
        if match := closest(str(location[-1]), by_word):
            return f"unknown key; did you mean {by_word[match]!r}?"
    return f"unknown key; known are {', '.join(sorted(siblings or paths))}"


def _key_paths(schema: Mapping[str, Any], part: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the keys that a file may have, ``matrix.threads``; * stands for any name."""
    if "$ref" in part:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    for name, inner in part.get("properties", {}).items():
        yield f"{path}{name}"
        yield from _key_paths(schema, inner, f"{path}{name}.")
    if isinstance(inner := part.get("additionalProperties"), dict):
        yield from _key_paths(schema, inner, f"{path}*.")
    for variant in filter(None, (part.get("items"), *part.get("anyOf", ()))):
        yield from _key_paths(schema, variant, path)


def _message(detail: ErrorDetails) -> str:
    """Return a fault's message, in benchfarm's words where pydantic's aren't clear."""
    if detail["type"] == "missing":
        return f"{detail['loc'][-1]} is missing"
    value = detail["input"]
    is_several = isinstance(value, list | tuple | dict)
    description = f"a {type(value).__name__}" if is_several else repr(value)
    if detail["type"] in _NOT_A_MAPPING:
        return f"must be keys and values (key: value), but is {description}"
    return re.sub("^Input", lambda _: description, detail["msg"].removeprefix("Value error, "))
