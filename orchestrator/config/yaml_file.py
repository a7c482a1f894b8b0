"""A YAML file as mappings, lists and the text of its scalars, each with its place in the file.

Scalars stay as they are written; the field that they are for decides what they mean. So a serial
number ``0123456`` keeps its zero, a flag's value ``true`` stays the word that the flag wants, and a
version ``1.10`` isn't ``1.1``.

libyaml's events are composed in Python: libyaml's own composer overflows its stack, and ends the
process, at a few kilobytes of ``[``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml
from yaml.composer import Composer

from orchestrator.errors import PlanError

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
