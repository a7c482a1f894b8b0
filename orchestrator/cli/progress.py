"""Progress on standard error, as lines, JSON or a live view: events, downloads, and the offer to
download a program.

JSON has the same keys whoever writes it (docs/reference/monitoring.md). A terminal gets the live
view of live.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from orchestrator.app.progress import describe, record_of
from orchestrator.bootstrap import Settings, Workspace
from orchestrator.cli.terminal import LOCK, lines_that_fit, say, tell, write_line
from orchestrator.engine.events import Notice
from orchestrator.ports import Observer
from orchestrator.records.build_spec import BuildSpec
from orchestrator.tables.escapes import one_line
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from orchestrator.artifacts.fetch import FileProgress

#: Without a length from the server, a line comes after this number of bytes.
_LINE_BYTES: Final = 8 << 20


class LineObserver:
    """One line for each event, with the time of day; for logs and for everything that isn't a
    terminal.
    """

    def on_event(self, event: object) -> None:
        """Print the event, if it is one that people want to read."""
        if text := describe(event):
            line = (
                text
                if isinstance(event, Notice)
                else f"{datetime.now().astimezone():%H:%M:%S} {text}"
            )
            with LOCK:
                say("\n".join(lines_that_fit(line)) if sys.stderr.isatty() else line, err=True)


def observer_for_stderr(log_format: str = "text") -> Observer:
    """Return what writes progress to standard error: JSON, a live view, else lines."""
    if log_format == "json":
        return JsonObserver()
    if not sys.stderr.isatty():
        return LineObserver()
    from orchestrator.cli.status import TerminalObserver

    live = TerminalObserver(describe)
    return live if live.can_draw else LineObserver()


class JsonObserver:
    """A JSON object for each event of one campaign."""

    def __init__(self) -> None:
        self._campaign_id = ""

    def on_event(self, event: object) -> None:
        """Write the event, with the campaign's id and what it is about."""
        record = record_of(event)
        if record is not None and not isinstance(event, Notice):
            self._campaign_id = str(record.get("campaign_id", self._campaign_id))
            record = {"campaign_id": self._campaign_id, **record}
        if record is not None:
            write_line(**record)


def downloads_on_stderr(log_format: str) -> Callable[[FileProgress], None]:
    """Return what shows a download's progress: a line for each tenth of a file."""
    steps: dict[str, int] = {}
    return lambda progress: _say_step(log_format, progress, steps)


def _say_step(log_format: str, progress: FileProgress, steps: dict[str, int]) -> None:
    """Write a line when another tenth of a file has come; ``steps`` holds the last one by file."""
    total, received = progress.total_bytes, progress.received_bytes
    step = received * 10 // total if total else received // _LINE_BYTES
    if steps.get(progress.name) != step:
        steps[progress.name] = step
        share = f" of {format_bytes(total)} ({step * 10} %)" if total else ""
        text = f"{progress.name}: {format_bytes(received)}{share}"
        tell(
            log_format,
            "download",
            text,
            file=progress.name,
            received_bytes=received,
            total_bytes=total,
        )


def workspace_telling(settings: Settings, *, makes_store: bool = True) -> Workspace:
    """Return a farm whose progress goes to standard error, and that offers to download a missing
    program.
    """
    workspace = Workspace(
        settings, makes_store=makes_store, observer=observer_for_stderr(settings.log_format)
    )
    workspace.on_missing = _download_offer(workspace)
    return workspace


def _download_offer(workspace: Workspace) -> Callable[[Sequence[BuildSpec]], None]:
    """Return what asks for each missing program whether to download it, and downloads it."""
    #: Whoever said no isn't asked again.
    asked: set[BuildSpec] = set()

    def offer(specs: Sequence[BuildSpec]) -> None:
        if not (workspace.settings.may_ask and sys.stdin.isatty() and sys.stderr.isatty()):
            return
        for spec in [spec for spec in dict.fromkeys(specs) if spec not in asked]:
            asked.add(spec)
            # What has to be built, or lies somewhere, nobody can download; the error that follows
            # says what to do.
            if spec.url and _is_wanted(spec):
                workspace.build_fetcher().fetch(
                    spec, on_progress=downloads_on_stderr(workspace.settings.log_format)
                )

    return offer


def _is_wanted(spec: BuildSpec) -> bool:
    say(
        one_line(f"{spec.name} for {spec.abi} is not on this computer; it comes from {spec.url}"),
        err=True,
    )
    say("Download it now? [Y/n] ", err=True, end="")
    # An empty line is the default; the end of the input is no answer.
    return sys.stdin.readline().lower() in {"\n", "y\n", "yes\n"}
