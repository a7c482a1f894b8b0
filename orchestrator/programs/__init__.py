"""The benchmark programs: what benchfarm knows of one, in one record that its module fills; a module for
each, named as a plan names it, and what they share in the folders beside.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

from orchestrator.delegates import Delegate, FlagFamily, delegates_of
from orchestrator.errors import PluginError, UsageError
from orchestrator.frozen import frozen
from orchestrator.plugins import find, plugins, program_sources
from orchestrator.ports import Tool
from orchestrator.records.build_spec import FlagFault, FlagSchema
from orchestrator.records.case import DECLARED, Build, Case, DelegateName, ToolName
from orchestrator.records.device import DeviceFacts, DeviceKind

#: The package of TensorFlow Lite's benchmark app.
APP_PACKAGE: Final = "org.tensorflow.lite.benchmark"
#: Flags beside the case's own, for one way in which a program tries a delegate.
Option = tuple[tuple[str, str], ...]


@frozen
class Program:
    """Everything that depends on which program it is."""

    name: ToolName
    #: Makes what runs it and reads its output.
    tool: Callable[[], Tool]
    #: What it runs on; none for one that benchfarm neither starts nor prepares.
    kinds: frozenset[DeviceKind] = frozenset()
    #: The kind of device that is measured with it where a plan names no program.
    usual_on: DeviceKind | None = None
    #: The kind of device on which it is tried beside the usual program, for the delegates that that
    #: one lacks.
    beside_on: DeviceKind | None = None
    #: What measures a model that is too fast for the digits that this one prints; None: nothing.
    finer: ToolName | None = None
    #: Whose flags it has.
    family: FlagFamily = FlagFamily.BENCHMARK_MODEL
    #: Whether a plan may set flags of it.
    has_flags: bool = True
    #: The ways in which it tries a delegate by itself, or the figures that it gives; beside a
    #: plan's flags.
    options: Callable[[Delegate, Option], tuple[Option, ...]] = lambda delegate, given: ((),)
    #: Its flags, where they are no family's.
    own_schema: FlagSchema | None = None
    #: What is wrong with a case's flags, for a program whose flags are in no table.
    flag_faults: Callable[[Case], Iterable[FlagFault]] | None = None
    #: The delegates that it has; None: those of its family.
    own_delegates: frozenset[DelegateName] | None = None
    #: How the files of models end that it runs; none: .tflite, or bundles.
    endings: frozenset[str] = frozenset()
    #: Whether it runs language models' bundles, and nothing else.
    is_for_bundles: bool = False
    #: The file's usual name; empty for an app.
    file_name: str = ""
    #: Patterns of the libraries that it needs beside it, from the folder that it lies in.
    beside: tuple[str, ...] = ()
    #: The file that declares it; None for a program of a module.
    declared_in: Path | None = None
    #: Whether files of that name are another program's, so that a file name doesn't say which it
    #: is.
    shares_file_name: bool = False
    #: Finds the build where a package of this computer brings the program, or a plan names it;
    #: raises ArtifactError.
    installed: Callable[[str], Build] | None = None
    #: Finds the app that a device is measured with, on it or as the file that a plan names; raises
    #: ArtifactError.
    on_device: Callable[[DeviceFacts, str], Build] | None = None
    #: What an app is called where its file isn't known.
    title: str = ""

    def delegates(self, kind: DeviceKind) -> frozenset[DelegateName]:
        """Return the delegates that it has on a kind of device; none where it doesn't run."""
        if kind not in self.kinds:
            return frozenset()
        return delegates_of(self.family, kind) if self.own_delegates is None else self.own_delegates

    @property
    def is_benchmark_model(self) -> bool:
        """Whether it is benchmark_model, as an executable or an app.

        It takes every flag of a case, keeps caches where it is told to, reads inputs from files and
        writes outputs to one, and comes with and without TensorFlow's operators (Flex).
        """
        return (
            self.family is FlagFamily.BENCHMARK_MODEL
            and bool(self.kinds)
            and self.own_delegates is None
        )


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
