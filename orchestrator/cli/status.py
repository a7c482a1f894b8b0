"""``benchfarm status``: what the farm does now, from who runs it, what is stored and the
quarantine.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from orchestrator.app.board import (
    PhoneRow,
    Shown,
    Standing,
    read_boards,
    runner_elsewhere,
    stored_rows,
)
from orchestrator.app.options import opt
from orchestrator.bootstrap import Settings, Workspace
from orchestrator.cli.frame import Json, command
from orchestrator.cli.live import campaign_eta_s, picture
from orchestrator.cli.result import CommandResult
from orchestrator.cli.terminal import say
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.tables.escapes import one_line

#: What a campaign that another computer runs is called for programs.
_ELSEWHERE = "elsewhere"


@command("status")
def status(
    settings: Settings,
    *,
    watch: Annotated[bool, opt("--watch", "Repeat until no campaign runs.")] = False,
    every_s: Annotated[float, opt("--every", "Seconds between two updates.", min=0.2)] = 2.0,
    as_json: Json = False,
) -> CommandResult:
    """Show what each phone does now, and what is left.

    Example: benchfarm status --watch
    """
    # All is read from the store and this computer's state: no phone is asked, so nothing is
    # disturbed.
    is_terminal = sys.stdout.isatty()
    with Workspace(settings, makes_store=False) as workspace:
        while watch and not as_json:
            # As high as the terminal: what scrolls away can't be watched.
            size = shutil.get_terminal_size() if is_terminal else None
            result = look(workspace, size and size.columns - 1, size and size.lines - 1)
            assert isinstance(result.data, dict)
            if not any(item["is_held"] for item in result.data["campaigns"]):
                break
            say(f"{result.text}\n", end="" if is_terminal else "\n", clears=is_terminal)
            time.sleep(every_s)
        return look(workspace)


def look(
    workspace: Workspace, width: int | None = None, height: int | None = None
) -> CommandResult:
    """Return every open campaign, phone by phone, and the quarantine.

    None is as wide or high as it takes.
    """
    boards, progress = (
        read_boards(workspace.board_folder, workspace.campaigns),
        workspace.store.progress(only_open=True),
    )
    found = [
        _campaign(
            workspace, item, boards.get(item.campaign_id), progress.get(item.campaign_id, (0, 0))
        )
        for item in workspace.store.campaigns(only_open=True)
    ]
    kept_out = {
        serial: workspace.quarantine.reason(serial) for serial in workspace.quarantine.serials()
    }
    parts = [_text(item, rows, width, height) for item, rows in found]
    parts.append(
        "\n".join(
            one_line(f"in quarantine: {serial}: {reason}") for serial, reason in kept_out.items()
        )
    )
    text = "\n\n".join(filter(None, parts)) or "nothing is running, and nothing waits to be resumed"
    return CommandResult(
        text=text, data={"campaigns": [item for item, _ in found], "quarantine": kept_out}
    )


def _text(
    campaign: dict[str, Any], rows: Sequence[PhoneRow], width: int | None, height: int | None
) -> str:
    if not rows:
        runs = f"{campaign['stored']}/{campaign['stored'] + campaign['left']} runs"
        where = f"on {campaign['host']}" if campaign["status"] == _ELSEWHERE else campaign["status"]
        return one_line(f"{campaign['campaign_id']} {campaign['name']}, {where}: {runs}")[:width]
    title = f"{campaign['campaign_id']} {campaign['name']}, {campaign['status']}"
    return "\n".join(text for text, _ in picture(title, rows, width=width, height=height))


def _campaign(
    workspace: Workspace, campaign: Campaign, shown: Shown | None, progress: tuple[int, int]
) -> tuple[dict[str, Any], Sequence[PhoneRow]]:
    """Return a campaign as JSON has it, and its phones; ``progress`` is how much of it is stored
    and planned.
    """
    rows: tuple[PhoneRow, ...] = ()
    holder, where = "", runner_elsewhere(workspace.settings, campaign)
    if shown is not None:
        # The process that runs it knows better than what is stored, and nothing needs to be read.
        rows, holder = shown.rows, shown.holder
    elif not where:
        rows = stored_rows(workspace, campaign.campaign_id, progress)
    phones = [
        {
            **asdict(row),
            "standing": row.standing.word,
            "holder": holder if row.standing not in {Standing.DONE, Standing.ABANDONED} else "",
        }
        for row in rows
    ]
    return {
        "campaign_id": campaign.campaign_id,
        "name": campaign.name,
        "status": _status_of(campaign, is_here=shown is not None, is_elsewhere=bool(where)),
        "host": campaign.host,
        "is_held": shown is not None,
        "stored": sum(row.stored for row in rows) if rows else progress[0],
        "left": sum(row.left for row in rows) if rows else max(0, progress[1] - progress[0]),
        "eta_s": campaign_eta_s(rows),
        "phones": phones,
    }, rows


def _status_of(campaign: Campaign, *, is_here: bool, is_elsewhere: bool) -> str:
    if is_here or campaign.status is not CampaignStatus.RUNNING:
        return campaign.status
    # One whose process was killed is stored as running; no process tells of it then.
    return _ELSEWHERE if is_elsewhere else "cut off"
