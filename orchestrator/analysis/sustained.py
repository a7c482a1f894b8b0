"""Latency against time: which invocations make a curve, how a phone begins, slows down and ends.

Pure.

The burst level is the median of the beginning. Onset is the moment from which the running median
stays above the burst level by more than 5 % and more than noise explains, to the end but for short
dips. The steady level is the median of the last quarter of the time.

A curve can't go on where it was cut: the phone has cooled meanwhile. So each attempt has numbers of
its own, and an attempt that was cut stays in the store beside the one that was restarted.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from orchestrator.analysis.summary import neighbour_std
from orchestrator.records.case import grouped
from orchestrator.records.run import NOT_BEGUN, Outcome, RunRecord

#: The burst level comes from this much of the beginning, or from BURST_POINTS points if they take
#: longer.
BURST_S: Final = 20.0
BURST_POINTS: Final = 5
#: The steady level comes from this share of the end.
STEADY_SHARE: Final = 0.25
#: A phone that gets slower by less than this isn't called throttled.
SLOWER_BY: Final = 0.05
#: The running median must be above the burst level by this many of its own standard errors.
SIGMAS: Final = 5.0
#: Points are put together into at most this many steps of time.
STEPS_MOST: Final = 600
#: Steps that a running median is taken over.
WINDOW: Final = 5
#: Of the steps after onset, this share must be above the limit.
STAYS: Final = 0.9
#: Fewer points say nothing of onset.
POINTS_MIN: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedCurve:
    """What a sustained run comes to."""

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

    Order doesn't matter; seconds count from any zero. Raises ValueError for no points and for
    figures that are no latencies or times.
    """
    if not points:
        raise ValueError("there are no points")
    if not all(math.isfinite(at) and math.isfinite(us) and us > 0 for at, us in points):
        raise ValueError("times must be numbers and latencies positive numbers")
    begin = min(at for at, _ in points)
    ordered = sorted((at - begin, us) for at, us in points)
    duration = ordered[-1][0]
    burst_us = _burst(ordered)
    steady_us = statistics.median(us for at, us in ordered if at >= (1 - STEADY_SHARE) * duration)
    return SustainedCurve(
        burst_us=burst_us,
        onset_s=_onset(ordered, burst_us),
        steady_us=steady_us,
        slowdown=steady_us / burst_us,
        duration_s=duration,
        count=len(ordered),
    )


def _burst(ordered: Sequence[tuple[float, float]]) -> float:
    early = [us for at, us in ordered if at < BURST_S]
    if len(early) < BURST_POINTS:
        early = [us for _, us in ordered[:BURST_POINTS]]
    return statistics.median(early)


def _onset(ordered: Sequence[tuple[float, float]], burst_us: float) -> float | None:
    if len(ordered) < POINTS_MIN:
        return None
    size = math.ceil(len(ordered) / STEPS_MOST)
    steps = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    logs = [math.log(statistics.median(us for _, us in step)) for step in steps]
    smooth = []
    for index in range(len(logs)):
        start = max(0, min(index - WINDOW // 2, len(logs) - WINDOW))
        smooth.append(statistics.median(logs[start : start + WINDOW]))
    # Neighbours differ by noise alone, whatever the curve does.
    noise = SIGMAS * 1.2533 * neighbour_std(logs) / math.sqrt(WINDOW)
    limit = math.log(burst_us) + max(math.log1p(SLOWER_BY), noise)
    above = [log > limit for log in smooth]
    # From the end backwards: the earliest step from which nearly all steps are above.
    held, onset = 0, None
    for back, is_above in enumerate(reversed(above), start=1):
        held += is_above
        if is_above and held >= STAYS * back:
            onset = len(above) - back
    if onset is None or len(above) - onset < 3:
        return None
    return steps[onset][0][0]


#: Invocations of one attempt at most; the number of its first one is a multiple of it.
ATTEMPT_NUMBERS: Final = 100_000
#: An attempt ends when this many invocations in a row gave no figure.
_FAILURES_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One uninterrupted series of invocations of a case."""

    number: int
    #: In the order in which they ran.
    runs: tuple[RunRecord, ...]

    @property
    def elapsed_s(self) -> float:
        """From the first start to the last end."""
        if not self.runs:
            return 0.0
        end = max(run.started_at + timedelta(seconds=run.duration_s) for run in self.runs)
        return (end - self.runs[0].started_at).total_seconds()

    @property
    def has_failed(self) -> bool:
        """Whether it was ended because nothing was measured any more."""
        last = self.runs[-_FAILURES_MAX:]
        failed = len(last) == _FAILURES_MAX and all(measured_us(run) is None for run in last)
        return failed or (bool(last) and last[-1].outcome is Outcome.TIMED_OUT)

    def is_over(self, sustained_s: float) -> bool:
        """Whether nothing further belongs to it."""
        was_left_out = bool(self.runs) and self.runs[-1].reason_code in NOT_BEGUN
        return bool(self.runs) and (
            was_left_out or self.elapsed_s >= sustained_s or self.has_failed
        )


def attempts(runs: Sequence[RunRecord]) -> tuple[Attempt, ...]:
    """Return the attempts among the sustained runs of one case in one campaign, oldest first."""
    made = (run for run in runs if run.outcome is not Outcome.UNFIT)
    numbered = grouped(made, lambda run: run.invocation // ATTEMPT_NUMBERS)
    return tuple(
        Attempt(number=number, runs=tuple(sorted(own, key=lambda run: run.invocation)))
        for number, own in sorted(numbered.items())
    )


def is_over(runs: Sequence[RunRecord], sustained_s: float) -> bool:
    """Whether a case's latest attempt came to its end."""
    found = attempts(runs)
    return bool(found) and found[-1].is_over(sustained_s)


def points_of(attempt: Attempt) -> tuple[tuple[float, float], ...]:
    """Return the seconds since the attempt's start and the latency then, in microseconds, of each
    figure.

    A point stands at the middle of its process. Throttling doesn't reject a run here: it is what is
    looked for.
    """
    return tuple(
        (
            (run.started_at - attempt.runs[0].started_at).total_seconds() + run.duration_s / 2,
            latency_us,
        )
        for run in attempt.runs
        if (latency_us := measured_us(run)) is not None
    )


def curve_of(attempt: Attempt) -> SustainedCurve | None:
    """Return an attempt's curve; None when fewer than two invocations gave a figure."""
    points = points_of(attempt)
    return sustained(points) if len(points) > 1 else None


def measured_us(run: RunRecord) -> float | None:
    """Return the latency that a completed invocation of any pass printed: its median, else its
    mean.
    """
    return (
        None
        if run.outcome is not Outcome.COMPLETED or run.report is None
        else run.report.latency_us()
    )
