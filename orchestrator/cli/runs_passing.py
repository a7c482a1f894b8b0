"""A campaign's runs at its end, one after the other: those of a large one, held together, take a gigabyte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from orchestrator.analysis.rounds import standings
from orchestrator.bootstrap import Farm
from orchestrator.engine.rounds import slim
from orchestrator.records.campaign import Campaign
from orchestrator.records.night import OUT_OF_TIME
from orchestrator.records.run import RunRecord


class CountedRuns:
    """What a campaign's result says of runs that pass by."""

    def __init__(self) -> None:
        #: How many gave no result.
        self.doubtful = 0
        #: Those that there was no time for.
        self.late: list[RunRecord] = []

    def of(self, runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
        """Yield runs as they are, and count them."""
        for run in runs:
            self.doubtful += run.is_without_result
            if run.reason_code == OUT_OF_TIME:
                self.late.append(run)
            yield run


def read_again(farm: Farm, campaign: Campaign) -> Callable[[], Iterable[RunRecord]]:
    """Return what reads a campaign's runs, also when the farm is closed."""
    from orchestrator.store.opening import IN_MEMORY

    if farm.settings.store == IN_MEMORY:
        # They are gone with the farm.
        held = list(farm.store.runs(campaign_ids=[campaign.campaign_id]))
        return lambda: held

    def again() -> Iterator[RunRecord]:
        with Farm(farm.settings) as anew:
            yield from anew.store.runs(campaign_ids=[campaign.campaign_id])

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
