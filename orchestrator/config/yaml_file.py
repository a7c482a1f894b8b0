"""A YAML file as mappings, lists and the text of its scalars, each with its place in the file.

Scalars stay as they are written; the field that they are for decides what they mean. So a serial number ``0123456``
keeps its zero, a flag's value ``true`` stays the word that the flag wants, and a version ``1.10`` isn't ``1.1``.

The tree is built from libyaml's events, not by its composer: that one calls itself for each level of nesting, and a few
kilobytes of ``[`` overflow its stack and end the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from orchestrator.errors import PlanError

FILE_BYTES_MAX: Final = 1_000_000
_DEPTH_MAX: Final = 32
#: Values that a file may have once its aliases are followed; a few nested aliases make billions of them.
_VALUES_MAX: Final = 100_000

Value = str | list["Value"] | dict[str, "Value"]
Location = tuple[str | int, ...]
Place = tuple[int, int]

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
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
        root = _tree(text.removeprefix("\ufeff"), label)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise PlanError(f"{label}:{line}:{column}: isn't YAML: {_explain(text, line, error)}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise PlanError(f"{label}:{line}: isn't YAML: character U+{code:04X} isn't allowed") from error
    if root is None:
        raise PlanError(f"{label}: is empty; it needs keys and values")
    if root.pairs is None:
        line, column = root.place
        what = "a list" if root.items is not None else "a single value"
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


@dataclass(slots=True, kw_only=True)
class _Node:
    """A value as it stands in the file: a mapping has pairs, a list has items, a scalar has neither."""

    place: Place
    text: str = ""
    is_null: bool = False
    tag: str = ""
    pairs: list[tuple[_Node, _Node]] | None = None
    items: list[_Node] | None = None

    def add(self, node: _Node) -> None:
        """Take the next value of a list, or the next key or value of a mapping."""
        if self.items is not None:
            self.items.append(node)
        elif self.pairs is not None:
            if self.pairs and self.pairs[-1][1] is _AWAITED:
                self.pairs[-1] = (self.pairs[-1][0], node)
            else:
                self.pairs.append((node, _AWAITED))


_AWAITED: Final = _Node(place=(0, 0))


def _tree(text: str, label: str) -> _Node | None:
    """Build the tree of the only document, None when there is none; raises yaml errors and PlanError."""
    anchors: dict[str, _Node] = {}
    open_nodes: list[tuple[_Node, str | None]] = []
    root: _Node | None = None
    documents = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        mark = event.start_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        node: _Node | None = None
        match event:
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    raise PlanError(
                        f"{label}:{place[0]}:{place[1]}: a second document begins here; one file, one document"
                    )
            case yaml.ScalarEvent():
                plain = event.implicit[0] and not event.style
                node = _Node(
                    place=place, text=event.value, is_null=plain and event.value in _NULLS, tag=_odd_tag(event.tag)
                )
            case yaml.AliasEvent():
                if event.anchor not in anchors:
                    raise PlanError(f"{label}:{place[0]}:{place[1]}: isn't YAML: nothing is called &{event.anchor}")
                node = anchors[event.anchor]
            case yaml.SequenceStartEvent():
                open_nodes.append((_Node(place=place, items=[], tag=_odd_tag(event.tag)), event.anchor))
            case yaml.MappingStartEvent():
                open_nodes.append((_Node(place=place, pairs=[], tag=_odd_tag(event.tag)), event.anchor))
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                node, anchor = open_nodes.pop()
                if anchor:
                    anchors[anchor] = node
        if len(open_nodes) > _DEPTH_MAX:
            raise PlanError(f"{label}:{place[0]}:{place[1]}: is nested more than {_DEPTH_MAX} levels deep")
        if node is None:
            continue
        if isinstance(event, yaml.ScalarEvent) and event.anchor:
            anchors[event.anchor] = node
        if open_nodes:
            open_nodes[-1][0].add(node)
        else:
            root = node
    return None if root is not None and root.is_null else root


def _odd_tag(tag: str | None) -> str:
    """Return a tag that changes what a value is; those that only say what it is anyway are none."""
    return "" if tag in {None, "!"} else str(tag)


class _Expansion:
    """Turns the tree into plain values, following aliases as often as they stand there."""

    def __init__(self, label: str, text: str) -> None:
        self._label = label
        self._text = text
        self._count = 0
        self._faults: list[YamlFault] = []
        self._places: dict[Location, Place] = {}
        self._key_places: dict[Location, Place] = {}

    def file(self, root: _Node) -> YamlFile:
        """Return the file whose tree this is."""
        value = self._value(root, ())
        assert isinstance(value, dict)
        return YamlFile(
            label=self._label,
            text=self._text,
            value=value,
            faults=tuple(self._faults),
            places=self._places,
            key_places=self._key_places,
        )

    def _value(self, node: _Node, location: Location) -> Value:
        self._count += 1
        if self._count > _VALUES_MAX or len(location) > _DEPTH_MAX:
            raise PlanError(f"{self._label}: its aliases make more than {_VALUES_MAX} values of it; write them out")
        self._places[location] = node.place
        if node.tag:
            self._fault(location, f"tags such as {node.tag} aren't supported; write the plain value", node.place)
        if node.items is not None:
            items = [item for item in node.items if self._has_value(item, location)]
            return [self._value(item, (*location, number)) for number, item in enumerate(items)]
        if node.pairs is not None:
            return dict(self._entries(node.pairs, location))
        return node.text

    def _entries(self, pairs: list[tuple[_Node, _Node]], location: Location) -> Iterator[tuple[str, Value]]:
        seen: dict[str, Place] = {}
        for key, value in pairs:
            if key.items is not None or key.pairs is not None:
                self._fault(location, "a key must be a single word", key.place)
                continue
            here = (*location, key.text)
            if key.text == _MERGE_KEY:
                self._fault(location, "merge keys (<<) aren't supported; write the keys out", key.place)
                continue
            if key.text in seen:
                line = seen[key.text][0]
                self._fault(here, f"is given twice, first in line {line}; keep one of them", key.place)
                continue
            seen[key.text] = key.place
            self._key_places[here] = key.place
            if self._has_value(value, here):
                yield key.text, self._value(value, here)

    def _has_value(self, node: _Node, location: Location) -> bool:
        if node.is_null:
            self._places.setdefault(location, node.place)
            self._fault(location, "has no value; give it one or remove it", node.place)
        return not node.is_null

    def _fault(self, location: Location, message: str, place: Place) -> None:
        self._faults.append(YamlFault(location=location, message=message, place=place))
