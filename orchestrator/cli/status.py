"""``benchfarm status``: what the farm does now, from who runs it, what is stored and the quarantine."""

from __future__ import annotations

import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.board import Shown, doing_of, read_boards
from orchestrator.cli.picture import PhoneRow, Standing, campaign_eta_s, pace_of, picture
from orchestrator.cli.result import CommandResult, one_line
from orchestrator.engine.importing import end_cut_off
from orchestrator.engine.rounds import OpenWork, open_works, slim
from orchestrator.errors import StoreError
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.identity import Serial
from orchestrator.records.run import RunRecord

_CLEAR_SCREEN = "\x1b[H\x1b[2J"


def status(settings: Settings, *, width: int | None = None, height: int | None = None) -> CommandResult:
    """Tell of every campaign that isn't finished, phone by phone, and of the phones in quarantine.

    Everything is read from the store and this computer's state: no phone is asked, so nothing is disturbed. Each
    campaign gets so many columns and lines; None is as many as it takes.
    """
    with Farm(settings) as farm:
        with suppress(StoreError):
            # A store that can't be written is shown all the same.
            end_cut_off(farm.store, farm.clock.now())
        # The list is without invocations.
        listed = [item.campaign_id for item in farm.store.campaigns() if item.status is not CampaignStatus.FINISHED]
        boards = read_boards(farm.board_folder)
        told = [
            _campaign(farm, known, boards.get(campaign_id))
            for campaign_id in listed
            if (known := farm.store.campaign(campaign_id))
        ]
        kept_out = {serial: farm.quarantine.reason(serial) for serial in farm.quarantine.serials()}
    parts = [_text(item, width, height) for item in told]
    parts.append("\n".join(one_line(f"in quarantine: {serial}: {reason}") for serial, reason in kept_out.items()))
    text = "\n\n".join(filter(None, parts)) or "nothing is running, and nothing waits to be resumed"
    return CommandResult(text=text, data={"campaigns": told, "quarantine": kept_out})


def watch(settings: Settings, *, every_s: float, sleep: Callable[[float], None] = time.sleep) -> CommandResult:
    """Show the status again and again, until no campaign is running; Ctrl-C ends it too."""
    is_terminal = sys.stdout.isatty()
    while True:
        # As high as the terminal: what scrolls away can't be watched.
        size = shutil.get_terminal_size() if is_terminal else None
        result = status(settings, width=size and size.columns - 1, height=size and size.lines - 1)
        assert isinstance(result.data, dict)
        if not any(item["is_held"] for item in result.data["campaigns"]):
            return status(settings)
        print(f"{_CLEAR_SCREEN if is_terminal else ''}{result.text}\n", end="" if is_terminal else None, flush=True)
        sleep(every_s)


def _text(campaign: dict[str, Any], width: int | None, height: int | None) -> str:
    title = f"{campaign['campaign_id']} {campaign['name']}, {campaign['status']}"
    rows = [_row(phone) for phone in campaign["phones"]]
    return "\n".join(line.text for line in picture(title, rows, width=width, height=height))


def _campaign(farm: Farm, campaign: Campaign, shown: Shown | None) -> dict[str, Any]:
    if shown is not None:
        # The process that runs it knows better than what is stored, and nothing needs to be read.
        rows, holder = shown.rows, f"process {shown.pid} on {socket.gethostname()}"
    else:
        rows, holder = _stored_rows(farm, campaign), ""
    eta_s = campaign_eta_s(rows)
    phones = [
        {
            **{field.name: getattr(row, field.name) for field in fields(row)},
            "standing": row.standing.word,
            "holder": holder if row.standing not in {Standing.DONE, Standing.GIVEN_UP} else "",
        }
        for row in rows
    ]
    return {
        "campaign_id": campaign.campaign_id,
        "name": campaign.name,
        # A campaign whose process was killed is stored as running; no process tells of it then.
        "status": campaign.status if shown or campaign.status is not CampaignStatus.RUNNING else "cut off",
        "is_held": shown is not None,
        "stored": sum(row.stored for row in rows),
        "left": sum(row.left for row in rows),
        "eta_s": eta_s,
        "phones": phones,
    }


def _stored_rows(farm: Farm, campaign: Campaign) -> tuple[PhoneRow, ...]:
    runs = [slim(run) for run in farm.store.runs(campaign_ids=[campaign.campaign_id])]
    by_serial: dict[Serial, list[RunRecord]] = {}
    for run in runs:
        by_serial.setdefault(run.case.serial, []).append(run)
    works = open_works(campaign, runs, farm.tools)
    return tuple(_stored_row(serial, work, by_serial.get(serial, ())) for serial, work in works.items())


def _stored_row(serial: Serial, work: OpenWork, runs: Sequence[RunRecord]) -> PhoneRow:
    last = max(runs, key=lambda run: run.started_at, default=None)
    state = (last.state_after or last.state_before) if last is not None else None
    following = work.invocations[0] if work.invocations else None
    pace_s, left = pace_of([run.started_at for run in runs]), len(work.invocations)
    return PhoneRow(
        serial=serial,
        standing=Standing.WAITING if left else Standing.DONE,
        doing=f"waits for a resume; next: {doing_of(following)}" if following is not None else "",
        stored=len(runs),
        left=left,
        battery_heat_c=state.battery_heat_c if state is not None else None,
        eta_s=pace_s * left if pace_s is not None else None,
    )


def _row(phone: dict[str, Any]) -> PhoneRow:
    known = {field.name: phone[field.name] for field in fields(PhoneRow)}
    return PhoneRow(**{**known, "standing": Standing[phone["standing"].upper().replace(" ", "_")]})
