"""Giving up what is left of a campaign that nobody runs: it is stored as left out, and the campaign is finished."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from orchestrator.analysis.outcome import Ending
from orchestrator.analysis.quality import judge
from orchestrator.clock import Clock
from orchestrator.engine.rounds import following, open_works, slim
from orchestrator.ports import Store, Tool
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import RunId
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
        known = store.devices()
        runs = [slim(run) for run in store.runs(campaign_ids=[campaign.campaign_id])]
        while left := _left(campaign, runs, tools):
            abandoned = [
                _abandoned(campaign, invocation, known[invocation.case.serial], clock.now()) for invocation in left
            ]
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


def _abandoned(campaign: Campaign, invocation: Invocation, facts: DeviceFacts, at: datetime) -> RunRecord:
    verdict = judge(
        None, _ENDING, case=invocation.case, run_pass=invocation.run_pass, facts=facts, before=None, after=None
    )
    return RunRecord(
        run_id=RunId(uuid.uuid4().hex),
        campaign_id=campaign.campaign_id,
        case=invocation.case,
        run_pass=invocation.run_pass,
        invocation=invocation.number,
        outcome=_ENDING.outcome,
        reason_code=_ENDING.reason_code,
        reason=_ENDING.reason,
        is_virtual=facts.is_virtual,
        started_at=at,
        duration_s=0.0,
        command="",
        exit_code=None,
        attachments=(),
        report=None,
        verdict=verdict,
    )
