"""What several invocations of one case say together.

One invocation gives one figure (the median of its inferences). Inferences of one process are alike in ways that
inferences of two processes are not, so they are never pooled: the invocations are the sample, and the interval
comes from how much *they* differ.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.analysis.student import t_quantile

#: How sure the intervals are, unless a caller says otherwise.
LEVEL = 0.95
#: From so many invocations on, the interval is that of the median by rank, which assumes no distribution.
RANK_FROM_COUNT = 20


class IntervalMethod(StrEnum):
    """How an interval was reached."""

    #: Student's t on the logarithms: the interval of the geometric mean. Can't be negative.
    LOG_T = "log-t"
    #: Order statistics: the interval of the median, whatever the distribution.
    RANK = "rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval, in the unit of what it is about."""

    low: float
    high: float
    level: float
    method: IntervalMethod

    @property
    def half_width(self) -> float:
        """Half of its length."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A sample of latencies, one per invocation, in microseconds."""

    count: int
    median_us: float
    mean_us: float
    min_us: float
    max_us: float
    #: Of the sample (n - 1); None for one invocation.
    std_us: float | None
    #: Mean and standard deviation (n - 1) of the natural logarithms.
    log_mean: float
    log_std: float | None
    #: None for one invocation: nothing is known about how another one would differ.
    interval: Interval | None

    @property
    def spread(self) -> float | None:
        """Half the interval against the median (0.02 is plus or minus 2 %); None when there is no interval."""
        return None if self.interval is None else self.interval.half_width / self.median_us


def summarize(latencies_us: Sequence[float], *, level: float = LEVEL) -> Summary:
    """Return the summary of one latency per invocation.

    Raises ValueError for an empty sample and for latencies that aren't positive numbers: a zero comes from a program
    that measured nothing and must have been sorted out before.
    """
    if not latencies_us:
        raise ValueError("there is nothing to summarise")
    if not all(math.isfinite(value) and value > 0 for value in latencies_us):
        raise ValueError(f"latencies must be positive numbers: {list(latencies_us)}")
    logs = [math.log(value) for value in latencies_us]
    many = len(latencies_us) > 1
    log_mean = math.fsum(logs) / len(logs)
    log_std = _sample_std(logs, log_mean) if many else None
    mean_us = math.fsum(latencies_us) / len(latencies_us)
    return Summary(
        count=len(latencies_us),
        median_us=statistics.median(latencies_us),
        mean_us=mean_us,
        min_us=min(latencies_us),
        max_us=max(latencies_us),
        std_us=_sample_std(latencies_us, mean_us) if many else None,
        log_mean=log_mean,
        log_std=log_std,
        interval=_interval(sorted(latencies_us), log_mean, log_std, level),
    )


def _sample_std(values: Sequence[float], mean: float) -> float:
    """Return the standard deviation (n - 1); ``statistics`` computes it in fractions, 20 times as slowly."""
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _interval(ordered_us: list[float], log_mean: float, log_std: float | None, level: float) -> Interval | None:
    if log_std is None:
        return None
    count = len(ordered_us)
    if count >= RANK_FROM_COUNT:
        rank = _median_rank(count, level)
        return Interval(low=ordered_us[rank], high=ordered_us[-1 - rank], level=level, method=IntervalMethod.RANK)
    reach = t_quantile(0.5 + level / 2, count - 1) * log_std / math.sqrt(count)
    low, high = math.exp(log_mean - reach), math.exp(log_mean + reach)
    return Interval(low=low, high=high, level=level, method=IntervalMethod.LOG_T)


def _median_rank(count: int, level: float) -> int:
    """Return the rank (from 0, counted from either end) whose order statistics hold the median with ``level``."""
    outside = (1 - level) / 2
    below, rank = 0.0, 0
    while True:
        below += math.comb(count, rank) / 2**count
        if below > outside:
            return max(0, rank - 1)
        rank += 1
