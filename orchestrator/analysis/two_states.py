"""Invocations that fall into two groups, as a phone's do that runs at one of two clocks. Pure.

A few figures of two levels have no middle that a normal sample's interval would hold: its size depends on how many of
each happened to be drawn. The median is one of the two levels unless they are equally frequent, and its interval needs
no distribution: order statistics (Wilks 1948), between whole ranks linearly, the ranks as far apart as the binomial
count of figures below the median makes them (its variance grows with what invocations remember, which is known of few
invocations only roughly: so Student's t, not the normal distribution).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.student import t_quantile

#: Fewer figures show no groups.
STATES_FROM_COUNT: Final = 8
#: Both groups have at least two members, and at least this share.
_GROUP_SHARE: Final = 0.125
#: The groups' means are at least so many deviations within the groups apart (of few figures more, divided by their
#: count: so that normal figures look like two groups in fewer than 3 samples of 100), and the empty space between the
#: groups is at least so large.
_APART: Final = 4.5
_APART_OF_FEW: Final = 12.0
_GAP_MIN: Final = 0.01
#: States of two samples are as far apart as each other when the distances differ by less than so many errors.
_ALIKE: Final = 3.0
#: Logarithms of latencies never have a smaller variance.
_LEAST: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStates:
    """Two groups of invocations, on logarithms."""

    #: Means of the fast and of the slow group.
    levels: tuple[float, float]
    #: The deviation within the groups, and the space between them in which nothing lies.
    within: float
    empty: float
    slow: int
    count: int

    @property
    def gap(self) -> float:
        """Logarithm of slow over fast, between the groups' means."""
        return self.levels[1] - self.levels[0]

    @property
    def text(self) -> str:
        """What there is: ``two clock states 4.1 % apart, 5 of 12 invocations in the slow one``."""
        percent = 100 * math.expm1(self.gap)
        return f"two clock states {percent:.1f} % apart, {self.slow} of {self.count} invocations in the slow one"


def two_states(logs: Sequence[float]) -> TwoStates | None:
    """Return the two groups that logarithms fall into; None where they don't."""
    count = len(logs)
    if count < STATES_FROM_COUNT:
        return None
    ordered = sorted(logs)
    least = max(2, math.ceil(_GROUP_SHARE * count))
    cut = max(range(least, count - least + 1), key=lambda place: ordered[place] - ordered[place - 1])
    empty = ordered[cut] - ordered[cut - 1]
    fast, slow = ordered[:cut], ordered[cut:]
    means = math.fsum(fast) / len(fast), math.fsum(slow) / len(slow)
    squares = math.fsum((value - means[0]) ** 2 for value in fast) + math.fsum(
        (value - means[1]) ** 2 for value in slow
    )
    within = math.sqrt(squares / (count - 2))
    if empty < _GAP_MIN or means[1] - means[0] < (_APART + _APART_OF_FEW / count) * within:
        return None
    return TwoStates(levels=means, within=within, empty=empty, slow=len(slow), count=count)


def moved_by(before: TwoStates, after: TwoStates) -> tuple[float, float, int] | None:
    """Return by how much both states moved alike, its standard error and degrees of freedom; None if they didn't.

    State against state, so that another share of the two is no difference. The states' means are weighed by how many
    invocations are in both groups that they are of.
    """
    degrees = before.count + after.count - 4
    variance = ((before.count - 2) * before.within**2 + (after.count - 2) * after.within**2) / degrees
    slow, fast = (before.slow, after.slow), (before.count - before.slow, after.count - after.slow)
    squares = [max(variance, _LEAST) * (1 / early + 1 / late) for early, late in (fast, slow)]
    moves = [late - early for early, late in zip(before.levels, after.levels, strict=True)]
    if abs(moves[1] - moves[0]) > _ALIKE * math.sqrt(math.fsum(squares)):
        return None
    whole = math.fsum(1 / square for square in squares)
    return math.fsum(move / square for move, square in zip(moves, squares, strict=True)) / whole, whole**-0.5, degrees


def median_ends(logs: Sequence[float], *, level: float, growth: float) -> tuple[float, float]:
    """Return the interval of the median; ``growth`` is that of a middle's standard error."""
    ordered, count = sorted(logs), len(logs)
    reach = t_quantile(0.5 + level / 2, count - 1) * math.sqrt(count) / 2 * growth
    return _at(ordered, (count - 1) / 2 - reach), _at(ordered, (count - 1) / 2 + reach)


def _at(ordered: Sequence[float], rank: float) -> float:
    """Return the figure of a rank, counted from 0, between two of them linearly."""
    rank = min(max(rank, 0.0), len(ordered) - 1.0)
    low = min(int(rank), len(ordered) - 2)
    return ordered[low] + (rank - low) * (ordered[low + 1] - ordered[low])
