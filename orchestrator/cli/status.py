"""``benchfarm status``: what the farm does now, from what is stored, the leases and the quarantine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.result import CommandResult, one_line, table
from orchestrator.devices.lease import FileLease
from orchestrator.engine.rounds import OpenWork, open_works, slim
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.identity import Serial
from orchestrator.records.run import RunRecord
from orchestrator.units import format_duration

_CLEAR_SCREEN = "\x1b[H\x1b[2J"


def status(settings: Settings) -> CommandResult:
    """Tell of every campaign that isn't finished, phone by phone, and of the phones in quarantine.

    Everything is read from the store and this computer's state: no phone is asked, so nothing is disturbed.
    """
    with Farm(settings) as farm:
        # The list is without invocations.
        listed = [item.campaign_id for item in farm.store.campaigns() if item.status is not CampaignStatus.FINISHED]
        told = [_campaign(farm, known) for campaign_id in listed if (known := farm.store.campaign(campaign_id))]
        kept_out = {serial: farm.quarantine.reason(serial) for serial in farm.quarantine.serials()}
    lines: list[str] = []
    for item in told:
        lines += [
            f"{item['campaign_id']}  {item['name']}  {item['status']}: {item['stored']} stored, {item['left']} left"
        ]
        rows = [_row(phone) for phone in item["phones"]]
        lines += [table(("serial", "doing", "done", "left", "battery", "about"), rows), ""]
    lines += [one_line(f"in quarantine: {serial}: {reason}") for serial, reason in kept_out.items()]
    if not lines:
        lines = ["nothing is running, and nothing waits to be resumed"]
    return CommandResult(text="\n".join(lines).rstrip(), data={"campaigns": told, "quarantine": kept_out})


def watch(settings: Settings, *, every_s: float, sleep: Callable[[float], None] = time.sleep) -> CommandResult:
    """Show the status again and again, until no campaign is running; Ctrl-C ends it too."""
    is_terminal = sys.stdout.isatty()
    while True:
        result = status(settings)
        assert isinstance(result.data, dict)
        if not any(item["is_held"] for item in result.data["campaigns"]):
            return result
        print(f"{_CLEAR_SCREEN if is_terminal else ''}{result.text}\n", flush=True)
        sleep(every_s)


def _campaign(farm: Farm, campaign: Campaign) -> dict[str, Any]:
    runs = [slim(run) for run in farm.store.runs(campaign_ids=[campaign.campaign_id])]
    phones = [
        _phone(farm, serial, work, [run for run in runs if run.case.serial == serial])
        for serial, work in open_works(campaign, runs, farm.tools).items()
    ]
    is_held = any(phone["holder"] for phone in phones)
    return {
        "campaign_id": campaign.campaign_id,
        "name": campaign.name,
        # A campaign whose process was killed is stored as running; nobody holds its phones then.
        "status": campaign.status if is_held or campaign.status is not CampaignStatus.RUNNING else "cut off",
        "is_held": is_held,
        "stored": len(runs),
        "left": sum(phone["left"] for phone in phones),
        "phones": phones,
    }


def _phone(farm: Farm, serial: Serial, work: OpenWork, runs: Sequence[RunRecord]) -> dict[str, Any]:
    holder = farm.lease.live_holder(serial) if isinstance(farm.lease, FileLease) and work.invocations else ""
    last = max(runs, key=lambda run: run.started_at, default=None)
    state = (last.state_after or last.state_before) if last is not None else None
    pace_s = _pace_s(runs)
    left = len(work.invocations)
    following = work.invocations[0] if work.invocations else None
    return {
        "serial": serial,
        "holder": holder,
        "next": f"{following.case.model_name}, {following.case.configuration}" if following is not None else "",
        "stored": len(runs),
        "left": left,
        "battery_heat_c": state.battery_heat_c if state is not None else None,
        "eta_s": pace_s * left if pace_s is not None else None,
    }


def _pace_s(runs: Sequence[RunRecord]) -> float | None:
    """Return the mean time from one stored run to the next among the last twenty; None for fewer than two."""
    begun = sorted(run.started_at for run in runs)[-20:]
    if len(begun) < 2:
        return None
    return (begun[-1] - begun[0]) / timedelta(seconds=1) / (len(begun) - 1)


def _row(phone: dict[str, Any]) -> tuple[str, ...]:
    doing = phone["next"] if phone["holder"] else ("done" if not phone["left"] else "waits for a resume")
    heat = f"{phone['battery_heat_c']:.1f} C" if phone["battery_heat_c"] is not None else ""
    eta = f"{format_duration(phone['eta_s'])} more" if phone["left"] and phone["eta_s"] is not None else ""
    return (phone["serial"], doing, str(phone["stored"]), str(phone["left"]), heat, eta)
