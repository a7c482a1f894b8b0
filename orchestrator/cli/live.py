"""The live view of a campaign: what each phone does, as lines that fit a terminal, the same for
``status``.
"""

from __future__ import annotations

import atexit
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.app.board import Board, PhoneRow, Standing
from orchestrator.cli.terminal import lines_that_fit
from orchestrator.engine.events import (
    CampaignEnded,
    CampaignStarted,
    DeviceFinished,
    DeviceNote,
    Notice,
    RunStored,
)
from orchestrator.records.run import Outcome
from orchestrator.tables.escapes import one_line, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

#: Drawing costs this computer something, and this computer may be what is measured.
_DRAWN_PER_SECOND: Final = 2
_STYLES: Final = {
    "title": "bold",
    "head": "dim",
    "abandoned": "red",
    "away": "yellow",
    "working": "",
    "waiting": "dim",
    "done": "green",
}
_SERIAL_MAX: Final = 24
#: What a phone does is told in at least this many characters.
_DOING_MIN: Final = 10
_GAP: Final = "  "
_DOTS: Final = ".."
#: Of a text that is cut in its middle.
_END_SHARE: Final = 0.7


_UNDER_WAY: Final = frozenset({Standing.WORKING, Standing.WAITING})


#: A line of the picture, and what it is: a standing's word, ``title`` or ``head``.
Line = tuple[str, str]


def campaign_eta_s(rows: Sequence[PhoneRow]) -> float | None:
    """Return how long the campaign takes: as its longest phone. None while nothing is known.

    Phones that are away or abandoned aren't waited for; one whose pace isn't known yet is taken for
    as slow as the slowest of the others.
    """
    left = [row for row in rows if row.left and row.standing in _UNDER_WAY]
    known = [(row.eta_s, row.left) for row in left if row.eta_s is not None]
    slowest_s = max((eta_s / left for eta_s, left in known), default=0.0)
    return (
        max(slowest_s * row.left if row.eta_s is None else row.eta_s for row in left)
        if known
        else None
    )


def about(seconds: float | None) -> str:
    """Return a time that is only roughly known: ``1 min``, ``2 h 10 min``, ``3 d 4 h``.

    Empty for None.
    """
    if seconds is None:
        return ""
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def picture(
    title: str, rows: Sequence[PhoneRow], *, width: int | None = None, height: int | None = None
) -> list[Line]:
    """Return a campaign's lines: its own, a head, a line for each phone.

    None is as wide or high as it takes.

    Phones that don't fit are counted in the last line: those that are done first, those in trouble
    never while there is room.
    """
    ordered = sorted(rows, key=lambda row: (row.standing, row.serial))
    room = len(ordered) if height is None else max(0, height - 2)
    shown, hidden = (
        (ordered, [])
        if len(ordered) <= room
        else (ordered[: room - 1], ordered[max(0, room - 1) :])
    )
    lines = [(_title(title, rows, width), "title")]
    if shown:
        lines += zip(
            _aligned(shown, width), ["head", *(row.standing.word for row in shown)], strict=True
        )
    if hidden:
        lines.append((_cut_end(f"... and {len(hidden)} more: {_counted(hidden)}", width), "head"))
    return lines


def _title(title: str, rows: Sequence[PhoneRow], width: int | None) -> str:
    stored, left = sum(row.stored for row in rows), sum(row.left for row in rows)
    eta = about(campaign_eta_s(rows))
    told = f"{stored}/{stored + left} runs{f', about {eta} left' if eta else ''}; {_counted(rows)}"
    # The name is what everybody knows.
    name = _cut(one_line(title), None if width is None else max(10, width - len(told) - 2))
    return _cut_end(f"{name}: {told}", width)


def _counted(rows: Sequence[PhoneRow]) -> str:
    counts = Counter(row.standing for row in rows)
    return ", ".join(f"{counts[standing]} {standing.word}" for standing in sorted(counts))


def _cells(row: PhoneRow) -> tuple[str, ...]:
    heat = f"{row.battery_heat_c:.1f} C" if row.battery_heat_c is not None else ""
    eta = about(row.eta_s) if row.left and row.standing in _UNDER_WAY else ""
    runs = f"{row.stored}/{row.stored + row.left}"
    doing = (
        row.doing
        if row.standing in _UNDER_WAY
        else ": ".join(filter(None, (row.standing.word, row.doing)))
    )
    return (_cut(one_line(row.serial), _SERIAL_MAX), one_line(doing), runs, heat, eta)


def _aligned(rows: Sequence[PhoneRow], width: int | None) -> list[str]:
    """Return rows of a table; what a phone does gets the room that the other columns leave."""
    cells = [("phone", "does", "runs", "battery", "left"), *map(_cells, rows)]
    # What is measured differs at its end, a reason begins with what matters.
    cuts = [_cut, *(_cut if row.standing in _UNDER_WAY else _cut_end for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        others = sum(widths) - widths[1] + len(_GAP) * (len(widths) - 1)
        widths[1] = min(widths[1], max(_DOING_MIN, width - others))
    lines = []
    for (phone, does, *figures), cut in zip(cells, cuts, strict=True):
        words = [phone.ljust(widths[0]), cut(does, widths[1]).ljust(widths[1])]
        aligned = [figure.rjust(room) for figure, room in zip(figures, widths[2:], strict=True)]
        lines.append(_cut_end(_GAP.join([*words, *aligned]).rstrip(), width))
    return lines


def _cut(text: str, width: int | None) -> str:
    """Return text that fits.

    Its end is what tells phones and cases of one kind apart, so the middle goes.
    """
    if width is None or len(text) <= width or width < 8:
        return _cut_end(text, width)
    end = round((width - len(_DOTS)) * _END_SHARE)
    return f"{text[: width - len(_DOTS) - end]}{_DOTS}{text[len(text) - end :]}"


def _cut_end(text: str, width: int | None) -> str:
    if width is None or len(text) <= width:
        return text
    return text[: max(0, width - len(_DOTS))] + _DOTS[:width]


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
            self._console.print(
                "\n".join(lines_that_fit(visible(text))),
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def _drawing(self) -> Text:
        from rich.text import Text

        with self._lock:
            rows, title = self._board.rows(), self._board.title
        size = self._console.size
        # The last column and line stay free: some terminals scroll when they are written to.
        lines = picture(title, rows, width=max(20, size.width - 1), height=max(4, size.height - 1))
        return Text("\n", no_wrap=True, overflow="crop").join(
            Text(text, _STYLES[kind]) for text, kind in lines
        )


def _is_remembered(event: object) -> bool:
    if isinstance(event, RunStored):
        return event.run.outcome is not Outcome.COMPLETED
    if isinstance(event, DeviceNote):
        return event.is_problem or event.is_away is not None
    return isinstance(event, CampaignStarted | CampaignEnded | DeviceFinished | Notice)
