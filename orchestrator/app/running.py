"""Who runs a campaign now: a process of this computer, or another computer."""

from __future__ import annotations

import socket

from orchestrator.app.board import Shown
from orchestrator.bootstrap import Settings, this_computer
from orchestrator.records.campaign import Campaign, CampaignStatus


def runner_here(shown: Shown) -> str:
    """Return who writes a board, in words."""
    return f"process {shown.pid} on {socket.gethostname()}"


def runner_elsewhere(settings: Settings, campaign: Campaign) -> str:
    """Return the other computer that runs a campaign of a shared store, empty for none.

    Only that computer knows whether it is still at it. A store in a file is this computer's alone, whatever it was
    called when the campaign began.
    """
    is_own = campaign.host in {this_computer(), socket.gethostname()} or settings.store_file is not None
    return "" if is_own or campaign.status is not CampaignStatus.RUNNING else campaign.host
