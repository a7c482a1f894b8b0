"""``benchfarm run --resume``: what came of resuming a campaign, as text and JSON."""

from __future__ import annotations

from pathlib import Path

from orchestrator.app import resuming
from orchestrator.app.measuring import MeasuredCampaign
from orchestrator.bootstrap import Settings
from orchestrator.cli import measuring, pairing
from orchestrator.cli.comparing import Output
from orchestrator.cli.download_progress import farm_telling
from orchestrator.cli.result import CommandResult
from orchestrator.files import check_writable


def resume(settings: Settings, prefix: str, out: Path | None) -> CommandResult:
    """Resume a campaign that was cut off.

    When none is named and none is open, nothing is left, and all is well. Raises as the use case.
    """
    if out is not None:
        check_writable(out)
    with farm_telling(settings, makes_store=False) as farm:
        done = resuming.resume(farm, prefix)
        if done is None:
            text = f"nothing is left to resume in {farm.store.name}"
            return CommandResult(text=text, data={"campaign_id": None})
        if isinstance(done, MeasuredCampaign):
            return measuring.told(farm, done, out)
        return pairing.told(farm, done, Output())
