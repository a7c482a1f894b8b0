"""``benchfarm ab``, and the report of pairs that were resumed."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.app import pairing
from orchestrator.app.pairing import AbRequest, pair_comparison
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.comparing import Output, rendered
from orchestrator.cli.download_progress import farm_telling
from orchestrator.cli.result import CommandResult
from orchestrator.engine.campaign import CampaignResult
from orchestrator.report.escapes import one_line


def compare_ab(settings: Settings, request: AbRequest, output: Output) -> CommandResult:
    """Measure two sides in turns and compare them; raises UsageError kinds before anything runs."""
    output.check()
    with farm_telling(settings) as farm:
        return told(farm, pairing.compare_ab(farm, request), output)


def told(farm: Farm, result: CampaignResult, output: Output) -> CommandResult:
    """Return what came of pairs."""
    campaign = result.campaign
    lines = [f"{serial}: {one_line(reason)}" for serial, reason in result.lost.items()]
    if result.left:
        lines.append(f"{result.left} invocations are left; 'benchfarm run --resume' runs them")
    lines.append(f"campaign: {campaign.campaign_id}")
    further = {
        "campaign_id": campaign.campaign_id,
        "status": result.status,
        "stored": result.stored,
        "left": result.left,
        "lost": result.lost,
    }
    comparison = pair_comparison(farm, campaign)
    shown = rendered(farm, comparison, output, further=further, lines=lines, is_incomplete=bool(result.left))
    return replace(shown, is_kept=True)
