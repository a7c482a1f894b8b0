"""What a store knows of late: campaigns by status, runs by how they ended, how devices were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.run import Outcome, RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCount:
    """Runs that ended alike."""

    outcome: Outcome
    #: Empty for completed ones.
    reason_code: str
    is_virtual: bool
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A store of late."""

    #: Of all times.
    campaigns: Mapping[CampaignStatus, int]
    #: A campaign's name -> when the last one of that name was finished.
    finished_at: Mapping[str, datetime]
    #: Of the campaigns begun since then.
    runs: tuple[RunCount, ...]
    #: The newest run of each device among them, without attachments.
    newest: tuple[RunRecord, ...]
