"""What the phones of a running campaign do: kept from its events, drawn live, shown to other processes by a file."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote as percent_encode

from orchestrator.cli.result import one_line
from orchestrator.devices.liveness import is_dead, own_life
from orchestrator.engine.events import (
    CampaignEnded,
    CampaignStarted,
    DeviceFinished,
    DeviceJoined,
    DeviceNote,
    FileMoving,
    InvocationStarted,
    Measuring,
    RoundAdded,
    RunStored,
)
from orchestrator.files import write_whole
from orchestrator.ports import Observer
from orchestrator.records.campaign import Invocation
from orchestrator.records.run import Outcome
from orchestrator.records.workload import Pass, ToolName
from orchestrator.report.escapes import visible
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

#: The pace is that of so many last runs.
PACE_RUNS: Final = 20
_SERIAL_MAX: Final = 24
#: What a phone does is told in so many characters at the least, before another column is left out.
_DOING_MIN: Final = 18
_GAP: Final = "  "
_DOTS: Final = ".."
#: Of a text that is cut in its middle.
_END_SHARE: Final = 0.7


class Standing(IntEnum):
    """How a phone stands; those that want somebody's attention come first."""

    GIVEN_UP = 0
    AWAY = 1
    WORKING = 2
    WAITING = 3
    DONE = 4

    @property
    def word(self) -> str:
        """In words."""
        return self.name.lower().replace("_", " ")


_UNDER_WAY: Final = frozenset({Standing.WORKING, Standing.WAITING})


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneRow:
    """One phone of a campaign."""

    serial: str
    standing: Standing
    #: What it measures, waits for, or why it was given up.
    doing: str
    stored: int
    #: At least so many invocations.
    left: int
    battery_heat_c: float | None
    #: None when too little is known.
    eta_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the picture, and what it is: a standing's word, ``title`` or ``head``."""

    text: str
    kind: str


def pace_of(started: Sequence[datetime]) -> float | None:
    """Return the mean time between the last of these starts in seconds; None for fewer than two."""
    begun = sorted(started)[-PACE_RUNS:]
    if len(begun) < 2:
        return None
    return (begun[-1] - begun[0]) / timedelta(seconds=1) / (len(begun) - 1)


def campaign_eta_s(rows: Sequence[PhoneRow]) -> float | None:
    """Return how long the campaign takes: as its longest phone. None while nothing is known.

    Phones that are away or given up aren't waited for; one whose pace isn't known yet is taken for as slow as the
    slowest of the others.
    """
    left = [row for row in rows if row.left and row.standing in _UNDER_WAY]
    known = [(row.eta_s, row.left) for row in left if row.eta_s is not None]
    slowest_s = max((eta_s / left for eta_s, left in known), default=0.0)
    return max(slowest_s * row.left if row.eta_s is None else row.eta_s for row in left) if known else None


def about(seconds: float | None) -> str:
    """Return a time that is only roughly known: ``1 min``, ``2 h 10 min``, ``3 d 4 h``; empty for None."""
    if seconds is None:
        return ""
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def picture(title: str, rows: Sequence[PhoneRow], *, width: int | None = None, height: int | None = None) -> list[Line]:
    """Return a campaign's lines: its own, a head, a line for each phone; None is as wide or high as it takes.

    Phones that don't fit are counted in the last line: those that are done first, those in trouble never while there
    is room.
    """
    ordered = sorted(rows, key=lambda row: (row.standing, _natural(row.serial)))
    room = len(ordered) if height is None else max(0, height - 2)
    shown, hidden = (ordered, []) if len(ordered) <= room else (ordered[: room - 1], ordered[max(0, room - 1) :])
    lines = [Line(text=_title(title, rows, width), kind="title")]
    if shown:
        texts = _aligned(shown, width)
        kinds = ["head", *(row.standing.word for row in shown)]
        lines += [Line(text=text, kind=kind) for text, kind in zip(texts, kinds, strict=True)]
    if hidden:
        text = f"... and {len(hidden)} more: {_counted(hidden)}"
        lines.append(Line(text=_cut_end(text, width), kind="head"))
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
    doing = row.doing if row.standing in _UNDER_WAY else ": ".join(filter(None, (row.standing.word, row.doing)))
    return (_cut(one_line(row.serial), _SERIAL_MAX), one_line(doing), runs, heat, eta)


