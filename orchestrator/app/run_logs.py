"""Runs as text: what ``results log`` shows, what ``parse`` reads of a file, and an issue tracker's text."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from orchestrator import __version__
from orchestrator.bootstrap import Farm, this_computer
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.records.run import Attachment, Outcome, RunRecord, ToolReport
from orchestrator.report.escapes import one_line

if TYPE_CHECKING:
    import io


def log_text(run: RunRecord, shown: tuple[Attachment, ...]) -> str:
    """Return a run's log as text: how it was started, what was asked for, and what it printed."""
    case = run.case
    flags = one_line(shlex.join(f"--{name}={value}" for name, value in case.flags))
    lines = [
        f"command: {one_line(run.command)}",
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


def public_report(report: ToolReport) -> dict[str, object]:
    """Return what was read of a run, as JSON shows it."""
    from orchestrator.programs.grammar.output import to_public

    return to_public(report)


def describe_report(report: ToolReport) -> list[str]:
    """Return what was read of a run, as lines for people."""
    from orchestrator.programs.grammar.output import describe

    return list(describe(report))


def begun_reading(file: str) -> tuple[list[ToolReport], Iterator[ToolReport]]:
    """Return the first runs of a file (``-``: of standard input), at most two, and an iterator over all of them.

    Raises UsageError for an unreadable file, OutputParseError for one without any run.
    """
    reports = _reports(file)
    begun = list(itertools.islice(reports, 2))
    return begun, itertools.chain(begun, reports)


def _reports(file: str) -> Iterator[ToolReport]:
    from orchestrator.programs.grammar.output import iterate_file

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
        raise OutputParseError(f"{'standard input' if file == '-' else file}: {error}", hint=error.hint) from error
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error


@contextlib.contextmanager
def _kept(stream: io.BufferedReader) -> Iterator[Path]:
    """Keep what comes through a pipe in a file while it is read."""
    with tempfile.NamedTemporaryFile() as kept:
        # One read a turn: a signal that comes between two reads is handled before the next one waits.
        while piece := stream.read1():
            kept.write(piece)
        kept.flush()
        yield Path(kept.name)


def issue_of(farm: Farm, run: RunRecord) -> str:
    """Return a run as a text for an issue tracker; nothing that names a person, a computer or a phone is in it."""
    from orchestrator.report.issue import Reported, issue_text

    store, case = farm.store, run.case
    campaign = store.campaign(run.campaign_id)
    environ = farm.settings.environ
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
