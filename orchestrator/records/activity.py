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
class Yield:
    """How many runs of a campaign were made, and how many of them gave no result or one that can't be trusted."""

    made: int
    without_result: int

    @property
    def is_nothing(self) -> bool:
        """Whether it was all for nothing."""
        return 0 < self.made == self.without_result

    @property
    def text(self) -> str:
        """What there is to be said, for people; empty when every run gave its result."""
        return f"{self.without_result} of {self.made} without a result" if self.without_result else ""


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
