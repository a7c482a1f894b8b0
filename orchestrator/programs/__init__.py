"""The benchmark programs: a record for each, filled by its module, which has the program's name in
plans.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path

from orchestrator.delegates import Delegate, FlagFamily, delegates_of
from orchestrator.errors import PluginError, UsageError
from orchestrator.frozen import frozen
from orchestrator.plugins import find, plugins, program_sources
from orchestrator.ports import Tool
from orchestrator.records.build_spec import FlagFault, FlagSchema
from orchestrator.records.case import DECLARED, Build, Case, DelegateName, ToolName
from orchestrator.records.device import DeviceFacts, DeviceKind

#: Flags beside the case's own, for one way in which a program uses a delegate.
Option = tuple[tuple[str, str], ...]


@frozen
class Program:
    """Everything that depends on which program it is."""

    name: ToolName
    #: Returns the tool that runs it and reads its output.
    tool: Callable[[], Tool]
    #: The kinds of devices it runs on; none for one that benchfarm doesn't start.
    kinds: frozenset[DeviceKind] = frozenset()
    #: The kind of device that it measures where a plan names no program.
    usual_on: DeviceKind | None = None
    #: The kind of device on which it is also tried, for delegates that the usual program lacks.
    beside_on: DeviceKind | None = None
    #: The program for models that are too fast for the digits this one prints; None for none.
    finer: ToolName | None = None
    #: The family whose flags it has.
    family: FlagFamily = FlagFamily.BENCHMARK_MODEL
    #: Whether a plan may set flags of it.
    has_flags: bool = True
    #: Returns the ways in which it uses a delegate, or the figures that it gives, beside a plan's
    #: flags.
    options: Callable[[Delegate, Option], tuple[Option, ...]] = lambda delegate, flags: ((),)
    #: Its flags, where they are no family's.
    own_schema: FlagSchema | None = None
    #: Returns further faults of a case's flags.
    flag_faults: Callable[[Case], Iterable[FlagFault]] = lambda case: ()
    #: The delegates that it has; None: those of its family.
    own_delegates: frozenset[DelegateName] | None = None
    #: The file name endings of its models; none: .tflite, or bundles.
    endings: frozenset[str] = frozenset()
    #: Whether it runs language models' bundles, and nothing else.
    is_for_bundles: bool = False
    #: The file's usual name; empty for an app.
    file_name: str = ""
    #: Patterns of the libraries that it needs beside it, from the folder that it lies in.
    beside: tuple[str, ...] = ()
    #: The file that declares it; None for a program of a module.
    declared_in: Path | None = None
    #: Whether another program has the same file name, so that the name doesn't identify it.
    shares_file_name: bool = False
    #: Finds the build in a package of this computer, or as a plan names it; raises ArtifactError.
    installed: Callable[[str], Build] | None = None
    #: Finds the app on the device, or as the file that a plan names; raises ArtifactError.
    on_device: Callable[[DeviceFacts, str], Build] | None = None
    #: The name of an app whose file isn't known.
    title: str = ""

    def delegates(self, kind: DeviceKind) -> frozenset[DelegateName]:
        """Return the delegates that it has on a kind of device; none where it doesn't run."""
        if kind not in self.kinds:
            return frozenset()
        return delegates_of(self.family, kind) if self.own_delegates is None else self.own_delegates

    @property
    def is_benchmark_model(self) -> bool:
        """Whether it is benchmark_model, as an executable or an app.

        It takes every flag of a case, keeps caches in a given folder, reads inputs from files,
        writes outputs to a file, and exists with and without TensorFlow's operators (Flex).
        """
        return (
            self.family is FlagFamily.BENCHMARK_MODEL
            and bool(self.kinds)
            and self.own_delegates is None
        )


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
    names = []
    for source in program_sources():
        for name in source.names():
            spec = source.program(ToolName(f"{DECLARED}{name}"))
            if spec.kinds and spec.endings & endings:
                names.append(spec.name)
    return tuple(names)


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
