"""The invocations of the pass ``sustained``: which of them make one curve, and whether it is whole. Pure.

A curve can't go on where it was cut: the phone has cooled meanwhile. So each attempt has numbers of its own, and an
attempt that was cut stays in the store beside the one that was begun anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from orchestrator.analysis.sustained import SustainedCurve, sustained
from orchestrator.records.night import NOT_BEGUN
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Pass

#: Invocations of one attempt at most; the number of its first one is a multiple of it.
ATTEMPT_NUMBERS: Final = 100_000
#: An attempt ends when so many invocations in a row gave no figure.
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
        return bool(self.runs) and (was_left_out or self.elapsed_s >= sustained_s or self.has_failed)


def attempts(runs: Sequence[RunRecord]) -> tuple[Attempt, ...]:
    """Return the attempts among the runs of one case in one campaign, oldest first."""
    numbered: dict[int, list[RunRecord]] = {}
    for run in runs:
        if run.run_pass is Pass.SUSTAINED and run.outcome is not Outcome.UNFIT:
            numbered.setdefault(run.invocation // ATTEMPT_NUMBERS, []).append(run)
    return tuple(
        Attempt(number=number, runs=tuple(sorted(own, key=lambda run: run.invocation)))
        for number, own in sorted(numbered.items())
    )


def is_over(runs: Sequence[RunRecord], sustained_s: float) -> bool:
    """Whether a case's latest attempt came to its end."""
    found = attempts(runs)
    return bool(found) and found[-1].is_over(sustained_s)


def points_of(attempt: Attempt) -> tuple[tuple[float, float], ...]:
    """Return the seconds since the attempt's start and the latency then, in microseconds, of each figure.

    A point stands at the middle of its process. Throttling doesn't reject a run here: it is what is looked for.
    """
    return tuple(
        ((run.started_at - attempt.runs[0].started_at).total_seconds() + run.duration_s / 2, latency_us)
        for run in attempt.runs
        if (latency_us := measured_us(run)) is not None
    )


def curve_of(attempt: Attempt) -> SustainedCurve | None:
    """Return an attempt's curve; None when fewer than two invocations gave a figure."""
    points = points_of(attempt)
    return sustained(points) if len(points) > 1 else None


def measured_us(run: RunRecord) -> float | None:
    """Return the latency that a completed invocation of any pass printed: its median, else its mean."""
    return None if run.outcome is not Outcome.COMPLETED or run.report is None else run.report.latency_us()


def worst_quality(attempt: Attempt) -> Quality:
    """Return the worst quality among an attempt's invocations."""
    order = [Quality.TRUSTED, Quality.SUSPECT, Quality.REJECTED]
    return max((run.verdict.quality for run in attempt.runs), key=order.index, default=Quality.REJECTED)
