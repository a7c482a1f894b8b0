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
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from yaml.composer import Composer

from orchestrator.errors import PlanError, closest
from orchestrator.fields import TEXTS
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
    """Nodes whose tag is empty, ``_NULL``, or one that was written and changes what the value is."""

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool] | bool) -> str:
        """Return the tag of a node for which none was written."""
        is_plain = isinstance(implicit, tuple) and implicit[0]
        return _NULL if kind is yaml.ScalarNode and is_plain and value in _NULLS else ""


class YamlFile:
    """A file that was read: plain values, aliases followed as often as they stand there, and where
    each stands.
    """

    def __init__(self, label: str, text: str, root: yaml.MappingNode) -> None:
        #: The file as it is named in messages.
        self.label = label
        self.text = text
        #: What is wrong with the file's form and doesn't keep it from being read on.
        self.faults: list[tuple[Place, str]] = []
        #: Where these are; what else is wrong there follows from them.
        self.refused: set[Location] = set()
        #: Where each item of a list and each key of a mapping begins: line and column, from 1.
        self.places: dict[Location, Place] = {(): (1, 1)}
        self.value: dict[str, Value] = dict(self._entries(root, ()))

    def describe(self, location: Location) -> tuple[Place, str]:
        """Return the place, and ``file:line:column: key.path``, of a location, or of the nearest one
        around it that the file has.
        """
        known: Location = ()
        for part in location:
            if (*known, part) in self.places:
                known = (*known, part)
            # A list of one may stand there as that one.
            elif not isinstance(part, int):
                break
        line, column = self.places[known]
        path = format_location(known)
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
            here = (*location, key.value)
            if key.value == _MERGE_KEY:
                self._fault(key, location, "merge keys (<<) aren't supported; write the keys out")
            elif here in self.places:
                line, _ = self.places[here]
                self._fault(key, here, f"is given twice, first in line {line}; keep one of them")
            else:
                self.places[here] = _place(key)
                yield key.value, self._value(value, here)


def _place(node: yaml.Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1


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

    def describe(self, location: Location) -> tuple[Place, str]:
        """Return no place, and the option that a location came from."""
        around = (location[:length] for length in range(len(location), 0, -1))
        name = next((self.names[part] for part in around if part in self.names), None)
        return (0, 0), name or format_location(location)


#: Where values come from, and how a location in it is shown to people.
Source = YamlFile | OptionSource


class Faults:
    """Collects what is wrong with one source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._refused: set[Location] = set()
        self._found: set[tuple[Place, str]] = set()
        if isinstance(source, YamlFile):
            self._refused |= source.refused
            self._found |= set(source.faults)

    def add(self, location: Location, message: str) -> None:
        """Note one fault, where the file's form isn't at fault already."""
        if any(location[:length] in self._refused for length in range(1, len(location) + 1)):
            return
        place, where = self._source.describe(location)
        self._found.add((place, f"{where}: {message}"))

    def raise_if_any(self) -> None:
        """Raise PlanError with all that was noted, in the order in which it stands in the file."""
        lines = [line for _, line in sorted(self._found)]
        if lines:
            raise PlanError(f"{self._source.label}: {counted(len(lines), 'fault')}:", faults=lines)


class _Named(Protocol):
    """The whole of a file that is called as it says."""

    @property
    def name(self) -> str: ...


ModelT = TypeVar("ModelT")
NamedT = TypeVar("NamedT", bound=_Named)
#: What pydantic calls a key that a section doesn't have, and a record.
_UNKNOWN: Final = {"extra_forbidden", "unexpected_keyword_argument"}
_OF_MAPPINGS: Final = {"dict_type", "model_type", "dataclass_type"}


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
    adapter = adapter_of(cast("Any", model))
    rules = {TEXTS: True, **(context or {})}
    faults = Faults(source)
    try:
        found: ModelT = adapter.validate_python(source.value, extra="forbid", context=rules)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            # What pydantic puts behind a mapping's key that was refused.
            location = tuple(part for part in detail["loc"] if part != "[key]")
            is_unknown = detail["type"] in _UNKNOWN
            faults.add(
                location, _unknown_key(adapter, location) if is_unknown else _message(detail)
            )
        faults.raise_if_any()
        raise
    faults.raise_if_any()
    return found


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
    folders: Sequence[Path], load: Callable[[Path], ModelT], *, what: str
) -> dict[str, ModelT]:
    """Return what the files (``*.yaml``) of some folders hold, by their names in order; of two with
    one name the first folder's is taken.

    Raises PlanError with one line for each fault of all files; ``what`` names these.
    """
    paths: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            paths.setdefault(path.stem, path)
    found: dict[str, ModelT] = {}
    faults: list[str] = []
    for name, path in sorted(paths.items()):
        try:
            found[name] = load(path)
        except PlanError as error:
            faults += error.faults or [str(error)]
    if faults:
        raise PlanError(f"the {what} have faults:", faults=faults)
    return found


def _unknown_key(adapter: TypeAdapter[Any], location: Location) -> str:
    """Return what to say of a key that isn't known where it stands; it may be known elsewhere."""
    schema = adapter.json_schema()
    paths = sorted(_key_paths(schema, schema), key=lambda path: path.count("."), reverse=True)
    here = ".".join(part for part in location[:-1] if isinstance(part, str))
    beside = [path for path in paths if path.rpartition(".")[0] == here]
    for known in (beside, paths):
        by_word = {path.rpartition(".")[2]: path for path in known}
        if near := closest(str(location[-1]), by_word):
            return f"unknown key; did you mean {by_word[near]!r}?"
    return f"unknown key; known are {', '.join(sorted(beside or paths))}"


def _key_paths(schema: Mapping[str, Any], part: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the keys that a file may have, ``matrix.threads``; * stands for any name."""
    if "$ref" in part:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    for name, inner in part.get("properties", {}).items():
        yield f"{path}{name}"
        yield from _key_paths(schema, inner, f"{path}{name}.")
    if isinstance(inner := part.get("additionalProperties"), dict):
        yield from _key_paths(schema, inner, f"{path}*.")
    for same in filter(None, (part.get("items"), *part.get("anyOf", ()))):
        yield from _key_paths(schema, same, path)


def _message(detail: ErrorDetails) -> str:
    """Return what is wrong, in this program's words where pydantic's need any."""
    if detail["type"] == "missing":
        return f"{detail['loc'][-1]} is missing"
    given = detail["input"]
    is_several = isinstance(given, list | tuple | dict)
    shown = f"a {type(given).__name__}" if is_several else repr(given)
    if detail["type"] in _OF_MAPPINGS:
        return f"must be keys and values (key: value), but is {shown}"
    return re.sub("^Input", lambda _: shown, detail["msg"].removeprefix("Value error, "))
