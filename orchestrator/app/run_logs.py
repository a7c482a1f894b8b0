"""What ``benchfarm results log`` shows of a run, and the same text read again by ``benchfarm parse``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from orchestrator.errors import OutputParseError
from orchestrator.ports import Tool
from orchestrator.records.history import is_pruned
from orchestrator.records.identity import BuildSha, ModelSha, Serial
from orchestrator.records.run import Attachment, Outcome, RawOutput, RunRecord, ToolReport
from orchestrator.records.workload import DECLARED, Case, DelegateName, ToolName
from orchestrator.report.escapes import one_line

#: What a log begins with.
LOG_START: Final = "command: "
_HEAD: Final = re.compile(
    rf"^{LOG_START}(?P<command>[^\n]*)\n"
    r"exit code: (?P<exit_code>None|-?\d{1,10})(?P<timed_out>, stopped at its time limit)?\n"
    rf"tool: (?P<tool>{'|'.join(ToolName)}|{DECLARED}[\w.-]+)\n"
    rf"delegate asked for: (?P<delegate>{'|'.join(DelegateName)})\n"
    r"threads: (?P<threads>-?\d{1,4})\n(?:flags: (?P<flags>[^\n]*)\n)?",
    re.MULTILINE | re.ASCII,
)
_SECTION: Final = re.compile(r"^--- (\S[^\n]*) \((\d{1,15}) bytes\)\n", re.MULTILINE | re.ASCII)


def log_text(run: RunRecord, shown: tuple[Attachment, ...]) -> str:
    """Return a run's log as text: how it was started, what was asked for, and what it printed."""
    case = run.case
    flags = one_line(shlex.join(f"--{name}={value}" for name, value in case.flags))
    lines = [
        f"{LOG_START}{one_line(run.command)}",
        f"exit code: {run.exit_code}{', stopped at its time limit' if run.outcome is Outcome.TIMED_OUT else ''}",
        f"tool: {case.tool.value}",
        f"delegate asked for: {case.delegate}",
        f"threads: {case.threads}",
        *([f"flags: {flags}"] if flags else []),
    ]
    return "\n".join([*lines, *map(_section, shown)])


def _section(attachment: Attachment) -> str:
    text = attachment.data.decode("utf-8", "replace")
    # What a phone printed must not be able to drive the terminal.
    return "\n".join([f"--- {attachment.name} ({len(attachment.data)} bytes)", *map(one_line, text.splitlines())])


def read_logs(text: str, tools: Mapping[ToolName, Tool]) -> list[ToolReport]:
    """Return the report of each log in a text that begins with one, read by its own program; none for another text.

    Raises:
        OutputParseError: a run's raw output was deleted, or the line of its flags was damaged.
    """
    text = text.replace("\r\n", "\n")
    heads = list(_HEAD.finditer(text))
    if not heads or heads[0].start():
        return []
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return [_report(head, text[head.end() : end], tools) for head, end in zip(heads, ends, strict=True)]


def _report(head: re.Match[str], body: str, tools: Mapping[ToolName, Tool]) -> ToolReport:
    attachments = tuple(_attachments(body))
    if is_pruned(attachments):
        raise OutputParseError("what the run printed was deleted", hint="'benchfarm results runs' shows its figures")
    raw = RawOutput(
        command=head["command"],
        exit_code=None if head["exit_code"] == "None" else int(head["exit_code"]),
        timed_out=head["timed_out"] is not None,
        started_at=datetime.fromtimestamp(0, UTC),
        duration_s=0.0,
        attachments=attachments,
    )
    try:
        words = shlex.split(head["flags"] or "")
    except ValueError as error:
        hint = "write the log again: benchfarm results log RUN"
        raise OutputParseError(f"its flags {one_line(head['flags'])!r} can't be read: {error}", hint=hint) from error
    flags = (word.removeprefix("--").partition("=") for word in words)
    case = Case(
        serial=Serial(""),
        model_sha256=ModelSha(""),
        model_name="",
        delegate=DelegateName(head["delegate"]),
        threads=int(head["threads"]),
        tool=ToolName(head["tool"]),
        build_sha256=BuildSha(""),
        flags=tuple((name, value) for name, _, value in flags),
    )
    return tools[case.tool].parse(raw, case)


def _attachments(text: str) -> Iterator[Attachment]:
    _, *parts = _SECTION.split(text)
    for name, size, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        data = body.encode()
        # Where a program was stopped in its last line, only the size shows that the line has no end.
        yield Attachment(name=name, data=data.removesuffix(b"\n") if len(data) == int(size) + 1 else data)
