"""``benchfarm results sustained``: latency against time, minute by minute, and phones ranked by both ends of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from orchestrator.app.sustained import CaseCurve, sustained_campaign
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.result import CommandResult, table
from orchestrator.records.campaign import Campaign
from orchestrator.units import format_change, format_duration, format_latency


def show(settings: Settings, prefix: str) -> CommandResult:
    """Show the sustained curves of a campaign; raises UsageError when there are none."""
    with Farm(settings, makes_store=False) as farm:
        return _result(*sustained_campaign(farm, prefix))


def _result(campaign: Campaign, found: Sequence[CaseCurve]) -> CommandResult:
    groups: dict[tuple[str, str], list[CaseCurve]] = {}
    for item in found:
        groups.setdefault((item.case.model_name, item.case.configuration), []).append(item)
    parts = [f"campaign {campaign.campaign_id} '{campaign.name}', {format_duration(campaign.terms.sustained_s)} each"]
    for (model, configuration), items in groups.items():
        parts.append(f"{model}, {configuration}\n{_ranking(items)}")
        parts += [f"{item.device} ({item.case.serial}), minute by minute\n{_minutes(item)}" for item in items]
    if not found:
        parts.append("nothing was measured yet")
    return CommandResult(
        text="\n\n".join(parts),
        data={
            "campaign_id": campaign.campaign_id,
            "sustained_s": campaign.terms.sustained_s,
            "curves": [row for items in groups.values() for row in _rows(items)],
        },
    )


def _rank(items: Sequence[CaseCurve], item: CaseCurve, *, steady: bool) -> int:
    def figure(one: CaseCurve) -> float:
        return one.curve.steady_us if steady else one.curve.burst_us

    return 1 + sum(figure(other) < figure(item) for other in items)


def _ranking(items: Sequence[CaseCurve]) -> str:
    rows = []
    for item in sorted(items, key=lambda one: one.curve.steady_us):
        curve = item.curve
        onset = "none seen" if curve.onset_s is None else f"after {format_duration(curve.onset_s)}"
        note = "" if item.is_whole else f"cut after {format_duration(item.attempt.elapsed_s)}"
        rows.append(
            (
                str(_rank(items, item, steady=False)), str(_rank(items, item, steady=True)), item.device,
                format_latency(curve.burst_us), format_latency(curve.steady_us), format_change(curve.slowdown), onset,
                str(curve.count), note,
            )
        )  # fmt: skip
    heads = ("burst rank", "steady rank", "device", "burst", "steady", "change", "slower", "processes", "")
    return table(heads, rows, right=(0, 1, 3, 4, 5, 7))


def _minutes(item: CaseCurve) -> str:
    rows = [
        (
            str(row.minute), format_latency(row.median_us), format_latency(row.min_us), format_latency(row.max_us),
            format_change(row.slowdown), str(row.count),
            f"{item.heat_c[row.minute]:.1f} C" if row.minute in item.heat_c else "",
        )
        for row in item.curve.minutes
    ]  # fmt: skip
    heads = ("minute", "median", "fastest", "slowest", "against burst", "processes", "battery")
    return table(heads, rows, right=(0, 1, 2, 3, 4, 5, 6))


def _rows(items: Sequence[CaseCurve]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for item in items:
        runs = item.attempt.runs
        rows.append(
            {
                "case_key": item.case.case_key,
                "serial": item.case.serial,
                "device": item.device,
                "is_virtual": any(run.is_virtual for run in runs),
                "model": item.case.model_name,
                "configuration": item.case.configuration,
                "is_whole": item.is_whole,
                "elapsed_s": item.attempt.elapsed_s,
                "quality": item.quality,
                "rank_burst": _rank(items, item, steady=False),
                "rank_steady": _rank(items, item, steady=True),
                "curve": item.curve,
                "battery_heat_c": {str(minute): heat for minute, heat in item.heat_c.items()},
                "process_s": statistics.median(run.duration_s for run in runs),
            }
        )
    return rows
