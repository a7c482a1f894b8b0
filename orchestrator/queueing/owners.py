"""Which jobs campaigns belong to: what waits in the queue is gone on with by workers, and by nobody else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.queueing.database import QueueDatabase, told
from orchestrator.records.identity import CampaignId, Serial


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A campaign's job."""

    submission: str
    serial: Serial
    #: It waits or runs: a worker goes on with the campaign.
    is_open: bool


@told
def read_owners(queue: QueueDatabase, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Owner]:
    """Return the jobs of some campaigns, from tables of any version; campaigns of no job aside. Raises StoreError."""
    rows = queue.rows(
        "SELECT f.campaign_id, f.submission, f.serial, j.status IN ('todo', 'doing') AS is_open"
        " FROM farm_jobs f JOIN procrastinate_jobs j ON j.id = f.job_id WHERE f.campaign_id = ANY(%s)",
        list(campaign_ids),
    )
    return {
        CampaignId(row["campaign_id"]): Owner(
            submission=row["submission"], serial=Serial(row["serial"]), is_open=row["is_open"]
        )
        for row in rows
    }
