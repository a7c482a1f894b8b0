"""The benchmark programs: a module for each, named as a plan names it, and what they share in the
folders beside.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Iterator
from importlib import import_module

from orchestrator.errors import PluginError, UsageError
from orchestrator.plugins import find, plugins, program_sources
from orchestrator.programs.specification import Program
from orchestrator.records.case import DECLARED, ToolName
from orchestrator.records.device import DeviceKind

#: The programs of the core.
_OWN = frozenset(item.name.replace("_", "-") for item in pkgutil.iter_modules(__path__))


def program(tool: ToolName) -> Program:
    """Return what is known of a program.

    Raises UsageError for one whose file or plugin isn't here.
    """
    if not tool.is_declared:
        return _program(tool)
    for source in program_sources():
        return source.program(tool)
    raise UsageError(f"nothing here reads the file that declares {tool}")


@functools.cache
def _program(tool: ToolName) -> Program:
    if tool.value not in _OWN:
        found = find("programs", tool.value, Program)
    else:
        found = import_module(f"{__name__}.{tool.value.replace('-', '_')}").PROGRAM
    if found.name is not tool:
        raise PluginError(f"the program {tool} calls itself {found.name}")
    return found


def programs() -> Iterator[Program]:
    """Yield all programs of benchfarm's own, in the order in which they are listed; each is loaded
    when it is asked for.
    """
    return (program(tool) for tool in ToolName if is_here(tool))


def is_here(tool: ToolName) -> bool:
    """Whether the core or a plugin brings a program."""
    return tool.value in _OWN or tool.value in plugins("programs")


def declared_for(endings: frozenset[str]) -> tuple[ToolName, ...]:
    """Return the declared programs that run files with these endings, by name.

    Raises PlanError for a faulty file.
    """
    found = []
    for source in program_sources():
        for name in source.names():
            own = source.program(ToolName(f"{DECLARED}{name}"))
            if own.kinds and own.endings & endings:
                found.append(own.name)
    return tuple(found)


def is_usual(tool: ToolName) -> bool:
    """Whether devices are measured with a program by default; never with a declared one."""
    return tool in list(ToolName) and program(tool).usual_on is not None


@functools.cache
def usual_tool(kind: DeviceKind) -> ToolName:
    """Return what a kind of device is measured with where a plan names no program.

    Raises UsageError where the extension with that program isn't here.
    """
    for own in programs():
        if own.usual_on is kind:
            return own.name
    raise UsageError(f"no program that is here measures {kind.noun}", hint="name one with --tool")
