"""What the phones of a running campaign do, kept from its events, and shown to other processes
through a file.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from orchestrator.app.progress import difference_so_far
from orchestrator.bootstrap import Settings, Workspace, this_computer
from orchestrator.devices.lease import Locks
from orchestrator.engine.events import (
    CampaignEnded,
    CampaignStarted,
    DeviceFinished,
    DeviceNote,
    FileMoving,
    InvocationStarted,
    Measuring,
    RoundAdded,
    RunStored,
)
from orchestrator.engine.rounds import OpenWork, open_works, slim
from orchestrator.errors import InterruptedByUserError
from orchestrator.files import write_whole
from orchestrator.passes import pass_of
from orchestrator.ports import Observer
from orchestrator.programs import usual_tool
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.device import DeviceKind
from orchestrator.records.identity import CampaignId, Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import FIGURE_PASS, grouped
from orchestrator.units import format_bytes

#: While a file is on its way, a board is written this often.
_EVERY_S: Final = 1.0
#: The number of last runs that the pace is computed from.
_PACE_RUNS: Final = 20


class Standing(IntEnum):
    """How a phone stands; those that want somebody's attention come first."""

    ABANDONED = 0
    AWAY = 1
    WORKING = 2
    WAITING = 3
    DONE = 4

    @property
    def word(self) -> str:
        """In words."""
        return self.name.lower().replace("_", " ")


@dataclass(slots=True, kw_only=True)
class PhoneRow:
    """One phone of a campaign."""

    serial: str
    standing: Standing = Standing.WAITING
    #: What it measures, waits for, or why it was abandoned.
    doing: str = ""
    stored: int = 0
    #: At least this many invocations.
    left: int = 0
    battery_heat_c: float | None = None
    #: None when too little is known.
    eta_s: float | None = None


def pace_of(started: Sequence[datetime]) -> float | None:
    """Return the mean time between the last of these starts in seconds; None for fewer than two."""
    begun = sorted(started)[-_PACE_RUNS:]
    if len(begun) < 2:
        return None
    return (begun[-1] - begun[0]) / timedelta(seconds=1) / (len(begun) - 1)


class Board:
    """The campaign as events tell of it. Not locked: its user does that."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._rows: dict[str, PhoneRow] = {}
        #: When each phone's last runs began, and when the last one was stored (monotonic).
        self._started: dict[str, list[datetime]] = {}
        self._stored_s: dict[str, float] = {}
        #: Of an A/B comparison: what each phone's pairs come to as yet.
        self._so_far: dict[str, str] = {}
        self.title = ""

    def on_event(self, event: object) -> None:
        """Take note of an event."""
        match event:
            case CampaignStarted(campaign=campaign, devices=devices, stored=stored, left=left):
                self.title = campaign.name
                self._started.clear()
                self._so_far.clear()
                serials = dict.fromkeys([*(facts.serial for facts in devices), *left])
                self._rows = {
                    serial: PhoneRow(
                        serial=serial, stored=stored.get(serial, 0), left=left.get(serial, 0)
                    )
                    for serial in serials
                }
            case (
                InvocationStarted(invocation=invocation, side=side)
                | Measuring(invocation=invocation, side=side)
            ):
                row = self._row(invocation.case.serial)
                row.standing, row.doing = Standing.WORKING, doing_of(invocation)
                if side:
                    known = [
                        f"{side.partition(',')[0]} #{invocation.number + 1}",
                        self._so_far.get(row.serial, ""),
                    ]
                    row.doing = "; ".join(filter(None, known))
            case FileMoving(serial=serial, name=name, sent_bytes=sent_bytes, size_bytes=size_bytes):
                share = f"{format_bytes(sent_bytes)} of {format_bytes(size_bytes)}"
                self._row(serial).doing = f"gets {name}: {share}"
            case DeviceNote(serial=serial, text=text, is_problem=is_problem, is_away=is_away):
                row = self._row(serial)
                if is_away is not None:
                    row.standing = Standing.AWAY if is_away else Standing.WORKING
                if is_away is not None or not is_problem:
                    row.doing = text.removeprefix("lost: ")
            case RoundAdded(serial=serial, cases=cases):
                self._row(serial).left += cases
            case RunStored():
                self._keep(event)
            case DeviceFinished(serial=serial, left=left, reason=reason):
                row = self._row(serial)
                row.standing = Standing.ABANDONED if left else Standing.DONE
                row.left, row.doing = left, reason

    def rows(self) -> list[PhoneRow]:
        """Return a row for each phone, as it is now."""
        found = []
        for serial, row in self._rows.items():
            pace_s, doing = pace_of(self._started.get(serial, ())), row.doing
            if not doing and row.standing in {Standing.WAITING, Standing.WORKING}:
                # No event tells of it.
                begins = "starts" if row.standing is Standing.WAITING else "is prepared"
                doing = begins if row.left else "is restored"
            since_s = self._monotonic_s() - self._stored_s.get(serial, 0.0)
            eta_s = max(0.0, pace_s * row.left - since_s) if pace_s is not None else None
            found.append(replace(row, doing=doing, eta_s=eta_s))
        return found

    def _keep(self, event: RunStored) -> None:
        run, serial = event.run, event.run.case.serial
        row = self._row(serial)
        row.stored += 1
        row.doing = ""
        if event.so_far is not None:
            self._so_far[serial] = difference_so_far(event.so_far, run)
        if run.outcome is not Outcome.UNFIT and not pass_of(run.run_pass).is_open_ended:
            row.left = max(0, row.left - 1)
        state = run.state_after or run.state_before
        row.battery_heat_c = state.battery_heat_c if state is not None else row.battery_heat_c
        self._started[serial] = [*self._started.get(serial, ()), run.started_at][-_PACE_RUNS:]
        self._stored_s[serial] = self._monotonic_s()

    def _row(self, serial: str) -> PhoneRow:
        return self._rows.setdefault(serial, PhoneRow(serial=serial))


class PublishedBoard:
    """Hands events on, and keeps a file in ``folder`` as a campaign of this process stands.

    The file is for commands of other processes; a campaign runs on when it can't be written.
    """

    def __init__(self, observer: Observer, folder: Path) -> None:
        """The file is there from a campaign's start to its end, to `close`, or to this process's
        end.
        """
        self._observer = observer
        self._folder = folder
        self._board = Board()
        self._campaign_id = ""
        self._lock = threading.Lock()
        self._written_s = float("-inf")

    def on_event(self, event: object) -> None:
        """Hand an event on and note it."""
        with self._lock:
            self._board.on_event(event)
            if isinstance(event, CampaignStarted):
                self._campaign_id = event.campaign.campaign_id
            if isinstance(event, CampaignEnded):
                self._remove()
            # A file on its way has a hundred events a second.
            elif self._campaign_id and not (
                isinstance(event, FileMoving) and time.monotonic() < self._written_s + _EVERY_S
            ):
                self._write()
        self._observer.on_event(event)

    def close(self) -> None:
        """Remove the file of a campaign that could not say that it ended."""
        with self._lock:
            self._remove()

    @property
    def _path(self) -> Path:
        return self._folder / f"{percent_encode(self._campaign_id, safe='')}.json"

    def _write(self) -> None:
        self._written_s = time.monotonic()
        content = {
            "campaign_id": self._campaign_id,
            "at": time.time(),
            "rows": [{**asdict(row), "standing": row.standing.name} for row in self._board.rows()],
        }
        with contextlib.suppress(OSError):
            write_whole(self._path, json.dumps(content))

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._campaign_id = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The board of a process that runs now."""

    #: That process, in words.
    holder: str
    rows: tuple[PhoneRow, ...]


