"""The record of a benchmark program, which the module of each fills."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from orchestrator.delegates import Delegate, FlagFamily, delegates_of
from orchestrator.errors import PlanError
from orchestrator.installation import every
from orchestrator.ports import Tool
from orchestrator.reading.lines import Buffer, Line
from orchestrator.records import frozen
from orchestrator.records.build_spec import FlagFault, FlagSchema
from orchestrator.records.case import Build, Case, DelegateName, ToolName
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import ToolReport

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
    also_tried_on: DeviceKind | None = None
    #: The program for models that are too fast for the digits this one prints; None for none.
    finer_program: ToolName | None = None
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
    library_patterns: tuple[str, ...] = ()
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


@frozen
class ProgramSource:
    """A source of programs that the user's files declare: each file becomes a :class:`Program`."""

    #: Returns the names of all; reads no file.
    names: Callable[[], Sequence[str]]
    #: Returns the program of a name or a file in a plan, None for another word. Raises ValueError
    #: for a faulty file.
    named: Callable[[str], ToolName | None]
    #: Returns a program; raises UsageError where it is no longer declared, PlanError for a faulty
    #: file.
    program: Callable[[ToolName], Program]
    #: Declares the programs of these files while the context lasts, before others of their names;
    #: raises ProgramInUseError, PlanError.
    with_files: Callable[[Sequence[Path]], AbstractContextManager[None]]
    #: Returns the runs of its programs in a text of unknown origin, given the function that yields
    #: the text's lines; programs of faulty files are left out.
    read: Callable[[Buffer, Callable[[Buffer], Iterable[Line]]], list[ToolReport]]
    #: Returns the errors of the faulty files.
    faults: Callable[[], Sequence[PlanError]] = tuple


def program_sources() -> Iterable[ProgramSource]:
    """Return the sources of declared programs."""
    return every("program_sources", ProgramSource).values()
