"""The benchmark programs: a module for each, named as a plan names it, and what they share in the
folders beside.
"""

from __future__ import annotations

import functools
import pkgutil
from importlib import import_module

from orchestrator.errors import PluginError
from orchestrator.plugins import find, plugins
from orchestrator.programs.specification import Program
from orchestrator.records.device import DeviceKind
from orchestrator.records.workload import ToolName

#: The programs of the core.
_OWN = frozenset(item.name.replace("_", "-") for item in pkgutil.iter_modules(__path__))


def program(tool: ToolName) -> Program:
    """Return what is known of a program.

    Raises UsageError for one whose file or plugin isn't here.
    """
    if tool.is_declared:
        from orchestrator.programs.declared import program_of

        return program_of(tool)
    return _program(tool)


@functools.cache
def _program(tool: ToolName) -> Program:
    if tool.value not in _OWN:
        found = find("programs", tool.value, Program)
    else:
        found = import_module(f"{__name__}.{tool.value.replace('-', '_')}").PROGRAM
    if found.name is not tool:
        raise PluginError(f"the program {tool} calls itself {found.name}")
    return found


def programs() -> tuple[Program, ...]:
    """Return all programs of benchfarm's own, in the order in which they are listed."""
    here = {*_OWN, *plugins("programs")}
    return tuple(program(tool) for tool in ToolName if tool.value in here)


def is_usual(tool: ToolName) -> bool:
    """Whether devices are measured with a program by default; never with a declared one."""
    return tool in list(ToolName) and program(tool).usual_on is not None


@functools.cache
def usual_tool(kind: DeviceKind) -> ToolName:
    """Return what a kind of device is measured with where a plan names no program."""
    return next(own.name for own in programs() if own.usual_on is kind)
