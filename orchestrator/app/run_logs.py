"""One run as text: what ``results log`` shows, the same text read again by ``parse``, and an issue
tracker's text.
"""

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
from typing import TYPE_CHECKING, Final, cast

from orchestrator import __version__
from orchestrator.bootstrap import Workspace, this_computer
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.ports import Tool
from orchestrator.records.history import is_pruned
from orchestrator.records.identity import BuildSha, ModelSha, Serial
from orchestrator.records.run import Attachment, Outcome, RawOutput, RunRecord, ToolReport
from orchestrator.records.workload import DECLARED, Case, DelegateName, ToolName
from orchestrator.tables.escapes import one_line

if TYPE_CHECKING:
    import io

#: What a log begins with.
LOG_START: Final = "command: "
_HEAD: Final = re.compile(
    rf"^{LOG_START}(?P<command>[^\n]*)\n"
    r"exit code: (?P<exit_code>None|-?\d{1,10})(?P<timed_out>, stopped at its time limit)?\n"
    rf"tool: (?P<tool>{'|'.join(ToolName)}|{DECLARED}[\w.-]+|[a-z][\w-]*\.[\w-]+)\n"
    rf"delegate asked for: (?P<delegate>{'|'.join(DelegateName)}|[a-z][\w-]*\.[\w-]+)\n"
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
    return "\n".join(
        [f"--- {attachment.name} ({len(attachment.data)} bytes)", *map(one_line, text.splitlines())]
    )


def read_logs(text: str, tools: Mapping[ToolName, Tool]) -> list[ToolReport]:
    """Return the report of each log in a text that begins with one, read by its own program.

    None for another text.

    Raises:
        OutputParseError: a run's raw output was deleted, or the line of its flags was damaged.
    """
    text = text.replace("\r\n", "\n")
    heads = list(_HEAD.finditer(text))
    if not heads or heads[0].start():
        return []
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return [
        _report(head, text[head.end() : end], tools) for head, end in zip(heads, ends, strict=True)
    ]


def _report(head: re.Match[str], body: str, tools: Mapping[ToolName, Tool]) -> ToolReport:
    attachments = tuple(_attachments(body))
    if is_pruned(attachments):
        raise OutputParseError(
            "what the run printed was deleted", hint="'benchfarm results runs' shows its figures"
        )
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
        raise OutputParseError(
            f"its flags {one_line(head['flags'])!r} can't be read: {error}", hint=hint
        ) from error
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
        # Where a program was stopped in its last line, only the size shows that the line has no
        # end.
        yield Attachment(
            name=name, data=data.removesuffix(b"\n") if len(data) == int(size) + 1 else data
        )


def public_report(report: ToolReport) -> dict[str, object]:
    """Return what was read of a run, as JSON shows it."""
    from orchestrator.programs.grammar.output import to_public

    return to_public(report)


def describe_report(report: ToolReport) -> list[str]:
    """Return what was read of a run, as lines for people."""
    from orchestrator.programs.grammar.output import describe

    return list(describe(report))


def begun_reading(file: str) -> tuple[list[ToolReport], Iterator[ToolReport]]:
    """Return the first runs of a file (``-``: of standard input), at most two, and an iterator over
    all of them.

    Raises UsageError for an unreadable file, OutputParseError for one without any run.
    """
    reports = _reports(file)
    begun = list(itertools.islice(reports, 2))
    return begun, itertools.chain(begun, reports)


def _reports(file: str) -> Iterator[ToolReport]:
    from orchestrator.bootstrap import Settings, Workspace
    from orchestrator.programs.grammar.output import iterate_file

    settings = Settings.from_environment()
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
            own = (
                read_logs(path.read_text("utf-8", "replace"), Workspace(settings).tools)
                if is_log
                else []
            )
            yield from own or iterate_file(path)
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


def issue_of(workspace: Workspace, run: RunRecord) -> str:
    """Return a run as a text for an issue tracker.

    Nothing that names a person, a computer or a phone is in it.
    """
    from orchestrator.report.issue import Reported, issue_text

    store, case = workspace.store, run.case
    campaign = store.campaign(run.campaign_id)
    environ = workspace.settings.environ
    hosts = [this_computer(), campaign.host if campaign is not None else ""]
    words = [environ.get(name, "") for name in ("USER", "LOGNAME", "HOSTNAME", "HOME")]
    words += [host.partition(" ")[0] for host in hosts]
    # "root" and "host" name nobody.
    private = {word for word in words if word not in {"root", "host", "/root"}}
    return issue_text(
        Reported(
            run=run,
            facts=store.devices().get(case.serial),
            model=store.models().get(case.model_sha256),
            build=store.builds().get(case.build_sha256),
            attachments=store.attachments(run.run_id),
            benchfarm_version=__version__,
            private=sorted({*private, *({str(serial) for serial in store.devices()} - {"host"})}),
        )
    )
