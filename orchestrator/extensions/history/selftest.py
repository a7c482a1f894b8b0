"""What the history of this lab would show: steps put into its own series, and how soon they are
found. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from orchestrator.extensions.history.changepoint import Floats, Integers, changes, is_alarm
from orchestrator.tables.table import Column, Kind
from orchestrator.units import format_change

STEPS: Final = (1.03, 1.05, 1.10, 1.20)
#: A step that isn't found after so many nights counts as missed.
NIGHTS: Final = 5
#: Shorter series have no level that a step could be told from.
LEAST_NIGHTS: Final = 10
#: Why nothing can be said of a lab's first nights, and who says more.
TOO_SHORT: Final = f"no series has {LEAST_NIGHTS} nights yet: a step can't be told from noise"
_HOW: Final = "'benchfarm history selftest' tries sizes"
#: With fewer nights than a new level is held against, their number alone hides changes.
YOUNG_NIGHTS: Final = 45
#: Series into which steps are put, spread over all that there are.
_MOST_SERIES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """How one size of step is found."""

    step: float
    #: Series in which it was found within NIGHTS, of so many.
    found: int
    series: int
    #: Nights from the first slow one to the first report, the median; None where nothing was found.
    delay: float | None


DETECTIONS: Final[Sequence[Column[Detection]]] = (
    Column(
        "step",
        "step",
        lambda row: row.step - 1,
        Kind.NUMBER,
        shown=lambda row: format_change(row.step),
    ),
    Column("found", "found", lambda row: row.found, Kind.COUNT),
    Column("series", "of series", lambda row: row.series, Kind.COUNT),
    Column("delay", "after nights", lambda row: row.delay, Kind.NUMBER, digits=1),
)


def detections(
    latency: Floats, threshold: float = 0.0, asked: Sequence[int] | None = None
) -> Iterator[Detection]:
    """Yield how steps of several sizes, the smallest first, are found in some series (series x
    nights, NaN for none), or in some of those that are ``asked`` for, beside others.

    Each is put into one series at a time, as if it had begun on one of the newest nights.
    """
    known = np.isfinite(latency) & (latency > 0)
    long = np.flatnonzero(known.sum(axis=1) >= LEAST_NIGHTS)
    stepped = _spread(long if asked is None else np.intersect1d(long, asked))
    chosen = np.union1d(stepped, _spread(long))
    values = latency[chosen]
    for step in STEPS:
        delays = [
            _delay(values, known[chosen], series, step, threshold)
            for series in np.searchsorted(chosen, stepped).tolist()
        ]
        seen = [delay for delay in delays if delay is not None]
        yield Detection(
            step=step,
            found=len(seen),
            series=stepped.size,
            delay=statistics.median(seen) if seen else None,
        )


def _spread(series: Integers) -> Integers:
    """Return some of many series, evenly spread."""
    return series[:: max(1, -(-series.size // _MOST_SERIES))]


def what_would_be_found(
    latency: Floats, threshold: float, asked: Sequence[int] | None = None
) -> str:
    """Return from which size on a slowdown would be told of most of some series (series x nights, or
    those ``asked`` for), in a sentence; ``threshold`` is the share from which on changes are told.
    """
    count = 0
    for item in detections(latency, threshold, asked):
        count = item.series
        if 2 * item.found > count:
            size = format_change(item.step)
            return (
                f"a slowdown of {size} would be found in most series within {NIGHTS} nights,"
                f" a smaller one may not: {_HOW}"
            )
    if not count:
        return TOO_SHORT
    size = format_change(max(STEPS))
    return f"not even a slowdown of {size} would be found in most series: {_HOW}"


def _delay(
    values: Floats, known: np.ndarray, series: int, step: float, threshold: float
) -> int | None:
    """Return after how many nights a step in one series is reported; None within NIGHTS for never."""
    nights = np.flatnonzero(known[series])
    for delay in range(1, NIGHTS + 1):
        stepped = values.copy()
        stepped[series, nights[-delay:]] *= step
        for change in changes(stepped):
            is_it = change.series == series and change.earliest <= nights[-delay] <= change.latest
            if (
                is_it
                and change.ratio > 1
                and is_alarm(change, nights=values.shape[1], threshold=threshold)
            ):
                return delay
    return None
