"""The measured cases of stored campaigns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.analysis.matching import Measured, measured_cases
from orchestrator.bootstrap import Farm
from orchestrator.records.campaign import Campaign
from orchestrator.records.run import RunRecord


def load_measured(
    farm: Farm, campaigns: Sequence[Campaign], wanted: Callable[[RunRecord], bool] | None = None
) -> list[Measured]:
    """Return the measured cases of some campaigns, without the pairs that only warmed a device."""
    known = {campaign.campaign_id: campaign for campaign in campaigns}

    def counts(run: RunRecord) -> bool:
        is_warm_up = known[run.campaign_id].is_warm_up(run.run_pass, run.invocation)
        return not is_warm_up and (wanted is None or wanted(run))

    return measured_cases(
        farm.store.runs(campaign_ids=[campaign.campaign_id for campaign in campaigns]) if campaigns else (),
        devices={str(serial): facts for serial, facts in farm.store.devices().items()},
        builds=farm.store.builds(),
        systems={
            (campaign.campaign_id, serial): fingerprint
            for campaign in campaigns
            for serial, fingerprint in campaign.terms.fingerprints.items()
        },
        origins={item.campaign_id: item.terms.origin.text for item in campaigns if item.terms.origin is not None},
        wanted=counts,
    )
