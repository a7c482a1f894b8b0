"""Giving up what is left of a campaign that nobody runs: it is stored as left out, and the campaign is finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.analysis.outcome import Ending
from orchestrator.clock import Clock
from orchestrator.engine.rounds import following, open_works, slim
from orchestrator.engine.run_records import RunRecords
from orchestrator.ports import Store, Tool
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.night import ABANDONED
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import ToolName

_ENDING: Final = Ending(
    outcome=Outcome.SKIPPED, reason_code=ABANDONED, reason="what was left of its campaign was abandoned"
)


def close_campaign(campaign: Campaign, store: Store, tools: Mapping[ToolName, Tool], clock: Clock) -> int:
    """Give up what is left of a campaign; return how many invocations that were. What was measured stays.

    Of a search and of pairs nothing is stored as left out: what they would have run follows from figures that they
    don't have. Raises StoreError.
    """
    count = 0
    if campaign.terms.search is None and campaign.terms.pairing is None:
        makers = {serial: RunRecords(facts, campaign, tools, clock) for serial, facts in store.devices().items()}
        runs = [slim(run) for run in store.runs(campaign_ids=[campaign.campaign_id])]
        while left := _left(campaign, runs, tools):
            abandoned = [makers[item.case.serial].record(item, clock.now(), _ENDING) for item in left]
            stored = [run for run in abandoned if store.append_run(run)]
            if not stored:
                break
            # What was open is the basis of what would have been added to it.
            runs, count = [*runs, *stored], count + len(stored)
    store.set_status(campaign.campaign_id, CampaignStatus.FINISHED, clock.now())
    return count


def _left(campaign: Campaign, runs: list[RunRecord], tools: Mapping[ToolName, Tool]) -> list[Invocation]:
    """Return what is still to be run; the reference workload aside, which brackets what is run."""
    works = open_works(campaign, runs, tools).values()
    return [
        invocation
        for work in works
        for invocation in (*work.planned, *work.added, *(following(marker, runs) for marker in work.sustained))
    ]
