"""The geometry of interval bars, in the units of their drawing; the templates draw them as SVG."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.summary import Summary

#: Width of an interval bar's drawing; the page stretches it.
BAR_WIDTH: Final = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalBar:
    """A latency as a bar from zero, with its interval as a whisker; x runs from 0 to BAR_WIDTH."""

    median_x: float
    #: None when there is no interval.
    low_x: float | None
    high_x: float | None


def scale_us(summaries: Iterable[Summary | None]) -> float:
    """Return the latency at the right end of bars that are to be compared: the highest that any of them reaches."""
    return max(
        (
            max(summary.median_us, summary.interval.high if summary.interval is not None else 0.0)
            for summary in summaries
            if summary is not None
        ),
        default=0.0,
    )


def interval_bar(summary: Summary, full_us: float) -> IntervalBar:
    """Return the bar of a summary on a scale from 0 to ``full_us``, linear: twice as long takes twice as long."""

    def place(latency_us: float) -> float:
        return round(min(1.0, latency_us / full_us) * BAR_WIDTH, 1) if full_us > 0 else 0.0

    interval = summary.interval
    return IntervalBar(
        median_x=place(summary.median_us),
        low_x=None if interval is None else place(interval.low),
        high_x=None if interval is None else place(interval.high),
    )