def read_boards(folder: Path, campaigns: Locks) -> Mapping[str, Shown]:
    """Return the boards of campaigns that this computer's processes hold now, by the campaign's id.

    Others are removed: those of processes that are gone.
    """
    shown: dict[str, Shown] = {}
    for path in sorted(folder.glob("*.json")):
        holder = campaigns.live_holder(unquote(path.stem))
        try:
            if not holder:
                path.unlink(missing_ok=True)
                continue
            content = json.loads(path.read_text("utf-8"))
            age_s = max(0.0, time.time() - content["at"])
            rows = [
                PhoneRow(**{**row, "standing": Standing[row["standing"]]})
                for row in content["rows"]
            ]
            for row in rows:
                row.eta_s = None if row.eta_s is None else max(0.0, row.eta_s - age_s)
            shown[content["campaign_id"]] = Shown(holder=holder, rows=tuple(rows))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return shown


def doing_of(invocation: Invocation) -> str:
    """Return what a phone measures, in words."""
    case = invocation.case
    # The usual program is left out: there is little room.
    configuration = case.configuration.replace(f", {usual_tool(DeviceKind.ANDROID)}", "")
    kind = "" if invocation.run_pass is FIGURE_PASS else f" ({invocation.run_pass})"
    return f"{case.model_name}: {configuration}{kind} #{invocation.number + 1}"


@contextmanager
def resumable(campaign: Campaign) -> Iterator[None]:
    """Say how a campaign that is stopped is resumed: what is inside raises InterruptedByUserError
    with a hint.
    """
    try:
        yield
    except InterruptedByUserError as error:
        error.hint = f"resume it: benchfarm run --resume {campaign.campaign_id}"
        raise


def runner_elsewhere(settings: Settings, campaign: Campaign) -> str:
    """Return the other computer that runs a campaign of a shared store, empty for none.

    Only that computer knows whether it is still at it. A store in a file is this computer's alone,
    whatever it was called when the campaign began.
    """
    is_own = (
        campaign.host in {this_computer(), socket.gethostname()} or settings.store_file is not None
    )
    return "" if is_own or campaign.status is not CampaignStatus.RUNNING else campaign.host


@lru_cache
def stored_rows(
    workspace: Workspace, campaign_id: CampaignId, _progress: tuple[int, int]
) -> tuple[PhoneRow, ...]:
    """Return the phones of a campaign that nobody runs.

    Read again only when more of it is stored (``_progress``).
    """
    campaign = workspace.store.campaign(campaign_id)
    if campaign is None:
        return ()
    runs = [slim(run) for run in workspace.store.runs(campaign_ids=[campaign_id])]
    by_serial, works = (
        grouped(runs, lambda run: run.case.serial),
        open_works(campaign, runs, workspace.tools),
    )
    return tuple(
        _stored_row(serial, work, by_serial.get(serial, ())) for serial, work in works.items()
    )


def _stored_row(serial: Serial, work: OpenWork, runs: Sequence[RunRecord]) -> PhoneRow:
    last = max(runs, key=lambda run: run.started_at, default=None)
    state = (last.state_after or last.state_before) if last is not None else None
    pace_s, left = pace_of([run.started_at for run in runs]), len(work.invocations)
    return PhoneRow(
        serial=serial,
        standing=Standing.WAITING if left else Standing.DONE,
        doing=f"waits for a resume; next: {doing_of(work.invocations[0])}" if left else "",
        stored=len(runs),
        left=left,
        battery_heat_c=state.battery_heat_c if state is not None else None,
        eta_s=pace_s * left if pace_s is not None else None,
    )
