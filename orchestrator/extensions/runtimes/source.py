"""Programs that YAML files declare, as a source of programs; nothing is read before it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Final

from orchestrator.plugins import Program, ProgramSource
from orchestrator.records.case import ToolName

if TYPE_CHECKING:
    from orchestrator.reading.lines import Buffer, Line
    from orchestrator.records.run import ToolReport


def _files() -> ModuleType:
    from orchestrator.extensions.runtimes import declaration

    return declaration


def _program(tool: ToolName) -> Program:
    from orchestrator.extensions.runtimes.declared import program_of

    return program_of(tool)


def _read(buffer: Buffer, lines: Callable[[Buffer], Iterable[Line]]) -> list[ToolReport]:
    from orchestrator.extensions.runtimes.output import declared_reports
    from orchestrator.reading.litert_lm import reports_in

    # A text may be of several programs.
    return [*reports_in(buffer, lines), *declared_reports(buffer, lines)]


SOURCE: Final = ProgramSource(
    names=lambda: _files().declared_names(),
    named=lambda word: _files().named(word),
    program=_program,
    with_files=lambda files: _files().with_files(files),
    read=_read,
    faults=lambda: _files().every_declared()[1],
)
