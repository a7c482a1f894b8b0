"""Programs that YAML files declare, as a source of programs; nothing is read before it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.plugins import Program, ProgramSource
from orchestrator.records.case import ToolName

if TYPE_CHECKING:
    from orchestrator.reading.lines import Buffer, Line
    from orchestrator.records.run import ToolReport


def _names() -> Sequence[str]:
    from orchestrator.extensions.runtimes.declaration import declared_names

    return declared_names()


def _named(word: str) -> ToolName | None:
    from orchestrator.extensions.runtimes.declaration import named

    return named(word)


def _program(tool: ToolName) -> Program:
    from orchestrator.extensions.runtimes.declared import program_of

    return program_of(tool)


@contextmanager
def _lent(files: Sequence[Path]) -> Iterator[None]:
    from orchestrator.extensions.runtimes.declaration import lent

    with lent(files):
        yield


def _read(buffer: Buffer, lines: Callable[[Buffer], Iterable[Line]]) -> list[ToolReport]:
    from orchestrator.extensions.runtimes.litert_lm_output import reports_in
    from orchestrator.extensions.runtimes.output import declared_reports

    # A text may be of several programs.
    return [*reports_in(buffer, lines), *declared_reports(buffer, lines)]


SOURCE: Final = ProgramSource(names=_names, named=_named, program=_program, lent=_lent, read=_read)
