"""Which commands there are."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchfarm_virtual.commands.invocation import Invocation
    from benchfarm_virtual.props import PhoneProps

CommandFunction = Callable[["Invocation"], int]
_COMMANDS: dict[str, CommandFunction] = {}
#: Commands that older phones don't have: since which API level they are there.
_SINCE_SDK: dict[str, int] = {}
_NOT_COMMANDS = frozenset({"registry", "invocation", "options"})


def command(*names: str, since_sdk: int = 0) -> Callable[[CommandFunction], CommandFunction]:
    """Enter a function into the table of commands under its names; phones below ``since_sdk`` don't
    have it.
    """

    def enter(function: CommandFunction) -> CommandFunction:
        for name in names:
            _COMMANDS[name] = function
            if since_sdk:
                _SINCE_SDK[name] = since_sdk
        return function

    return enter


@lru_cache(maxsize=1)
def _load() -> None:
    package = importlib.import_module("benchfarm_virtual.commands")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in _NOT_COMMANDS:
            importlib.import_module(f"{package.__name__}.{module.name}")


def find_command(name: str, props: PhoneProps) -> CommandFunction | None:
    """Return the command of a name on a phone with these properties, or None."""
    _load()
    return _COMMANDS.get(name) if _SINCE_SDK.get(name, 0) <= props.sdk else None


def command_names(props: PhoneProps) -> Sequence[str]:
    """Return the names of all commands of a phone with these properties."""
    _load()
    return sorted(name for name in _COMMANDS if _SINCE_SDK.get(name, 0) <= props.sdk)
