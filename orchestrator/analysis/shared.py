"""What a case came to that several equal phones share: one figure, and how much the phones differ. Pure.

Invocations of one phone resemble each other more than those of two, so the phones are what is counted: the figure is
the geometric mean of the phones' medians, and its interval is Student's over their logarithms. Two phones give a wide
one: that is what two phones can say about all of their kind.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.analysis.student import t_quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFigure:
    """A latency that comes from several phones, in microseconds."""

    #: Serial number -> (median of the phone's invocations, how many of them count), in the order of the serial numbers.
    phones: Mapping[str, tuple[float, int]]
    middle_us: float
    #: Of the middle, 95 %; None with one phone, which says nothing about another one.
    low_us: float | None
    high_us: float | None

    @property
    def invocations(self) -> int:
        """How many invocations count in all."""
        return sum(count for _, count in self.phones.values())

    @property
    def difference(self) -> float:
        """By how much the slowest phone is slower than the fastest: 0.02 is 2 %."""
        medians = [median_us for median_us, _ in self.phones.values()]
        return max(medians) / min(medians) - 1


def shared_figure(phones: Mapping[str, tuple[float, int]]) -> SharedFigure:
    """Return what one or more phones' medians (microseconds, more than 0) and counts come to."""
    logs = [math.log(median_us) for median_us, _ in phones.values()]
    middle = statistics.fmean(logs)
    half = None
    if len(logs) > 1:
        half = t_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return SharedFigure(
        phones=dict(sorted(phones.items())),
        middle_us=math.exp(middle),
        low_us=None if half is None else math.exp(middle - half),
        high_us=None if half is None else math.exp(middle + half),
    )
