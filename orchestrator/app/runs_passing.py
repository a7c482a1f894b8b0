"""A campaign's runs for its result as JSON, read when they are written: many together take a gigabyte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from orchestrator.analysis.rounds import standings
from orchestrator.bootstrap import Farm
from orchestrator.engine.rounds import slim
from orchestrator.records.campaign import Campaign
from orchestrator.records.run import RunRecord


def read_again(farm: Farm, campaign: Campaign) -> Callable[[], Iterable[RunRecord]]:
    """Return what reads a campaign's runs, also when the farm is closed."""
    from orchestrator.store.opening import IN_MEMORY

    if farm.settings.store == IN_MEMORY:
        # They are gone with the farm.
        held = list(farm.store.runs(campaign_ids=[campaign.campaign_id]))
        return lambda: held

    def again() -> Iterator[RunRecord]:
        with Farm(farm.settings) as other:
            yield from other.store.runs(campaign_ids=[campaign.campaign_id])

    return again


def stopped(campaign: Campaign, runs: Iterable[RunRecord]) -> Iterator[Mapping[str, object]]:
    """Yield why each case has as many invocations as it has."""
    for key, item in standings(campaign, map(slim, runs)).items():
        yield {
            "case_key": key,
            "reason": item.reason,
            "text": item.text,
            "stored": item.stored,
            "used": item.used,
            "half_width": item.half_width,
        }
