"""Changes of a device while it measures: latency against time in sustained runs, and reference
checks before and after other work, which cast doubt on the runs between. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from orchestrator.analysis.findings import finding
from orchestrator.analysis.intervals import margin
from orchestrator.analysis.summary import logs_of, neighbour_std
from orchestrator.records import frozen
from orchestrator.records.case import CampaignId, Pass, RunId, grouped
from orchestrator.records.run import NOT_BEGUN, Outcome, RunRecord
from orchestrator.records.verdict import Finding
from orchestrator.units import format_percent, format_slowdown

#: The burst level comes from this much of the beginning, or from BURST_POINTS points if they take
#: longer.
BURST_S: Final = 20.0
BURST_POINTS: Final = 5
#: The steady level comes from this share of the end.
STEADY_SHARE: Final = 0.25
#: A smaller slowdown isn't called throttling.
SLOWDOWN_MIN: Final = 0.05
#: The running median must be above the burst level by this many of its own standard errors.
SIGMAS: Final = 5.0
#: Points are put together into at most this many steps of time.
STEPS_MAX: Final = 600
#: Steps that a running median is taken over.
WINDOW: Final = 5
#: Of the steps after onset, this share must be above the limit.
ABOVE_SHARE: Final = 0.9
#: Fewer points don't show an onset.
POINTS_MIN: Final = 12


@frozen
class SustainedCurve:
    """The result of a sustained run."""

    burst_us: float
    #: From the first point; None when the phone didn't slow down, or too few points were taken to
    #: say.
    onset_s: float | None
    steady_us: float
    #: steady / burst: 1.25 takes 25 % longer once the phone is hot.
    slowdown: float
    #: From the first point to the last.
    duration_s: float
    count: int


def sustained(points: Sequence[tuple[float, float]]) -> SustainedCurve:
    """Return the curve of (seconds, latency in microseconds) points: inferences, or invocations one
    after the other.

    There is at least one, all are positive numbers; order doesn't matter, and seconds count from
    any zero.
    """
    begin = min(at_s for at_s, _ in points)
    ordered = sorted((at_s - begin, us) for at_s, us in points)
    duration = ordered[-1][0]
    burst_us = _burst(ordered)
    steady_us = statistics.median(
        us for at_s, us in ordered if at_s >= (1 - STEADY_SHARE) * duration
    )
    return SustainedCurve(
        burst_us=burst_us,
        onset_s=_onset(ordered, burst_us),
        steady_us=steady_us,
        slowdown=steady_us / burst_us,
        duration_s=duration,
        count=len(ordered),
    )


def _burst(ordered: Sequence[tuple[float, float]]) -> float:
    early = [us for at_s, us in ordered if at_s < BURST_S]
    if len(early) < BURST_POINTS:
        early = [us for _, us in ordered[:BURST_POINTS]]
    return statistics.median(early)


def _onset(ordered: Sequence[tuple[float, float]], burst_us: float) -> float | None:
    if len(ordered) < POINTS_MIN:
        return None
    size = math.ceil(len(ordered) / STEPS_MAX)
    steps = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    logs = [math.log(statistics.median(us for _, us in step)) for step in steps]
    smooth = []
    for index in range(len(logs)):
        start = max(0, min(index - WINDOW // 2, len(logs) - WINDOW))
        smooth.append(statistics.median(logs[start : start + WINDOW]))
    # Neighbours differ by noise alone, whatever the curve does.
    noise = SIGMAS * 1.2533 * neighbour_std(logs) / math.sqrt(WINDOW)
    limit = math.log(burst_us) + max(math.log1p(SLOWDOWN_MIN), noise)
    above = [log > limit for log in smooth]
    # From the end backwards: the earliest step from which nearly all steps are above.
    above_count, onset = 0, None
    for back, is_above in enumerate(reversed(above), start=1):
        above_count += is_above
        if is_above and above_count >= ABOVE_SHARE * back:
            onset = len(above) - back
    if onset is None or len(above) - onset < 3:
        return None
    return steps[onset][0][0]


#: Invocations of one attempt at most; the number of its first one is a multiple of it.
ATTEMPT_NUMBERS: Final = 100_000
#: An attempt ends when this many invocations in a row gave no figure.
_FAILURES_MAX: Final = 3


@frozen
class Attempt:
    """One uninterrupted series of invocations of a case."""

    number: int
    #: In the order in which they ran.
    runs: tuple[RunRecord, ...]

    @property
    def elapsed_s(self) -> float:
        """From the first start to the last end; runs that weren't started take no time."""
        started = [run for run in self.runs if run.reason_code not in NOT_BEGUN]
        if not started:
            return 0.0
        end = max(run.ended_at for run in started)
        return (end - started[0].started_at).total_seconds()

    @property
    def has_failed(self) -> bool:
        """Whether it was ended because its last runs gave no figure."""
        last = self.runs[-_FAILURES_MAX:]
        failed = len(last) == _FAILURES_MAX and all(run.measured_us is None for run in last)
        return failed or (bool(last) and last[-1].outcome is Outcome.TIMED_OUT)

    def is_whole(self, sustained_s: float) -> bool:
        """Whether it lasted for the planned time, and measured until its end."""
        return self.elapsed_s >= sustained_s and not self.has_failed

    def is_over(self, sustained_s: float) -> bool:
        """Whether it is complete, failed, or its rest was left out."""
        was_left_out = bool(self.runs) and self.runs[-1].reason_code in NOT_BEGUN
        return bool(self.runs) and (was_left_out or self.has_failed or self.is_whole(sustained_s))


