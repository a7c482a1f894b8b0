"""What jobs of the farm that are over gave: one that is done may have stored nothing but failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.ports import Store
from orchestrator.records.activity import Yield
from orchestrator.records.identity import CampaignId


def shortcomings(store: Store, jobs: Iterable[Mapping[str, Any]]) -> dict[str, Yield]:
    """Return what the phones of a submission gave, by serial number; phones of whose runs each gave a result aside."""
    serials = {CampaignId(job["campaign_id"]): str(job["serial"]) for job in jobs}
    given = store.yields(list(serials))
    return {serials[campaign_id]: item for campaign_id, item in given.items() if item.without_result}


def worst_text(lacking: Mapping[str, Yield]) -> str:
    """Return for people which phones measured all for nothing; empty when none did."""
    return ", ".join(sorted(serial for serial, given in lacking.items() if given.is_nothing))
