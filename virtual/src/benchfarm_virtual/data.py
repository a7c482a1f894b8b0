"""Reading the data files of this package."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import yaml

#: The one in C where PyYAML was built with it, which is ten times faster.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """Return the content of a YAML file of this package."""
    return yaml.load(path.read_text(encoding="utf-8"), _LOADER)  # noqa: S506 - a safe one


def as_record(kind: Any, value: Any) -> Any:  # noqa: ANN401 - a type of any form, and its value
    """Return a value of a YAML file as the type that is wanted there: a dataclass by the names of
    its fields or in their order, a mapping, a tuple ...
    """
    origin, args = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if isinstance(value, list):
            return kind(*value)
        hints = typing.get_type_hints(kind)
        return kind(**{key: as_record(hints[key], item) for key, item in value.items()})
    if origin is types.UnionType:
        return value if value is None or type(value) in args else as_record(args[0], value)
    if origin is tuple:
        return tuple(as_record(args[0], item) for item in value)
    if origin is Mapping:
        return {args[0](key): as_record(args[1], item) for key, item in value.items()}
    return value if origin is typing.Literal else kind(value)


#: What every phone begins with: settings, the shell's environment, processes, folders.
DEFAULTS: Final[Mapping[str, Any]] = read_yaml(Path(__file__).with_name("defaults.yaml"))
