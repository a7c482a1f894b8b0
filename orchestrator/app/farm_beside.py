"""The farm's queue in the store's database, for commands that do without when there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from orchestrator.bootstrap import Settings
from orchestrator.records.identity import CampaignId

if TYPE_CHECKING:
    from orchestrator.queueing.owners import Owner
    from orchestrator.queueing.queue import FarmQueue


def queue_beside(settings: Settings, stack: ExitStack) -> FarmQueue | None:
    """Return the queue in the store's database; None without the packages, or where there is none to be read."""
    if not settings.store.startswith(("postgresql", "postgres")):
        return None
    try:
        from orchestrator.queueing.queue import FarmQueue
    except ImportError:
        return None
    queue = stack.enter_context(FarmQueue(settings.store, is_guest=True))
    return queue if queue.is_there() else None


def owners_of(settings: Settings, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Owner]:
    """Return the jobs that some campaigns belong to; campaigns of no job aside. Raises StoreError."""
    with ExitStack() as stack:
        queue = queue_beside(settings, stack) if campaign_ids else None
        if queue is None:
            return {}
        from orchestrator.queueing.owners import read_owners

        return read_owners(queue, campaign_ids)
