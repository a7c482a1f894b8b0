"""The benchmark programs: a module for each, named as a plan names it, and what they share in the folders beside."""

from __future__ import annotations

import functools
from importlib import import_module

from orchestrator.programs.specification import Program
from orchestrator.records.device import DeviceKind
from orchestrator.records.workload import ToolName


def program(tool: ToolName) -> Program:
    """Return what is known of a program; raises UsageError for a declared one whose file isn't here."""
    if tool.is_declared:
        from orchestrator.programs.declared import program_of

        return program_of(tool)
    return _own_program(tool)


@functools.cache
def _own_program(tool: ToolName) -> Program:
    found = import_module(f"{__name__}.{tool.value.replace('-', '_')}").PROGRAM
    assert isinstance(found, Program)
    return found


def programs() -> tuple[Program, ...]:
    """Return all programs of benchfarm's own, in the order in which they are listed."""
    return tuple(map(program, ToolName))


def is_usual(tool: ToolName) -> bool:
    """Whether devices are measured with a program by default; never with a declared one."""
    return not tool.is_declared and program(tool).usual_on is not None


@functools.cache
def usual_tool(kind: DeviceKind) -> ToolName:
    """Return what a kind of device is measured with where a plan names no program."""
    return next(tool for tool in ToolName if program(tool).usual_on is kind)
