"""Who runs a campaign now: a process of this computer, or another computer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.app.board import Shown
from orchestrator.bootstrap import Settings, this_computer
from orchestrator.errors import InterruptedByUserError
from orchestrator.records.campaign import Campaign, CampaignStatus


@contextmanager
def resumable(campaign: Campaign) -> Iterator[None]:
    """Let who stops a campaign know how it is resumed: what is inside raises InterruptedByUserError with a hint."""
    try:
        yield
    except InterruptedByUserError as error:
        error.hint = f"resume it: benchfarm run --resume --campaign {campaign.campaign_id}"
        raise


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
