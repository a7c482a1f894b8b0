"""The command ``parse``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from orchestrator.cli.result import Streamed
from orchestrator.extensions.interop.parsing import begun_reading
from orchestrator.extensions.interop.texts.public import describe, to_public
from orchestrator.plugins import CommandResult, Texts, arg, command
from orchestrator.tables.escapes import one_line


@command("parse")
def parse_files(
    files: Annotated[Texts, arg("Files with benchmark output. '-' is standard input.")],
) -> CommandResult:
    """Show what benchfarm reads from benchmark output.

    Example: benchfarm parse log.txt
    """
    # A file without any run is told before anything is printed; runs are read while they are
    # written, so that a file may hold any number of them.
    readers = [(file, *begun_reading(file)) for file in files]

    def items() -> Iterator[dict[str, object]]:
        for file, _, reports in readers:
            for report in reports:
                yield ({"file": file, **to_public(report)} if len(files) > 1 else to_public(report))

    def lines() -> Iterator[str]:
        is_first = True
        for file, begun, reports in readers:
            for number, report in enumerate(reports, start=1):
                if not is_first:
                    yield ""
                is_first = False
                yield f"{file}, run {number}" if len(begun) > 1 else file
                yield from (f"  {one_line(line)}" for line in describe(report))

    begun = readers[0][1]
    is_single = len(files) == 1 and len(begun) == 1
    return CommandResult(
        text="", lines=lines(), data=to_public(begun[0]) if is_single else Streamed(items)
    )