def attempts(runs: Sequence[RunRecord]) -> tuple[Attempt, ...]:
    """Return the attempts among the sustained runs of one case in one campaign, oldest first."""
    fit_runs = (run for run in runs if run.is_final)
    numbered = grouped(fit_runs, lambda run: run.invocation // ATTEMPT_NUMBERS)
    return tuple(
        Attempt(number=number, runs=tuple(sorted(members, key=lambda run: run.invocation)))
        for number, members in sorted(numbered.items())
    )


def is_over(runs: Sequence[RunRecord], sustained_s: float) -> bool:
    """Whether a case's latest attempt came to its end."""
    series = attempts(runs)
    return bool(series) and series[-1].is_over(sustained_s)


def points_of(attempt: Attempt) -> tuple[tuple[float, float], ...]:
    """Return the seconds since the attempt's start and the latency then, in microseconds, of each
    figure.

    A point's time is the middle of its process. Throttling doesn't reject a run here: it is what is
    measured.
    """
    return tuple(
        (
            (run.started_at - attempt.runs[0].started_at).total_seconds() + run.duration_s / 2,
            latency_us,
        )
        for run in attempt.runs
        if (latency_us := run.measured_us) is not None
    )


def curve_of(attempt: Attempt) -> SustainedCurve | None:
    """Return an attempt's curve; None when fewer than two invocations gave a figure."""
    points = points_of(attempt)
    return sustained(points) if len(points) > 1 else None


#: A device is called moved wrongly once in a thousand times.
REFERENCE_LEVEL: Final = 0.999
#: Smaller moves don't matter.
MOVE_MIN: Final = 0.02
#: The reference workload never repeats better than this, whatever few figures say.
NOISE_MIN: Final = 0.003
#: What is assumed of a device with too little history.
NOISE_ASSUMED: Final = 0.02
#: Figures that are needed to know a device's own noise.
HISTORY_MIN: Final = 5


@frozen
class ReferenceVerdict:
    """The reference check's verdict on the device."""

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
#: How many of the last checks of earlier campaigns make the usual figure.
USUAL_COUNT: Final = 9


@frozen
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
    reference_runs = (run for run in runs if run.run_pass is Pass.REFERENCE and run.is_final)
    numbered = grouped(reference_runs, lambda run: run.invocation // CHECK_INVOCATIONS)
    all_checks = []
    for number, members in sorted(numbered.items()):
        first = min(members, key=lambda run: run.invocation)
        all_checks.append(
            Check(
                number=number,
                latencies_us=tuple(
                    value for run in members if (value := run.measured_us) is not None
                ),
                begun_at=min(run.started_at for run in members),
                ended_at=max(run.ended_at for run in members),
                battery_heat_c=first.state_before.battery_heat_c
                if first.state_before is not None
                else None,
                is_whole=len(members) == CHECK_INVOCATIONS,
            )
        )
    return tuple(all_checks)


def baseline_of(runs: Sequence[RunRecord]) -> Check | None:
    """Return the check that later checks are compared with: the last one before any other run."""
    other_starts = [
        run.started_at for run in runs if run.run_pass is not Pass.REFERENCE and run.is_final
    ]
    begun_at = min(other_starts, default=None)
    usable = [check for check in checks(runs) if check.latencies_us]
    before = [check for check in usable if begun_at is None or check.ended_at <= begun_at]
    return before[-1] if before else next(iter(usable), None)


def verdict_of(
    runs: Sequence[RunRecord], check: Check, history_us: Sequence[float]
) -> ReferenceVerdict:
    """Return a check's verdict against the campaign's baseline; the device's noise comes from its
    history.

    A check up to the baseline is compared with the last figures of earlier campaigns. ``runs`` are
    one device's of one campaign, ``history_us`` is the :func:`history_of` earlier ones.
    """
    baseline = baseline_of(runs)
    before = history_us[-USUAL_COUNT:]
    if baseline is not None and check.number > baseline.number:
        before = _figures(baseline, history_us)
    return reference_moved(before, _figures(check, history_us), history_us)


def history_of(runs: Iterable[RunRecord]) -> tuple[float, ...]:
    """Return a figure for each check of earlier campaigns: the median of its invocations, in
    microseconds.

    Invocations of one check are more alike than those of two: the noise is that between whole
    checks.
    """
    numbered: dict[tuple[CampaignId, int], list[float]] = {}
    for run in runs:
        latency_us = run.measured_us if run.run_pass is Pass.REFERENCE else None
        if latency_us is not None:
            numbered.setdefault((run.campaign_id, run.invocation // CHECK_INVOCATIONS), []).append(
                latency_us
            )
    return tuple(statistics.median(figures) for figures in numbered.values())


def _figures(check: Check, history_us: Sequence[float]) -> tuple[float, ...]:
    """Return a check's figures, as their median where the noise is known from medians."""
    if len(history_us) < HISTORY_MIN or not check.latencies_us:
        return check.latencies_us
    return (statistics.median(check.latencies_us),)


def reference_doubts(
    runs: Sequence[RunRecord], history_us: Sequence[float] = ()
) -> dict[RunId, Finding]:
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
        # The baseline is good by definition; a check without a figure is neither good nor bad.
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
