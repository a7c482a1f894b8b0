"""The command ``parse``: reads texts of unknown origin, and runs as ``results log`` shows them."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

from orchestrator.app.stored import LOG_START
from orchestrator.cli.result import Streamed
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.extensions.interop.texts.output import iterate_file
from orchestrator.extensions.interop.texts.public import describe, to_public
from orchestrator.plugins import CommandResult, Settings, Texts, Workspace, arg, command
from orchestrator.ports import Tool
from orchestrator.records.case import BuildSha, Case, DelegateName, ModelSha, Serial, ToolName
from orchestrator.records.history import is_pruned
from orchestrator.records.run import Attachment, RawOutput, ToolReport
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


_HEAD: Final = re.compile(
    rf"^{LOG_START}(?P<command>[^\n]*)\n"
    r"exit code: (?P<exit_code>None|-?\d{1,10})(?P<timed_out>, stopped at its time limit)?\n"
    r"tool: (?P<tool>[\w.:-]+)\ndelegate asked for: (?P<delegate>[\w.-]+)\n"
    r"threads: (?P<threads>-?\d{1,4})\n(?:flags: (?P<flags>[^\n]*)\n)?",
    re.MULTILINE | re.ASCII,
)
_SECTION: Final = re.compile(r"^--- (\S[^\n]*) \((\d{1,15}) bytes\)\n", re.MULTILINE | re.ASCII)


def read_logs(text: str, tools: Mapping[ToolName, Tool]) -> list[ToolReport]:
    """Return the report of each log of ``results log``, read by its own program; none for another
    text.

    Raises OutputParseError where a log was damaged, what a run printed was deleted, or its program
    isn't known here.
    """
    text = text.replace("\r\n", "\n")
    return list(_of_logs(text, tools)) if _HEAD.match(text) else []


def _of_logs(text: str, tools: Mapping[ToolName, Tool]) -> Iterator[ToolReport]:
    heads = [*_HEAD.finditer(text)]
    for head, end in zip(heads, [*(each.start() for each in heads[1:]), len(text)], strict=True):
        _, *parts = _SECTION.split(text[head.end() : end])
        attachments = []
        for name, size, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            data = body.encode()
            # Where a program was stopped in its last line, only the size shows that the line has
            # no end.
            whole = data.removesuffix(b"\n") if len(data) == int(size) + 1 else data
            attachments.append(Attachment(name=name, data=whole))
        if is_pruned(tuple(attachments)):
            raise OutputParseError(
                "what the run printed was deleted",
                hint="'benchfarm results runs' shows its figures",
            )
        raw = RawOutput(
            command=head["command"],
            exit_code=None if head["exit_code"] == "None" else int(head["exit_code"]),
            timed_out=head["timed_out"] is not None,
            started_at=datetime.fromtimestamp(0, UTC),
            duration_s=0.0,
            attachments=tuple(attachments),
        )
        try:
            words = [word.removeprefix("--") for word in shlex.split(head["flags"] or "")]
            case = Case(
                serial=Serial(""),
                model_sha256=ModelSha(""),
                model_name="",
                delegate=DelegateName(head["delegate"]),
                threads=int(head["threads"]),
                tool=ToolName(head["tool"]),
                build_sha256=BuildSha(""),
                flags=tuple((word.partition("=")[0], word.partition("=")[2]) for word in words),
            )
        except ValueError as error:
            raise OutputParseError(
                f"its head can't be read: {one_line(str(error))}",
                hint="write the log again: benchfarm results log RUN",
            ) from error
        if case.tool not in tools:
            raise OutputParseError(f"its program {case.tool} isn't known here")
        yield tools[case.tool].parse(raw, case)


def begun_reading(file: str) -> tuple[list[ToolReport], Iterator[ToolReport]]:
    """Return the first runs of a file (``-``: of standard input), at most two, and an iterator over
    all of them.

    Raises UsageError for an unreadable file, OutputParseError for one without any run.
    """
    reports = _reports(file)
    begun = list(itertools.islice(reports, 2))
    return begun, itertools.chain(begun, reports)


def _reports(file: str) -> Iterator[ToolReport]:
    try:
        with contextlib.ExitStack() as stack:
            path = Path(file)
            if file == "-":
                path = stack.enter_context(_kept(cast("io.BufferedReader", sys.stdin.buffer)))
            elif not path.is_file():
                # A pipe (and what can't be opened is a wrong name, not a wrong text).
                path = stack.enter_context(_kept(stack.enter_context(path.open("rb"))))
            with path.open("rb") as begun:
                is_log = begun.read(len(LOG_START)) == LOG_START.encode()
            logs = []
            if is_log:
                text = path.read_text("utf-8", "replace")
                logs = read_logs(text, Workspace(Settings.from_environment()).tools)
            yield from logs or iterate_file(path)
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
