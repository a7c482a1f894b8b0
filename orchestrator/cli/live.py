"""What phones do now: ``benchfarm status``, and the same picture as the live view of a campaign."""

from __future__ import annotations

import atexit
import dataclasses
import shlex
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from typer import Option

from orchestrator.cli.commands import Json, command, workspace_of
from orchestrator.cli.output import CommandResult, styled, tables_result, watched
from orchestrator.errors import UsageError
from orchestrator.settings import Settings
from orchestrator.tables.escapes import one_line
from orchestrator.tables.table import DATA, NESTED, Column, Kind, Table
from orchestrator.units import (
    counted,
    format_figure,
    format_percent,
    format_remaining,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from orchestrator.app.workspace import Workspace
    from orchestrator.records.campaign import PhoneStatus, Status
    from orchestrator.tables.renderers import Line


#: Characters of a serial number in a picture that must fit.
_SERIAL_MAX: Final = 24
_BAR: Final = 10
#: The least characters for a phone's activity, and the characters beside it.
_DOING_MIN: Final = 10
_BESIDE: Final = 40
_DOTS: Final = ".."

#: A phone of a campaign.
_Phone: TypeAlias = "tuple[Status, PhoneStatus]"


def _phones(rows: Sequence[_Phone], *, doing_max: int | None = None) -> Table[_Phone]:
    """Return the table of campaigns' phones. Where a line must fit, a phone's activity has at most
    ``doing_max`` characters, and its serial number is cut too (None: all).
    """
    from orchestrator.records.campaign import PhoneActivity

    serial_max = None if doing_max is None else _SERIAL_MAX
    columns: list[Column[_Phone]] = [
        Column(
            "serial",
            "phone",
            lambda row: row[1].serial,
            shown=lambda row: _cut(one_line(row[1].serial), serial_max),
        ),
        Column("activity", value=lambda row: row[1].activity, forms=DATA),
        Column(
            "doing",
            "does",
            lambda row: row[1].doing,
            shown=lambda row: _cut(_doing(row[1]), doing_max),
        ),
        Column(
            "stored",
            "runs",
            lambda row: row[1].stored,
            Kind.COUNT,
            shown=lambda row: f"{row[1].stored}/{row[1].stored + row[1].left}",
        ),
        Column("left", value=lambda row: row[1].left, kind=Kind.COUNT, forms=DATA),
        Column(
            "battery_heat_c",
            "battery",
            lambda row: row[1].battery_heat_c,
            Kind.NUMBER,
            shown=lambda row: (
                "" if row[1].battery_heat_c is None else f"{row[1].battery_heat_c:.1f} C"
            ),
        ),
        Column(
            "eta_s",
            "left",
            lambda row: row[1].eta_s,
            Kind.NUMBER,
            shown=lambda row: format_remaining(row[1].eta_s) if row[1].left else "",
        ),
        Column(
            "holder",
            value=lambda row: (
                row[0].holder
                if row[1].activity not in {PhoneActivity.DONE, PhoneActivity.ABANDONED}
                else ""
            ),
            forms=DATA,
        ),
    ]
    return Table(
        name="phones",
        caption="Phones of open campaigns",
        columns=columns,
        rows=rows,
        look=lambda row: row[1].look,
    )


def _doing(row: PhoneStatus) -> str:
    if row.activity.is_under_way:
        return one_line(row.doing)
    failed = f"{row.failed} of {counted(row.stored, 'run')} without a result" if row.failed else ""
    return one_line(": ".join(filter(None, (row.activity, row.doing or failed))))


def _rows(statuses: Sequence[Status]) -> list[_Phone]:
    return [(status, phone) for status in statuses for phone in status.phones]


_CAMPAIGNS: Final[Sequence[Column[Status]]] = (
    Column("campaign_id", "campaign", lambda row: row.campaign_id),
    Column("name", value=lambda row: row.name),
    Column("status", value=lambda status: status.state),
    Column("host", value=lambda row: row.host),
    Column("is_held", value=lambda status: bool(status.holder), kind=Kind.FLAG, forms=DATA),
    Column("stored", value=lambda row: row.stored, kind=Kind.COUNT),
    Column("left", value=lambda row: row.left, kind=Kind.COUNT),
    Column("eta_s", "takes", lambda row: row.eta_s, kind=Kind.NUMBER, unit="s", digits=0),
    Column(
        "phones",
        value=lambda status: [*map(_phones([]).record, _rows([status]))],
        kind=Kind.RECORD,
        forms=NESTED,
    ),
)


@command("status", has_table=True)
def status(
    settings: Settings,
    *,
    watch: Annotated[bool, Option("--watch", help="Repeat until no campaign runs.")] = False,
    every_s: Annotated[
        float | None, Option("--every", help="Seconds between two updates (2).", min=0.2)
    ] = None,
    as_json: Json = False,
) -> CommandResult:
    """Show what each phone does now, and what is left.

    Example: benchfarm status --watch
    """
    from orchestrator.app.status import open_campaigns

    if every_s is not None and not watch:
        raise UsageError("--every means nothing without --watch", hint="leave it out")
    # Read from the store and this computer's state only: asking phones would disturb runs.
    with workspace_of(settings) as workspace:

        def read() -> tuple[CommandResult, bool]:
            statuses = open_campaigns(workspace)
            is_open = watch and any(item.holder for item in statuses)
            # As high as the terminal: scrolled lines can't be watched.
            size = shutil.get_terminal_size() if is_open and sys.stdout.isatty() else None
            text = _text(workspace, statuses, size and size.columns - 1, size and size.lines - 1)
            result = tables_result(
                Table(
                    name="campaigns", caption="Open campaigns", columns=_CAMPAIGNS, rows=statuses
                ),
                facts={
                    "quarantine": workspace.quarantine.reasons(),
                    "changed": workspace.unrestored_phones(),
                },
            )
            phones = _phones(_rows(statuses))
            return dataclasses.replace(result, text=text, tables=[phones]), is_open

        if not watch:
            return read()[0]
        return watched(read, settings.log_format, every_s or 2.0, is_shown=not as_json)


def _text(
    workspace: Workspace,
    statuses: Sequence[Status],
    width: int | None = None,
    height: int | None = None,
) -> str:
    """Return the open campaigns, running ones phone by phone, the quarantine, and the phones to
    restore.

    ``width`` and ``height``: None is without a limit.
    """
    parts = [_campaign_text(item, width, height) for item in statuses]
    kept_out = workspace.quarantine.reasons().items()
    parts.append("\n".join(one_line(f"in quarantine: {name}: {why}") for name, why in kept_out))
    changed = [
        f"left changed: {name}: benchfarm device restore {shlex.quote(name)}"
        for name in workspace.unrestored_phones()
    ]
    parts.append("\n".join(map(one_line, changed)))
    nothing = "no campaign is running or waits to be resumed"
    return "\n\n".join(filter(None, parts)) or nothing


def _campaign_text(status: Status, width: int | None, height: int | None) -> str:
    from orchestrator.records.campaign import ELSEWHERE

    title = f"{status.campaign_id} {status.name}"
    if not status.phones:
        runs = f"{status.progress.text(is_over=False)} runs"
        where, next_step = status.state, f"; benchfarm run --resume {status.campaign_id}"
        if status.state == ELSEWHERE:
            where, next_step = f"on {status.host}", ""
        return one_line(f"{title}, {where}: {runs}{next_step}")[:width]
    lines = picture(status, title=f"{title}, {status.state}", width=width, height=height)
    return "\n".join(text for text, _ in lines)


#: Few: drawing disturbs this computer, which may be measured.
_DRAWN_PER_SECOND: Final = 2


def picture(
    status: Status, *, title: str = "", width: int | None = None, height: int | None = None
) -> list[Line]:
    """Return a campaign's lines: a title (default: its name), a head, a line for each phone.

    ``width`` and ``height``: None is without a limit.

    Phones that don't fit are counted in the last line: finished phones first, phones with a problem
    last.
    """
    from orchestrator.tables.renderers import laid_out

    ordered = sorted(status.phones, key=lambda phone: (phone.activity.order, phone.serial))
    room = len(ordered) if height is None else max(0, height - 2)
    drawn, hidden = (
        (ordered, [])
        if len(ordered) <= room
        else (ordered[: room - 1], ordered[max(0, room - 1) :])
    )
    lines = [(_title(title or status.name, status, width), "title")]
    if drawn:
        rows = [(status, phone) for phone in drawn]
        # A line has also the serial number, counts, temperature and time.
        doing_max = None if width is None else max(_DOING_MIN, width - _BESIDE)
        lines += [
            (_cut(line, width), style)
            for line, style in laid_out(_phones(rows, doing_max=doing_max))
        ]
    if hidden:
        lines.append((_cut(f"... and {len(hidden)} more: {_counted(hidden)}", width), "head"))
    free_lines = None if height is None else height - len(lines)
    return lines + [(_cut(line, width), "figure") for line in _figures(status)[:free_lines]]


def _figures(status: Status) -> list[str]:
    """Return the figures of the cases so far, by phone, the fastest first."""
    has_phones = len(status.phones) > 1
    lines = []
    for figure in sorted(status.figures, key=lambda item: (item.serial, item.median_us)):
        precision = (
            ""
            if figure.precision is None
            else f" \N{PLUS-MINUS SIGN}{format_percent(figure.precision)}"
        )
        figure_text = (
            f"{format_figure(figure.median_us, is_per_token=figure.is_per_token)}{precision}"
        )
        where = f"{one_line(figure.serial)}  " if has_phones else ""
        lines.append(
            f"{where}{figure_text:<18} {one_line(figure.case)} ({counted(figure.runs, 'run')})"
        )
    return lines


def _title(title: str, status: Status, width: int | None) -> str:
    eta = format_remaining(status.eta_s)
    separator = " of at most " if status.most > status.planned and not status.is_over else "/"
    runs = f"{status.stored}{separator}{status.total} runs"
    details = (
        f"{_bar(status)}{runs}{f', about {eta} left' if eta else ''}; {_counted(status.phones)}"
    )
    # At least 10 characters of the name stay.
    name = _cut(one_line(title), None if width is None else max(10, width - len(details) - 2))
    return _cut(f"{name}: {details}", width)


def _bar(status: Status) -> str:
    """Return a bar of the stored runs out of the maximum, so that it never goes back; empty where
    that isn't known.
    """
    if not status.planned:
        return ""
    full = round(_BAR * status.stored / status.total) if status.total else _BAR
    return f"[{'#' * full}{'.' * (_BAR - full)}] "


def _counted(phones: Sequence[PhoneStatus]) -> str:
    from orchestrator.records.campaign import PhoneActivity

    counts = Counter(phone.activity for phone in phones)
    return ", ".join(
        f"{counts[activity]} {activity}" for activity in PhoneActivity if counts[activity]
    )


def _cut(text: str, width: int | None) -> str:
    """Return text that fits, cut in its middle: phones and cases differ at their ends, and reasons
    begin with their cause.
    """
    if width is None or len(text) <= width:
        return text
    begin, end = divmod(max(0, width - len(_DOTS)), 2)
    end += begin
    return f"{text[:begin]}{_DOTS}{text[len(text) - end :]}"[:width]


class TerminalObserver:
    """Draws the status while a campaign runs."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        from orchestrator.app.status import LiveStatus

        self._console = console
        self._status = LiveStatus()
        self._lock = threading.RLock()
        self._live: Live = Live(
            console=self._console,
            get_renderable=self._drawing,
            refresh_per_second=_DRAWN_PER_SECOND,
            transient=True,
            vertical_overflow="crop",
        )

    def on_event(self, event: object) -> None:
        """Apply an event, and print it where its line should stay."""
        from orchestrator.app.status import event_text
        from orchestrator.engine.events import CampaignEnded, CampaignStarted

        with self._lock:
            self._status.on_event(event)
        if isinstance(event, CampaignStarted):
            # Show the terminal's cursor again, however this process ends.
            atexit.register(self._live.stop)
            self._live.start()
        elif isinstance(event, CampaignEnded):
            self._live.stop()
            atexit.unregister(self._live.stop)
        if _stays_printed(event) and (text := event_text(event)):
            self._console.print(text, markup=False, highlight=False)

    def _drawing(self) -> Text:
        from rich.text import Text

        with self._lock:
            status = self._status.status()
        size = self._console.size
        # The last column and line stay free: writing there scrolls some terminals.
        lines = picture(status, width=max(20, size.width - 1), height=max(4, size.height - 1))
        return Text("\n", no_wrap=True, overflow="crop").join(
            Text.from_ansi(styled(text, look)) for text, look in lines
        )


def _stays_printed(event: object) -> bool:
    from orchestrator.engine.events import (
        CampaignEnded,
        CampaignStarted,
        DeviceFinished,
        DeviceNote,
        Notice,
        RunStored,
    )
    from orchestrator.records.run import Outcome

    if isinstance(event, RunStored):
        return event.run.outcome is not Outcome.COMPLETED
    if isinstance(event, DeviceNote):
        return event.is_problem or event.is_away is not None
    return isinstance(event, CampaignStarted | CampaignEnded | DeviceFinished | Notice)
