"""A campaign's sustained measurements: each case's curve, and how warm its phone was minute by minute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from orchestrator.analysis.sustained import Attempt, SustainedCurve, attempts, curve_of, worst_quality
from orchestrator.app.stored import find_campaign
from orchestrator.bootstrap import Farm
from orchestrator.errors import UsageError
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CaseKey, Serial
from orchestrator.records.run import RunRecord
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Case, Pass


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCurve:
    """What the store holds of one case's sustained measurement."""

    case: Case
    attempt: Attempt
    curve: SustainedCurve
    #: Whether the attempt came to its end.
    is_whole: bool
    device: str
    #: Minute -> the battery's highest heat in it.
    heat_c: Mapping[int, float]

    @property
    def quality(self) -> Quality:
        """The worst one of the attempt's runs."""
        return worst_quality(self.attempt)


def sustained_campaign(farm: Farm, prefix: str) -> tuple[Campaign, list[CaseCurve]]:
    """Return a campaign with its curves, the newest one that has the pass when none is named.

    Raises UsageError when there is none.
    """
    if prefix:
        candidates = [find_campaign(farm.store, prefix)]
    else:
        candidates = [found for item in farm.store.campaigns() if (found := farm.store.campaign(item.campaign_id))]
    for campaign in candidates:
        if any(item.run_pass is Pass.SUSTAINED for item in campaign.invocations):
            runs = farm.store.runs(campaign_ids=[campaign.campaign_id])
            return campaign, curves(campaign, runs, farm.store.devices())
    what = f"campaign {prefix!r} has no" if prefix else "no campaign has a"
    raise UsageError(f"{what} sustained measurement", hint="benchfarm bench MODEL --sustained 30m")


def curves(campaign: Campaign, runs: Iterable[RunRecord], devices: Mapping[Serial, DeviceFacts]) -> list[CaseCurve]:
    """Return each case's latest whole attempt, or its latest one at all; cases without two figures are left out."""
    by_case: dict[CaseKey, list[RunRecord]] = {}
    for run in runs:
        if run.run_pass is Pass.SUSTAINED:
            by_case.setdefault(run.case.case_key, []).append(run)
    found = []
    for own in by_case.values():
        tried = attempts(own)
        whole = [attempt for attempt in tried if attempt.is_over(campaign.terms.sustained_s)]
        attempt = (whole or tried)[-1] if tried else None
        curve = curve_of(attempt) if attempt is not None else None
        if attempt is None or curve is None:
            continue
        case = own[0].case
        facts = devices.get(case.serial)
        found.append(
            CaseCurve(
                case=case,
                attempt=attempt,
                curve=curve,
                is_whole=bool(whole),
                device=facts.title if facts is not None else case.serial,
                heat_c=_heat_by_minute(attempt),
            )
        )
    return found


def _heat_by_minute(attempt: Attempt) -> dict[int, float]:
    heat_c: dict[int, float] = {}
    begin = attempt.runs[0].started_at
    for run in attempt.runs:
        state = run.state_after or run.state_before
        if state is not None and state.battery_heat_c is not None:
            minute = int((run.started_at - begin) / timedelta(minutes=1))
            heat_c[minute] = max(heat_c.get(minute, state.battery_heat_c), state.battery_heat_c)
    return heat_c
