"""What a search for the fastest configuration still has to run on a device: figures, then outputs of what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from orchestrator.analysis.search import next_search, search_standings
from orchestrator.programs import program
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.identity import CaseKey, Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.search import SearchRule
from orchestrator.records.workload import Pass

#: A process that died may have had an accident; a second one that does has none.
_LOOKS: Final = 2


def open_search(
    campaign: Campaign, runs: Sequence[RunRecord], serial: Serial, rule: SearchRule
) -> tuple[Invocation, ...]:
    """Return the next invocations; empty when the search is over. ``runs`` are the device's, of this campaign.

    When the figures have come to an end, the outputs of the fastest and of its ties are compared. A configuration with
    wrong outputs leaves the search, and what it had pushed out comes back.
    """
    wanted = next_search(campaign, runs, serial, rule)
    if wanted or not rule.parity:
        return tuple(wanted)
    own = replace(campaign, invocations=tuple(item for item in campaign.invocations if item.case.serial == serial))
    return tuple(
        Invocation(case=arm.case, run_pass=Pass.PARITY, number=number)
        for standing in search_standings(own, runs, rule)
        for arm in standing.live
        if program(arm.case.tool).is_benchmark_model and (number := _next_look(runs, arm.case.case_key)) is not None
    )


def _next_look(runs: Sequence[RunRecord], case_key: CaseKey) -> int | None:
    """Return the number of the next comparison of a case's outputs; None when there is one, or two were in vain."""
    own = [run for run in runs if run.case.case_key == case_key and run.run_pass is Pass.PARITY]
    tried = [run for run in own if run.outcome is not Outcome.UNFIT]
    if len(tried) >= _LOOKS or any(run.outcome in {Outcome.COMPLETED, Outcome.SKIPPED} for run in tried):
        return None
    return len(tried)
