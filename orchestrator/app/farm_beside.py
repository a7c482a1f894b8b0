"""A farm beside its store: its queue, whose campaigns are its jobs', and what those that are over gave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from orchestrator.bootstrap import Settings
from orchestrator.errors import UsageError
from orchestrator.records.history import Yield
from orchestrator.records.identity import CampaignId

if TYPE_CHECKING:
    from orchestrator.queueing.overview import Owner
    from orchestrator.queueing.queue import FarmQueue
    from orchestrator.store.opening import Store


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
        return queue.owners(campaign_ids) if queue is not None else {}


def shortcomings(store: Store, jobs: Iterable[Mapping[str, Any]]) -> dict[str, Yield]:
    """Return what the phones of a submission gave, by serial number; phones of whose runs each gave a result aside."""
    serials = {CampaignId(job["campaign_id"]): str(job["serial"]) for job in jobs}
    given = store.yields(list(serials))
    return {serials[campaign_id]: item for campaign_id, item in given.items() if item.without_result}


def worst_text(lacking: Mapping[str, Yield]) -> str:
    """Return for people which phones measured all for nothing; empty when none did."""
    return ", ".join(sorted(serial for serial, given in lacking.items() if given.is_nothing))


def unknown_submission(name: str) -> UsageError:
    """Return the error for a submission that isn't there."""
    return UsageError(f"there is no submission {name!r}", hint="'benchfarm farm status' lists all")
