"""Checks by the reference workload in one campaign on one device: their verdicts, and the runs they doubt. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from orchestrator.analysis.sentinel import SentinelVerdict, sentinel_moved
from orchestrator.analysis.sustained_runs import measured_us
from orchestrator.records.identity import CampaignId, CaseKey, RunId, Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.verdict import Finding, Quality, Severity
from orchestrator.records.workload import Pass

#: Invocations of the reference workload in one check; the number of its first one is a multiple of it.
CHECK_INVOCATIONS: Final = 3
#: Of earlier campaigns, so many of the last figures say how the device usually is.
USUAL_COUNT: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The reference workload at one time."""

    number: int
    latencies_us: tuple[float, ...]
    begun_at: datetime
    ended_at: datetime
    #: Battery heat when it began; None when unknown.
    battery_heat_c: float | None
    is_whole: bool


def checks(runs: Sequence[RunRecord]) -> tuple[Check, ...]:
    """Return the checks among one device's runs of one campaign, in their order."""
    numbered: dict[int, list[RunRecord]] = {}
    for run in runs:
        if run.run_pass is Pass.SENTINEL and run.outcome is not Outcome.UNFIT:
            numbered.setdefault(run.invocation // CHECK_INVOCATIONS, []).append(run)
    found = []
    for number, own in sorted(numbered.items()):
        first = min(own, key=lambda run: run.invocation)
        found.append(
            Check(
                number=number,
                latencies_us=tuple(value for run in own if (value := measured_us(run)) is not None),
                begun_at=min(run.started_at for run in own),
                ended_at=max(run.started_at + timedelta(seconds=run.duration_s) for run in own),
                battery_heat_c=first.state_before.battery_heat_c if first.state_before is not None else None,
                is_whole=len(own) == CHECK_INVOCATIONS,
            )
        )
    return tuple(found)


def baseline_of(runs: Sequence[RunRecord]) -> Check | None:
    """Return the check that a campaign's later ones are held against: the last one before any other run."""
    others = [run.started_at for run in runs if run.run_pass is not Pass.SENTINEL and run.outcome is not Outcome.UNFIT]
    begun_at = min(others, default=None)
    usable = [check for check in checks(runs) if check.latencies_us]
    before = [check for check in usable if begun_at is None or check.ended_at <= begun_at]
    return before[-1] if before else next(iter(usable), None)


def verdict_of(runs: Sequence[RunRecord], check: Check, history_us: Sequence[float]) -> SentinelVerdict:
    """Return what a check says against the campaign's baseline; the history tells the device's own noise.

    A check up to the baseline is held against the last figures of earlier campaigns. ``runs`` are one device's of one
    campaign, ``history_us`` the reference workload's figures of earlier ones.
    """
    baseline = baseline_of(runs)
    if baseline is None or check.number <= baseline.number:
        return sentinel_moved(history_us[-USUAL_COUNT:], check.latencies_us, history_us)
    return sentinel_moved(baseline.latencies_us, check.latencies_us, history_us)


def doubted(runs: Sequence[RunRecord], history_us: Sequence[float] = ()) -> dict[RunId, Finding]:
    """Return the finding ``sentinel-moved`` for each run between a good check and a next one that moved.

    ``runs`` are one device's of one campaign, ``history_us`` the reference workload's figures of earlier campaigns.
    """
    baseline = baseline_of(runs)
    if baseline is None:
        return {}
    result: dict[RunId, Finding] = {}
    good_at: datetime | None = None
    moved_before = False
    for check in checks(runs):
        verdict = verdict_of(runs, check, history_us)
        moved = bool(verdict.moved) and check.number > baseline.number
        if moved and not moved_before and good_at is not None and verdict.ratio is not None:
            change = f"{abs(verdict.ratio - 1):.1%} {'slower' if verdict.ratio > 1 else 'faster'}"
            for run in runs:
                if run.run_pass is not Pass.SENTINEL and good_at <= run.started_at < check.begun_at:
                    result[run.run_id] = Finding(
                        code="sentinel-moved",
                        severity=Severity.WARNING,
                        message="the reference workload's figure had moved when it was next run: the device changed",
                        evidence=f"{change}, more than {verdict.limit:.1%}",
                    )
        moved_before = moved
        if not moved:
            good_at = check.ended_at
    return result


def with_doubts(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return stored runs as their devices' checks leave them: what a check doubts is suspect at the most.

    ``runs`` may be of several campaigns and devices, in the order in which they were stored; earlier campaigns among
    them are the later ones' history. Runs of the reference workload itself are left out.
    """
    by_device: dict[tuple[CampaignId, Serial], list[RunRecord]] = {}
    for run in runs:
        by_device.setdefault((run.campaign_id, run.case.serial), []).append(run)
    findings: dict[RunId, Finding] = {}
    history_us: dict[CaseKey, list[float]] = {}
    for own in by_device.values():
        figures = [(run.case.case_key, measured_us(run)) for run in own if run.run_pass is Pass.SENTINEL]
        if figures:
            known = history_us.setdefault(figures[0][0], [])
            findings |= doubted(own, tuple(known))
            known += [latency_us for _, latency_us in figures if latency_us is not None]
    return [
        _doubtful(run, findings[run.run_id]) if run.run_id in findings else run
        for run in runs
        if run.run_pass is not Pass.SENTINEL
    ]


def _doubtful(run: RunRecord, finding: Finding) -> RunRecord:
    quality = Quality.SUSPECT if run.verdict.quality is Quality.TRUSTED else run.verdict.quality
    return replace(run, verdict=replace(run.verdict, quality=quality, findings=(*run.verdict.findings, finding)))
