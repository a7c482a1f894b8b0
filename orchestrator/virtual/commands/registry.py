"""Which commands there are."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.virtual.commands.invocation import Invocation

CommandFunction = Callable[["Invocation"], int]
_COMMANDS: dict[str, CommandFunction] = {}
_NOT_COMMANDS = frozenset({"registry", "invocation", "options"})


def command(*names: str) -> Callable[[CommandFunction], CommandFunction]:
    """Enter a function into the table of commands under its names."""

    def enter(function: CommandFunction) -> CommandFunction:
        for name in names:
            _COMMANDS[name] = function
        return function

    return enter


@lru_cache(maxsize=1)
def _load() -> None:
    package = importlib.import_module("orchestrator.virtual.commands")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in _NOT_COMMANDS:
            importlib.import_module(f"{package.__name__}.{module.name}")


def find_command(name: str) -> CommandFunction | None:
    """Return the command of a name, or None."""
    _load()
    return _COMMANDS.get(name)


def command_names() -> Sequence[str]:
    """Return the names of all commands."""
    _load()
    return sorted(_COMMANDS)
