"""Invocations that resemble their neighbours in time, and what that costs an interval. Pure.

Heat and clocks change slowly, so that an invocation is more like the one before it than like any
other. Then the middle of a sample is less sure than its scatter says, and the scatter itself looks
too small. The model is the simplest that remembers: a first-order autoregression, whose correlation
rho between neighbours is unknown.

- For a known rho the error of the sample's level is that of generalised least squares (Aitken
  1935). Its ratio to what the scatter of independent figures would give is the growth of the
  middle's error. Before there are figures, the variance is expected to grow by D (n - 1) / (n - D),
  with D the mean over invocations of the sum of their correlations with all (Bayley & Hammersley
  1946).
- rho is not estimated and then believed: with 8 invocations the estimate is off by 0.3 and biased
  towards 0 (Marriott & Pope 1954). The growth is averaged over a grid of rho, each weighed by its
  restricted likelihood (Patterson & Thompson 1971; the middle's level is integrated out) and by a
  prior. So what isn't known of rho costs width, and the more invocations there are, the less.
- The likelihood is that of the normal scores of the ranks (van der Waerden 1952): single slow
  invocations don't hide what the others remember, and the unit doesn't matter.
- Cases of one device and campaign run in turns, in an order drawn afresh for each round. What one
  of them remembers is
  news of the others: their likelihoods are multiplied. One case in ten may still be unlike the
      others.

rho is that between neighbours at the sample's usual gap. A longer gap (invocations left out, a
pause, another night) counts as several gaps, and the correlation fades as rho ** gaps.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist, median
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Key = TypeVar("Key", bound=Hashable)

#: Correlations between neighbours that are reckoned with.
GRID: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
#: How likely each is before anything was measured: as likely none as any, and of those, large ones
#: rather than small ones. Found on series of known truth, so that intervals hold it nearly alike
#: for all correlations up to 0.6.
PRIOR: Final = (
    8.0,
    *(
        8 * math.exp(6 * rho) / math.fsum(math.exp(6 * other) for other in GRID[1:])
        for rho in GRID[1:]
    ),
)
#: How likely a case is unlike the others of its device.
_ODD_SHARE: Final = 0.1
#: Fewer invocations show nothing of what they remember.
REMEMBERS_FROM_COUNT: Final = 3
#: Logarithms that differ by less than these digits show are equal.
_DIGITS: Final = 9
#: The number of gaps after which nothing is left of any correlation of the grid.
_GAPS_MOST: Final = 100
#: Samples that are worked on at once, for the sake of memory.
_ROWS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When the invocations of a sample were made, and what others show of their device's memory."""

    #: Between neighbours, in usual gaps, one fewer than invocations; None for evenly spaced ones.
    gaps: tuple[int, ...] | None = None
    #: Log-likelihood of each correlation of the grid from other cases; empty when there are none.
    others: tuple[float, ...] = ()

    def first(self, count: int) -> Pace:
        """Return the pace of the first ``count`` invocations."""
        return Pace(
            gaps=None if self.gaps is None else self.gaps[: max(0, count - 1)], others=self.others
        )


#: Evenly spaced, and nothing known beside.
EVEN: Final = Pace()


def gaps_of(moments: Sequence[datetime]) -> tuple[int, ...] | None:
    """Return the gaps between the starts of invocations, in order, in units of their median.

    None when all are one.
    """
    seconds = [(after - before).total_seconds() for before, after in pairwise(moments)]
    usual = median(seconds) if seconds else 0.0
    if usual <= 0:
        return None
    gaps = tuple(max(1, min(_GAPS_MOST, round(gap / usual))) for gap in seconds)
    return None if all(gap == 1 for gap in gaps) else gaps


def likelihoods(logs: Sequence[float], pace: Pace = EVEN) -> tuple[float, ...]:
    """Return the restricted log-likelihood of each correlation of the grid, from logarithms in
    order of time.
    """
    return _fit(_ranks(logs), pace.gaps)[0]


def pooled(found: Mapping[Key, tuple[float, ...]]) -> dict[Key, tuple[float, ...]]:
    """Return for each case what all others of its device show: the sum of their log-likelihoods."""
    total = [math.fsum(column) for column in zip(*found.values(), strict=True)]
    if len(found) < 2:
        return dict.fromkeys(found, ())
    return {
        key: tuple(whole - own for whole, own in zip(total, of_key, strict=True))
        for key, of_key in found.items()
    }


def growth(logs: Sequence[float], weights: Sequence[float], pace: Pace = EVEN) -> float:
    """Return by how much the error of the middle of logarithms grows over that of independent ones.

    At least 1.
    """
    return max(1.0, math.fsum(map(operator.mul, weights, _fit(_ranks(logs), pace.gaps)[1])))


def expected_growth(count: int, weights: Sequence[float]) -> float:
    """Return the growth that is to be expected of ``count`` evenly spaced invocations."""
    return (
        1.0
        if count < REMEMBERS_FROM_COUNT
        else max(1.0, float(_design((1,) * (count - 1)).growth @ weights))
    )


def weights_of(samples: Sequence[tuple[Sequence[float], Pace]]) -> tuple[float, ...]:
    """Return how likely each correlation of the grid is, from samples that share it and what is
    known beside them.
    """
    own = tuple(
        math.fsum(column)
        for column in zip(*(likelihoods(logs, pace) for logs, pace in samples), strict=True)
    )
    others = [pace.others for _, pace in samples if pace.others]
    return _weights(
        own, tuple(math.fsum(column) for column in zip(*others, strict=True)) or (0.0,) * len(GRID)
    )


