"""What changed where a series changed, how much of the change it explains, and which series changed
together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: A slope is used when it is this many standard errors from nothing, over at least so many nights.
_SLOPE_ERRORS: Final = 3.0
_SLOPE_NIGHTS: Final = 10
#: A description is used when this share of the series that fit it changed.
_COVERAGE: Final = 0.6
_LEAST_GROUP: Final = 2
#: Attributes in a description, at the most.
_WORDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that changed where a series changed."""

    #: ``build``, ``model``, ``GPU driver``, ``battery heat`` ...
    name: str
    before: str
    after: str
    #: How much of the change (in the logarithm) it explains, 0 to 1; None when that can't be told.
    share: float | None
    #: Series in which the same thing changed that night, how many of them moved alike; None for a
    #: covariate.
    moved: tuple[int, int] | None = None


def covariate_share(
    latency: NDArray[np.float64], covariate: NDArray[np.float64], cut: int, start: int
) -> tuple[float, float, float] | None:
    """Return how much of a change a covariate explains, and its mean before and after.

    The slope of log latency on the covariate comes from the nights before the change alone, so that
    the change itself can't make it; times the covariate's own shift it is what the change would be.
    Analysis of covariance, Fisher 1932.

    Args:
        latency: of each night, NaN for none.
        covariate: of each night, NaN for unknown.
        cut: the first night after the change.
        start: the first night of the segment before it.

    Returns:
        (share from 0 to 1, mean before, mean after); None when there are too few nights, or no
        slope to be sure of.
    """
    usable = np.isfinite(latency) & np.isfinite(covariate) & (np.nan_to_num(latency) > 0)
    before, after = np.flatnonzero(usable[start:cut]) + start, np.flatnonzero(usable[cut:]) + cut
    if before.size < _SLOPE_NIGHTS or after.size == 0:
        return None
    logs, values = np.log(latency[before]), covariate[before]
    centred = values - values.mean()
    spread = float(centred @ centred)
    if spread <= 1e-12 * max(1.0, float(values @ values)):
        return None
    slope = float(centred @ logs) / spread
    residual = logs - logs.mean() - slope * centred
    error = math.sqrt(float(residual @ residual) / (before.size - 2) / spread)
    if abs(slope) < _SLOPE_ERRORS * error:
        return None
    shift = float(covariate[after].mean() - values.mean())
    change = float(np.median(np.log(latency[after])) - np.median(logs))
    share = slope * shift / change if change else 0.0
    return min(1.0, max(0.0, share)), float(values.mean()), float(covariate[after].mean())


def coincidence_share(exposed: int, exposed_moved: int, others: int, others_moved: int) -> float:
    """Return how much more often a change comes with what changed than without it, 0 to 1.

    The attributable fraction among those exposed, (risk - risk of the others) / risk, with half a
    series added to each count: one series alone that moved says little when nothing else can be
    compared with.
    """
    risk = (exposed_moved + 0.5) / (exposed + 1)
    other_risk = (others_moved + 0.5) / (others + 1)
    return max(0.0, (risk - other_risk) / risk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Changes of one night and direction that one description fits."""

    #: Attribute -> value; empty for a change that stands alone, and for one that all series share.
    words: Mapping[str, str]
    #: Which of the given changes.
    members: tuple[int, ...]
    #: Series that fit the words, changed or not.
    series: int


def group_changes(
    attributes: Sequence[Mapping[str, str]],
    changed: Sequence[int],
    spans: Sequence[tuple[int, int]],
    signs: Sequence[int],
) -> list[Group]:
    """Return changes by the shortest descriptions that fit them and little else, the largest group
    first.

    Args:
        attributes: of every series that could have changed.
        changed: of each change, which series.
        spans: of each change, the first and last night that it may have happened on.
        signs: of each change, -1 or 1; faster and slower are never one group.
    """
    groups: list[Group] = []
    for together in _at_once(spans, signs):
        groups += _described(attributes, changed, together)
    return sorted(groups, key=lambda group: (-len(group.members), group.members))


def _at_once(spans: Sequence[tuple[int, int]], signs: Sequence[int]) -> list[list[int]]:
    """Return changes of one direction that may have happened on one and the same night."""
    left = sorted(range(len(spans)), key=lambda item: (spans[item][1], spans[item][0]))
    found: list[list[int]] = []
    while left:
        # The night that most of them allow.
        nights = [
            [
                other
                for other in left
                if signs[other] == signs[item] and spans[other][0] <= night <= spans[other][1]
            ]
            for item, night in ((item, spans[item][1]) for item in left)
        ]
        best = max(nights, key=len)
        found.append(best)
        left = [item for item in left if item not in set(best)]
    return found


def _described(
    attributes: Sequence[Mapping[str, str]], changed: Sequence[int], together: list[int]
) -> list[Group]:
    left, groups = set(together), []
    while left:
        words = _best_words(attributes, changed, left)
        fitting = [item for item in attributes if words is not None and _fits(item, words)]
        members = tuple(
            sorted(
                item
                for item in left
                if words is not None and _fits(attributes[changed[item]], words)
            )
        )
        if words is None or len(members) < _LEAST_GROUP:
            groups += [Group(words={}, members=(item,), series=1) for item in sorted(left)]
            break
        groups.append(Group(words=words, members=members, series=len(fitting)))
        left -= set(members)
    return groups


def _best_words(
    attributes: Sequence[Mapping[str, str]], changed: Sequence[int], left: set[int]
) -> dict[str, str] | None:
    """Return the description with the most members that enough of its series share; empty for all,
    None for none.
    """
    names = sorted({name for item in left for name in attributes[changed[item]]})
    codes = {name: _codes([item.get(name) for item in attributes]) for name in names}
    members = np.array([changed[item] for item in sorted(left)], dtype=np.int64)
    best: tuple[float, dict[str, str] | None] = (0.0, None)
    for size in range(_WORDS + 1):
        for chosen in combinations(names, size):
            combined = _combined([codes[name] for name in chosen], len(attributes))
            fitting = np.bincount(combined[combined >= 0])
            moved = np.bincount(combined[members][combined[members] >= 0], minlength=fitting.size)
            usable = (moved >= _LEAST_GROUP) & (moved >= _COVERAGE * fitting)
            if not usable.any():
                continue
            # Members that fit, less the series that would be called changed and aren't; a word
            # costs a little.
            scores = np.where(usable, 2.0 * moved - fitting - 0.01 * size, -np.inf)
            place = int(np.argmax(scores))
            if scores[place] > best[0]:
                example = attributes[int(np.flatnonzero(combined == place)[0])]
                best = float(scores[place]), {name: example[name] for name in chosen}
    return best[1]


def _codes(values: Sequence[str | None]) -> NDArray[np.int64]:
    """Return a number for each value, the same for the same; -1 for none."""
    numbers: dict[str, int] = {}
    return np.array(
        [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values],
        dtype=np.int64,
    )


def _combined(columns: Sequence[NDArray[np.int64]], count: int) -> NDArray[np.int64]:
    """Return a number for each combination of values, counted from 0; -1 where one of them is
    missing.
    """
    found = np.zeros(count, dtype=np.int64)
    for column in columns:
        missing = (found < 0) | (column < 0)
        found = np.where(missing, -1, found * (int(column.max(initial=0)) + 1) + column)
        there = found >= 0
        found[there] = np.unique(found[there], return_inverse=True)[1]
    return found


def _fits(item: Mapping[str, str], words: Mapping[str, str]) -> bool:
    return all(item.get(name) == value for name, value in words.items())
