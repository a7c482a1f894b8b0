"""A YAML file as mappings, lists and the text of its scalars, each with its place in the file.

Scalars stay as they are written; the field that they are for decides what they mean. So a serial number ``0123456``
keeps its zero, a flag's value ``true`` stays the word that the flag wants, and a version ``1.10`` isn't ``1.1``.

libyaml's events are composed in Python: libyaml's own composer overflows its stack, and ends the process, at a few
kilobytes of ``[``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml
from yaml.composer import Composer

from orchestrator.errors import PlanError

FILE_BYTES_MAX: Final = 1_000_000
_DEPTH_MAX: Final = 32

Value = str | list["Value"] | dict[str, "Value"]
Location = tuple[str | int, ...]
Place = tuple[int, int]

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
#: Stands where a node has its tag.
_NULL: Final = "null"
_MERGE_KEY: Final = "<<"


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlFault:
    """Something wrong with a file's form at one location in it."""

    location: Location
    message: str
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlFile:
    """A file that was read; ``faults`` are those of its form that don't keep it from being read on."""

    #: The file as it is named in messages.
    label: str
    text: str
    value: dict[str, Value]
    faults: tuple[YamlFault, ...] = ()
    #: Where each value begins, and where the key of each value of a mapping stands: line and column, from 1.
    places: Mapping[Location, Place] = field(default_factory=dict)
    key_places: Mapping[Location, Place] = field(default_factory=dict)

    def known_part(self, location: Location) -> Location:
        """Return the part of a location that the file has; a list of one may stand there as that one."""
        known: Location = ()
        for part in location:
            if (*known, part) in self.places:
                known = (*known, part)
            elif not isinstance(part, int):
                break
        return known

    def describe(self, location: Location, *, at_key: bool = False) -> str:
        """Return ``file:line:column: key.path`` of a location, or of the nearest one around it."""
        known = self.known_part(location)
        line, column = self.key_places.get(known, self.places[known]) if at_key else self.places[known]
        path = format_location(known)
        return f"{self.label}:{line}:{column}" + (f": {path}" if path else "")


def format_location(location: Location) -> str:
    """Return a location as people write it: ``models[0].sha256``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


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
        raise PlanError(f"{path}: can't be read: {reason}", hint="check the path and its permissions") from error
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
    """Parse the text of a YAML file; ``label`` names it in messages. Raises PlanError as :func:`read_yaml` does."""
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
        raise PlanError(f"{label}:{line}:{column}: isn't YAML: {_explain(text, line, error)}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise PlanError(f"{label}:{line}: isn't YAML: character U+{code:04X} isn't allowed") from error
    if root is None or root.tag == _NULL:
        raise PlanError(f"{label}: is empty; it needs keys and values")
    if not isinstance(root, yaml.MappingNode):
        line, column = _place(root)
        what = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
        raise PlanError(f"{label}:{line}:{column}: must be keys and values (key: value), but is {what}")
    return _Expansion(label, text).file(root)


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


class _Expansion:
    """Turns nodes into plain values, following aliases as often as they stand there."""

    def __init__(self, label: str, text: str) -> None:
        self._label = label
        self._text = text
        self._faults: list[YamlFault] = []
        self._places: dict[Location, Place] = {}
        self._key_places: dict[Location, Place] = {}

    def file(self, root: yaml.MappingNode) -> YamlFile:
        """Return the file whose root this is."""
        self._places[()] = _place(root)
        return YamlFile(
            label=self._label,
            text=self._text,
            value=dict(self._entries(root, ())),
            faults=tuple(self._faults),
            places=self._places,
            key_places=self._key_places,
        )

    def _value(self, node: yaml.Node, location: Location) -> Value:
        if len(location) > _DEPTH_MAX:
            line, column = _place(node)
            raise PlanError(f"{self._label}:{line}:{column}: is nested more than {_DEPTH_MAX} levels deep")
        self._places[location] = _place(node)
        if node.tag:
            self._fault(location, f"tags such as {node.tag} aren't supported; write the plain value", node)
        if isinstance(node, yaml.SequenceNode):
            items = [item for item in node.value if self._has_value(item, location)]
            return [self._value(item, (*location, number)) for number, item in enumerate(items)]
        return dict(self._entries(node, location)) if isinstance(node, yaml.MappingNode) else str(node.value)

    def _entries(self, mapping: yaml.MappingNode, location: Location) -> Iterator[tuple[str, Value]]:
        seen: dict[str, Place] = {}
        for key, value in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(location, "a key must be a single word", key)
                continue
            here = (*location, key.value)
            if key.value == _MERGE_KEY:
                self._fault(location, "merge keys (<<) aren't supported; write the keys out", key)
                continue
            if key.value in seen:
                self._fault(here, f"is given twice, first in line {seen[key.value][0]}; keep one of them", key)
                continue
            seen[key.value] = self._key_places[here] = _place(key)
            if self._has_value(value, here):
                yield key.value, self._value(value, here)

    def _has_value(self, node: yaml.Node, location: Location) -> bool:
        if node.tag == _NULL:
            self._places.setdefault(location, _place(node))
            self._fault(location, "has no value; give it one or remove it", node)
        return node.tag != _NULL

    def _fault(self, location: Location, message: str, node: yaml.Node) -> None:
        self._faults.append(YamlFault(location=location, message=message, place=_place(node)))
