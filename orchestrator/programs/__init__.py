"""The benchmark programs: a record for each, filled by its module, which has the program's name in
plans.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Iterator
from importlib import import_module

from orchestrator.errors import PluginError, UsageError
from orchestrator.installation import find, plugins
from orchestrator.program import Program, program_sources
from orchestrator.records.case import DECLARED, ToolName
from orchestrator.records.device import DeviceKind

#: The programs of the core.
_BUILTIN = frozenset(item.name.replace("_", "-") for item in pkgutil.iter_modules(__path__))


def program(tool: ToolName) -> Program:
    """Return the record of a program.

    Raises UsageError if its file or plugin isn't installed.
    """
    if not tool.is_declared:
        return _program(tool)
    for source in program_sources():
        return source.program(tool)
    raise UsageError(f"no installed extension reads the file that declares {tool}")


@functools.cache
def _program(tool: ToolName) -> Program:
    if tool.value not in _BUILTIN:
        loaded = find("programs", tool.value, Program)
    else:
        loaded = import_module(f"{__name__}.{tool.value.replace('-', '_')}").PROGRAM
    if loaded.name is not tool:
        raise PluginError(f"the program {tool} calls itself {loaded.name}")
    return loaded


def programs() -> Iterator[Program]:
    """Yield all installed programs, without declared ones, in their order; each is loaded on
    demand.
    """
    return (program(tool) for tool in ToolName if is_here(tool))


def is_here(tool: ToolName) -> bool:
    """Whether the core or a plugin has a program."""
    return tool.value in _BUILTIN or tool.value in plugins("programs")


def declared_for(endings: frozenset[str]) -> tuple[ToolName, ...]:
    """Return the declared programs that run files with these endings, by name.

    Raises PlanError for a faulty file.
    """
    specs = (
        source.program(ToolName(f"{DECLARED}{name}"))
        for source in program_sources()
        for name in source.names()
    )
    return tuple(spec.name for spec in specs if spec.kinds and spec.endings & endings)


def is_usual(tool: ToolName) -> bool:
    """Whether a program is a default for some device; never true for a declared one."""
    return tool in list(ToolName) and program(tool).usual_on is not None


@functools.cache
def usual_tool(kind: DeviceKind) -> ToolName:
    """Return the default program of a kind of device.

    Raises UsageError where the extension with that program isn't installed.
    """
    for spec in programs():
        if spec.usual_on is kind:
            return spec.name
    raise UsageError(f"no installed program measures {kind.noun}", hint="name one with --tool")
