"""How campaigns stand that nobody runs, phone by phone, from what is stored of them."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.app.board import PhoneRow, Standing, doing_of, pace_of
from orchestrator.bootstrap import Farm
from orchestrator.engine.rounds import OpenWork, open_works, slim
from orchestrator.records.campaign import Campaign
from orchestrator.records.identity import CampaignId, Serial
from orchestrator.records.run import RunRecord


class StoredRows:
    """The phones of campaigns that nobody runs, each read again only when more of it is stored."""

    def __init__(self, farm: Farm) -> None:
        self._farm = farm
        self._read: dict[CampaignId, tuple[tuple[int, int], tuple[PhoneRow, ...]]] = {}

    def of(self, campaign_id: CampaignId, progress: tuple[int, int]) -> tuple[PhoneRow, ...]:
        """Return a campaign's phones; ``progress`` is how much of it is stored and planned."""
        known = self._read.get(campaign_id)
        if known is None or known[0] != progress:
            campaign = self._farm.store.campaign(campaign_id)
            known = self._read[campaign_id] = (progress, _stored_rows(self._farm, campaign) if campaign else ())
        return known[1]


def _stored_rows(farm: Farm, campaign: Campaign) -> tuple[PhoneRow, ...]:
    runs = [slim(run) for run in farm.store.runs(campaign_ids=[campaign.campaign_id])]
    by_serial: dict[Serial, list[RunRecord]] = {}
    for run in runs:
        by_serial.setdefault(run.case.serial, []).append(run)
    works = open_works(campaign, runs, farm.tools)
    return tuple(_stored_row(serial, work, by_serial.get(serial, ())) for serial, work in works.items())


def _stored_row(serial: Serial, work: OpenWork, runs: Sequence[RunRecord]) -> PhoneRow:
    last = max(runs, key=lambda run: run.started_at, default=None)
    state = (last.state_after or last.state_before) if last is not None else None
    following = work.invocations[0] if work.invocations else None
    pace_s, left = pace_of([run.started_at for run in runs]), len(work.invocations)
    return PhoneRow(
        serial=serial,
        standing=Standing.WAITING if left else Standing.DONE,
        doing=f"waits for a resume; next: {doing_of(following)}" if following is not None else "",
        stored=len(runs),
        left=left,
        battery_heat_c=state.battery_heat_c if state is not None else None,
        eta_s=pace_s * left if pace_s is not None else None,
    )
