"""The command ``parse``."""

from __future__ import annotations

import contextlib
import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from orchestrator.cli.output import Streamed
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.plugins import CommandResult, Texts, arg, command
from orchestrator.records.run import ToolReport
from orchestrator.tables.escapes import one_line

if TYPE_CHECKING:
    import io


@command("parse")
def parse_files(
    files: Annotated[Texts, arg("Files with benchmark output. '-' is standard input.")],
) -> CommandResult:
    """Show what benchfarm reads from benchmark output.

    Example: benchfarm parse log.txt
    """
    from orchestrator.extensions.interop.texts.public import describe, to_public

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


def begun_reading(file: str) -> tuple[list[ToolReport], Iterator[ToolReport]]:
    """Return the first runs of a file (``-``: of standard input), at most two, and an iterator over
    all of them.

    Raises UsageError for an unreadable file, OutputParseError for one without any run.
    """
    reports = _reports(file)
    begun = list(itertools.islice(reports, 2))
    return begun, itertools.chain(begun, reports)


def _reports(file: str) -> Iterator[ToolReport]:
    from orchestrator.extensions.interop.texts.output import iterate_file

    try:
        with contextlib.ExitStack() as stack:
            path = Path(file)
            if file == "-":
                path = stack.enter_context(_kept(cast("io.BufferedReader", sys.stdin.buffer)))
            elif not path.is_file():
                # A pipe (and what can't be opened is a wrong name, not a wrong text).
                path = stack.enter_context(_kept(stack.enter_context(path.open("rb"))))
            yield from iterate_file(path)
    except OutputParseError as error:
        raise OutputParseError(
            f"{'standard input' if file == '-' else file}: {error}", hint=error.hint
        ) from error
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error


@contextlib.contextmanager
def _kept(stream: io.BufferedReader) -> Iterator[Path]:
    """Keep what comes through a pipe in a file while it is read."""
    with tempfile.NamedTemporaryFile() as kept:
        # One read a turn: a signal that comes between two reads is handled before the next one
        # waits.
        while piece := stream.read1():
            kept.write(piece)
        kept.flush()
        yield Path(kept.name)
