"""The reference workload before and after other work: verdicts against its history, and the runs
they doubt. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from orchestrator.analysis.findings import finding
from orchestrator.analysis.summary import logs_of, neighbour_std
from orchestrator.analysis.sustained import measured_us
from orchestrator.analysis.trimmed_mean import margin
from orchestrator.records.case import CampaignId, Pass, RunId, grouped
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.verdict import Finding
from orchestrator.units import format_percent, format_slowdown

#: A device is called moved wrongly once in a thousand times.
REFERENCE_LEVEL: Final = 0.999
#: Moves below this matter to nobody.
MOVE_MIN: Final = 0.02
#: The reference workload never repeats better than this, whatever few figures say.
NOISE_MIN: Final = 0.003
#: What is assumed of a device with too little history.
NOISE_ASSUMED: Final = 0.02
#: Figures that are needed to know a device's own noise.
HISTORY_MIN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceVerdict:
    """What the reference workload says of the device."""

    #: True when the figure moved beyond noise; None when one side has no figure.
    moved: bool | None
    #: after / before: 1.05 takes 5 % longer now; None without figures.
    ratio: float | None
    #: A ratio outside 1 / (1 + limit) to 1 + limit is a move.
    limit: float


def reference_moved(
    before: Sequence[float],
    after: Sequence[float],
    history: Sequence[float],
) -> ReferenceVerdict:
    """Return whether the reference workload's figure moved between ``before`` and ``after``.

    All are latencies in microseconds, one for each invocation; ``history`` are earlier figures of
    the same workload on the same device, each taken to be at rest. Single outliers of the history
    don't widen the limit. Raises ValueError for latencies that aren't positive numbers.
    """
    logs_before, logs_after, logs_history = logs_of(before), logs_of(after), logs_of(history)
    is_known = len(logs_history) >= HISTORY_MIN
    noise = max(NOISE_MIN, neighbour_std(logs_history)) if is_known else NOISE_ASSUMED
    if not logs_before or not logs_after:
        return ReferenceVerdict(moved=None, ratio=None, limit=MOVE_MIN)
    degrees = len(logs_history) - 1 if is_known else HISTORY_MIN
    error = noise * math.sqrt(1 / len(logs_before) + 1 / len(logs_after))
    limit = max(math.log1p(MOVE_MIN), margin(error, degrees, REFERENCE_LEVEL))
    move = statistics.median(logs_after) - statistics.median(logs_before)
    return ReferenceVerdict(moved=abs(move) > limit, ratio=math.exp(move), limit=math.expm1(limit))


#: Invocations of the reference workload in one check; the number of its first one is a multiple of
#: it.
CHECK_INVOCATIONS: Final = 3
#: How many of the last checks of earlier campaigns show how the device usually is.
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
    made = (
        run for run in runs if run.run_pass is Pass.REFERENCE and run.outcome is not Outcome.UNFIT
    )
    numbered = grouped(made, lambda run: run.invocation // CHECK_INVOCATIONS)
    found = []
    for number, own in sorted(numbered.items()):
        first = min(own, key=lambda run: run.invocation)
        found.append(
            Check(
                number=number,
                latencies_us=tuple(value for run in own if (value := measured_us(run)) is not None),
                begun_at=min(run.started_at for run in own),
                ended_at=max(run.started_at + timedelta(seconds=run.duration_s) for run in own),
                battery_heat_c=first.state_before.battery_heat_c
                if first.state_before is not None
                else None,
                is_whole=len(own) == CHECK_INVOCATIONS,
            )
        )
    return tuple(found)


def baseline_of(runs: Sequence[RunRecord]) -> Check | None:
    """Return the check that a campaign's later ones are held against: the last one before any other
    run.
    """
    others = [
        run.started_at
        for run in runs
        if run.run_pass is not Pass.REFERENCE and run.outcome is not Outcome.UNFIT
    ]
    begun_at = min(others, default=None)
    usable = [check for check in checks(runs) if check.latencies_us]
    before = [check for check in usable if begun_at is None or check.ended_at <= begun_at]
    return before[-1] if before else next(iter(usable), None)


def verdict_of(
    runs: Sequence[RunRecord], check: Check, history_us: Sequence[float]
) -> ReferenceVerdict:
    """Return what a check says against the campaign's baseline; the history tells the device's own
    noise.

    A check up to the baseline is held against the last figures of earlier campaigns. ``runs`` are
    one device's of one campaign, ``history_us`` what :func:`history_of` gives of earlier ones.
    """
    baseline = baseline_of(runs)
    if baseline is None or check.number <= baseline.number:
        return reference_moved(history_us[-USUAL_COUNT:], _figures(check, history_us), history_us)
    return reference_moved(_figures(baseline, history_us), _figures(check, history_us), history_us)


def history_of(runs: Iterable[RunRecord]) -> tuple[float, ...]:
    """Return a figure for each check of earlier campaigns: the median of its invocations, in
    microseconds.

    Invocations of one check are more alike than those of two: only whole checks tell how far they
    lie apart.
    """
    numbered: dict[tuple[CampaignId, int], list[float]] = {}
    for run in runs:
        latency_us = measured_us(run) if run.run_pass is Pass.REFERENCE else None
        if latency_us is not None:
            numbered.setdefault((run.campaign_id, run.invocation // CHECK_INVOCATIONS), []).append(
                latency_us
            )
    return tuple(statistics.median(figures) for figures in numbered.values())


def _figures(check: Check, history_us: Sequence[float]) -> tuple[float, ...]:
    """Return a check's figures of the kind that its noise is known of."""
    if len(history_us) < HISTORY_MIN or not check.latencies_us:
        return check.latencies_us
    return (statistics.median(check.latencies_us),)


def doubted(runs: Sequence[RunRecord], history_us: Sequence[float] = ()) -> dict[RunId, Finding]:
    """Return the finding ``reference-moved`` for each run between a good check and a next one that
    moved.

    ``runs`` are one device's of one campaign, ``history_us`` the reference workload's figures of
    earlier campaigns.
    """
    baseline = baseline_of(runs)
    if baseline is None:
        return {}
    result: dict[RunId, Finding] = {}
    good_at: datetime | None = None
    moved_before = False
    for check in checks(runs):
        verdict = verdict_of(runs, check, history_us)
        # The baseline is good by definition; a check without a figure says nothing, neither good
        # nor bad.
        moved = False if check.number <= baseline.number else verdict.moved
        if moved is None:
            continue
        if moved and not moved_before and good_at is not None and verdict.ratio is not None:
            change = format_slowdown(verdict.ratio)
            for run in runs:
                if (
                    run.run_pass is not Pass.REFERENCE
                    and good_at <= run.started_at < check.begun_at
                ):
                    result[run.run_id] = finding(
                        "reference-moved",
                        evidence=f"{change}, more than {format_percent(verdict.limit)}",
                    )
        moved_before = moved
        if not moved:
            good_at = check.ended_at
    return result
