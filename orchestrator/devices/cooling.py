"""When a phone will be fit: what its readings say so far about the time that is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

#: A fit of three numbers takes more readings than three.
_READINGS_MIN: Final = 4
_READINGS_KEPT: Final = 40
#: Time constants of a phone's body, in seconds, among which the best fitting one is taken.
_TAUS_S: Final = tuple(15.0 * 1.3**step for step in range(20))
#: A battery goes on getting warmer for a while after the load has ended.
_SURE_AFTER_S: Final = 60.0


@dataclass(slots=True)
class Readings:
    """The readings of one quantity that is to come down (or, with ``sign`` -1, up) to its limit."""

    limit: float
    sign: float = 1.0
    #: (seconds, value), oldest first.
    points: list[tuple[float, float]] = field(default_factory=list)

    def add(self, at_s: float, value: float) -> None:
        """Take a reading in."""
        self.points.append((at_s, value))
        del self.points[:-_READINGS_KEPT]

    @property
    def span_s(self) -> float:
        """How long it has been read."""
        return self.points[-1][0] - self.points[0][0] if self.points else 0.0

    def remaining_s(self) -> float | None:
        """Return the seconds left until the limit is met, infinity for never, None while too little is known.

        An exponential (Newton's law of cooling) by least squares over a grid of time constants; a straight line while
        there are too few readings for one.
        """
        if len(self.points) < 2 or self.span_s <= 0:
            return None
        points = [(at_s - self.points[-1][0], self.sign * (value - self.limit)) for at_s, value in self.points]
        line = _line(points)
        if line is None:
            return None
        level, slope = line
        straight_s = math.inf if slope >= 0 else max(0.0, -level / slope)
        if len(points) < _READINGS_MIN:
            return straight_s
        curved_s = _curve(points)
        return straight_s if curved_s is None else max(straight_s, curved_s)

    def is_hopeless(self, left_s: float) -> bool:
        """Whether the limit can't be met in the time left.

        Judged by the straight line, which is the hopeful one: cooling only gets slower. A quantity that doesn't fall
        at all is given a minute.
        """
        if len(self.points) < _READINGS_MIN:
            return False
        points = [(at_s - self.points[-1][0], self.sign * (value - self.limit)) for at_s, value in self.points]
        # The latest readings alone, so that a slow beginning doesn't count against it.
        line = _line(points[-max(_READINGS_MIN, len(points) // 2) :])
        if line is None or points[-1][1] <= 0:
            return False
        if line[1] >= 0:
            return self.span_s >= _SURE_AFTER_S
        straight_s = points[-1][1] / -line[1]
        is_long = self.span_s >= _SURE_AFTER_S and len(points) >= 2 * _READINGS_MIN
        # Even the hopeful estimate takes a good part of the time, and the curve comes to rest above the limit.
        if is_long and straight_s > left_s / 3 and _curve(points) == math.inf:
            return True
        return self.span_s >= _SURE_AFTER_S / 3 and straight_s > 1.5 * left_s


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return (level at time 0, slope) by least squares; None when all readings are of one moment."""
    mean_t = sum(t for t, _ in points) / len(points)
    mean_v = sum(v for _, v in points) / len(points)
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    if spread <= 0:
        return None
    slope = sum((t - mean_t) * (v - mean_v) for t, v in points) / spread
    return mean_v - slope * mean_t, slope


def _curve(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the seconds until an exponential through the points is at 0, None when it doesn't fall to it sensibly."""
    best: tuple[float, float] | None = None
    for tau_s in _TAUS_S:
        line = _line([(math.exp(-t / tau_s), v) for t, v in points])
        if line is None or line[1] <= 0:
            continue
        rest, height = line
        error = sum((v - rest - height * math.exp(-t / tau_s)) ** 2 for t, v in points)
        left_s = math.inf if rest >= 0 else max(0.0, tau_s * math.log(height / -rest))
        if best is None or error < best[0]:
            best = (error, left_s)
    return best[1] if best is not None else None
