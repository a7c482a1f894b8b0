"""The live view on a terminal: what each phone does, and above it a line for each thing to remember."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orchestrator.cli.board import Board
from orchestrator.cli.picture import picture
from orchestrator.engine.events import (
    CampaignEnded,
    CampaignStarted,
    DeviceFinished,
    DeviceJoined,
    DeviceNote,
    RunStored,
)
from orchestrator.records.run import Outcome
from orchestrator.report.escapes import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

#: Drawing costs this computer something, and this computer may be what is measured.
_DRAWN_PER_SECOND: Final = 2
_STYLES: Final = {
    "title": "bold", "head": "dim", "given up": "red", "away": "yellow", "working": "", "waiting": "dim",
    "done": "green",
}  # fmt: skip


class TerminalObserver:
    """Draws the board while a campaign runs."""

    def __init__(self, describe: Callable[[object], str], console: Console | None = None) -> None:
        """``describe`` gives an event's line for people."""
        from rich.console import Console
        from rich.live import Live

        self._describe = describe
        self._console = console or Console(stderr=True)
        self._board = Board()
        self._lock = threading.RLock()
        self._live: Live = Live(
            console=self._console,
            get_renderable=self._drawing,
            refresh_per_second=_DRAWN_PER_SECOND,
            transient=True,
            vertical_overflow="crop",
        )

    @property
    def can_draw(self) -> bool:
        """Whether the terminal can be drawn on: the "dumb" ones of editors can't."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def on_event(self, event: object) -> None:
        """Take note of an event, and print what is to be remembered."""
        with self._lock:
            self._board.on_event(event)
        if isinstance(event, CampaignStarted):
            # However this process ends, the terminal gets its cursor back.
            atexit.register(self._live.stop)
            self._live.start()
        elif isinstance(event, CampaignEnded):
            self._live.stop()
            atexit.unregister(self._live.stop)
        if _is_remembered(event) and (text := self._describe(event)):
            self._console.print(visible(text), markup=False, highlight=False, soft_wrap=True)

    def _drawing(self) -> Text:
        from rich.text import Text

        with self._lock:
            rows, title = self._board.rows(), self._board.title
        size = self._console.size
        # The last column and line stay free: some terminals scroll when they are written to.
        lines = picture(title, rows, width=max(20, size.width - 1), height=max(4, size.height - 1))
        return Text("\n", no_wrap=True, overflow="crop").join(Text(line.text, _STYLES[line.kind]) for line in lines)


def _is_remembered(event: object) -> bool:
    if isinstance(event, RunStored):
        return event.run.outcome is not Outcome.COMPLETED
    if isinstance(event, DeviceNote):
        return event.is_problem or event.is_away is not None
    return isinstance(event, CampaignStarted | CampaignEnded | DeviceFinished | DeviceJoined)