@lru_cache(maxsize=8192)
def _weights(own: tuple[float, ...], beside: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(weights(own, beside).tolist())


def weights(own: Sequence[float] | Floats, beside: Sequence[float] | Floats) -> Floats:
    """Return how likely each correlation is (... x grid) from a sample's log-likelihoods and those
    of its siblings.
    """
    import numpy as np

    prior = np.asarray(PRIOR) / math.fsum(PRIOR)
    shown = _normalised(np.log(prior) + np.asarray(beside))
    return _normalised(np.log((1 - _ODD_SHARE) * shown + _ODD_SHARE * prior) + np.asarray(own))


def _normalised(logs: Floats) -> Floats:
    import numpy as np

    shares = np.exp(logs - np.max(logs, axis=-1, keepdims=True))
    found: Floats = shares / np.sum(shares, axis=-1, keepdims=True)
    return found


def _ranks(logs: Sequence[float]) -> tuple[int, ...]:
    """Return the places of the figures among each other, equal ones in one: all that a likelihood
    depends on.
    """
    least = min(logs, default=0.0)
    values = [round((value - least) * 10**_DIGITS) for value in logs]
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return tuple(places[value] for value in values)


@lru_cache(maxsize=8192)
def _fit(
    ranks: tuple[int, ...], gaps: tuple[int, ...] | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    import numpy as np

    likelihood, grown = fits(np.asarray([ranks], dtype=float), gaps)
    return tuple(likelihood[0].tolist()), tuple(grown[0].tolist())


def fits(logs: Floats, gaps: tuple[int, ...] | None = None) -> tuple[Floats, Floats]:
    """Return the log-likelihood of each correlation and how much it makes the middle's error grow,
    samples x grid.

    ``logs`` are samples x invocations, in order of time; ``gaps`` are the same for all, None for
    evenly spaced ones.
    """
    import numpy as np

    rows, count = logs.shape
    likelihood, grown = np.zeros((rows, len(GRID))), np.ones((rows, len(GRID)))
    if count < REMEMBERS_FROM_COUNT:
        return likelihood, grown
    design = _design((1,) * (count - 1) if gaps is None else gaps)
    for start in range(0, rows, _ROWS):
        part = slice(start, start + _ROWS)
        scores = _scores(logs[part])[:, None, :]
        white = np.concatenate(
            [
                np.repeat(scores[..., :1], len(GRID), axis=1),
                (scores[..., 1:] - design.carried * scores[..., :-1]) * design.scale,
            ],
            axis=2,
        )
        level = np.einsum("rgi,gi->rg", white, design.ones)
        squares = np.maximum(np.einsum("rgi,rgi->rg", white, white) - level**2 / design.norm, 1e-12)
        varies = squares[:, 0] > 1e-9
        likelihood[part][varies] = (design.constant - (count - 1) / 2 * np.log(squares))[varies]
        grown[part][varies] = np.sqrt(squares / design.norm * count / squares[:, :1])[varies]
    return likelihood, grown


@dataclass(frozen=True, slots=True, kw_only=True)
class _Design:
    """What a likelihood and a growth need that doesn't depend on the figures.

    Each by correlation of the grid.
    """

    #: What an invocation keeps of the one before it, and how much its news is scaled up to one
    #: size.
    carried: Floats
    scale: Floats
    #: A level of 1 after both.
    ones: Floats
    norm: Floats
    constant: Floats
    #: Of the error, as expected.
    growth: Floats


@lru_cache(maxsize=2048)
def _design(gaps: tuple[int, ...]) -> _Design:
    import numpy as np

    count = len(gaps) + 1
    carried = np.asarray(GRID)[:, None] ** np.asarray(gaps)
    scale = 1 / np.sqrt(1 - carried**2)
    ones = np.hstack([np.ones((len(GRID), 1)), (1 - carried) * scale])
    norm = np.sum(ones**2, axis=1)
    # The sum of correlations with all earlier ones follows from that of the one before.
    earlier, total = np.zeros(len(GRID)), np.zeros(len(GRID))
    for step in range(count - 1):
        earlier = carried[:, step] * (1 + earlier)
        total += earlier
    spread = 1 + 2 * total / count
    return _Design(
        carried=carried,
        scale=scale,
        ones=ones,
        norm=norm,
        constant=np.sum(np.log(scale), axis=1) - np.log(norm) / 2,
        growth=np.sqrt(spread * (count - 1) / (count - spread)),
    )


def _scores(logs: Floats) -> Floats:
    """Return the normal scores of each row's ranks; equal figures share the mean of theirs."""
    import numpy as np

    # What only rounding keeps apart is equal, in whatever unit the latencies are.
    values = np.round(logs - np.min(logs, axis=1, keepdims=True), _DIGITS)
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    begins = np.hstack([np.ones((len(logs), 1), dtype=bool), ordered[:, 1:] > ordered[:, :-1]])
    shared = np.tile(_table(logs.shape[1]), (len(logs), 1))
    if not begins.all():
        group = np.cumsum(begins) - 1
        shared = (np.bincount(group, shared.ravel()) / np.bincount(group))[group].reshape(
            logs.shape
        )
    scores = np.empty_like(shared)
    np.put_along_axis(scores, order, shared, axis=1)
    return scores


@lru_cache(maxsize=256)
def _table(count: int) -> Floats:
    import numpy as np

    return np.array(
        [NormalDist().inv_cdf((rank + 0.625) / (count + 0.25)) for rank in range(count)]
    )
