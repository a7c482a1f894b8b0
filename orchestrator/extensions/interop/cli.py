"""The command ``parse``: reports as text, and as the fields that every command's JSON has."""

from __future__ import annotations

import contextlib
import itertools
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Final, cast

from typer import Argument

from orchestrator.errors import OutputParseError, UsageError
from orchestrator.plugins import CommandResult, Streamed, command, say
from orchestrator.records.failures import next_step_of
from orchestrator.tables.escapes import one_line
from orchestrator.tables.table import json_value
from orchestrator.units import tokens_per_s

if TYPE_CHECKING:
    import io

    from orchestrator.records.run import ToolReport


@command("parse")
def parse_files(
    files: Annotated[
        list[str], Argument(help="Files with benchmark output. '-' is standard input.")
    ],
) -> CommandResult:
    """Show what benchfarm reads from benchmark output.

    Example: benchfarm parse log.txt
    """
    from orchestrator.extensions.interop.texts.output import declaration_faults

    faults = declaration_faults()
    for fault in faults:
        say(f"benchfarm: error: read without a program: {fault}", err=True)
    # A file without any run is an error before anything is printed; runs are read while they are
    # printed, so that a file may hold any number of them.
    readers = [(file, *read_first_runs(file)) for file in files]

    def items() -> Iterator[dict[str, object]]:
        for file, _, reports in readers:
            for report in reports:
                yield ({"file": file, **to_public(report)} if len(files) > 1 else to_public(report))

    def lines() -> Iterator[str]:
        is_first = True
        for file, first_runs, reports in readers:
            for number, report in enumerate(reports, start=1):
                if not is_first:
                    yield ""
                is_first = False
                yield f"{file}, run {number}" if len(first_runs) > 1 else file
                yield from (f"  {one_line(line)}" for line in describe(report))

    first_runs = readers[0][1]
    is_single = len(files) == 1 and len(first_runs) == 1
    return CommandResult(
        text="",
        lines=lines(),
        data=to_public(first_runs[0]) if is_single else Streamed(items),
        exit_code=faults[0].exit_code if faults else 0,
    )


def read_first_runs(file: str) -> tuple[list[ToolReport], Iterator[ToolReport]]:
    """Return at most two first runs of a file (``-``: standard input), and an iterator over all.

    Raises UsageError for an unreadable file, OutputParseError for one without any run.
    """
    reports = _reports(file)
    first_runs = list(itertools.islice(reports, 2))
    return first_runs, itertools.chain(first_runs, reports)


def _reports(file: str) -> Iterator[ToolReport]:
    from orchestrator.extensions.interop.texts.output import iterate_file

    try:
        with contextlib.ExitStack() as stack:
            path = Path(file)
            if file == "-":
                path = stack.enter_context(_spooled(cast("io.BufferedReader", sys.stdin.buffer)))
            elif not path.is_file():
                # A pipe; a file that can't be opened has a wrong name, not a wrong text.
                path = stack.enter_context(_spooled(stack.enter_context(path.open("rb"))))
            yield from iterate_file(path)
    except OutputParseError as error:
        raise OutputParseError(
            f"{'standard input' if file == '-' else file}: {error}", hint=error.hint
        ) from error
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error


@contextlib.contextmanager
def _spooled(stream: io.BufferedReader) -> Iterator[Path]:
    """Copy a pipe to a temporary file; yield its path."""
    with tempfile.NamedTemporaryFile() as file:
        # One read a turn: a signal between two reads is handled before the next one waits.
        while piece := stream.read1():
            file.write(piece)
        file.flush()
        yield Path(file.name)


#: Fields that may have a row for each operator of a model; the text has their number.
_LONG: Final = ("operators", "operator_types", "profile_blocks")


def to_public(report: ToolReport) -> dict[str, object]:
    """Return a report's fields as JSON has them, with two derived ones: a language model's speed and
    the next step after a failure.
    """
    is_token = report.extra.get("unit") == "token"
    return {
        **json_value(report),
        "tokens_per_s": tokens_per_s(report.inference_mean_us) if is_token else None,
        "next_step": next_step_of(report.failure_code, report.failure_reason),
    }


def describe(report: ToolReport) -> list[str]:
    """Return the report as lines for people: how the run ended, then a line for each value."""
    fields = to_public(report)
    fields |= {name: len(getattr(report, name)) or None for name in _LONG}
    graph = PurePosixPath(str(report.extra.get("graph", ""))).name
    name = report.label or report.extra.get("title") or graph or "run"
    return [f"{name}: {fields.pop('outcome')}", *_lines(fields, "  ")]


def _lines(fields: Mapping[str, object], indent: str) -> Iterator[str]:
    for name, value in fields.items():
        if value in (None, "", [], {}):
            continue
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name}: {_worded(value)}"


def _worded(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_worded(each)}" for name, each in value.items())
    if isinstance(value, list):
        return "; ".join(map(_worded, value))
    return f"{value:.9g}" if isinstance(value, float) else str(value)
