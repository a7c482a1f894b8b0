"""Runs as ``results log`` shows them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from orchestrator.app.stored import LOG_START
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.programs import program
from orchestrator.records.case import BuildSha, Case, DelegateName, ModelSha, Serial, ToolName
from orchestrator.records.history import is_pruned
from orchestrator.records.run import Attachment, RawOutput, ToolReport
from orchestrator.tables.escapes import one_line

_HEAD: Final = re.compile(
    rf"^{LOG_START}(?P<command>[^\n]*)\n"
    r"exit code: (?P<exit_code>None|-?\d{1,10})(?P<timed_out>, stopped at its time limit)?\n"
    r"tool: (?P<tool>[\w.:-]+)\ndelegate asked for: (?P<delegate>[\w.-]+)\n"
    r"threads: (?P<threads>-?\d{1,4})\n(?:flags: (?P<flags>[^\n]*)\n)?",
    re.MULTILINE | re.ASCII,
)
_SECTION: Final = re.compile(r"^--- (\S[^\n]*) \((\d{1,15}) bytes\)\n", re.MULTILINE | re.ASCII)


def is_log(text: str) -> bool:
    """Whether a text begins with a log of ``results log``."""
    return text.startswith(LOG_START) and _HEAD.match(text.replace("\r\n", "\n")) is not None


def read_logs(text: str) -> list[ToolReport]:
    """Return the report of each log of ``results log``, read by its own program; none for another
    text.

    Raises OutputParseError where a log was damaged, what a run printed was deleted, or its program
    isn't known here.
    """
    text = text.replace("\r\n", "\n")
    return list(_of_logs(text)) if _HEAD.match(text) else []


def _of_logs(text: str) -> Iterator[ToolReport]:
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
        try:
            tool = program(case.tool).tool()
        except UsageError as error:
            raise OutputParseError(f"its program {case.tool} isn't known here") from error
        yield tool.parse(raw, case)