def _aligned(rows: Sequence[PhoneRow], width: int | None) -> list[str]:
    """Return rows of a table; what is done takes what is left, then the battery and the time are left out."""
    cells = [("phone", "does", "runs", "battery", "left"), *map(_cells, rows)]
    # What is measured differs at its end, a reason begins with what matters.
    cuts = [_cut, *(_cut if row.standing in _UNDER_WAY else _cut_end for row in rows)]
    columns = [0, 1, 2, 3, 4]
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    for dropped in (3, 4, None):
        others = sum(widths[column] for column in columns if column != 1) + len(_GAP) * (len(columns) - 1)
        if width is None or dropped is None or width - others >= min(_DOING_MIN, widths[1]):
            break
        columns.remove(dropped)
    if width is not None:
        widths[1] = max(1, min(widths[1], width - others))
    lines = []
    for row, cut in zip(cells, cuts, strict=True):
        parts = [
            row[column].rjust(widths[column]) if column > 1 else cut(row[column], widths[column]).ljust(widths[column])
            for column in columns
        ]
        lines.append(_cut_end(_GAP.join(parts).rstrip(), width))
    return lines


def _cut(text: str, width: int | None) -> str:
    """Return text that fits; its end is what tells phones and cases of one kind apart, so the middle goes."""
    if width is None or len(text) <= width or width < 8:
        return _cut_end(text, width)
    end = round((width - len(_DOTS)) * _END_SHARE)
    return f"{text[: width - len(_DOTS) - end]}{_DOTS}{text[len(text) - end :]}"


def _cut_end(text: str, width: int | None) -> str:
    if width is None or len(text) <= width:
        return text
    return text[: max(0, width - len(_DOTS))] + _DOTS[:width]


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text) if part]


#: A board is written so often at the most.
_EVERY_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class _Phone:
    """What is known of a phone."""

    standing: Standing = Standing.WAITING
    doing: str = ""
    stored: int = 0
    left: int = 0
    heat_c: float | None = None
    #: When its last runs began.
    started: list[datetime] = field(default_factory=list)
    #: When the pace was last known, on the monotonic clock.
    at_s: float = 0.0


