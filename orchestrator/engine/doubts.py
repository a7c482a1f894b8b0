"""What the reference workload's checks doubt, kept with the runs: every reader of the store sees the same quality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from orchestrator.analysis.brackets import CHECK_INVOCATIONS, doubted, history_of
from orchestrator.ports import Store
from orchestrator.records.identity import CampaignId, CaseKey, Serial
from orchestrator.records.run import RunRecord
from orchestrator.records.verdict import Finding, Quality, QualityVerdict
from orchestrator.records.workload import Pass

#: The finding of a run after which the reference workload had moved.
CODE = "sentinel-moved"
#: So many earlier checks tell a device's noise well enough; months of them would only take time and memory to read.
_CHECKS_MOST: Final = 100


def earlier_figures_us(store: Store, case_key: CaseKey, campaign_id: CampaignId) -> tuple[float, ...]:
    """Return the reference workload's last figures that were stored before a campaign's first, one for each check.

    What was stored later tells nothing: a campaign is judged alike whenever it is asked about.
    """
    return history_of(store.earlier_runs(case_key, campaign_id, limit=_CHECKS_MOST * CHECK_INVOCATIONS))


def keep_doubts(store: Store, campaign_id: CampaignId, *, serials: Sequence[Serial] = ()) -> tuple[RunRecord, ...]:
    """Store the finding of each run that a check doubts and that doesn't carry it yet; return those runs as they were.

    All devices of the campaign, or those named. It follows from what is stored, so that doing it again changes nothing.
    """
    by_device: dict[Serial, list[RunRecord]] = {}
    for run in store.runs(campaign_ids=[campaign_id], serials=serials):
        by_device.setdefault(run.case.serial, []).append(run)
    changed = []
    for runs in by_device.values():
        marks = [run.case.case_key for run in runs if run.run_pass is Pass.SENTINEL]
        if not marks:
            continue
        findings = doubted(runs, earlier_figures_us(store, marks[0], campaign_id))
        for run in runs:
            # A run without a report has no number that could be doubted.
            if run.run_id not in findings or run.report is None or run.verdict.has(CODE):
                continue
            store.replace_reading(
                run.run_id,
                report=run.report,
                outcome=run.outcome,
                reason_code=run.reason_code,
                reason=run.reason,
                verdict=with_doubt(run.verdict, findings[run.run_id]),
            )
            changed.append(run)
    return tuple(changed)


def with_doubt(verdict: QualityVerdict, finding: Finding) -> QualityVerdict:
    """Return a verdict with the finding: suspect at the most."""
    quality = Quality.SUSPECT if verdict.quality is Quality.TRUSTED else verdict.quality
    return replace(verdict, quality=quality, findings=(*verdict.findings, finding))


def carried_over(verdict: QualityVerdict, stored: QualityVerdict) -> QualityVerdict:
    """Return a verdict that was made anew from a run's own output, with the doubt that the stored one carries."""
    for finding in stored.findings:
        if finding.code == CODE:
            verdict = with_doubt(verdict, finding)
    return verdict
