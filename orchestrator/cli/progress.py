"""Progress on standard error: as the live view of a campaign, as lines, or as JSON
(docs/reference/monitoring.md).
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Final

from orchestrator.cli.output import LOCK, say, tell, write_line
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from orchestrator.artifacts.fetch import Progress
    from orchestrator.ports import Observer

#: Bytes between two lines, where the server sends no length.
_LINE_BYTES: Final = 8 << 20


class LineObserver:
    """Prints a line for each event, with the time of day; for logs and outputs other than
    terminals.
    """

    def on_event(self, event: object) -> None:
        """Print the event, if it has a line for people."""
        from orchestrator.app.progress import event_text
        from orchestrator.engine.events import Notice

        if text := event_text(event):
            line = (
                text
                if isinstance(event, Notice)
                else f"{datetime.now().astimezone():%H:%M:%S} {text}"
            )
            with LOCK:
                say(line, err=True)


def observer_for_stderr(log_format: str = "text") -> Observer:
    """Return an observer that writes progress to standard error: JSON, a live view, else lines."""
    if log_format == "json":
        return JsonObserver()
    if sys.stderr.isatty():
        from rich.console import Console

        from orchestrator.cli.live import TerminalObserver

        console = Console(stderr=True)
        # A "dumb" terminal, as in editors, can't be drawn on.
        if console.is_terminal and not console.is_dumb_terminal:
            return TerminalObserver(console)
    return LineObserver()


class JsonObserver:
    """Writes a JSON object for each event of one campaign."""

    def __init__(self) -> None:
        self._campaign_id = ""

    def on_event(self, event: object) -> None:
        """Write the event, with the campaign's id and its keys."""
        from orchestrator.app.progress import event_record
        from orchestrator.engine.events import Notice

        record = event_record(event)
        if record is not None and not isinstance(event, Notice):
            self._campaign_id = str(record.get("campaign_id", self._campaign_id))
            record = {"campaign_id": self._campaign_id, **record}
        if record is not None:
            write_line(**record)


def downloads_on_stderr(log_format: str) -> Progress:
    """Return a callback that prints a download's progress: a line for each tenth of a file."""
    steps: dict[str, int] = {}

    def on_progress(name: str, received: int, total: int | None) -> None:
        step = received * 10 // total if total else received // _LINE_BYTES
        if steps.get(name) != step:
            steps[name] = step
            share = f" of {format_bytes(total)} ({step * 10} %)" if total else ""
            text = f"{name}: {format_bytes(received)}{share}"
            tell(
                log_format, "download", text, file=name, received_bytes=received, total_bytes=total
            )

    return on_progress