class Board:
    """The campaign as events tell of it. Not locked: its user does that."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._phones: dict[str, _Phone] = {}
        self.title = ""

    def on_event(self, event: object) -> None:
        """Take note of an event."""
        match event:
            case CampaignStarted(campaign=campaign, devices=devices, stored=stored, left=left):
                self.title = campaign.name
                self._phones.clear()
                for serial in dict.fromkeys([*(facts.serial for facts in devices), *left]):
                    self._phones[serial] = _Phone(stored=stored.get(serial, 0), left=left.get(serial, 0))
            case InvocationStarted(invocation=invocation) | Measuring(invocation=invocation):
                phone = self._phone(invocation.case.serial)
                phone.standing, phone.doing = Standing.WORKING, doing_of(invocation)
            case FileMoving(serial=serial, name=name, sent_bytes=sent_bytes, size_bytes=size_bytes):
                share = f"{format_bytes(sent_bytes)} of {format_bytes(size_bytes)}"
                self._phone(serial).doing = f"gets {name}: {share}"
            case DeviceNote(serial=serial, text=text, is_problem=is_problem, is_away=is_away):
                phone = self._phone(serial)
                if is_away is not None:
                    phone.standing = Standing.AWAY if is_away else Standing.WORKING
                if is_away is not None or not is_problem:
                    phone.doing = text.removeprefix("lost: ")
            case DeviceJoined(serial=serial, left=left):
                self._phone(serial).left = left
            case RoundAdded(serial=serial, cases=cases):
                self._phone(serial).left += cases
            case RunStored():
                self._keep(event)
            case DeviceFinished(serial=serial, left=left, reason=reason):
                phone = self._phone(serial)
                phone.standing = Standing.GIVEN_UP if left else Standing.DONE
                phone.left, phone.doing = left, reason

    def rows(self) -> list[PhoneRow]:
        """Return a row for each phone, as it is now."""
        return [self._row(serial, phone) for serial, phone in self._phones.items()]

    def _keep(self, event: RunStored) -> None:
        run = event.run
        phone = self._phone(run.case.serial)
        phone.stored += 1
        phone.doing = ""
        if run.outcome is not Outcome.UNFIT and run.run_pass not in {Pass.SENTINEL, Pass.SUSTAINED}:
            phone.left = max(0, phone.left - 1)
        state = run.state_after or run.state_before
        phone.heat_c = state.battery_heat_c if state is not None else phone.heat_c
        phone.started = [*phone.started, run.started_at][-PACE_RUNS:]
        phone.at_s = self._monotonic_s()

    def _row(self, serial: str, phone: _Phone) -> PhoneRow:
        pace_s = pace_of(phone.started)
        since_s = self._monotonic_s() - phone.at_s
        return PhoneRow(
            serial=serial,
            standing=phone.standing,
            doing=phone.doing or _between(phone),
            stored=phone.stored,
            left=phone.left,
            battery_heat_c=phone.heat_c,
            eta_s=max(0.0, pace_s * phone.left - since_s) if pace_s is not None else None,
        )

    def _phone(self, serial: str) -> _Phone:
        return self._phones.setdefault(serial, _Phone())


def _between(phone: _Phone) -> str:
    """Return what a phone does of which no event tells."""
    if phone.standing not in {Standing.WAITING, Standing.WORKING}:
        return ""
    return ("starts" if phone.standing is Standing.WAITING else "is prepared") if phone.left else "is put back"


class PublishedBoard:
    """Hands events on, and keeps a file in ``folder`` as a campaign of this process stands.

    The file is for people who look on from another process: one that can't be written is done without.
    """

    def __init__(self, observer: Observer, folder: Path) -> None:
        """The file is there from a campaign's start to its end, to `close`, or to this process's end."""
        self._observer = observer
        self._folder = folder
        self._board = Board()
        self._campaign_id = ""
        self._lock = threading.Lock()
        self._written_s = float("-inf")
        self._timer: threading.Timer | None = None

    def on_event(self, event: object) -> None:
        """Hand an event on and note it."""
        with self._lock:
            self._board.on_event(event)
            if isinstance(event, CampaignStarted):
                self._campaign_id = event.campaign.campaign_id
                self._write()
            elif isinstance(event, CampaignEnded):
                self._remove()
            elif self._campaign_id and self._timer is None:
                # What comes meanwhile is written with it.
                self._timer = threading.Timer(max(0.0, self._written_s + _EVERY_S - time.monotonic()), self._write_late)
                self._timer.daemon = True
                self._timer.start()
        self._observer.on_event(event)

    def close(self) -> None:
        """Remove the file of a campaign that could not say that it ended."""
        with self._lock:
            self._remove()

    def _write_late(self) -> None:
        with self._lock:
            self._timer = None
            if self._campaign_id:
                self._write()

    @property
    def _path(self) -> Path:
        # A process may run several campaigns at once.
        return self._folder / f"{os.getpid()}-{percent_encode(self._campaign_id, safe='')}.json"

    def _write(self) -> None:
        self._written_s = time.monotonic()
        content = {
            "campaign_id": self._campaign_id,
            "life": own_life(),
            "pid": os.getpid(),
            "at": time.time(),
            "rows": [{**asdict(row), "standing": row.standing.name} for row in self._board.rows()],
        }
        with contextlib.suppress(OSError):
            write_whole(self._path, json.dumps(content))

    def _remove(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._campaign_id = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The board of a process that runs now."""

    pid: int
    rows: tuple[PhoneRow, ...]


def read_boards(folder: Path) -> Mapping[str, Shown]:
    """Return the boards of campaigns that run on this computer now, by the campaign's id; others are removed."""
    shown: dict[str, Shown] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text("utf-8"))
            if is_dead(content["life"]):
                path.unlink(missing_ok=True)
                continue
            age_s = max(0.0, time.time() - content["at"])
            rows = tuple(_row_from(row, age_s) for row in content["rows"])
            shown[content["campaign_id"]] = Shown(pid=content["pid"], rows=rows)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return shown


def _row_from(fields: Mapping[str, object], age_s: float) -> PhoneRow:
    row = PhoneRow(**{**fields, "standing": Standing[str(fields["standing"])]})  # type: ignore[arg-type]
    return row if row.eta_s is None else replace(row, eta_s=max(0.0, row.eta_s - age_s))


def doing_of(invocation: Invocation) -> str:
    """Return what a phone measures, in words."""
    case = invocation.case
    # The usual program is left out: there is little room.
    configuration = case.configuration.replace(f", {ToolName.NATIVE}", "")
    kind = "" if invocation.run_pass is Pass.TIMING else f" ({invocation.run_pass})"
    return f"{case.model_name}: {configuration}{kind} #{invocation.number + 1}"


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
